"""What the report page embeds: every run prepared as plain values, large tables packed, all from run folders alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from wane.measures.early_warning import at_risk
from wane.measures.transfer import average, forgetting, plasticity, retention
from wane.runs.config import to_toml
from wane.runs.folder import RunFolder
from wane.runs.identity import method_title
from wane.runs.layout import HISTORY
from wane.softmax.signals import SIGNALS
from wane.views.comparable_runs import by_setting
from wane.views.observations import LEVELS, TOLERANCE, at_level, box, changes, observations, transition_width
from wane.views.report.findings import (
    Timeline,
    hidden_decline,
    near_zero,
    old_classes,
    risk_check,
    three_sentences,
    timeline,
)
from wane.views.report.pack import pack, plain
from wane.views.tables.run_tables import mean_std

__all__ = ["Method", "conditional", "draw", "flow", "methods", "prepare", "smoothness", "summaries", "summary_rows"]

Array = NDArray[np.float64]

#: The columns of the summary table, with the function of a task x task matrix that gives each.
MEASURES = {"average": average, "forgetting": forgetting, "retention": retention, "plasticity": plasticity}
#: Bins of a distribution over [0, 1], and how many takers of a class are shown.
BINS, TAKERS = 32, 8
#: The signals that share the axis from 0 to 1.
BOUNDED = tuple(name for name in SIGNALS if name != "loss")


class Method(NamedTuple):
    """Runs that differ in their seed alone."""

    title: str
    runs: list[RunFolder]


def methods(runs: Sequence[RunFolder]) -> list[Method]:
    """The runs by method, in the order in which they come; with several settings, each title says which."""
    settings = by_setting(runs)
    found: dict[str, list[RunFolder]] = {}
    for setting in settings:
        for run in setting.runs:
            title = method_title(run.config)
            found.setdefault(f"{title} · {setting.title}" if len(settings) > 1 else title, []).append(run)
    return [Method(title, chosen) for title, chosen in found.items()]


def summaries(run: RunFolder) -> dict[str, dict[str, float | None]]:
    """Average, forgetting (peak), retention and plasticity of every signal; of an unfinished run, those so far."""
    if run.summary is not None:
        done: dict[str, dict[str, float | None]] = run.summary["metrics"]
        return done
    found: dict[str, dict[str, float | None]] = {}
    for signal in SIGNALS:
        matrix = run.history.matrix(signal)
        reached = int(np.isfinite(matrix).any(1).sum())
        for name, measure in MEASURES.items():
            try:
                value = float(measure(matrix[:reached, :reached], signal=signal))
            except ValueError:  # a task that was not evaluated at its end
                value = float("nan")
            found.setdefault(signal, {})[name] = value if value == value else None
    return found


def summary_rows(groups: Sequence[Method], values: dict[str, dict[str, Any]], signal: str) -> list[dict[str, Any]]:
    """A row a method: mean, standard deviation and n of each measure over the runs that have it.

    Args:
        groups: from `methods`.
        values: `summaries` by the path of the run; a run without is counted as missing.
        signal: whose.
    """
    rows = []
    for title, runs in groups:
        have = [values[str(run.path)][signal] for run in runs if str(run.path) in values]
        row: dict[str, Any] = {"title": title, "n": len(have), "missing": len(runs) - len(have)}
        for name in MEASURES:
            numbers = [v[name] for v in have if v[name] is not None]
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
        for signal in BOUNDED[1:]:
            values = here[signal].to_numpy()
            share = np.histogram(values, bins=BINS, range=(0, 1))[0] / max(1, len(values))
            rows.append({"level": level, "signal": signal, **box(values)._asdict(), "density": share.tolist()})
    return pl.DataFrame(rows)


def smoothness(run: RunFolder) -> tuple[pl.DataFrame, int]:
    """The absolute change of each bounded signal from epoch to epoch as boxes, by phase; and how wide a transition is.

    Columns: phase, signal, and the fields of `Box`.
    """
    width = transition_width([run])
    moved = changes([run], around=width)
    rows = [
        {"phase": phase, "signal": signal, **box(moved.filter(pl.col("phase") == phase)[signal].to_numpy())._asdict()}
        for signal in BOUNDED
        for phase in ("transition", "stable")
    ]
    return pl.DataFrame(rows), width


def flow(run: RunFolder, t: Timeline) -> dict[str, Any] | None:
    """Where the probability of each old class went: by task at every recorded moment, and its top takers at the last.

    `own` (moments, K) is what the label kept, `by_task` (moments, K, tasks) what the others of each task got;
    `takers` has, for each class, pairs of a class and what it got.
    """
    if run.flow is None or not len(run.flow["flow"]):
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


def prepare(run: RunFolder, method: str, *, curves: bool = True) -> dict[str, Any]:
    """One run as plain values. What it does not have is None, with the reason in `missing`.

    Args:
        run: its folder.
        method: the title of its method.
        curves: with the packed tables of every class and epoch.
    """
    config, summary = run.config, run.summary
    found: dict[str, Any] = {
        "name": run.name, "path": str(run.path), "method": method, "seed": config.seed, "config": to_toml(config),
        "environment": _environment(summary), "notes": [], "missing": {}, "sentences": [], "epochs": 0,
        "curves": None, "draw": None, "flow": None,
    }  # fmt: skip
    total = config.total_epochs
    t = timeline(run.history) if run.has(HISTORY) else None
    if t is None:
        found["notes"].append("This run has not come to the end of its first epoch: there is nothing to show yet.")
        return found
    if summary is None:
        found["notes"].append(
            f"This run is not finished: {len(t.step)} of {total} epochs. All numbers are those so far."
        )
    names = run.class_names
    competitors = len(names) if config.record.classes == "all" else len(t.classes)
    lists = {
        "decline": hidden_decline(t),
        "near": near_zero(t, max(2, competitors)),
        "risk": at_risk(run.history).to_dicts(),
    }
    levels = conditional(run)
    smooth, width = smoothness(run)
    found |= {
        "epochs": len(t.step), "tasks": t.task, "boundaries": t.boundaries,
        "classes": t.classes, "class_task": t.class_task, "images": t.images,
        "names": [names[c] if c < len(names) else str(c) for c in range(int(t.classes.max()) + 1)],
        "old": old_classes(t), "sentences": three_sentences(run, t, lists, levels), **lists,
        "conditional": levels.to_dicts(), "smoothness": smooth.to_dicts(), "around": width,
        "check": risk_check(run.history),
    }  # fmt: skip
    if curves:
        found["curves"] = {
            "bounded": pack(np.stack([t.of(name) for name in BOUNDED])), "loss": pack(t.of("loss"), top=6.5)
        }  # fmt: skip
        found["draw"], found["flow"] = draw(run, t), flow(run, t)
    found["missing"] = _missing(run, t)
    return dict(plain(found))


def _missing(run: RunFolder, t: Timeline) -> dict[str, str]:
    """Why a section of the page is empty, by its name."""
    said = {}
    if run.replay is None and run.config.learner.name in ("finetune", "joint"):
        said["draw"] = "Nothing was replayed: this run has no memory."
    elif run.replay is None:
        said["draw"] = "There is no log of the replay (replay.parquet) in the run folder."
    elif run.replay.is_empty():
        said["draw"] = "Nothing has been replayed yet."
    if run.flow is None:
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
        "seconds": f"{summary['seconds']:,.0f}",
    }
