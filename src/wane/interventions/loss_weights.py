"""Per-sample signal to loss weights: rows that are more forgotten pull harder."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from wane.checks import finite
from wane.softmax.registry import SIGNALS

if TYPE_CHECKING:
    from torch import Tensor

    from wane.softmax.container import Signals

__all__ = ["LossWeights", "weight_statistics"]


@dataclass(frozen=True)
class LossWeights:
    """Weights from the signals of the very forward pass that trains; multiply them into the per-row losses.

    Args:
        signal: which one scores a row.
        form: ``"inverse"``: 1 / (score + epsilon), the paper's words; ``"complement"``: 1 - score; ``"softmax"``:
            exp(-score / temperature). Where lower is better (loss), the orientation flips: score + epsilon, score,
            exp(score / temperature).
        epsilon: keeps the inverse finite. The paper does not give it, and it matters: the heaviest row counts at most
            (1 + epsilon) / epsilon times as much as the lightest, 11 times with the default.
        temperature: of the softmax form.
        normalise: ``"mean"``: scale the weights to mean 1 over the rows that count, so that they shift the loss between
            rows without changing its size; ``"none"``: leave them.
        rows: which rows of a training step get weights: the ``"replay"`` rows, or ``"all"``. For the training loop;
            in a loop of your own, pass the signals of the rows that you want to weigh.

    All leading dimensions are one batch: (B, T) tokens weigh against each other as B * T rows. A row whose score is not
    finite, as where `ignore_index` made it NaN, does not count: its weight is 0, and the others' are as without it.

    >>> import torch, wane
    >>> logits = torch.tensor([[3.0, 0, 0, 0], [0, 3.0, 0, 0]])
    >>> LossWeights("ctl", epsilon=0.1)(wane.signals(logits, torch.tensor([0, 0])))
    tensor([0.2574, 1.7426])
    >>> tokens = wane.signals(logits.repeat(2, 1, 1), torch.tensor([[0, 0], [0, -100]]), ignore_index=-100)
    >>> LossWeights("ctl", epsilon=0.1)(tokens)  # three rows of mean 1, and padding
    tensor([[0.3421, 2.3157],
            [0.3421, 0.0000]])
    """

    signal: str = "log_tlr"
    form: Literal["inverse", "complement", "softmax"] = "inverse"
    epsilon: float = 0.1
    temperature: float = 1.0
    normalise: Literal["mean", "none"] = "mean"
    rows: Literal["replay", "all"] = "replay"

    def __post_init__(self) -> None:
        row = SIGNALS[self.signal]  # an unknown name fails here, with the nearest one
        if row.of is None:
            raise ValueError(f"{self.signal!r} has no value for one row, so rows cannot be weighed by it: "
                             f"choose one of {', '.join(SIGNALS)}")  # fmt: skip
        if self.form not in ("inverse", "complement", "softmax"):
            raise ValueError(f"unknown form {self.form!r}: choose inverse, complement or softmax")
        if self.form == "complement" and row.higher_is_better and not row.bounded:
            raise ValueError(f"the complement of {self.signal!r}, which has no upper bound, is not defined: "
                             "choose another form")  # fmt: skip
        if self.normalise not in ("mean", "none"):
            raise ValueError(f"unknown normalise {self.normalise!r}: choose mean or none")
        if self.rows not in ("replay", "all"):
            raise ValueError(f"unknown rows {self.rows!r}: choose replay or all")
        finite("epsilon", self.epsilon, above=0)
        finite("temperature", self.temperature, above=0)

    def __call__(self, scored: Signals) -> Tensor:
        """Weights in the shape of the rows of `scored`, detached; of mean 1 unless `normalise` is ``"none"``."""
        import torch

        with torch.no_grad():
            values = scored[self.signal]
            # In float64, so that equal scores give weights of exactly 1, and the loss of plain replay to the bit.
            score = values.detach().to(torch.float64).reshape(-1)
            counts = score.isfinite()
            weights = torch.where(counts, self._unscaled(score, counts), 0.0)
            if self.normalise == "mean":
                mean = weights.sum() / counts.sum()
                # Nothing is forgotten at all: every complement is 0, and no row deserves more than another.
                weights = torch.where(mean > 0, weights / mean, counts.to(weights.dtype))
            return weights.to(values.dtype).view(values.shape)

    def _unscaled(self, score: Tensor, counts: Tensor) -> Tensor:
        """The form's weights of flat scores; where a row does not count they may be anything."""
        up = SIGNALS[self.signal].higher_is_better
        if self.form == "inverse":
            return 1 / (score + self.epsilon) if up else score + self.epsilon
        if self.form == "complement":
            return 1 - score if up else score
        forgotten = (-score if up else score) / self.temperature
        return forgotten.masked_fill(~counts, -math.inf).softmax(dim=0) * counts.sum()


def weight_statistics(weights: Tensor) -> Tensor:
    """(3,): the least and the greatest weight, and the effective sample size as a share of the rows.

    The share is (sum w)^2 / (n sum w^2): 1 for equal weights, 1/n if one row has all.

    >>> import torch
    >>> weight_statistics(torch.tensor([1.0, 1.0, 0.0, 0.0]))
    tensor([0.0000, 1.0000, 0.5000])
    """
    import torch

    effective = weights.sum() ** 2 / (weights.numel() * (weights * weights).sum())
    return torch.stack([weights.min(), weights.max(), effective])
