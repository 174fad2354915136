"""From a folder of runs to the paper's figures and tables, and one page that judges its claims."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from wane.lab.checkpoint import write_atomically
from wane.lab.folder import RunFolder
from wane.lab.sweep import Planned, fingerprint, method_title
from wane.views.claims import CLAIMS, Judged, judge
from wane.views.diagnostics import diagnose
from wane.views.figures import draw_figure, save_figure
from wane.views.page_template import page_templates
from wane.views.recovery import recovery_table, recovery_text
from wane.views.run_table_formats import FORMATS
from wane.views.run_tables import run_table

__all__ = ["PARTS", "reproduction_page", "write_reproduction"]

#: What can be reproduced: the recipe of each part, and its figures.
PARTS = {
    "diagnostics": ("trajectories", "smoothness", "conditional", "heatmap", "draw", "flow"),
    "table1": (),
    "table2": (),
    "windows": ("windows",),
    "recovery": ("recovery",),
}


def write_reproduction(parts: Sequence[str], planned: Sequence[Planned], runs: Sequence[RunFolder], out: Path) -> Path:
    """Write figures (PNG and PDF), tables (text, CSV, Markdown, LaTeX), the diagnostics and `reproduction.html`.

    Args:
        parts: keys of `PARTS`.
        planned: the runs that belong to them.
        runs: the runs that are there; those that were planned count.
        out: a folder; made if it is not there.
    """
    out.mkdir(parents=True, exist_ok=True)
    wanted = {fingerprint(plan.config) for plan in planned}
    chosen = [run for run in runs if fingerprint(run.config) in wanted and run.summary is not None]
    if not chosen:
        raise ValueError(f"none of the {len(wanted)} runs is done: run them first, with `wane reproduce`")
    made: dict[str, list[str]] = {}
    for part in parts:
        made[part] = _figures(part, chosen, out)
        if part == "diagnostics":
            numbers = json.dumps(diagnose(_diagnosed(chosen)).to_json(), indent=2, allow_nan=False)
            write_atomically(out / "diagnostics.json", lambda file, text=numbers: file.write(text.encode()))
        elif part == "recovery":
            _write_recovery(_of_first_data(_of_recipe(part, planned, chosen)), out)
        else:
            for suffix, form in (("txt", "text"), ("csv", "csv"), ("md", "markdown"), ("tex", "latex")):
                text = FORMATS[form](run_table(part, _of_recipe(part, planned, chosen)))
                write_atomically(out / f"{part}.{suffix}", lambda file, text=text: file.write(text.encode()))
    # of the claim's own recipe: another may have runs of the same method at other settings, such as a smaller memory
    judged = [judge(claim, _of_recipe(claim.recipe, planned, chosen)) for claim in CLAIMS if claim.recipe in parts]
    page = reproduction_page(judged, made, {p: (out / f"{p}.txt").read_text() for p in parts if p != "diagnostics"},
                             done=len(chosen), planned=len(wanted))  # fmt: skip
    write_atomically(out / "reproduction.html", lambda file: file.write(page.encode()))
    return out / "reproduction.html"


def reproduction_page(
    judged: Sequence[Judged], figures: dict[str, list[str]], tables: dict[str, str], *, done: int, planned: int
) -> str:
    """The page: each claim beside the measured value and its verdict, then the tables and figures."""
    counts = {v: sum(j.verdict == v for j in judged) for v in ("holds", "does not hold", "cannot tell")}
    return (
        page_templates()
        .get_template("reproduction.html")
        .render(judged=judged, figures=figures, tables=tables, done=done, planned=planned, counts=counts)
    )


def _figures(part: str, runs: Sequence[RunFolder], out: Path) -> list[str]:
    made = []
    for name in PARTS[part]:
        chosen = _diagnosed(runs) if part == "diagnostics" else _of_first_data(runs) if part == "recovery" else runs
        try:
            figure = draw_figure(name, chosen)
        except ValueError:
            continue  # nothing of that kind was recorded in these runs; the page lists what is there
        for suffix in ("png", "pdf"):
            save_figure(figure, out / f"{name}.{suffix}")
        made.append(name)
    return made


def _write_recovery(runs: Sequence[RunFolder], out: Path) -> None:
    """The correlations, as CSV and as text; where no class was lost, the text says so."""
    try:
        table = recovery_table(runs)
    except ValueError as error:
        text = f"{error}\n"
    else:
        text = recovery_text(table)
        write_atomically(out / "recovery.csv", table.write_csv)
    write_atomically(out / "recovery.txt", lambda file: file.write(text.encode()))


def _of_first_data(runs: Sequence[RunFolder]) -> list[RunFolder]:
    """The runs on the data set of the first one: classes of different ones are not thrown together."""
    return [run for run in runs if run.config.data.name == runs[0].config.data.name]


def _diagnosed(runs: Sequence[RunFolder]) -> list[RunFolder]:
    """The runs of the paper's section 4.2: plain ER on its first data set, with samples and flow where recorded."""
    plain = [run for run in runs if method_title(run.config) == "er"]
    first = plain[0].config.data.name if plain else ""
    rich = [run for run in plain if run.config.data.name == first and run.config.record.flow]
    return rich or [run for run in plain if run.config.data.name == first]


def _of_recipe(part: str, planned: Sequence[Planned], runs: Sequence[RunFolder]) -> list[RunFolder]:
    wanted = {fingerprint(plan.config) for plan in planned if plan.config.recipe.startswith(part)}
    return [run for run in runs if fingerprint(run.config) in wanted]
