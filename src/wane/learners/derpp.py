"""DER++ (Buzzega et al., 2020): DER, and a second draw whose labels are learnt as well."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from pydantic import NonNegativeFloat

from wane.learners.batch import Batch, Observed
from wane.learners.der import DER

__all__ = ["DERpp"]


@dataclass(frozen=True)
class Options:
    """What can be set."""

    alpha: NonNegativeFloat = 0.3
    """Weight of the first draw's distance to its stored logits, a mean over the classes."""
    beta: NonNegativeFloat = 0.5
    """Weight of the second draw's cross-entropy."""


class DERpp(DER):
    """DER's loss, plus beta times the mean cross-entropy of a second, independent draw; three forward passes.

    As in Mammoth, whose table of best arguments has alpha 0.1 for CIFAR-100 and whose configuration file 0.3.
    Avalanche's `DER` is like this, but with one draw for both terms, logits stored at the end of a task in eval mode,
    and a class-balanced memory.
    """

    title = "DER++"
    Options: ClassVar[type[Any]] = Options
    draws = 2

    def observe(self, batch: Batch) -> Observed:
        """A forward pass for the new rows and one for each draw."""
        logits = self.logits_by_part(batch)
        fit = F.cross_entropy(logits, batch.labels, reduction="none")
        hold = self.options.alpha * (logits - batch.extras["logits"]).square().mean(1)
        again = torch.where(batch.draw == 2, self.options.beta * fit, fit)
        return Observed(torch.where(batch.draw == 1, hold, again), logits)
