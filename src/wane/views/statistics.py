"""Means with their spread over seeds, and paired differences with their intervals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

__all__ = ["FEWEST_SEEDS", "Interval", "counted", "difference_text", "mean_std", "paired"]

#: With fewer, an interval says more about luck than about a method: nothing is judged, nothing is called best.
FEWEST_SEEDS = 3


class Interval(NamedTuple):
    """A mean paired difference over `n` common seeds with its t-interval; what cannot be computed is None."""

    n: int
    difference: float | None
    low: float | None
    high: float | None

    @property
    def decided(self) -> bool:
        """Whether it excludes zero and is of enough seeds to say so: what may be printed in bold.

        >>> [Interval(n, 1.0, 0.2, 1.8).decided for n in (2, 3)], Interval(3, 1.0, 0.0, 2.0).decided
        ([False, True], False)
        """
        there = self.low is not None and self.high is not None and self.n >= FEWEST_SEEDS
        return there and (self.low > 0 or self.high < 0)  # type: ignore[operator]


def counted(intervals: Iterable[Interval]) -> str:
    """How many intervals there are, how many exclude zero, and how many of them would by chance: a sentence.

    >>> counted([Interval(3, 1.0, 0.2, 1.8), Interval(3, 1.0, -0.2, 2.2), Interval(1, 1.0, None, None)])
    '2 intervals, each at 95 % by itself: 1 excludes zero; if nothing were true, about 0 would.'
    """
    given = [interval for interval in intervals if interval.low is not None]
    found = sum(interval.decided for interval in given)
    plural = "s" * (len(given) != 1)
    return (f"{len(given)} interval{plural}, each at 95 % by itself: {found} exclude{'s' * (found == 1)} zero; if "
            f"nothing were true, about {0.05 * len(given):.0f} would.")  # fmt: skip


def difference_text(found: Interval, *, digits: int = 1) -> str:
    """A difference with its interval as Markdown, in bold if that excludes zero; with fewer than three seeds, neither.

    >>> difference_text(Interval(3, 1.0, 0.2, 1.8)), difference_text(Interval(2, -1.0, None, None))
    ('**+1.0 [+0.2, +1.8]**', '−1.0, n = 2')
    """
    if found.difference is None:
        return ""
    if found.low is None or found.high is None:
        return f"{found.difference:+.{digits}f}, n = {found.n}".replace("-", "−")
    shape = f"+.{digits}f"
    text = f"{found.difference:{shape}} [{found.low:{shape}}, {found.high:{shape}}]".replace("-", "−")
    return f"**{text}**" if found.decided else text


def mean_std(values: Iterable[float]) -> tuple[float | None, float | None]:
    """Mean, and standard deviation with n - 1; None for what needs more values.

    >>> mean_std([36.0, 37.0, 38.0]), mean_std([36.0]), mean_std([])
    ((37.0, 1.0), (36.0, None), (None, None))
    """
    v = np.array([*values], dtype=np.float64)
    v = v[~np.isnan(v)]  # with a single task there is nothing to forget
    return (float(v.mean()) if v.size else None), (float(v.std(ddof=1)) if v.size > 1 else None)


def paired(values: Mapping[int, float], reference: Mapping[int, float], *, confidence: float = 0.95) -> Interval:
    """The mean difference over the seeds that both have, with its t-interval; fewer than three seeds give none.

    >>> paired({0: 2.0, 1: 4.0, 2: 6.0, 9: 0.0}, {0: 1.0, 1: 2.0, 2: 3.0})
    Interval(n=3, difference=2.0, low=-0.484..., high=4.484...)
    >>> paired({0: 2.0, 1: 3.0}, {0: 1.0, 1: 2.0})
    Interval(n=2, difference=1.0, low=None, high=None)
    """
    from scipy.stats import t

    d = np.array([values[seed] - reference[seed] for seed in values if seed in reference])
    d = d[~np.isnan(d)].round(9)  # otherwise a rounding error, the same in every seed, would count as a difference
    mean, std = mean_std(d)
    if mean is None or std is None or d.size < FEWEST_SEEDS:
        return Interval(d.size, mean, None, None)
    half = float(t.ppf((1 + confidence) / 2, d.size - 1)) * std / d.size**0.5
    return Interval(d.size, mean, mean - half, mean + half)
