"""Means with their spread over seeds, and paired differences with their intervals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

__all__ = ["FEWEST_SEEDS", "Interval", "mean_std", "paired"]

#: With fewer, an interval says more about luck than about a method: nothing is judged, nothing is called best.
FEWEST_SEEDS = 3


class Interval(NamedTuple):
    """A mean paired difference over `n` common seeds with its t-interval; what cannot be computed is None."""

    n: int
    difference: float | None
    low: float | None
    high: float | None


def mean_std(values: Iterable[float]) -> tuple[float | None, float | None]:
    """Mean, and standard deviation with n - 1; None for what needs more values.

    >>> mean_std([36.0, 37.0, 38.0]), mean_std([36.0]), mean_std([])
    ((37.0, 1.0), (36.0, None), (None, None))
    """
    v = np.array([*values], dtype=np.float64)
    v = v[~np.isnan(v)]  # with a single task there is nothing to forget
    return (float(v.mean()) if v.size else None), (float(v.std(ddof=1)) if v.size > 1 else None)


def paired(values: Mapping[int, float], reference: Mapping[int, float], *, confidence: float = 0.95) -> Interval:
    """The mean difference over the seeds that both have, with its t-interval; one seed gives no interval.

    >>> paired({0: 2.0, 1: 4.0, 2: 6.0, 9: 0.0}, {0: 1.0, 1: 2.0, 2: 3.0})
    Interval(n=3, difference=2.0, low=-0.484..., high=4.484...)
    >>> paired({0: 2.0}, {0: 1.0})
    Interval(n=1, difference=1.0, low=None, high=None)
    """
    from scipy.stats import t

    d = np.array([values[seed] - reference[seed] for seed in values if seed in reference])
    d = d[~np.isnan(d)].round(9)  # otherwise a rounding error, the same in every seed, would count as a difference
    mean, std = mean_std(d)
    if mean is None or std is None:
        return Interval(d.size, mean, None, None)
    half = float(t.ppf((1 + confidence) / 2, d.size - 1)) * std / d.size**0.5
    return Interval(d.size, mean, mean - half, mean + half)
