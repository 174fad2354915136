"""Online EWC (Schwarz et al., 2018): EWC with one running importance in place of one for each task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from pydantic import NonNegativeFloat

from wane.learners.batch import Scene
from wane.learners.ewc import EWC
from wane.learners.fisher import empirical_fisher
from wane.learners.gradients import vector_of

__all__ = ["OnlineEWC"]


@dataclass(frozen=True)
class Options:
    """What can be set."""

    strength: NonNegativeFloat = 100.0
    """Weight of the penalty (lambda)."""
    gamma: NonNegativeFloat = 1.0
    """How much of the earlier importance is kept when a task is added."""


class OnlineEWC(EWC):
    """Cross-entropy, plus lambda / 2 F (theta - theta*)^2, where F becomes gamma F + F_new and theta* moves on.

    Unlike in `ewc`, where earlier tasks still pull towards where they ended, all importance holds the parameters where
    the last task left them. F is as there, and so are the differences to other codes.
    """

    title = "online EWC"
    source = "Schwarz et al., Progress & Compress, ICML 2018"
    Options: ClassVar[type[Any]] = Options

    @torch.no_grad()
    def end_task(self, scene: Scene) -> None:
        """Add what mattered to this task, and note where the parameters are."""
        new = empirical_fisher(self.model, (b for b, _ in scene.batches()))
        self.fisher.mul_(self.options.gamma).add_(new)
        self.anchor.copy_(vector_of(self.weights))
