"""EWC (Kirkpatrick et al., 2017): parameters that mattered to an earlier task are held near where it left them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from pydantic import NonNegativeFloat
from torch import Tensor

from wane.learners.batch import Batch, Observed, Scene
from wane.learners.fisher import empirical_fisher
from wane.learners.gradients import WeighsWeights, add_to_gradient, vector_of

__all__ = ["EWC"]


@dataclass(frozen=True)
class Options:
    """What can be set."""

    strength: NonNegativeFloat = 100.0
    """Weight of the penalty (lambda). A value from another code does not transfer: Fisher and factor 1/2 differ."""


class EWC(WeighsWeights):
    """Cross-entropy, plus lambda / 2 times the sum over earlier tasks k of F_k (theta - theta*_k)^2.

    F is the empirical Fisher information of the task's own training rows: each row's gradient squared, not augmented,
    in eval mode. Codes differ here: Mammoth has no 1/2, weighs each row by p(label), and passes single images in train
    mode; Avalanche has no 1/2 and squares the mean gradient of a batch, which is about 1 / batch of this.

    The papers and other codes keep F_k and theta*_k of every task. A sum of parabolas is a parabola: with A the sum of
    all F_k and m the mean of all theta*_k weighted by F_k, the penalty is lambda / 2 (A (theta - m)^2 + constant). So A
    and m are all that is kept, and neither state nor cost grows with the number of tasks. The penalty's gradient is
    added in closed form.
    """

    title = "EWC"
    source = "Kirkpatrick et al., Overcoming catastrophic forgetting in neural networks, PNAS 2017"
    Options: ClassVar[type[Any]] = Options

    vectors = ("fisher", "anchor")
    fisher: Tensor
    anchor: Tensor
    constant: Tensor

    def begin_task(self, scene: Scene) -> None:
        """Room for what earlier tasks leave, once."""
        super().begin_task(scene)
        if self.task == 0:
            self.register_buffer("constant", torch.zeros((), device=self.fisher.device))

    @torch.no_grad()
    def end_task(self, scene: Scene) -> None:
        """Add what mattered to this task: the sum of two parabolas is one between their lowest points."""
        new, now = empirical_fisher(self.model, (b for b, _ in scene.batches())), vector_of(self.weights)
        total = self.fisher + new
        share = torch.where(total > 0, new / total, 1.0)
        gap = now - self.anchor
        self.constant += (self.fisher * share * gap.square()).sum()
        self.anchor += share * gap
        self.fisher.copy_(total)

    def observe(self, batch: Batch) -> Observed:
        """Cross-entropy of the rows, and the penalty."""
        logits = self.model(batch.images)
        losses = F.cross_entropy(logits, batch.labels, reduction="none")
        if self.task == 0:
            return Observed(losses, logits)
        away = vector_of(self.weights).sub_(self.anchor)
        self.pull = self.fisher * away
        return Observed(losses, logits, self.options.strength / 2 * (torch.dot(self.pull, away) + self.constant))

    def after_backward(self, batch: Batch) -> None:
        """The penalty's gradient."""
        if self.task > 0:
            add_to_gradient(self.weights, self.pull.mul_(self.options.strength))
