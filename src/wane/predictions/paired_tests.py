"""Did it fall? Tests and intervals on the same rows under two models, exact for few rows, honest about many classes.

If nothing changed between the models, each row is as likely to move up by some amount as down. So the signs are fair
coins, and the chance of what was seen is counted out, however few the rows are and however many tie (`paired_p`). For
answers, which are right or wrong, the rows that did not flip tell something too (`answers_p`).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri
from scipy.stats import beta, binom, false_discovery_control, rankdata, t

__all__ = ["Direction", "adjusted", "answers_p", "interval_alpha", "paired_interval", "paired_p"]

Array: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Direction = Literal["fell", "rose", "either"]

#: Up to so many rows that moved the chance is counted out; beyond, it is read off the normal curve.
EXACT = 100
#: Up to so many rows `answers_p` looks for the worst share of flips; beyond, it hardly differs from the sign test.
UNCONDITIONAL = 300
#: The shares of flips at which it looks: evenly spaced on the scale on which a share is equally noisy everywhere.
SHARES = np.sin(np.linspace(0, np.pi / 2, 513)[1:]) ** 2
#: It looks no further than a share may be by what was seen, but for so small a chance, which is added to the result.
OVERLOOKED = 1e-6


def paired_p(change: NDArray[np.floating], *, direction: Direction = "fell", mid: bool = False) -> float:
    """The chance of a change like this or a larger one, if each row could as well have gone the other way.

    Wilcoxon's signed-rank test: a row weighs as much as the rank of its change among all changes, so that no few rows
    can sway it. Ties share their ranks and count exactly; of answers all changes tie, and it is McNemar's exact test.

    Args:
        change: after - before of each row, higher is better; rows that did not move tell nothing and are left out.
        direction: that the rows ``"fell"``, ``"rose"``, or ``"either"``: two-sided.
        mid: count what is exactly as extreme by half (mid-p): more power, but false alarms may exceed the level.

    >>> confidence = np.array([-0.4, -0.3, -0.3, -0.2, -0.2, -0.1, -0.1, 0.0, 0.05, 0.05])
    >>> paired_p(confidence), paired_p(confidence, direction="either")
    (0.0078125, 0.015625)
    >>> answers = np.array([-1, -1, -1, -1, -1, 0, 0, 0, 0, 1])  # five turned wrong, one right
    >>> paired_p(answers), paired_p(answers, mid=True)
    (0.109375, 0.0625)
    """
    moved = np.asarray(change, dtype=np.float64)
    moved = moved[moved != 0]
    if not np.isfinite(moved).all():
        raise ValueError(f"a change is {moved[~np.isfinite(moved)][0]}: leave out the rows that cannot be compared")
    if direction not in ("fell", "rose", "either"):
        raise ValueError(f"direction is {direction!r}: choose fell, rose or either")
    # Twice the ranks are whole numbers, which the count below needs; ties share the mean of theirs, perhaps a half.
    weights = np.rint(2 * rankdata(np.abs(moved))).astype(np.int64)
    weights //= max(1, int(np.gcd.reduce(weights)))
    rose, fell = (int(weights[side].sum()) for side in (moved > 0, moved < 0))
    if direction == "either":
        return min(1.0, 2 * _tail(weights, min(rose, fell), mid))
    return _tail(weights, rose if direction == "fell" else fell, mid)


def _tail(weights: Ints, most: int, mid: bool) -> float:
    """The chance that the weights whose coins show heads add up to `most` at most."""
    total = int(weights.sum())
    if len(weights) <= EXACT and 2 * most > total:  # heads and tails are alike, and the shorter side is less work
        rest = total - most if mid else total - most - 1
        return 1.0 - (_tail(weights, rest, mid) if rest >= 0 else 0.0)
    if len(weights) <= EXACT:
        chance = np.zeros(most + 1)  # of each sum up to it, one coin after another
        chance[0] = 1.0
        for weight in weights:
            chance *= 0.5
            if weight <= most:
                chance[weight:] += chance[: most + 1 - weight].copy()
        return float(chance.sum() - (0.5 * chance[-1] if mid else 0.0))
    below = total / 2 - most - (0.0 if mid else 0.5)  # half a step is the continuity correction
    return float(ndtr(-below / (np.sqrt((weights.astype(np.float64) ** 2).sum()) / 2)))


@lru_cache(maxsize=65536)
def answers_p(lost: int, gained: int, n: int, *, direction: Direction = "fell") -> float:
    """The chance of so many answers turning from right to wrong, and so few back, if either were equally likely.

    McNemar's test, exact and unconditional (Suissa and Shuster 1985): the largest chance, over the shares of rows that
    may flip (Berger and Boos 1994), of a (lost - gained) / sqrt(lost + gained) as large. False alarms are at most the
    level, as with the exact conditional test (the binomial one), but nearer to it, so that it finds more; with mid-p
    they may exceed it.

    Args:
        lost: right before, wrong after.
        gained: wrong before, right after.
        n: all rows, the unchanged ones too.
        direction: that accuracy ``"fell"``, ``"rose"``, or ``"either"``: two-sided.

    >>> [round(answers_p(6, 1, n), 3) for n in (7, 20, 100)]
    [0.063, 0.037, 0.036]
    >>> round(float(binom.cdf(1, 7, 0.5)), 3)  # the conditional test
    0.062
    """
    if min(lost, gained) < 0 or lost + gained > n:
        raise ValueError(f"{lost} lost and {gained} gained of {n} rows: give counts that fit together")
    if direction == "either":
        return min(1.0, 2 * answers_p(max(lost, gained), min(lost, gained), n))
    if direction == "rose":
        lost, gained = gained, lost
    if lost <= gained or n > UNCONDITIONAL:
        return float(binom.cdf(gained, lost + gained, 0.5))
    flips = np.arange(n + 1)
    least = (lost - gained) / np.sqrt(lost + gained)
    most_gained = np.floor((flips - least * np.sqrt(flips)) / 2 + 1e-9)  # at these counts of flips, to be as extreme
    tail = np.where(most_gained >= 0, binom.cdf(most_gained, flips, 0.5), 0.0)
    tail[0] = 0.0
    low, high = beta.ppf([OVERLOOKED / 2, 1 - OVERLOOKED / 2], [lost + gained, lost + gained + 1],
                         [n - lost - gained + 1, n - lost - gained])  # fmt: skip
    high = 1.0 if lost + gained == n else high
    possible = (low <= SHARES) & (high >= SHARES)
    return float(min(1.0, (_shares_of_flips(n)[possible] @ tail).max() + OVERLOOKED))


@lru_cache(maxsize=64)
def _shares_of_flips(n: int) -> Array:
    """(shares, n + 1) the chance of each number of flips among n rows."""
    chance: Array = binom.pmf(np.arange(n + 1), n, SHARES[:, None])
    return chance


def adjusted(p: Array, among: NDArray[np.bool_]) -> Array:
    """Corrected for the number of groups that are judged (Benjamini and Hochberg); NaN for the others.

    Of the groups with an adjusted p of at most alpha, a share of at most alpha is expected to be a false alarm. NaN is
    below no threshold.

    >>> adjusted(np.array([0.01, 0.02, 0.5, 0.001]), np.array([True, True, True, False])).round(3)
    array([0.03, 0.03, 0.5 ,  nan])
    """
    result: Array = np.full(len(p), np.nan)
    if among.any():
        result[among] = false_discovery_control(p[among])
    return result


def interval_alpha(alpha: float, *, chosen: int, judged: int) -> float:
    """At which alpha to draw intervals of groups that are looked at because they stand out.

    Of 100 classes at 95 %, five intervals miss, and the largest changes are where they do. At 1 - alpha x chosen /
    judged, of the intervals of the chosen groups a share of at most alpha is expected to miss (Benjamini and Yekutieli
    2005, false coverage rate). It fits the verdicts, which are corrected in the same way.

    Args:
        alpha: the accepted share of misses.
        chosen: how many groups stand out.
        judged: out of how many.

    >>> interval_alpha(0.05, chosen=20, judged=100), interval_alpha(0.05, chosen=0, judged=100)
    (0.01, 0.0005)
    """
    return alpha * max(1, chosen) / max(1, chosen, judged)


def paired_interval(mean: Array, error: Array, n: Ints, *, alpha: float, answers: bool = False) -> tuple[Array, Array]:
    """Low and high ends of 1 - alpha intervals of mean changes; t-intervals, but for answers.

    The change of an answer is -1, 0 or 1, and of few rows often none moved: a t-interval of no width would be sure of
    it, and misses in 29 % of cases at 5 rows and in 9 % at 20. Bonett and Price (2012) add one row that was lost and
    one that was gained, and it misses in less than alpha.

    Args:
        mean: of the changes, (G,).
        error: their standard error, (G,).
        n: how many rows each is over, (G,); with one there is no interval.
        alpha: the accepted share of misses.
        answers: whether the changes are those of right and wrong answers.

    >>> low, high = paired_interval(np.array([0.0]), np.array([0.0]), np.array([10]), alpha=0.05, answers=True)
    >>> low.round(2), high.round(2)
    (array([-0.23]), array([0.23]))
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        if not answers:
            half = t.ppf(1 - alpha / 2, np.maximum(n - 1, 1)) * error
            return np.where(n > 1, mean - half, np.nan), np.where(n > 1, mean + half, np.nan)
        squares = n * (n - 1) * error**2 + n * mean**2 + 2  # of the changes, and of the two that are added
        middle = n * mean / (n + 2)
        half = -ndtri(alpha / 2) * np.sqrt((squares / (n + 2) - middle**2) / (n + 2))
        return np.where(n > 1, middle - half, np.nan), np.where(n > 1, middle + half, np.nan)
