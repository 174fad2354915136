"""What is handed to a history, checked: numbers of samples, values, bins, and the task of each class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wane.softmax.registry import SIGNALS

if TYPE_CHECKING:
    from wane.measures.group_metrics import GroupMetrics

__all__ = ["MOST_TASKS", "Measured", "measured", "task_of_each"]

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

#: Tasks that a history may have: a matrix of more would be tables for nobody.
MOST_TASKS = 10**6


class Measured(NamedTuple):
    """One evaluation of all groups."""

    n: Ints  # (G,) samples
    columns: dict[str, Array]  # (G,) each, by signal
    bins: Array | None  # (G, bins, 3): what fell into each bin of confidence


def measured(metrics: GroupMetrics | Mapping[str, Any], kind: str, also: tuple[str, ...] = ()) -> Measured:
    """What a metric measured, or a mapping says; signals are those of the registry, and `also` these.

    >>> measured({"n": [3, 0], "accuracy": [0.5, 0.0], "note": "of no interest"}, "class").columns
    {'accuracy': array([0.5, 0. ])}
    """
    bins = None
    if isinstance(metrics, Mapping):
        means, n = metrics, _counts(metrics)
    else:
        if metrics.average is not None:
            raise ValueError(f"the history needs a value per {kind}, not average={metrics.average!r}: "
                             f"record a {type(metrics).__name__} with average=None")  # fmt: skip
        means = {name: value.cpu() for name, value in metrics.compute().items()}
        # `compute` has put the counts of this process back: with several, n is that of all, as the means are
        with metrics.sync_context(
            metrics.dist_sync_fn, metrics.process_group, metrics.sync_on_compute, metrics.sync_on_compute
        ):
            n = metrics.counts.cpu().numpy().copy()
            if (found := metrics.bins_of()) is not None:
                bins = np.stack(found, axis=-1).astype(np.float64)
    held = [name for name in means if name in also or SIGNALS.knows(name)]
    return Measured(n, {name: _column(name, means[name], len(n)) for name in held}, bins)


def _counts(metrics: Mapping[str, Any]) -> Ints:
    """The numbers of samples of a mapping, checked."""
    if "n" not in metrics or not any(SIGNALS.knows(name) for name in metrics):
        raise ValueError(f"a mapping needs n and signals such as accuracy, but has {', '.join(map(str, metrics))}")
    raw = _array(metrics["n"])
    what = "give the number of samples of each class, whole and at least 0"
    if raw.ndim != 1 or raw.dtype.kind not in "iuf":
        raise ValueError(f"n is {metrics['n']!r}: {what}")
    if (bad := ~((raw >= 0) & (raw < 2**53) & (raw == np.floor(raw)))).any():  # so written, it finds NaN too
        raise ValueError(f"n holds {raw[bad][0]}: {what}")
    return raw.astype(np.int64)


def task_of_each(class_to_task: Any) -> Ints:
    """The task of each class, checked; -1 for one that belongs to no task."""
    raw = _array(class_to_task)
    ints = raw.astype(np.int64) if not raw.size or raw.dtype.kind in "iu" else np.full(1, -2)
    if raw.ndim != 1 or ((ints < -1) | (ints > MOST_TASKS)).any():
        raise ValueError(f"class_to_task is {class_to_task!r}: give a whole number from 0 for each class, or -1 for "
                         "a class that belongs to no task")  # fmt: skip
    return ints


def _array(values: Any) -> NDArray[Any]:
    """An array, also of a tensor; of what is no array of numbers, one of objects."""
    values = values.detach().cpu() if hasattr(values, "detach") else values
    try:
        return np.asarray(values)
    except (TypeError, ValueError):  # lists of different lengths
        return np.array(None, dtype=object)


def _column(name: str, values: Any, size: int) -> Array:
    column = _array(values)
    if column.dtype.kind not in "biuf":
        raise ValueError(f"{name} is {values!r}: give a number for each class")
    column = column.astype(np.float64)
    if column.shape != (size,):
        raise ValueError(f"{name} has shape {column.shape}, but n has {size} entries: give one value for each")
    return column
