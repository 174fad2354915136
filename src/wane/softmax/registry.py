r"""The signals by name: one row each, with its formula as code (`of`) and as text (`formula`) side by side.

Every other part of wane reads names, titles, bounds, colours and orientation from here, so a new signal is one new row,
also at run time:

>>> SIGNALS["top5"] = Signal("top5", "Among the first five", "t", "rank", r"[\mathrm{rank}_y \le 5]", True,
...                          of=lambda s: s.rank <= 5)
>>> SIGNALS["top5"].bounded
True
>>> del SIGNALS["top5"]

The module needs no torch: the formulas are applied to whatever numbers a `Sample` holds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from wane.registry import Registry

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["SIGNALS", "Sample", "Signal"]

#: The colours of a signal that names none, on a light and on a dark ground.
COLOURS = ("#7a5195", "#b48fd1")


class Sample(NamedTuple):
    """What the formulas are written in: p_y, max_c p_c, -ln p_y, rank_y - 1 and rank_y (as floats), C and ln C."""

    p: Tensor
    p_max: Tensor
    loss: Tensor
    above: Tensor
    rank: Tensor
    classes: int
    log_classes: float | Tensor


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
        of: the formula as code; may return booleans.
        short: the name that fits below an axis; default: the title.
        bounds: (0, 1), or (0, infinity) for a signal with units of its own.
        unit: such as ``"nats"``; empty for a share.
        colours: on a light and on a dark ground.
    """

    name: str
    title: str
    symbol: str
    family: str
    formula: str
    higher_is_better: bool
    of: Callable[[Sample], Any] = field(repr=False)
    short: str = ""
    bounds: tuple[float, float] = (0.0, 1.0)
    unit: str = ""
    colours: tuple[str, str] = COLOURS

    def __post_init__(self) -> None:
        if not self.name.isidentifier() or self.name in ("rank", "n"):
            raise ValueError(f"a signal cannot be named {self.name!r}: choose a Python name other than rank and n")
        if tuple(self.bounds) not in ((0.0, 1.0), (0.0, math.inf)):
            raise ValueError(f"signal {self.name!r} has bounds {self.bounds}: give (0, 1) or (0, math.inf)")
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


def _rows(*rows: Signal) -> dict[str, Signal]:
    return {row.name: row for row in rows}


# Colours: Okabe and Ito's set, which stays distinct for the colour-blind, without its yellow (too pale on paper); grey
# for the loss, and the colour of the text for accuracy, against which everything else is read. On a dark ground the
# same hues, the darkest two made lighter so that thin lines stay visible.
SIGNALS: Registry[Signal] = Registry(
    "signal",
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
)  # fmt: skip
