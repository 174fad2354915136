"""How the signals behave in a set of runs: every class at every epoch, at a fixed accuracy, and from epoch to epoch.

An observation is one class at one epoch: its means over the test images, at an evaluation of the run's leading split
(`test`, or `test_task` for a run that has only that one). Classes that were not yet learnt are no observations: the lab
does not evaluate them, and what someone's own loop recorded of them stands apart, see
`wane.measures.normal_form`. Where a history is of other groups than classes, such as domains, a group stands for a
class.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import ArrayLike

from wane.measures.history import History
from wane.runs.folder import RunFolder
from wane.runs.layout import HISTORY
from wane.softmax.signals import SIGNALS
from wane.views.comparable_runs import differ

__all__ = [
    "AROUND", "LEVELS", "TOLERANCE", "Box", "at_level", "box", "changes", "choose", "group_kind", "group_names",
    "has_history", "level_name", "observations", "one_method", "recorded_signals", "transition_width", "unit_of_time",
]  # fmt: skip

#: The paper's levels of accuracy, how near to one counts as at it, and its epochs on either side of a boundary.
LEVELS = (0.0, 0.25, 0.5, 0.75)
TOLERANCE = 0.005
AROUND = 5


class Box(NamedTuple):
    """A distribution as a box plot shows it; whiskers end at the last observation within 1.5 IQR of the box."""

    n: int
    min: float
    whisker_low: float
    q1: float
    median: float
    q3: float
    whisker_high: float
    max: float


def observations(runs: Sequence[RunFolder]) -> pl.DataFrame:
    """A row for each run, epoch (from 0) and class evaluated on the leading split, with the task and the signals.

    Columns: run, epoch, task, class, class_task, n, and every signal; one that a run did not record is NaN there.
    """
    frames = []
    signals = recorded_signals(runs)
    for run in runs:
        frame = run.history.frame.filter(pl.col("split") == run.split)
        if frame.is_empty():
            raise ValueError(f"{run.path} has no evaluation on split {run.split!r} yet: wait for its first epoch")
        kind = group_kind(run.history)
        task_of = "class_task" if "class_task" in frame.columns else f"{kind}_task"
        frames.append(
            frame.select(
                pl.lit(str(run.path)).alias("run"),
                pl.struct("step", "task").rle_id().cast(pl.Int64).alias("epoch"),
                "task",
                pl.col(kind).alias("class"),
                pl.col(task_of).clip(0).alias("class_task"),  # what belongs to no task was there from the start
                "n",
                *(pl.col(s) if s in frame.columns else pl.lit(float("nan")).alias(s) for s in signals),
            )
        )
    return pl.concat(frames)


def has_history(run: RunFolder) -> bool:
    """Whether the run's history is there: it may be a copy without, or not have come to its first epoch."""
    return run.has(HISTORY)


def recorded_signals(runs: Sequence[RunFolder]) -> tuple[str, ...]:
    """The registered signals and others that some of the runs recorded; accuracy always, all while there is nothing."""
    histories = [(run.history, run.split) for run in runs if has_history(run)]
    held = dict.fromkeys(name for history, _ in histories for name in history.signals)
    known = (*SIGNALS, *(name for name in held if name not in SIGNALS and SIGNALS.knows(name)))
    if not any(history.tail(1, split=split) for history, split in histories):
        return known
    return tuple(name for name in known if name == "accuracy" or any(_holds(*of, name) for of in histories))


def _holds(history: History, split: str, signal: str) -> bool:
    tested = (e for e in reversed(history.evaluations) if e.split == split)
    return any(bool(np.isfinite(history.column(e, signal)).any()) for e in tested)


def group_kind(history: History) -> str:
    """What a group of the history is: a class, unless it says otherwise."""
    return history.kind


def unit_of_time(runs: Sequence[RunFolder]) -> str:
    """What passes from one evaluation to the next: an epoch, as far as is known."""
    return "evaluation" if any(run.own is not None for run in runs) else "epoch"


def group_names(run: RunFolder) -> tuple[str, ...]:
    """The names of the groups in the run's history: those that it holds, otherwise those of the classes."""
    names = run.history.names if has_history(run) else None
    return tuple(names) if names else run.class_names


def at_level(seen: pl.DataFrame, level: float, tolerance: float = TOLERANCE) -> pl.DataFrame:
    """The observations whose accuracy is at a level, give or take the tolerance.

    >>> at_level(pl.DataFrame({"accuracy": [0.0, 0.005, 0.01]}), 0.0)["accuracy"].to_list()
    [0.0, 0.005]
    """
    if not 0 <= level <= 1:
        raise ValueError(f"a level of accuracy is between 0 and 1, not {level:g}: write 25 % as 0.25")
    return seen.filter((pl.col("accuracy") - level).abs() <= tolerance + 1e-9)  # 1e-9: 0.255 - 0.25 is over 0.005


