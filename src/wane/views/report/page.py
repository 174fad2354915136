"""The report: one page that stands alone and shows what accuracy hid in some runs. See `templates/scripts`."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from markupsafe import Markup

from wane.files import write_page
from wane.measures.summaries import SUMMARIES
from wane.runs.folder import RunFolder
from wane.softmax.signals import SIGNALS
from wane.views.observations import has_history, recorded_signals
from wane.views.page_template import page_templates
from wane.views.palette import LADDER, SEQUENTIAL, TASKS, is_bounded, signal_colour
from wane.views.report.data import RunGroup, group_runs, prepare, shown_summaries, summaries, summary_rows
from wane.views.report.ladder import ladder_data
from wane.views.report.pack import script_json
from wane.views.summaries import SETTINGS

__all__ = ["report_page", "write_report"]

#: The embedded data of all runs together; with the chart library and the rest of the page, 8 MB are not reached.
MOST_BYTES = 6_500_000
#: What draws the charts, one script in the page: from `base`, which all stand on, to `page`, which begins.
SCRIPTS = ("base", "ladder", "trajectories", "heat_maps", "distributions", "flow_and_draw", "tables", "page")
#: Up to this number of runs, the summary has a row for each; above, a row for each method.
FEW_RUNS = 6


def report_page(runs: Sequence[RunFolder], *, title: str | None = None, most_bytes: int = MOST_BYTES) -> str:
    """The page as text.

    Args:
        runs: from `wane.runs.folder.find_runs`.
        title: of the page; default: from the runs.
        most_bytes: what the data of all runs may take. The curves of every class are embedded for the first run of each
            method, then for the others, while there is room; the page says for which runs there was none.
    """
    if not runs:
        raise ValueError("no run was given: name run folders, or a folder that holds some")
    groups = group_runs(runs)
    prepared, left_out = _prepare_all(groups, most_bytes)
    ladder = ladder_data(groups)
    values = {str(run.path): summaries(run) for run in runs if has_history(run) and _measured(run)}
    each = [RunGroup(entry["label"], [RunFolder(Path(entry["path"]))]) for entry in prepared]
    settings = [s for s in SETTINGS if any(s in found for found in values.values())] or ["class"]
    signals = {name: SIGNALS[name] for name in recorded_signals(runs) or SIGNALS}
    columns = {name: SUMMARIES[name] for name in shown_summaries(values) or list(SUMMARIES)[:4]}
    data: dict[str, Any] = {
        "signals": [
            {"name": s.name, "title": s.title, "higher": s.higher_is_better, "bounded": is_bounded(s.name)}
            for s in signals.values()
        ],
        "columns": [{"name": c.name, "title": c.title, "description": c.description} for c in columns.values()],
        "summary": {
            setting: {
                signal: {
                    "methods": summary_rows(groups, values, signal, setting),
                    "runs": summary_rows(each, values, signal, setting),
                }
                for signal in signals
            }
            for setting in settings
        },
        "tasks": TASKS, "sequential": SEQUENTIAL, "ladder": ladder, "runs": prepared,
    }  # fmt: skip
    charts = "\n".join(_template(f"scripts/{name}.js") for name in SCRIPTS)
    scripts = [*(_vendored(name) for name in ("d3.min.js", "plot.umd.min.js")), charts]
    colours = [{name: signal_colour(name, dark=dark) for name in signals} for dark in (False, True)]
    return page_templates("wane.views.report").get_template("report.html").render(
        title=title or _title(runs, groups), runs=prepared, groups=groups, left_out=left_out, columns=columns,
        first=prepared[0], signals=signals, light=colours[0], dark=colours[1], by_run=len(runs) <= FEW_RUNS,
        settings=settings, summary=data["summary"][settings[0]], style=Markup(_template("report.css")),
        scripts=[Markup(text) for text in scripts], hashes=[_hash(text) for text in scripts],
        data=Markup(script_json(data)), ladder=ladder, ladder_colours=LADDER,
    )  # fmt: skip


def write_report(runs: Sequence[RunFolder], path: str | os.PathLike[str], *, title: str | None = None) -> Path:
    """Write the page atomically, so that a failure leaves an older file intact. Returns where it is."""
    return write_page(path, report_page(runs, title=title).encode())


def _prepare_all(groups: Sequence[RunGroup], most_bytes: int) -> tuple[list[dict[str, Any]], list[str]]:
    """Every run, finished ones first; and the labels of those whose curves found no room."""
    labelled = [(_label(run, group), run, group.title, i) for group in groups for i, run in enumerate(group.runs)]
    every = [run for group in groups for run in group.runs]
    whole = {str(run.path): prepare(run, method, beside=every) for _, run, method, _ in labelled}
    for label, run, _, _ in labelled:
        whole[str(run.path)]["label"] = label
    sizes = {key: len(script_json(entry)) for key, entry in whole.items()}
    bulky = ("curves", "draw", "flow")
    bulk = {key: sum(len(script_json(entry[part])) for part in bulky) for key, entry in whole.items()}
    room = most_bytes - sum(sizes.values()) + sum(bulk.values())
    left_out = []
    for label, run, _, _ in sorted(labelled, key=lambda row: row[3]):  # the first of each method, then the second, ...
        key = str(run.path)
        if bulk[key] <= room:
            room -= bulk[key]
        else:
            whole[key] |= dict.fromkeys(bulky)
            left_out.append(label)
    ordered = [whole[str(run.path)] for _, run, _, _ in labelled]
    # The page opens on the first run that has something to show.
    return sorted(ordered, key=lambda entry: entry["curves"] is None), left_out


def _measured(run: RunFolder) -> bool:
    return any(e.split == run.split for e in run.history.evaluations)


def _label(run: RunFolder, group: RunGroup) -> str:
    """What a run is called in the list: its method and seed, and its folder where that does not tell it apart."""
    alike = [other for other in group.runs if other.seed == run.seed]
    seed = "" if run.seed is None else f", seed {run.seed}"
    return f"{group.title}{seed}" + (f" ({run.name})" if len(alike) > 1 else "")


def _title(runs: Sequence[RunFolder], groups: Sequence[RunGroup]) -> str:
    data = sorted({run.data for run in runs} - {""})
    if len(runs) == 1:
        own = runs[0].own
        return (own and own.title) or " on ".join([groups[0].title, *data])
    count = f"{len(runs)} runs" + (f", {len(groups)} methods" if len(groups) > 1 else f" of {groups[0].title}")
    return f"{count} on {', '.join(data)}" if data else count


def _vendored(name: str) -> str:
    return files("wane.views").joinpath("vendor", name).read_text(encoding="utf-8")


def _template(name: str) -> str:
    return files("wane.views.report").joinpath("templates", name).read_text(encoding="utf-8")


def _hash(script: str) -> str:
    """What the page's policy lets run: these scripts, to the byte, and nothing that a name could smuggle in."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
