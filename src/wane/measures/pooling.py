"""Measures that are no mean over samples, such as the ECE: from bins of confidence to a value. No torch here."""

import numpy as np
from numpy.typing import NDArray

from wane.softmax.registry import SIGNALS, Bins

__all__ = ["pooled_value"]


def pooled_value(name: str, bins: Bins) -> NDArray[np.float64]:
    """A row of the registry that is made of bins; NaN where there are no samples.

    >>> round(float(pooled_value("ece", Bins(*(np.array(x) for x in ([2, 2], [0.8, 1.8], [1.0, 1.0]))))), 3)
    0.25
    """
    pooled = SIGNALS[name].pooled
    assert pooled is not None
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(pooled(bins), dtype=np.float64)
