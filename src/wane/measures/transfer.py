"""Summaries of a run: the task x task matrix of any signal, and the stability gap between its rows.

``R[k, j]`` is the mean signal of task ``j`` after learning task ``k``. Rows are the tasks learnt, so ``R`` is
square; what was not evaluated is NaN, and a ragged lower triangle is accepted as it is. The upper triangle is
read by `forward_transfer` alone.

*Forgetting* is positive when things got worse and *transfer* positive when they got better, for every signal,
also for ``loss``, where lower is better. Means of the signal itself (`average`, `retention`, `plasticity`,
`min_acc`, `wc_acc`) stay in its own units. Every summary is a `TaskMean`: a float that remembers its terms.
With one task there is no old one: what is a mean over old tasks is then NaN, and has no terms.

Whether higher is better depends on the signal: ``signal`` where it is given, else that of the matrix, which one from
`History.matrix` remembers, else ``accuracy``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import ArrayLike, NDArray

from wane.measures.matrix import entries, square
from wane.softmax.registry import SIGNALS

__all__ = [
    "DEFINITIONS",
    "TaskMean",
    "average",
    "backward_transfer",
    "forgetting",
    "forward_transfer",
    "min_acc",
    "plasticity",
    "retention",
    "wc_acc",
    "windowed_forgetting",
    "windowed_plasticity",
]

Array: TypeAlias = NDArray[np.float64]
Matrix: TypeAlias = Any  # an array-like or a ragged list of rows, which numpy's ArrayLike does not describe


class TaskMean(float):
    """The mean over tasks, a plain float to all who use it; ``per_task`` holds the terms.

    >>> forgetting([[80], [70, 82], [84, 60, 78], [50, 66, 30, 81]]).per_task
    array([34., 16., 48.])
    """

    per_task: Array

    def __new__(cls, per_task: ArrayLike) -> TaskMean:
        """Average the terms; NaN if there is none."""
        terms = np.asarray(per_task, dtype=np.float64)
        mean = super().__new__(cls, terms.mean() if terms.size else np.nan)
        mean.per_task = terms
        return mean

    def __getnewargs__(self) -> tuple[Any]:
        # float's own would hand the mean to __new__ when unpickled
        return (self.per_task,)


def average(matrix: Matrix, *, signal: str | None = None) -> TaskMean:
    """Mean of the last row: the signal at the end, over all tasks seen.

    >>> average([[80], [70, 82], [84, 60, 78], [50, 66, 30, 81]])
    56.75
    """
    r, _ = _read_matrix(matrix, signal)
    last = len(r) - 1
    return TaskMean(entries(r, [last] * len(r), range(len(r))))


def retention(matrix: Matrix, *, signal: str | None = None) -> TaskMean:
    """Mean final signal of the old tasks: what was kept.

    >>> round(retention([[80], [70, 82], [84, 60, 78], [50, 66, 30, 81]]), 2)
    48.67
    """
    r, _ = _read_matrix(matrix, signal)
    last = len(r) - 1
    return TaskMean(entries(r, [last] * last, range(last)))


def plasticity(matrix: Matrix, *, signal: str | None = None) -> TaskMean:
    """Mean signal of each task right after it was learnt (the diagonal): what was learnt.

    >>> plasticity([[80], [70, 82], [84, 60, 78], [50, 66, 30, 81]])
    80.25
    """
    r, _ = _read_matrix(matrix, signal)
    return TaskMean(entries(r, range(len(r)), range(len(r))))


# The values of a task since it was learnt, higher is better -> what the last of them is held against.
DEFINITIONS: dict[str, Callable[[Array], Any]] = {
    "peak": lambda since: since.max(),
    "past_peak": lambda since: since[:-1].max(),
    "first": lambda since: since[0],
}


def forgetting(matrix: Matrix, definition: str = "peak", *, signal: str | None = None) -> TaskMean:
    """Mean over the old tasks of what each has lost by the end; positive is worse.

    ``definition`` says what the last value is held against, among the evaluations since the task was learnt:

    * ``"peak"``: the best, the last included, so it is never negative (Mammoth, PyCIL);
    * ``"past_peak"``: the best before the last (Chaudhry et al. 2018, FACIL);
    * ``"first"``: the one right after learning (Avalanche); the opposite of `backward_transfer`.

    >>> matrix = [[80], [70, 82], [84, 60, 78], [50, 66, 30, 81]]
    >>> round(forgetting(matrix), 2), round(forgetting(matrix, "first"), 2)
    (32.67, 31.33)
    """
    r, sign = _read_matrix(matrix, signal)
    if definition not in DEFINITIONS:
        raise ValueError(f"unknown definition of forgetting {definition!r}: choose one of {', '.join(DEFINITIONS)}")
    reference, last = DEFINITIONS[definition], len(r) - 1

    def lost(j: int) -> float:
        # A peak over fewer evaluations is a lower one: a hole is an error, unless no peak is asked for.
        rows = [j, last] if definition == "first" else range(j, last + 1)
        since = sign * entries(r, rows, [j] * len(rows))
        return float(reference(since) - since[-1])

    return TaskMean([lost(j) for j in range(last)])


def backward_transfer(matrix: Matrix, *, signal: str | None = None) -> TaskMean:
    """Mean over the old tasks of last minus first value (Lopez-Paz & Ranzato 2017); positive is better.

    >>> round(backward_transfer([[80], [70, 82], [84, 60, 78], [50, 66, 30, 81]]), 2)
    -31.33
    >>> backward_transfer([[0.5], [0.75, 0.4]], signal="loss")  # the loss of task 0 rose
    -0.25
    """
    return TaskMean(0.0 - forgetting(matrix, "first", signal=signal).per_task)  # 0 - x: no -0.0


def forward_transfer(matrix: Matrix, baseline: ArrayLike, *, signal: str | None = None) -> TaskMean:
    """Mean over j >= 1 of ``R[j-1, j] - baseline[j]`` (Lopez-Paz & Ranzato 2017); positive is better.

    ``baseline`` is the signal of each task under the untrained model: one value a task (the first is not
    used), or one for all. The matrix must hold the value of each task just before it was learnt.

    >>> forward_transfer([[80, 30, 20], [70, 82, 26], [84, 60, 78]], baseline=[10, 25, 20])
    5.5
    """
    r, sign = _read_matrix(matrix, signal)
    untrained = np.asarray(baseline, dtype=np.float64)
    if untrained.shape not in ((), (len(r),)):
        raise ValueError(f"baseline has shape {untrained.shape}: give one value, or one for each of {len(r)} tasks")
    untrained = np.broadcast_to(untrained, len(r))[1:]
    if np.isnan(untrained).any():
        raise ValueError(f"baseline[{np.isnan(untrained).argmax() + 1}] is NaN: measure the untrained model there")
    return TaskMean(sign * (entries(r, range(len(r) - 1), range(1, len(r))) - untrained))


def min_acc(steps: ArrayLike, tasks: ArrayLike, values: ArrayLike, *, signal: str | None = None) -> TaskMean:
    """Mean over the old tasks of the worst value after each was learnt (De Lange et al. 2023, Eq. 2).

    A series is three arrays: ``steps`` (S,), the global step of each evaluation; ``tasks`` (S,), the task in
    training then; ``values`` (S, T), the signal of every task, NaN where not evaluated. For ``loss`` the
    worst is the maximum.

    >>> min_acc([1, 2, 3, 4], [0, 0, 1, 1], [[60, np.nan], [80, np.nan], [10, 50], [70, 90]])
    10.0
    """
    learning, v, sign = _read_series(steps, tasks, values, signal)

    def worst(j: int) -> float:
        after = v[learning > j, j]
        if np.isnan(after).all():
            raise ValueError(
                f"task {j} has no value after it was learnt: evaluate old tasks while later ones are learnt"
            )
        return float(sign * np.nanmin(sign * after))

    return TaskMean([worst(j) for j in range(learning[-1])])


def wc_acc(steps: ArrayLike, tasks: ArrayLike, values: ArrayLike, *, signal: str | None = None) -> TaskMean:
    """Worst case: 1/k of the current task's last value, 1 - 1/k of `min_acc` (De Lange et al. 2023, Eq. 6).

    ``k`` is the number of tasks up to the current one: the mean of the worst value of each old task and the
    last value of the current one, a bound on `average` at that step. Arguments as in `min_acc`.

    >>> wc_acc([1, 2, 3, 4], [0, 0, 1, 1], [[60, np.nan], [80, np.nan], [10, 50], [70, 90]])
    50.0
    """
    learning, v, _ = _read_series(steps, tasks, values, signal)
    last = v[-1, learning[-1]]
    if np.isnan(last):
        raise ValueError(
            f"the current task {learning[-1]} is NaN in the last row: end the series where it is evaluated"
        )
    return TaskMean([*min_acc(steps, tasks, values, signal=signal).per_task, last])


def windowed_forgetting(
    steps: ArrayLike, tasks: ArrayLike, values: ArrayLike, *, window: int = 10, signal: str | None = None
) -> TaskMean:
    """WF: the largest fall within ``window`` evaluations, mean over tasks (De Lange et al. 2023, Eq. 4).

    For each task: the largest ``A(m) - A(n)``, ``m < n``, both among ``window`` consecutive evaluations of
    it; 0 if it never fell. Positive is worse. Every evaluation since the task began counts, also while it is
    being learnt; what was never taught cannot be forgotten. A task never evaluated is left out. Arguments as
    in `min_acc`; the paper takes windows of 10 and 100.

    >>> series = [1, 2, 3, 4], [0, 0, 1, 1], [[60, np.nan], [80, np.nan], [50, 50], [40, 90]]
    >>> windowed_forgetting(*series, window=2).per_task, windowed_forgetting(*series, window=3).per_task
    (array([30.,  0.]), array([40.,  0.]))
    """
    learning, v, sign = _read_series(steps, tasks, values, signal)
    begun = learning[:, None] >= np.arange(v.shape[1])
    return _windowed_fall(np.where(begun, sign * v, np.nan), window)


def windowed_plasticity(
    steps: ArrayLike, tasks: ArrayLike, values: ArrayLike, *, window: int = 10, signal: str | None = None
) -> TaskMean:
    """WP: the largest rise within any ``window`` consecutive evaluations; otherwise as `windowed_forgetting`.

    >>> series = [1, 2, 3, 4], [0, 0, 1, 1], [[60, np.nan], [80, np.nan], [50, 50], [40, 90]]
    >>> windowed_plasticity(*series, window=2).per_task
    array([20., 40.])
    """
    _, v, sign = _read_series(steps, tasks, values, signal)
    return _windowed_fall(-sign * v, window)


def _windowed_fall(values: Array, window: int) -> TaskMean:
    if window < 2:
        raise ValueError(f"window is {window}: a change needs at least 2 evaluations")
    series = [column[~np.isnan(column)] for column in values.T]

    def fall(a: Array) -> float:
        width = min(window, len(a))
        padded = np.concatenate([np.full(width - 1, -np.inf), a])  # the first windows are shorter
        return float((sliding_window_view(padded, width).max(axis=-1) - a).max())

    return TaskMean([fall(a) for a in series if a.size])


def _sign(values: Any, signal: str | None) -> int:
    return SIGNALS[signal or getattr(values, "signal", None) or "accuracy"].sign


def _read_matrix(matrix: Matrix, signal: str | None) -> tuple[Array, int]:
    """The square matrix, and the +1 or -1 that makes higher better."""
    return square(matrix), _sign(matrix, signal)


def _read_series(
    steps: ArrayLike, tasks: ArrayLike, values: ArrayLike, signal: str | None
) -> tuple[NDArray[np.int64], Array, int]:
    """The task in training (S,), the values (S, T), and the +1 or -1 that makes higher better."""
    when, learning, v = np.asarray(steps), np.asarray(tasks), np.asarray(values, dtype=np.float64)
    if v.ndim != 2 or not v.size or when.shape != v.shape[:1] or learning.shape != v.shape[:1]:
        raise ValueError(
            f"steps {when.shape}, tasks {learning.shape} and values {v.shape} do not fit together: "
            "give (S,), (S,) and (S, T) with S and T at least 1"
        )
    if learning.dtype.kind not in "iu" or learning.min() < 0 or learning.max() >= v.shape[1]:
        raise ValueError(
            f"tasks run from {learning.min()} to {learning.max()} ({learning.dtype}) but values have "
            f"{v.shape[1]} columns: number the tasks with integers from 0 to {v.shape[1] - 1}"
        )
    for name, array in (("steps", when), ("tasks", learning)):
        back = array[1:] < array[:-1]
        if back.any():
            i = int(back.argmax()) + 1
            raise ValueError(f"{name} go back from {array[i - 1]} to {array[i]} in row {i}: sort rows by step")
    return learning.astype(np.int64), v, _sign(values, signal)
