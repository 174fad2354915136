"""What the report page embeds: every run prepared as plain values, large tables packed, all from run folders alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from wane.measures.summaries import SUMMARIES, summarise
from wane.runs.folder import RunFolder
from wane.runs.identity import Method
from wane.views.at_risk import at_risk_rows, risk_record
from wane.views.comparable_runs import by_setting, distinct_titles
from wane.views.observations import (
    LEVELS,
    TOLERANCE,
    Box,
    at_level,
    box,
    changes,
    group_kind,
    group_names,
    has_history,
    observations,
    recorded_signals,
    transition_width,
)
from wane.views.palette import is_bounded
from wane.views.report.findings import (
    Timeline,
    hidden_decline,
    near_zero,
    old_classes,
    three_sentences,
    timeline,
)
from wane.views.report.ladder import run_ladder
from wane.views.report.pack import pack, plain
from wane.views.statistics import mean_std
from wane.views.summaries import SETTINGS, recorded_summaries

__all__ = [
    "RunGroup", "conditional", "draw", "flow", "group_runs", "prepare", "shown_summaries", "smoothness", "summaries",
    "summary_rows",
]  # fmt: skip

Array = NDArray[np.float64]

#: Bins of a distribution over [0, 1], and how many takers of a class are shown.
BINS, TAKERS = 32, 8
#: What `summaries` gives: setting to signal to summary to value.
Summarised = dict[str, dict[str, dict[str, float | None]]]


class RunGroup(NamedTuple):
    """Runs that differ in their seed alone, and what they are called."""

    title: str
    runs: list[RunFolder]


def group_runs(runs: Sequence[RunFolder]) -> list[RunGroup]:
    """The runs by method, in the order in which they come; with several settings, each title says which."""
    settings = by_setting(runs)
    titles = distinct_titles(run.method for run in runs)
    found: dict[tuple[Method, int], RunGroup] = {}
    for number, setting in enumerate(settings):
        for run in setting.runs:
            method = run.method
            title = f"{titles[method]} · {setting.title}" if len(settings) > 1 else titles[method]
            found.setdefault((method, number), RunGroup(title, [])).runs.append(run)
    return list(found.values())


def summaries(run: RunFolder) -> Summarised:
    """Every summary of every signal, by setting (`class`, `task`); of an unfinished run, those so far."""
    recorded = {setting: recorded_summaries(run.summary, setting) for setting in SETTINGS}
    if any(recorded.values()):
        return {setting: found for setting, found in recorded.items() if found}
    splits = {e.split for e in run.history.evaluations}
    return {
        name: summarise(run.history, split, ladder=run.ladder)
        for name, (_, split) in SETTINGS.items()
        if split in splits
    }


def shown_summaries(values: dict[str, Summarised]) -> list[str]:
    """The columns of the summary table: the summaries that some run has, of any signal in any setting."""
    there = {
        name
        for of_run in values.values()
        for of_setting in of_run.values()
        for of_signal in of_setting.values()
        for name, value in of_signal.items()
        if value is not None
    }
    # the rungs of a ladder have a section of their own
    return [name for name, row in SUMMARIES.items() if name in there and row.source == "history"]


def summary_rows(
    groups: Sequence[RunGroup], values: dict[str, Summarised], signal: str, setting: str = "class"
) -> list[dict[str, Any]]:
    """A row a method: mean, standard deviation and n of each summary over the runs that have it.

    Args:
        groups: from `group_runs`.
        values: `summaries` by the path of the run; a run without is counted as missing.
        signal: whose.
        setting: class or task.
    """
    rows = []
    for title, runs in groups:
        have = [found for run in runs if (found := values.get(str(run.path), {}).get(setting, {}).get(signal))]
        row: dict[str, Any] = {"title": title, "n": len(have), "missing": len(runs) - len(have)}
        for name in SUMMARIES:
            numbers = [value for found in have if (value := found.get(name)) is not None]
            row[name] = (*mean_std(numbers), len(numbers))
        rows.append(row)
    return rows


def conditional(run: RunFolder) -> pl.DataFrame:
    """The distribution of each bounded signal at fixed levels of accuracy: a row for each level and signal.

    Columns: level, signal, the fields of `Box`, and `density`, the share of the observations in each of 32 bins.
    """
    seen = observations([run])
    rows = []
    for level in LEVELS:
        here = at_level(seen, level, TOLERANCE)
        for signal in _bounded(run):
            if signal == "accuracy":
                continue
            values = here[signal].to_numpy()
            share = np.histogram(values, bins=BINS, range=(0, 1))[0] / max(1, len(values))
            rows.append({"level": level, "signal": signal, **box(values)._asdict(), "density": share.tolist()})
    kinds = {"level": pl.Float64, "signal": pl.String, **dict.fromkeys(Box._fields, pl.Float64), "n": pl.Int64}
    return pl.DataFrame(rows) if rows else pl.DataFrame(schema=kinds)  # of accuracy alone


def smoothness(run: RunFolder) -> tuple[pl.DataFrame, int]:
    """The absolute change of each bounded signal from epoch to epoch as boxes, by phase; and how wide a transition is.

    Columns: phase, signal, and the fields of `Box`.
    """
    width = transition_width([run])
    moved = changes([run], around=width)
    rows = [
        {"phase": phase, "signal": signal, **box(moved.filter(pl.col("phase") == phase)[signal].to_numpy())._asdict()}
        for signal in _bounded(run)
        for phase in ("transition", "stable")
    ]
    return pl.DataFrame(rows), width


def _bounded(run: RunFolder) -> list[str]:
    """The signals of a run that share the axis from 0 to 1."""
    return [name for name in recorded_signals([run]) if is_bounded(name)]


def flow(run: RunFolder, t: Timeline) -> dict[str, Any] | None:
    """Where the probability of each old class went: by task at every recorded moment, and its top takers at the last.

    `own` (moments, K) is what the label kept, `by_task` (moments, K, tasks) what the others of each task got;
    `takers` has, for each class, pairs of a class and what it got.
    """
    if run.flow is None or not len(run.flow["flow"]) or group_kind(run.history) != "class":
        return None
    so_far = np.asarray(run.flow["step"]) <= t.step[-1]  # it may be ahead of the history, in a run that is going on
    if not so_far.any():
        return None
    mean, tasks = np.asarray(run.flow["flow"], dtype=np.float64)[so_far], np.asarray(run.flow["task"])[so_far]
    count = mean.shape[-1]
    task_of = np.full(count, -1)
    task_of[t.classes] = t.class_task
    rows = mean[:, t.classes]  # (moments, K, C)
    own = np.take_along_axis(rows, t.classes[None, :, None], axis=2)[..., 0]
    others = rows.copy()
    others[:, np.arange(len(t.classes)), t.classes] = 0
    by_task = np.stack([others[..., task_of == task].sum(-1) for task in range(int(t.class_task.max()) + 1)], axis=-1)
    top = np.argsort(-np.nan_to_num(others[-1]), axis=1)[:, :TAKERS]
    takers = [[(int(c), float(others[-1, k, c])) for c in row] for k, row in enumerate(top)]
    return {"after": tasks, "own": own, "by_task": by_task, "takers": takers}


def draw(run: RunFolder, t: Timeline) -> dict[str, Any] | None:
    """Who was replayed: the share of each class in each epoch's draw, and how far from uniform it was."""
    log = run.replay
    if log is None or log.is_empty():
        return None
    log = log.filter(pl.col("step") <= t.step[-1])  # as in `flow`
    drawn = np.array(log["drawn"].to_list(), dtype=np.float64)
    total = drawn.sum(1, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(total > 0, drawn / total, np.nan)
    known = t.classes[t.classes < share.shape[1]]
    # The log of an epoch is written just before its evaluation: one row of it for each of those.
    return {
        "share": pack(share[:, known], top=6.5), "task": log["task"].to_list(),
        "effective": log["effective_classes"].to_list(), "current": log["current_share"].to_list(),
    }  # fmt: skip


def prepare(run: RunFolder, method: str, *, curves: bool = True, beside: Sequence[RunFolder] = ()) -> dict[str, Any]:
    """One run as plain values. What it does not have is None, with the reason in `missing`.

    Args:
        run: its folder.
        method: the title of its method.
        curves: with the packed tables of every class and epoch.
        beside: other runs of the page, among which may be one of joint training.
    """
    summary = run.summary
    found: dict[str, Any] = {
        "name": run.name, "path": str(run.path), "method": method, "seed": run.seed, "config": run.settings_text,
        "own": run.own is not None,
        "environment": _environment(summary), "notes": [], "missing": {}, "sentences": [], "epochs": 0,
        "kind": "class", "time": "epoch",
        "curves": None, "draw": None, "flow": None, "ladder": None,
    }  # fmt: skip
    t = timeline(run.history, run.split) if has_history(run) else None
    if t is None:
        found["notes"].append("This run has not come to the end of its first epoch: there is nothing to show yet.")
        return found
    if run.own is not None:
        found["notes"].append(
            "Not trained by wane: this run was recorded in a loop of its owner's, and what it says of its method, seed "
            "and data is the owner's word."
        )
    elif summary is None:
        found["notes"].append(
            f"This run is not finished: {len(t.step)} of {run.total_epochs} epochs. All numbers are those so far."
        )
    names = group_names(run)
    risk, no_risk = at_risk_rows(run.history, run.split)
    lists = {
        "decline": hidden_decline(t),
        "near": near_zero(t, max(2, _competitors(run, t))),
        "risk": risk,
    }
    levels = conditional(run)
    smooth, width = smoothness(run)
    found |= {
        "kind": group_kind(run.history), "epochs": len(t.step), "tasks": t.task, "boundaries": t.boundaries,
        "classes": t.classes, "class_task": t.class_task, "images": t.images,
        "names": [names[c] if c < len(names) else str(c) for c in range(int(t.classes.max()) + 1)],
        "old": old_classes(t), "sentences": three_sentences(run, t, lists, levels, no_risk), **lists,
        "conditional": levels.to_dicts(), "smoothness": smooth.to_dicts(), "around": width,
        "check": risk_record(run.history, run.split), "time": "evaluation" if run.own else "epoch",
    }  # fmt: skip
    if curves:
        shared = _bounded(run)
        own = [name for name in recorded_signals([run]) if name not in shared]
        found["curves"] = {
            "names": shared, "bounded": pack(np.stack([t.of(name) for name in shared])),
            "others": {name: pack(t.of(name), top=6.5) for name in own},
        }  # fmt: skip
        found["draw"], found["flow"] = draw(run, t), flow(run, t)
    found["ladder"] = run_ladder(run, beside)
    if found["ladder"] is not None:  # it says what was lost, and more
        lost, *rest = found["ladder"].pop("sentences")
        found["sentences"][:1] = [lost, " ".join(rest)]
    found["missing"] = _missing(run, t) | ({"risk": no_risk} if no_risk else {})
    return dict(plain(found))


def _competitors(run: RunFolder, t: Timeline) -> int:
    """Among how many classes the label of a row was ranked at the end."""
    if run.own is not None:
        return run.history.num_groups if run.history.kind == "class" else 0
    return len(run.class_names) if run.config.record.classes == "all" else len(t.classes)


def _missing(run: RunFolder, t: Timeline) -> dict[str, str]:
    """Why a section of the page is empty, by its name."""
    said = {}
    if run.own is not None:
        said["draw"] = "What was replayed is not known: wane did not train this run."
    elif run.replay is None and not run.about.has_memory:
        said["draw"] = "Nothing was replayed: this run has no memory."
    elif run.replay is None:
        said["draw"] = "There is no log of the replay (replay.parquet) in the run folder."
    elif run.replay.is_empty():
        said["draw"] = "Nothing has been replayed yet."
    if group_kind(run.history) != "class":
        said["flow"] = "Where the probability went is shown for streams of classes only."
    elif run.flow is None and run.own is not None:
        said["flow"] = "Where the probability went was not recorded: a history has the means of each class alone."
    elif run.flow is None:
        said["flow"] = "Where the probability went was not recorded: run with --set record.flow=true."
    elif not old_classes(t).any():
        said["flow"] = "No class is of an earlier task yet, so none is forgotten."
    if len(t.step) < 2:
        said["smoothness"] = "One evaluation alone has no change from epoch to epoch."
    return said


def _environment(summary: dict[str, Any] | None) -> dict[str, str]:
    """What a reader needs to know of the machine."""
    if summary is None:
        return {"state": "not finished; versions and machine are written at the end of a run"}
    parts = {**summary.get("versions", {}), **summary.get("machine", {})}
    return {
        **{k: str(v) for k, v in parts.items()},
        "steps": f"{summary['steps']:,}",
        **({"seconds": f"{summary['seconds']:,.0f}"} if "seconds" in summary else {}),
    }
