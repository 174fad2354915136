r"""The signals by name: one row each, with its formula as code (`of`) and as text (`formula`) side by side.

Every other part of wane reads names, titles, bounds, colours and orientation from here, so a new signal is one new row,
also at run time:

>>> SIGNALS["sure"] = Signal("sure", "More likely than not", "u", "confidence", r"[p_y > 1/2]", True,
...                          of=lambda s: s.p > 0.5)
>>> SIGNALS["sure"].bounded
True
>>> del SIGNALS["sure"]

What is in `SIGNALS` is always computed. Rows that are known but computed only where they are asked for (`also=` of
`wane.signals` and of the metrics, `record.signals` of a run) are in `SIGNALS.further`, and ``top1``, ``top2``, ... are
made on demand. A look-up finds them all, so that whoever reads a file knows their titles:

>>> list(SIGNALS.further)
['mrr', 'ndcg', 'confidence', 'brier', 'brier_top', 'ece', 'mce', 'reliability', 'resolution', 'uncertainty']
>>> "mrr" in SIGNALS, SIGNALS["mrr"].title, SIGNALS["top7"].title
(False, 'Mean reciprocal rank', 'Among the first 7')

The module needs no torch: the formulas are applied to whatever numbers a `Sample` holds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from wane.registry import Registry

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["SIGNALS", "Bins", "Sample", "Signal", "SignalRegistry"]

#: The colours of a signal that names none, on a light and on a dark ground.
COLOURS = ("#7a5195", "#b48fd1")


class Sample(NamedTuple):
    """What the formulas are written in: p_y, max_c p_c, -ln p_y, rank_y - 1 and rank_y (as floats), C and ln C.

    `squares`, the sum over all classes of p_c^2, is there for rows that say they read it (`Signal.squares`).
    """

    p: Tensor
    p_max: Tensor
    loss: Tensor
    above: Tensor
    rank: Tensor
    classes: int
    log_classes: float | Tensor
    squares: Any = None


class Bins(NamedTuple):
    """What the formulas of pooled rows are written in: NumPy arrays (..., bins) of what fell into each bin.

    The samples, the sum of their confidences, and how many of their answers were right.
    """

    n: Any
    confidence: Any
    correct: Any

    @property
    def gap(self) -> Any:
        """By how much the answers that were right fall short of what confidence promised, or exceed it."""
        return abs(self.correct - self.confidence)

    @property
    def accuracy(self) -> Any:
        """(..., 1) the share of right answers in all bins together."""
        return self.correct.sum(-1, keepdims=True) / self.n.sum(-1, keepdims=True)

    def mean(self, values: Any) -> Any:
        """The mean over bins, each with the weight of its samples; bins without any do not count."""
        return (self.n * values).sum(-1, where=self.n > 0) / self.n.sum(-1)


@dataclass(frozen=True)
class Signal:
    """One row of the registry.

    Args:
        name: the key in `SIGNALS`, the attribute of `wane.Signals` and the column of a history.
        title: for headings.
        symbol: in formulas, LaTeX.
        family: what it looks at: decision, confidence, rank or divergence.
        formula: LaTeX.
        higher_is_better: False for a signal such as the loss.
        of: the formula as code; may return booleans. None for a pooled row, which has no value for one sample.
        short: the name that fits below an axis; default: the title.
        bounds: (0, 1); (0, infinity), or (0, another limit), for a signal with an axis of its own.
        unit: such as ``"nats"``; empty for a share.
        colours: on a light and on a dark ground.
        squares: whether the formula reads `Sample.squares`.
        pooled: for a measure that is no mean over samples, such as the ECE: its value for each group from the `Bins` of
            confidence of the group's samples.
    """

    name: str
    title: str
    symbol: str
    family: str
    formula: str
    higher_is_better: bool
    of: Callable[[Sample], Any] | None = field(repr=False)
    short: str = ""
    bounds: tuple[float, float] = (0.0, 1.0)
    unit: str = ""
    colours: tuple[str, str] = COLOURS
    squares: bool = False
    pooled: Callable[[Bins], Any] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not self.name.isidentifier() or self.name in ("rank", "n"):
            raise ValueError(f"a signal cannot be named {self.name!r}: choose a Python name other than rank and n")
        if self.bounds[0] != 0 or not self.bounds[1] > 0:
            raise ValueError(f"signal {self.name!r} has bounds {self.bounds}: give (0, 1) or (0, math.inf)")
        if (self.of is None) == (self.pooled is None):
            raise ValueError(f"signal {self.name!r} needs a formula: of= for a value of each sample, or pooled=")
        if not self.short:
            object.__setattr__(self, "short", self.title)

    @property
    def bounded(self) -> bool:
        """Whether it lies between 0 and 1, and so can share an axis with the others."""
        return self.bounds[1] == 1.0

    @property
    def sign(self) -> int:
        """1 where higher is better, else -1."""
        return 1 if self.higher_is_better else -1


class SignalRegistry(Registry[Signal]):
    """The signals that are always computed, in a dict; a look-up also finds those that are computed where asked for."""

    def __init__(self, rows: dict[str, Signal], further: dict[str, Signal]) -> None:
        super().__init__("signal", rows)
        self.further = further

    def __missing__(self, name: str) -> Signal:
        found = self.further.get(name) or _top(name)
        if found is None:
            raise self.unknown(name, [*self, *self.further, "top5"])
        return found

    def __setitem__(self, name: str, row: Signal) -> None:
        if row.of is None:
            raise ValueError(f"{name!r} has no value for one sample, so it cannot be a signal that is always computed: "
                             "ask for it with also=")  # fmt: skip
        super().__setitem__(name, row)

    def knows(self, name: str) -> bool:
        """Whether a look-up finds it."""
        return name in self or name in self.further or _top(name) is not None

    def of_samples(self, also: Iterable[str] = ()) -> tuple[Signal, ...]:
        """The rows to compute for each sample: those of the dict, and what `also` asks for or is made of.

        >>> [row.name for row in SIGNALS.of_samples(["top5", "ece"])][8:]
        ['top5', 'confidence']
        """
        wanted = dict(self)
        for name in _names(also):
            row = self[name]
            for part in (row,) if row.of is not None else (self["confidence"],):
                wanted.setdefault(part.name, part)
        return tuple(wanted.values())

    def pooled(self, also: Iterable[str]) -> tuple[Signal, ...]:
        """The rows of `also` that are made of bins, each once."""
        rows = {name: self[name] for name in _names(also)}
        return tuple(row for row in rows.values() if row.pooled is not None)


def _names(also: Iterable[str]) -> Iterable[str]:
    return (also,) if isinstance(also, str) else also


@cache
def _top(name: str) -> Signal | None:
    """The row of ``top5`` and the like; None for any other name."""
    if not isinstance(name, str) or (found := re.fullmatch(r"top([1-9]\d{0,8})", name)) is None:
        return None
    k = int(found[1])
    return Signal(name, f"Among the first {k}", "t", "rank", rf"[\mathrm{{rank}}_y \le {k}]", True,
                  lambda s: s.rank <= k, short=f"Top-{k}", colours=("#4c6a92", "#8fb0dd"))  # fmt: skip


def _rows(*rows: Signal) -> dict[str, Signal]:
    return {row.name: row for row in rows}


# With one relevant item, which is what a label is, the rank alone decides the metrics of retrieval. Those of
# calibration need the confidence of the answer, max_c p_c; what needs bins of it is pooled.
_FURTHER = _rows(
    Signal("mrr", "Mean reciprocal rank", r"\rho", "rank", r"\frac{1}{\mathrm{rank}_y}", True,
           lambda s: 1 / s.rank,
           short="MRR", colours=("#3c7d5a", "#7fc9a2")),
    Signal("ndcg", "nDCG with one relevant item", "g", "rank", r"\frac{1}{\log_2(1 + \mathrm{rank}_y)}", True,
           lambda s: 1 / (1 + s.rank).log2(),
           short="nDCG", colours=("#6b8e23", "#a9cc5f")),
    Signal("confidence", "Confidence of the answer", "c", "confidence", r"\max_c p_c", True,
           lambda s: s.p_max,
           short="Confidence", colours=("#8c564b", "#c9958a")),
    Signal("brier", "Brier score", "b", "confidence", r"\sum_c (p_c - [c = y])^2", False,
           # In float32 what is 0 may come out as -1e-7.
           lambda s: (1 - 2 * s.p + s.squares).clamp(min=0),
           short="Brier", bounds=(0.0, 2.0), squares=True, colours=("#b5651d", "#e0a06a")),
    Signal("brier_top", "Brier score of the answer", "b_t", "confidence",
           r"(\max_c p_c - [\mathrm{rank}_y = 1])^2", False,
           lambda s: (s.p_max - (1 - s.above).clamp(min=0)).square(),
           short="Brier, top", colours=("#c8843c", "#ebb983")),
    Signal("ece", "Expected calibration error", "e", "calibration",
           r"\sum_b \frac{n_b}{n} |\mathrm{acc}_b - \mathrm{conf}_b|", False, None,
           short="ECE", colours=("#a02c5a", "#e07ba6"),
           pooled=lambda b: b.gap.sum(-1) / b.n.sum(-1)),
    Signal("mce", "Maximum calibration error", "e_m", "calibration",
           r"\max_b |\mathrm{acc}_b - \mathrm{conf}_b|", False, None,
           short="MCE", colours=("#7b1e3f", "#c76a8e"),
           # without samples there is no greatest gap: 0 / 0
           pooled=lambda b: (b.gap / b.n).max(-1, where=b.n > 0, initial=0.0) + 0 / b.n.sum(-1)),
    Signal("reliability", "Reliability of the answer", "v", "calibration",
           r"\sum_b \frac{n_b}{n} (\mathrm{acc}_b - \mathrm{conf}_b)^2", False, None,
           short="Reliability", colours=("#5c4b8a", "#a595d6"),
           pooled=lambda b: b.mean((b.gap / b.n) ** 2)),
    Signal("resolution", "Resolution of the answer", "w", "calibration",
           r"\sum_b \frac{n_b}{n} (\mathrm{acc}_b - \mathrm{acc})^2", True, None,
           short="Resolution", colours=("#2f6f8f", "#7db8d6"),
           pooled=lambda b: b.mean((b.correct / b.n - b.accuracy) ** 2)),
    Signal("uncertainty", "Uncertainty of the outcome", "u", "calibration",
           r"\mathrm{acc} (1 - \mathrm{acc})", False, None,
           short="Uncertainty", colours=("#777777", "#a8a8a8"),
           pooled=lambda b: (b.accuracy * (1 - b.accuracy))[..., 0]),
)  # fmt: skip


# Colours: Okabe and Ito's set, which stays distinct for the colour-blind, without its yellow (too pale on paper); grey
# for the loss, and the colour of the text for accuracy, against which everything else is read. On a dark ground the
# same hues, the darkest two made lighter so that thin lines stay visible.
SIGNALS: SignalRegistry = SignalRegistry(
    _rows(
        # Written as 1 - above, not rank == 1, so that a rank of NaN gives NaN and not "wrong".
        Signal("accuracy", "Accuracy", "a", "decision", r"[\mathrm{rank}_y = 1]", True,
               lambda s: (1 - s.above).clamp(min=0),
               colours=("#1c1e26", "#e9e8e4")),
        Signal("loss", "Loss", r"\ell", "confidence", r"-\ln p_y", False,
               lambda s: s.loss,
               bounds=(0.0, math.inf), unit="nats", colours=("#8a8a8a", "#9a9a9a")),
        # Written so that a correct prediction gives exactly 1: 1 + p - p would round.
        Signal("cm", "Confusion margin", "m", "confidence", r"1 + p_y - \max_c p_c", True,
               lambda s: 1 - (s.p_max - s.p),
               short="CM", colours=("#d55e00", "#f0793a")),
        Signal("tlr", "True-label rank", "r", "rank", r"1 - \frac{\mathrm{rank}_y - 1}{C - 1}", True,
               lambda s: 1 - s.above / (s.classes - 1),
               short="TLR", colours=("#56b4e9", "#8fd0f5")),
        # The clamp keeps the last rank at 0: in float32 log(C) may exceed ln C by a rounding.
        Signal("log_tlr", "Log true-label rank", "l", "rank", r"1 - \frac{\ln \mathrm{rank}_y}{\ln C}", True,
               lambda s: (1 - s.rank.log() / s.log_classes).clamp(min=0),
               short="Log-TLR", colours=("#0072b2", "#4a9fe0")),
        Signal("rtlr", "Reciprocal true-label rank", "s", "rank",
               r"\frac{C - \mathrm{rank}_y}{(C - 1)\,\mathrm{rank}_y}", True,
               lambda s: (s.classes - s.rank) / ((s.classes - 1) * s.rank),
               short="RTLR", colours=("#009e73", "#2fc497")),
        Signal("ctl", "True-label confidence", "q", "confidence", r"p_y", True,
               lambda s: s.p,
               short="CTL", colours=("#cc79a7", "#dd95bd")),
        Signal("nkl", "Normalised KL", "k", "divergence", r"1 - \frac{\min(-\ln p_y, \ln C)}{\ln C}", True,
               lambda s: (1 - s.loss / s.log_classes).clamp(min=0),
               short="NKL", colours=("#e69f00", "#f2b53c")),
    ),
    _FURTHER,
)  # fmt: skip
