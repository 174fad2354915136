"""CLScore (Díaz-Rodríguez et al. 2018, arXiv:1810.13166): seven criteria in [0, 1], a score and its stability.

With R[i, j] the accuracy of task j after learning task i, as a share, and N tasks:

* A: mean of R over its lower triangle, the diagonal included: accuracy over time, not only at the end;
* BWT: mean over i > j of R[i, j] - R[j, j]; split into REM = 1 - |min(BWT, 0)| and BWT+ = max(BWT, 0);
* FWT: mean of R over its upper triangle, i < j; no baseline is taken off;
* MS: min(1, mean over tasks of the model's size after the first task divided by its size after each);
* SSS: 1 - min(1, mean over tasks of the size of what is stored divided by that of all data);
* CE: min(1, mean over tasks of epsilon times the operations of one forward and backward pass over the task's data,
  divided by 1 plus those that learning it took).

CLscore is the weighted sum of A, REM, BWT+, FWT, MS, SSS and CE, their means over runs if there are several, and
CLstability is 1 minus the weighted sum of their standard deviations over runs.

Where sources differ: A and BWT are of the whole triangle, as in the paper; `wane.average` and `wane.backward_transfer`,
after Lopez-Paz and Ranzato, are of the last row. FWT is a mean of R itself, where `wane.forward_transfer` takes off the
untrained model. CLstability looks at each criterion over runs; some code takes the deviation over the criteria of one
run. The standard deviation is that of the runs themselves (divided by n): the paper does not say.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from wane.measures.history import History
from wane.measures.matrix import SignalMatrix, entries, square
from wane.softmax.registry import SIGNALS

__all__ = ["CRITERIA", "cl_score", "costs_of", "learnt_matrix", "mean_cl_score"]

#: What the score is made of.
CRITERIA = ("A", "REM", "BWT+", "FWT", "MS", "SSS", "CE")
#: Everything that `cl_score` gives, in the paper's order.
NAMES = ("A", "BWT", "REM", "BWT+", "FWT", "MS", "SSS", "CE", "CLscore", "CLstability")


def cl_score(
    matrix: Any,
    *,
    model_sizes: ArrayLike | None = None,
    memory_sizes: ArrayLike | None = None,
    data_size: float | None = None,
    operations: ArrayLike | None = None,
    one_pass: ArrayLike | None = None,
    epsilon: float = 1.0,
    weights: Mapping[str, float] | None = None,
    split: str = "test",
) -> dict[str, float]:
    """All criteria of CLScore by the names of the paper, and the score; NaN for what is not known.

    Args:
        matrix: task x task, of a signal between 0 and 1 that is better where it is higher, with the upper triangle if
            FWT is wanted; or the `History` of a run, which knows its matrix and, if wane trained it, all of the rest.
        model_sizes: (N,) of the model after each task, in any unit.
        memory_sizes: (N,) of the samples that are stored after each task.
        data_size: of the training data of all tasks, in the unit of `memory_sizes`.
        operations: (N,) that learning each task took.
        one_pass: (N,) of one forward and backward pass over the data of each task.
        epsilon: of CE; above 1 where tasks take so many epochs that CE would be next to 0.
        weights: of the criteria; they are scaled to sum to 1, and one that is not named has none. Default: all equal.
        split: of a history; ``"test_task"`` for the task-incremental setting.

    Without one of the criteria that have a weight there is no CLscore, and CLstability is about several runs: see
    `mean_cl_score`.

    >>> R = [[0.80, 0.30, 0.20], [0.70, 0.82, 0.26], [0.84, 0.60, 0.78]]
    >>> score = cl_score(R, model_sizes=[5, 5, 5], memory_sizes=[8, 8, 8], data_size=100,
    ...                  one_pass=[1, 1, 1], operations=[1, 1, 3])
    >>> {name: round(value, 4) for name, value in score.items()}
    {'A': 0.7567, 'BWT': -0.0933, 'REM': 0.9067, 'BWT+': 0.0, 'FWT': 0.2533, 'MS': 1.0, 'SSS': 0.92, 'CE': 0.4167,
     'CLscore': 0.6076, 'CLstability': nan}
    """
    shares = _weights(weights)
    if isinstance(matrix, History):
        given = {"model_sizes": model_sizes, "memory_sizes": memory_sizes, "data_size": data_size,
                 "operations": operations, "one_pass": one_pass}  # fmt: skip
        known = costs_of(matrix) | {name: value for name, value in given.items() if value is not None}
        return cl_score(learnt_matrix(matrix, "accuracy", split), **known, epsilon=epsilon, weights=weights)
    r = _shares(matrix)
    tasks = len(r)
    below, above = np.tril_indices(tasks, -1), np.triu_indices(tasks, 1)
    bwt = float((entries(r, *below) - entries(r, below[1], below[1])).mean()) if tasks > 1 else math.nan
    upper = r[above]
    found = {
        "A": float(entries(r, *np.tril_indices(tasks)).mean()),
        "BWT": bwt,
        "REM": 1 - abs(min(bwt, 0.0)),
        "BWT+": max(bwt, 0.0),
        "FWT": float(upper.mean()) if tasks > 1 else math.nan,
        "MS": math.nan, "SSS": math.nan, "CE": math.nan,
    }  # fmt: skip
    if math.isnan(bwt):
        found |= {"REM": math.nan, "BWT+": math.nan}
    if model_sizes is not None:
        sizes = _per_task("model_sizes", model_sizes, tasks)
        found["MS"] = min(1.0, float((sizes[0] / sizes).mean()))
    if memory_sizes is not None and data_size is not None:
        stored = _per_task("memory_sizes", memory_sizes, tasks)
        found["SSS"] = 1 - min(1.0, float((stored / _positive("data_size", data_size)).mean()))
    if operations is not None and one_pass is not None:
        took, least = _per_task("operations", operations, tasks), _per_task("one_pass", one_pass, tasks)
        found["CE"] = min(1.0, float((_positive("epsilon", epsilon) * least / (1 + took)).mean()))
    found["CLscore"] = _weighted(found, shares)
    return {**found, "CLstability": math.nan}


def mean_cl_score(
    scores: Sequence[Mapping[str, float]], *, weights: Mapping[str, float] | None = None
) -> dict[str, float]:
    """The mean over runs of what `cl_score` gave for each, with their CLscore and CLstability.

    >>> first, second = cl_score([[0.8, 0.3], [0.6, 0.9]]), cl_score([[0.8, 0.1], [0.8, 0.9]])
    >>> both = mean_cl_score([first, second], weights={"A": 1, "REM": 1})
    >>> {name: round(both[name], 3) for name in ("A", "REM", "CLscore", "CLstability")}
    {'A': 0.8, 'REM': 0.9, 'CLscore': 0.85, 'CLstability': 0.933}
    """
    if not scores:
        raise ValueError("there is no run: give what cl_score returned for at least one")
    shares = _weights(weights)
    values = {name: np.array([score[name] for score in scores]) for name in NAMES[:8]}
    found = {name: float(column.mean()) for name, column in values.items()}
    spread = {name: float(values[name].std()) for name in CRITERIA}
    stability = 1 - _weighted(spread, shares) if len(scores) > 1 else math.nan
    return {**found, "CLscore": _weighted(found, shares), "CLstability": stability}


def learnt_matrix(history: History, signal: str, split: str) -> SignalMatrix:
    """The task x task matrix of the tasks learnt so far: of an unfinished run, that of its begun tasks."""
    matrix = history.matrix(signal, split=split)
    learnt = np.flatnonzero(np.isfinite(matrix.diagonal()))
    size = int(learnt[-1]) + 1 if len(learnt) else 0
    return SignalMatrix(matrix[:size, :size], signal)


def costs_of(history: History) -> dict[str, Any]:
    """What a history knows of its run's costs, as arguments of `cl_score`."""
    costs = history.costs or {}
    names = {"model_sizes": "model_bytes", "memory_sizes": "memory_bytes", "operations": "operations",
             "one_pass": "one_pass"}  # fmt: skip
    found = {argument: costs.get(name) for argument, name in names.items()}
    return found | {"data_size": sum(costs["data_bytes"]) if "data_bytes" in costs else None}


