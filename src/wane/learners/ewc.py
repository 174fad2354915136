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
from wane.learners.gradients import trained, vector_of
from wane.learners.learner import Learner

__all__ = ["EWC"]


@dataclass(frozen=True)
class Options:
    """What can be set."""

    strength: NonNegativeFloat = 100.0
    """Weight of the penalty (lambda). A value from another code does not transfer: Fisher and factor 1/2 differ."""


class EWC(Learner):
    """Cross-entropy, plus lambda / 2 times the sum over earlier tasks of F (theta - theta*)^2.

    F is the empirical Fisher information of the task's own training rows: each row's gradient squared, not augmented,
    in eval mode. Codes differ here: Mammoth has no 1/2, weighs each row by p(label), and passes single images in train
    mode; Avalanche has no 1/2 and squares the mean gradient of a batch, which is about 1 / batch of this. There is a
    term for every task, so state and cost grow with the number of tasks; `online_ewc` has one.
    """

    title = "EWC"
    source = "Kirkpatrick et al., Overcoming catastrophic forgetting in neural networks, PNAS 2017"
    Options: ClassVar[type[Any]] = Options

    def begin_task(self, scene: Scene) -> None:
        """Room for what this task will leave."""
        size = vector_of(trained(self.model)).shape
        for name in ("fisher", "anchor"):
            self.register_buffer(f"{name}_{scene.task.index}", torch.zeros(size, device=trained(self.model)[0].device))
        self.past = scene.task.index

    def end_task(self, scene: Scene) -> None:
        """Measure what mattered, and note where the parameters are."""
        getattr(self, f"fisher_{self.past}").copy_(empirical_fisher(self.model, (b for b, _ in scene.batches())))
        getattr(self, f"anchor_{self.past}").copy_(vector_of(trained(self.model)))

    def observe(self, batch: Batch) -> Observed:
        """Cross-entropy of the rows, and the penalty."""
        logits = self.model(batch.images)
        return Observed(F.cross_entropy(logits, batch.labels, reduction="none"), logits, self.penalty())

    def penalty(self) -> Tensor | float:
        """Lambda / 2 sum_k F_k (theta - theta*_k)^2; 0 in the first task."""
        if self.past == 0:
            return 0.0
        now = torch.cat([p.reshape(-1) for p in trained(self.model)])
        terms = [
            (getattr(self, f"fisher_{k}") * (now - getattr(self, f"anchor_{k}")).square()).sum()
            for k in range(self.past)
        ]
        penalty: Tensor = self.options.strength / 2 * torch.stack(terms).sum()
        return penalty
