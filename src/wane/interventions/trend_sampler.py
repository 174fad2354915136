"""History to class probabilities: replay what is declining, by the slope of a signal over the last epochs."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from wane.checks import finite, whole
from wane.softmax.registry import SIGNALS

# numpy and torch are imported where they are used: a config that names a sampler needs neither.
if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from wane.measures.history import History

    Array = NDArray[np.float64]

__all__ = ["TrendSampler", "effective_classes"]


@dataclass(frozen=True)
class TrendSampler:
    """Draw classes with probability softmax(gamma * decline); then, uniformly, a stored sample of the class.

    A class here is a group of the history, whatever its `kind`: the draw may as well be among domains.

    `decline` is minus the least-squares slope per epoch where higher is better, plus the slope where lower is (loss).
    The formula that the paper prints, softmax(gamma * slope), would favour classes that improve: `literal` gives it.

    Args:
        signal: whose slope.
        window: epochs to look back, at least 2. Fewer are used while there are fewer; with fewer than 2, and for a
            class with fewer than 2 observations, the decline is 0.
        gamma: sharpness; 0 is a class-uniform draw, to the bit.
        slope: ``"raw"``, per epoch in the signal's own units, where a gamma of 2 is nearly uniform; or
            ``"standardised"`` to mean 0 and deviation 1 over the classes in scope.
        scope: which classes compete: all ``"seen"``, those of the tasks so far (without `class_to_task`: those that had
            samples in some evaluation), or only those of ``"past"`` tasks (in the first task: all seen).
        source: the split of the history to measure on: ``"replay"`` (the replayed rows of the training passes, free),
            ``"holdout"``, ``"memory_holdout"`` (slots that are never replayed), or ``"test"``, which leaks the test
            data into training: an oracle, for comparison. Until something is recorded there the draw is class-uniform;
            if a second task goes by without, a warning says so.
        literal: the paper's printed sign.

    >>> import numpy as np
    >>> from wane import History
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
    source: Literal["replay", "holdout", "memory_holdout", "test"] = "replay"
    literal: bool = False

    def __post_init__(self) -> None:
        SIGNALS[self.signal]  # an unknown name fails here, with the nearest one
        whole("window", self.window, least=2)  # a slope needs two epochs
        finite("gamma", self.gamma, least=0)
        known: dict[str, tuple[str, ...]] = {
            "slope": ("raw", "standardised"), "scope": ("seen", "past"),
            "source": ("replay", "holdout", "memory_holdout", "test"),
        }  # fmt: skip
        for name, values in known.items():
            if getattr(self, name) not in values:
                raise ValueError(f"unknown {name} {getattr(self, name)!r}: choose {' or '.join(values)}")

    def slopes(self, history: History) -> Array:
        """(C,) least-squares slope per epoch of each known class over the window; NaN with fewer than 2 epochs."""
        import numpy as np

        recent = history.tail(self.window, split=self.source)
        values = np.full((len(recent), len(history.seen)), np.nan)
        for row, evaluation in enumerate(recent):
            values[row, evaluation.classes] = history.column(evaluation, self.signal)
        return least_squares_slopes(values)

    def decline(self, history: History) -> Array:
        """(C,) how fast each class declines, in the units of the signal; 0 where that is not known yet."""
        import numpy as np

        slopes = self.slopes(history)
        if not self.literal and SIGNALS[self.signal].higher_is_better:
            slopes = -slopes
        return np.nan_to_num(slopes, nan=0.0)

    def probabilities(self, history: History, *, task: int | None = None) -> Tensor:
        """(C,) probabilities of the draw, for every class known to the history; 0 for classes out of scope.

        It can be asked at any time: while there is no trend to go by, all classes in scope are equally likely.

        Args:
            history: what was measured so far; read, never changed.
            task: the task that is being learnt; default: that of the last evaluation. With ``scope="past"`` and at the
                start of a task, before its first evaluation, it must be given.
        """
        import numpy as np
        import torch

        if not history.num_groups:
            raise ValueError(
                f"the history knows no {history.kind} yet: make it with class_to_task or names, or record an evaluation"
            )
        last = history.evaluations[-1].task if history.evaluations else 0
        now = last if task is None else whole("task", task)
        self._warn_if_in_vain(history)
        decline = self.decline(history)
        inside = self._in_scope(history, now)
        if not inside.any():
            raise ValueError(f"no {history.kind} is in scope {self.scope!r} at task {now}: tasks are numbered from 0")
        if self.slope == "standardised":
            decline = _standardised(decline, inside & ~np.isnan(self.slopes(history)))
        score = np.where(inside, self.gamma * decline, -np.inf)
        return torch.softmax(torch.from_numpy(score), dim=0)

    def _in_scope(self, history: History, now: int) -> NDArray[np.bool_]:
        import numpy as np

        from wane.measures.task_map import tasks_of

        seen = history.seen
        if history.class_to_task is None:
            if self.scope == "past":
                raise ValueError("scope='past' needs the task of each class: make the history with class_to_task")
            return seen if seen.any() else ~seen
        tasks = tasks_of(history.class_to_task, np.arange(len(seen)))
        begun: NDArray[np.bool_] = (tasks >= 0) & (tasks <= now)
        past = begun & (tasks < now)
        return past if self.scope == "past" and past.any() else begun

    def _warn_if_in_vain(self, history: History) -> None:
        """A source that nobody records makes every draw uniform, for ever: that is hardly what was wanted."""
        if history.tail(1, split=self.source) or len({evaluation.task for evaluation in history.evaluations}) < 2:
            return
        warnings.warn(
            f"nothing was recorded for source {self.source!r}, only for {', '.join(sorted(history.splits))}: the draw "
            f"stays uniform; record with split={self.source!r}, or choose another source",
            stacklevel=3,
        )


def least_squares_slopes(values: Array) -> Array:
    """The slope of each column of (epochs, classes) over the epochs at which it was observed; NaN below two.

    >>> import numpy as np
    >>> least_squares_slopes(np.array([[1.0, 5.0], [np.nan, np.nan], [3.0, np.nan]]))
    array([ 1., nan])
    """
    import numpy as np

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

    >>> import torch
    >>> round(effective_classes(torch.tensor([0.5, 0.5, 0.0])), 6)
    2.0
    """
    import torch

    p = probabilities.double() / probabilities.sum()
    return float(torch.special.entr(p).sum().exp())


def _standardised(decline: Array, known: NDArray[np.bool_]) -> Array:
    """z-scores over the classes with a slope; 0, the mean, for the others and where all decline alike."""
    import numpy as np

    if not known.any():
        return np.zeros_like(decline)
    mean, deviation = decline[known].mean(), decline[known].std()
    if deviation <= 1e-12:  # rounding, not a difference: it must not be blown up to one
        return np.zeros_like(decline)
    return np.where(known, (decline - mean) / deviation, 0.0)