def _shares(matrix: Any) -> Any:
    signal = getattr(matrix, "signal", None) or "accuracy"
    if not (SIGNALS[signal].bounded and SIGNALS[signal].higher_is_better):
        raise ValueError(f"CLScore takes a signal between 0 and 1 that is better where it is higher, not {signal!r}")
    r = square(matrix)
    if (outside := r[(r < 0) | (r > 1)]).size:
        raise ValueError(f"the matrix holds {outside[0]:g}: CLScore takes shares, so write 80 % as 0.8")
    return r


def _per_task(name: str, values: ArrayLike, tasks: int) -> Any:
    array = np.asarray(values, dtype=np.float64)[:tasks]
    if array.shape != (tasks,) or not (array >= 0).all():
        raise ValueError(f"{name} is {values!r}: give a number, at least 0, for each of the {tasks} tasks")
    return array


def _positive(name: str, value: float) -> float:
    if not value > 0:
        raise ValueError(f"{name} is {value}: give a number above 0")
    return value


def _weights(weights: Mapping[str, float] | None) -> dict[str, float]:
    given = dict.fromkeys(CRITERIA, 1.0) if weights is None else dict(weights)
    if unknown := [name for name in given if name not in CRITERIA]:
        raise ValueError(f"unknown criterion {unknown[0]!r} in weights: choose among {', '.join(CRITERIA)}")
    if any(not 0 <= value < math.inf for value in given.values()) or not sum(given.values()) > 0:
        raise ValueError(f"weights are {given}: give numbers from 0, at least one of them above")
    return {name: value / sum(given.values()) for name, value in given.items() if value > 0}


def _weighted(values: Mapping[str, float], shares: Mapping[str, float]) -> float:
    return float(sum(share * values[name] for name, share in shares.items()))
