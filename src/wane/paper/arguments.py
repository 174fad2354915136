"""What follows from the paper's formulas alone, whatever the network, the data or the scale.

These need no runs; the tests hold them against brute force, and against every run in `results/`.
"""

from __future__ import annotations

import math

__all__ = ["fewest_effective_classes", "largest_ratio", "observations", "steepest_slope"]


def steepest_slope(window: int) -> float:
    """The largest least-squares slope that a signal between 0 and 1 can have over so many epochs.

    It is that of a step in the middle of the window: 0 before, 1 after.

    >>> [round(steepest_slope(window), 4) for window in (3, 10, 20)]
    [0.5, 0.1515, 0.0752]
    """
    if window < 2:
        raise ValueError(f"window is {window}: a slope needs at least 2 epochs")
    from_middle = [epoch - (window - 1) / 2 for epoch in range(window)]
    return sum(x for x in from_middle if x > 0) / sum(x * x for x in from_middle)


def largest_ratio(window: int, gamma: float) -> float:
    """How many times as often one class can be drawn as another, by softmax(gamma * slope) of such a signal.

    >>> [round(largest_ratio(window, 2.0), 2) for window in (3, 10, 20)]  # gamma as in the paper
    [7.39, 1.83, 1.35]
    """
    return math.exp(2 * gamma * steepest_slope(window))


def fewest_effective_classes(window: int, gamma: float, classes: int) -> float:
    """The smallest share of the classes that such a draw can amount to (the exponential of its entropy).

    The worst case has some classes rising and the others falling as steeply as can be.

    >>> [round(fewest_effective_classes(window, 2.0, 100), 3) for window in (3, 10, 20)]
    [0.622, 0.955, 0.989]
    """
    ratio = largest_ratio(window, gamma)
    return min(_effective(ratio, falling, classes) for falling in range(1, classes)) if classes > 1 else 1.0


def observations(tasks: int, classes: int, epochs: int) -> int:
    """How many times a class is seen at an epoch, in a stream that evaluates every class taught so far.

    >>> observations(5, 20, 50)  # the paper's CIFAR-100: 31 of these are at 0 %, a fifth of a percent
    15000
    """
    return classes * epochs * tasks * (tasks + 1) // 2


def _effective(ratio: float, falling: int, classes: int) -> float:
    total = falling * ratio + (classes - falling)
    entropy = math.log(total) - falling * ratio / total * math.log(ratio)
    return math.exp(entropy) / classes
