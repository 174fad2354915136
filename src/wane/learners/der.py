"""DER (Buzzega et al., 2020): replayed rows are held to the logits that the network had when they were stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from pydantic import NonNegativeFloat
from torch import Tensor

from wane.learners.batch import Batch, Observed
from wane.learners.learner import Learner

__all__ = ["DER"]


@dataclass(frozen=True)
class Options:
    """What can be set."""

    alpha: NonNegativeFloat = 0.3
    """Weight of the distance to the stored logits: a mean over the classes, where the paper has a sum."""


class DER(Learner):
    """Cross-entropy of new rows, plus alpha times the mean squared distance of the draw's logits to the stored ones.

    Stored are the logits of the very pass that trained on a row: in train mode, on the augmented image, over the whole
    head. Stream and draw go through the network separately. As in Mammoth; Avalanche's `DER` is another method (see
    `derpp`).
    """

    title = "DER"
    source = "Buzzega et al., Dark Experience for General Continual Learning, NeurIPS 2020"
    Options: ClassVar[type[Any]] = Options
    draws = 1
    means = "draw"

    def stored_extras(self) -> dict[str, tuple[int, ...]]:
        """A row's logits."""
        return {"logits": (self.num_classes,)}

    def extras_of(self, batch: Batch, observed: Observed) -> dict[str, Tensor]:
        """Those of this pass."""
        return {"logits": observed.logits.detach()}

    def observe(self, batch: Batch) -> Observed:
        """A forward pass for the new rows and one for the draw."""
        logits = self.logits_by_part(batch)
        fit = F.cross_entropy(logits, batch.labels, reduction="none")
        hold = self.options.alpha * (logits - batch.extras["logits"]).square().mean(1)
        return Observed(torch.where(batch.draw == 1, hold, fit), logits)