def changes(runs: Sequence[RunFolder], *, around: int, classes: str = "all") -> pl.DataFrame:
    """The absolute change of every signal of a class from one epoch to the next, with its phase.

    The last `around` changes before a boundary and the first `around` after it are in phase `transition`, the others in
    phase `stable`. With `classes="old"`, only classes whose task was over at the later of the two epochs.
    """
    if around < 1:
        raise ValueError(f"around is {around}: a transition takes at least 1 epoch on either side of a boundary")
    if classes not in ("all", "old"):
        raise ValueError(f"classes is {classes!r}: choose all or old")
    seen = observations(runs)
    starts = seen.group_by("run", "task").agg(pl.col("epoch").min().alias("start")).filter(pl.col("task") > 0)
    epochs = seen.select("run", "epoch").unique().join(starts.select("run", "start"), on="run", how="left")
    since = pl.col("epoch") - pl.col("start")  # 0 for the change that crosses the boundary
    phases = epochs.group_by("run", "epoch").agg(
        pl.when(((since >= -around) & (since < around)).any()).then(pl.lit("transition")).otherwise(pl.lit("stable"))
        .alias("phase")
    )  # fmt: skip
    moved = seen.sort("run", "class", "epoch").with_columns(
        pl.col("epoch").diff().over("run", "class").alias("gap"),
        *(pl.col(name).diff().abs().over("run", "class") for name in recorded_signals(runs)),
    )
    moved = moved.filter(pl.col("gap") == 1).drop("gap")
    if classes == "old":
        moved = moved.filter(pl.col("class_task") < pl.col("task"))
    return moved.join(phases, on=["run", "epoch"], how="left", maintain_order="left")


def transition_width(runs: Sequence[RunFolder]) -> int:
    """The paper's 5 epochs, or a quarter of the shortest task where that is less, so that some epochs are stable."""
    counts = observations(runs).group_by("run", "task").agg(pl.col("epoch").n_unique())
    shortest = int(counts["epoch"].min())  # type: ignore[arg-type]
    return max(1, min(AROUND, shortest // 4))


def box(values: ArrayLike) -> Box:
    """What a box plot shows of some values.

    >>> box([1, 2, 3, 4, 100])
    Box(n=5, min=1.0, whisker_low=1.0, q1=2.0, median=3.0, q3=4.0, whisker_high=4.0, max=100.0)
    >>> box([]).n, box([]).median
    (0, nan)
    """
    v = np.sort(np.asarray(values, dtype=np.float64))  # NaN comes last
    v = v[~np.isnan(v)]
    if not v.size:
        return Box(0, *[float("nan")] * 7)
    q1, median, q3 = (float(q) for q in np.quantile(v, (0.25, 0.5, 0.75)))
    reach = 1.5 * (q3 - q1)
    # An interpolated quartile may lie beyond every observation within reach: the whisker then has no length.
    low, high = v[v >= q1 - reach], v[v <= q3 + reach]
    return Box(v.size, float(v[0]), min(float(low[0]), q1), q1, median, q3, max(float(high[-1]), q3), float(v[-1]))


def one_method(runs: Sequence[RunFolder]) -> None:
    """Raise an error if the runs differ in more than the seed: their numbers should not be pooled."""
    if not runs:
        raise ValueError("no run was given")
    first = runs[0]
    for run in runs[1:]:
        if changed := differ(first, run):
            methods = "; ".join(sorted({repr(r.method.title) for r in runs}))
            raise ValueError(
                f"{first.name} and {run.name} differ in more than the seed ({changed}): give runs of one method, "
                f"or choose one with --method, among {methods}"
            )


def choose(runs: Sequence[RunFolder], method: str | None) -> list[RunFolder]:
    """The runs whose method has this title, as a user types it; all of them for None."""
    if method is None:
        return list(runs)
    chosen = [run for run in runs if run.method.title == method]
    if not chosen:
        known = "; ".join(sorted({repr(run.method.title) for run in runs}))
        raise ValueError(f"no run is of method {method!r}: there are {known}")
    return chosen


def level_name(level: float) -> str:
    """What a level is called in the frame.

    >>> level_name(0.25)
    'accuracy 25 %'
    """
    return f"accuracy {100 * level:g} %"
