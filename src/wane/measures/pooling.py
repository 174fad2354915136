"""The value of a signal for several classes together: most are means over samples, some made of bins. No torch here."""

import numpy as np
from numpy.typing import NDArray

from wane.softmax.registry import SIGNALS, Bins

__all__ = ["pooled", "pooled_value"]

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


def pooled_value(name: str, bins: Bins) -> Array:
    """A row of the registry that is made of bins; NaN where there are no samples.

    >>> round(float(pooled_value("ece", Bins(*(np.array(x) for x in ([2, 2], [0.8, 1.8], [1.0, 1.0]))))), 3)
    0.25
    """
    pooled = SIGNALS[name].pooled
    assert pooled is not None
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(pooled(bins), dtype=np.float64)


def pooled(signal: str, column: Array, n: Ints, bins: Array | None, union: Ints, size: int) -> Array:
    """(size,) the value of a signal for all samples of some classes together; NaN where there are none.

    Args:
        signal: its name.
        column: (K,) its value for each class.
        n: (K,) samples of each class.
        bins: (K, bins, 3) what fell into each bin of confidence, if that was kept.
        union: (K,) which of the `size` values each class belongs to, -1 for none.
        size: how many values there are.

    >>> pooled("accuracy", np.array([1.0, 0.0, 0.5]), np.array([1, 3, 2]), None, np.array([0, 0, 1]), 2)
    array([0.25, 0.5 ])
    """
    inside = union >= 0
    union, n = union[inside], n[inside]
    if SIGNALS.knows(signal) and SIGNALS[signal].pooled is not None:
        if bins is None:
            return np.full(size, np.nan)
        together = np.zeros((size, *bins.shape[1:]))
        np.add.at(together, union, bins[inside])
        return pooled_value(signal, Bins(*np.moveaxis(together, -1, 0)))
    total = np.bincount(union, weights=n * column[inside], minlength=size)
    with np.errstate(invalid="ignore"):
        mean: Array = total / np.bincount(union, weights=n, minlength=size)
    return mean
