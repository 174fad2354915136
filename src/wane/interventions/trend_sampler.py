"""History to class probabilities: replay what is declining, by the slope of a signal over the last epochs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wane.measures.history import Evaluation, History
from wane.softmax.signals import SIGNALS

__all__ = ["TrendSampler", "effective_classes"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class TrendSampler:
    """Draw classes with probability softmax(gamma * decline); then, uniformly, a stored sample of the class.

    `decline` is minus the least-squares slope per epoch where higher is better, plus the slope where lower is (loss).
    The formula that the paper prints, softmax(gamma * slope), would favour classes that improve: `literal` gives it.

    Args:
        signal: whose slope.
        window: epochs to look back, at least 2. Fewer are used while there are fewer; with less than 2, and for a class
            with less than 2 observations, the decline is 0.
        gamma: sharpness; 0 is a class-uniform draw, to the bit.
        slope: ``"raw"``, per epoch in the signal's own units, where a gamma of 2 is nearly uniform; or
            ``"standardised"`` to mean 0 and deviation 1 over the classes in scope.
        scope: which classes compete: all ``"seen"``, or only those of ``"past"`` tasks (in the first task: all seen).
        source: the split of the history to measure on: ``"replay"`` (the replayed rows of the training passes, free),
            ``"holdout"``, or ``"test"``, which leaks the test data into training: an oracle, for comparison. A history
            that has evaluations, but none of this split, is an error: no trend would ever show.
        literal: the paper's printed sign.

    >>> history = History(class_to_task=[0, 0, 0])
    >>> for epoch, values in enumerate([(0.9, 0.5, 0.5), (0.7, 0.5, 0.6), (0.5, 0.5, 0.7)]):
    ...     rows = {name: np.array(values) for name in SIGNALS} | {"n": np.ones(3, int)}
    ...     history.record(rows, step=epoch, task=0, split="replay")
    >>> TrendSampler("cm", window=3).slopes(history).round(3).tolist()
    [-0.2, 0.0, 0.1]
    >>> TrendSampler("cm", window=3).probabilities(history)
    tensor([0.4506, 0.3021, 0.2473], dtype=torch.float64)
    """

    signal: str = "log_tlr"
    window: int = 10
    gamma: float = 2.0
    slope: Literal["raw", "standardised"] = "raw"
    scope: Literal["seen", "past"] = "seen"
    source: Literal["replay", "holdout", "test"] = "replay"
    literal: bool = False

    def __post_init__(self) -> None:
        SIGNALS[self.signal]  # an unknown name fails here, with the nearest one
        if self.window < 2:
            raise ValueError(f"window={self.window}: a slope needs at least 2 epochs")
        if not (self.gamma >= 0 and np.isfinite(self.gamma)):
            raise ValueError(f"gamma={self.gamma} must be 0 or more, and finite")
        known: dict[str, tuple[str, ...]] = {
            "slope": ("raw", "standardised"), "scope": ("seen", "past"), "source": ("replay", "holdout", "test"),
        }  # fmt: skip
        for name, values in known.items():
            if getattr(self, name) not in values:
                raise ValueError(f"unknown {name} {getattr(self, name)!r}: choose {' or '.join(values)}")

    def slopes(self, history: History) -> Array:
        """(C,) least-squares slope per epoch of each class over the window; NaN with less than 2 observations."""
        recent = history.tail(self.window, split=self.source)
        if history.evaluations and not recent:
            known = ", ".join(sorted({e.split for e in history.evaluations}))
            raise ValueError(
                f"nothing was recorded for source {self.source!r}, only for {known}: record with "
                f"split={self.source!r}, draw uniformly until you have, or choose another source"
            )
        column = list(SIGNALS).index(self.signal)
        values = np.full((len(recent), _num_classes(history, recent)), np.nan)
        for row, evaluation in enumerate(recent):
            values[row, evaluation.classes] = evaluation.values[:, column]
        return least_squares_slopes(values)

    def decline(self, history: History) -> Array:
        """(C,) how fast each class declines, in the units of `slope`; 0 where there is no telling yet."""
        slopes = self.slopes(history)
        if not self.literal and SIGNALS[self.signal].higher_is_better:
            slopes = -slopes
        return np.nan_to_num(slopes, nan=0.0)

    def probabilities(self, history: History, *, task: int | None = None) -> Tensor:
        """(C,) probabilities of the draw; 0 for classes out of scope.

        Args:
            history: what was measured so far; read, never changed.
            task: the task that is being learnt; default: that of the last evaluation. With ``scope="past"`` and at the
                start of a task, before its first evaluation, it must be given.
        """
        if not history.evaluations:
            raise ValueError("the history is empty: record an epoch first, or draw uniformly until there is one")
        now = history.evaluations[-1].task if task is None else task
        decline = self.decline(history)
        inside = self._in_scope(history, now, len(decline))
        if self.slope == "standardised":
            decline = _standardised(decline, inside & ~np.isnan(self.slopes(history)))
        score = np.where(inside, self.gamma * decline, -np.inf)
        return torch.softmax(torch.from_numpy(score), dim=0)

    def _in_scope(self, history: History, now: int, classes: int) -> NDArray[np.bool_]:
        if history.class_to_task is None:
            if self.scope == "past":
                raise ValueError("scope='past' needs the task of each class: make the history with class_to_task")
            return np.ones(classes, dtype=bool)
        tasks = history.class_to_task
        past = tasks < now
        return past if self.scope == "past" and past.any() else tasks <= now


def least_squares_slopes(values: Array) -> Array:
    """The slope of each column of (epochs, classes) over the epochs at which it was observed; NaN below two.

    >>> least_squares_slopes(np.array([[1.0, 5.0], [np.nan, np.nan], [3.0, np.nan]]))
    array([ 1., nan])
    """
    seen = np.isfinite(values)  # an infinite loss is no observation
    count = seen.sum(0)
    y = np.where(seen, values, 0.0)
    x = np.where(seen, np.arange(len(values), dtype=np.float64)[:, None], 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        dx = np.where(seen, x - x.sum(0) / count, 0.0)
        dy = np.where(seen, y - y.sum(0) / count, 0.0)
        slopes: Array = np.where(count >= 2, (dx * dy).sum(0) / (dx * dx).sum(0), np.nan)
    return slopes


def effective_classes(probabilities: Tensor) -> float:
    """How many classes a draw amounts to: the exponential of its entropy. C for a uniform draw over C classes.

    >>> round(effective_classes(torch.tensor([0.5, 0.5, 0.0])), 6)
    2.0
    """
    p = probabilities.double() / probabilities.sum()
    return float(torch.special.entr(p).sum().exp())


def _standardised(decline: Array, known: NDArray[np.bool_]) -> Array:
    """z-scores over the classes with a slope; 0, the mean, for the others and where all decline alike."""
    if not known.any():
        return np.zeros_like(decline)
    mean, deviation = decline[known].mean(), decline[known].std()
    if deviation <= 1e-12:  # rounding, not a difference: it must not be blown up to one
        return np.zeros_like(decline)
    return np.where(known, (decline - mean) / deviation, 0.0)


def _num_classes(history: History, recent: list[Evaluation]) -> int:
    if history.class_to_task is not None:
        return len(history.class_to_task)
    everything: list[Any] = [e.classes.max() for e in recent if len(e.classes)]
    return int(max(everything, default=-1)) + 1
