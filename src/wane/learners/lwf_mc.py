"""LwF.MC (Rebuffi et al., 2017): iCaRL's loss without exemplars, where the old network teaches the old classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from pydantic import NonNegativeFloat
from torch import Tensor

from wane.learners.batch import Batch, Observed
from wane.learners.gradients import add_decay, decay
from wane.learners.lwf import Teacher

__all__ = ["LwFMC", "taught_targets"]


@dataclass(frozen=True)
class Options:
    """What can be set."""

    weight_decay: NonNegativeFloat = 1e-5
    """Weight of the sum of all squared parameters in the loss."""


class LwFMC(Teacher):
    """Binary cross-entropy over the classes seen so far; targets of past classes are the old network's sigmoids.

    Answers by the largest output, unlike `icarl`, which keeps exemplars and answers by the nearest mean.
    """

    title = "LwF.MC"
    source = "Rebuffi et al., iCaRL: Incremental Classifier and Representation Learning, CVPR 2017"
    Options: ClassVar[type[Any]] = Options
    needs_new_classes = True

    def observe(self, batch: Batch) -> Observed:
        """A row's loss is the mean over the seen classes."""
        logits = self.model(batch.images)
        known, wanted = (x.index_select(1, self.seen) for x in (logits, taught_targets(self, batch, logits)))
        losses = F.binary_cross_entropy_with_logits(known, wanted, reduction="none").mean(1)
        return Observed(losses, logits, decay(self.weights, self.options.weight_decay))

    def after_backward(self, batch: Batch) -> None:
        """The gradient of the decay, which has no graph."""
        add_decay(self.weights, self.options.weight_decay)


def taught_targets(learner: Teacher, batch: Batch, logits: Tensor) -> Tensor:
    """One-hot labels; for past classes the sigmoids of the old network instead."""
    targets = F.one_hot(batch.labels, logits.shape[1]).to(logits.dtype)
    if learner.teacher is not None:
        with torch.no_grad():
            taught = learner.teacher(batch.images).index_select(1, learner.past)
            targets.index_copy_(1, learner.past, taught.sigmoid().to(targets))
    return targets
