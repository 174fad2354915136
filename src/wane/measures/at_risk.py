"""Which of the classes just learnt will the next task cost most? A ranking, and how often it came true.

A class loses most of its accuracy when the task after its own begins. So before that, the classes of the latest task
are ranked by the probability that the model gives their label (CTL): an answer that was barely right is the first to
turn. Accuracy's own ranking is nearly as good, so this is a list of where to look, not an alarm: docs/at-risk.md has
the numbers, and `check_at_risk` those of your own history.

No trend is used. Slopes within a task say next to nothing of what the next one costs: a rule that warned where CTL and
NKL declined steadily while accuracy held was right in 22 to 30 % of cases on CIFAR-100, where always to warn is right
in 23 to 26 %, and in 16 to 27 % on Tiny-ImageNet, where that is 30 %.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wane.measures.history import Evaluation, History
from wane.softmax.registry import SIGNALS

if TYPE_CHECKING:
    import polars

__all__ = ["Check", "at_risk", "check_at_risk"]

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


class Check(NamedTuple):
    """How lists that used nothing but the past compare with what the next task did."""

    tasks: int  # after how many tasks there was a list, and a next task
    listed: int  # classes on these lists
    precision: float  # the share of them that were lost
    lost: int  # classes that were lost, listed or not
    recall: float  # the share of them that were on a list
    chance: float  # the share of all classes that were lost: the precision of a list drawn by lot


def at_risk(history: History, *, by: str = "ctl", count: int | None = None, split: str = "test") -> polars.DataFrame:
    """The classes of the latest task that the next one is likely to cost most, the likeliest first.

    Args:
        history: what was measured so far; the last evaluation is now, at best the end of a task.
        by: the signal to rank by; ``"accuracy"`` is what it is to be compared with.
        count: how many to list; default: a quarter of the task's classes, rounded up.
        split: of the history.

    Columns: ``class``, ``class_task``, ``accuracy`` and the signal. Where there is nothing to rank, the error says why.

    >>> history = History(class_to_task=[0, 0, 0, 0])
    >>> history.record({"n": [50] * 4, "accuracy": [0.8, 0.7, 0.9, 0.8], "ctl": [0.7, 0.6, 0.8, 0.5]}, step=0, task=0)
    >>> at_risk(history, count=2).select("class", "accuracy", "ctl").rows()
    [(3, 0.8, 0.5), (1, 0.7, 0.6)]
    """
    import polars as pl

    task_of = _tasks(history)
    last = history.tail(1, split=split)
    if not last:
        raise ValueError(f"nothing was recorded for split {split!r}: there is nothing to rank yet")
    classes, accuracy, values = _ranked(history, last[0], by, task_of)
    chosen = slice(_count(count, len(classes)))
    columns = {"accuracy": accuracy[chosen], by: values[chosen]}
    return pl.DataFrame({"class": classes[chosen], "class_task": task_of[classes[chosen]], **columns})


def check_at_risk(
    history: History, *, by: str = "ctl", count: int | None = None, keep: float = 0.5, split: str = "test"
) -> Check:
    """At the end of each task, what `at_risk` would have listed, against what the next task did.

    A class is lost if it has at most a share `keep` of its accuracy left when the next task ends (in a run that goes
    on: at the last evaluation). Tasks after which nothing can be ranked are passed over.

    Args:
        history: of a run of at least two tasks.
        by: as in `at_risk`; compare ``"ctl"`` with ``"accuracy"``.
        count: as in `at_risk`.
        keep: the share of accuracy that counts as lost.
        split: of the history.

    >>> history = History(class_to_task=[0, 0, 0, 0, 1])
    >>> for task, right in enumerate([[0.8, 0.7, 0.9, 0.8, 0.0], [0.6, 0.3, 0.8, 0.1, 0.9]]):
    ...     rows = {"n": [50] * 4 + [50 * task], "accuracy": right, "ctl": [0.7, 0.6, 0.8, 0.5, 0.9]}
    ...     history.record(rows, step=task, task=task)
    >>> check_at_risk(history, count=2)
    Check(tasks=1, listed=2, precision=1.0, lost=2, recall=1.0, chance=0.5)
    >>> check_at_risk(history, by="accuracy", count=2).precision
    0.5
    """
    if not 0 < keep < 1:
        raise ValueError(f"keep is {keep}: give a share of accuracy between 0 and 1, such as 0.5")
    SIGNALS[by]  # an unknown name is an error that lists the known ones
    task_of = _tasks(history)
    ends = {e.task: e for e in history.evaluations if e.split == split}
    tasks = listed = true = lost = ranked = 0
    for task in sorted(ends):
        if task + 1 not in ends:
            continue
        try:
            classes, before, _ = _ranked(history, ends[task], by, task_of)
        except ValueError:
            continue
        later = ends[task + 1]
        after = np.full(len(task_of), np.nan)
        after[later.classes] = history.column(later, "accuracy")
        gone = after[classes] <= keep * before + 1e-9  # half of 0.6 is 0.3, whatever the rounding; NaN is not
        known = np.isfinite(after[classes])
        first = _count(count, len(classes))
        tasks, listed, ranked = tasks + 1, listed + int(known[:first].sum()), ranked + int(known.sum())
        true, lost = true + int(gone[:first].sum()), lost + int(gone.sum())
    return Check(tasks, listed, _ratio(true, listed), lost, _ratio(true, lost), _ratio(lost, ranked))


def _tasks(history: History) -> Ints:
    if history.class_to_task is None:
        raise ValueError(f"this history does not know the task of each {history.kind}, so the latest cannot be ranked: "
                         "make it with History(class_to_task=...)")  # fmt: skip
    return history.class_to_task


def _ranked(history: History, evaluation: Evaluation, by: str, task_of: Ints) -> tuple[Ints, Array, Array]:
    """The classes of the task that was being learnt, lowest signal first, with their accuracy and the signal."""
    own = task_of[evaluation.classes] == evaluation.task
    accuracy, values = (history.column(evaluation, name)[own] for name in ("accuracy", by))
    classes = evaluation.classes[own]
    where = f"at the end of task {evaluation.task + 1} ({evaluation.split})"
    if len(classes) < 2:
        there = f"1 {history.kind}" if len(classes) else f"no {history.kind} of that task"
        raise ValueError(f"there is nothing to rank: {there} was evaluated {where}")
    if not np.isfinite(values).all() or not np.isfinite(accuracy).all():
        missing = by if np.isfinite(accuracy).all() else "accuracy"
        raise ValueError(f"there is nothing to rank by: {missing} was not recorded {where}")
    can_fall = accuracy > 0
    if not can_fall.any():
        raise ValueError(f"no {history.kind} has any accuracy to lose {where}")
    order = np.argsort(SIGNALS[by].sign * values[can_fall], kind="stable")
    return classes[can_fall][order], accuracy[can_fall][order], values[can_fall][order]


def _count(count: int | None, size: int) -> int:
    if count is None:
        return -(-size // 4)
    if int(count) != count or count < 1:
        raise ValueError(f"count is {count}: give a whole number of at least 1")
    return int(count)


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else float("nan")
