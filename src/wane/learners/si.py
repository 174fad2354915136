"""SI (Zenke et al., 2017): importance is what a parameter's own movement took off the loss, summed along the way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from pydantic import NonNegativeFloat, PositiveFloat
from torch import Tensor

from wane.learners.batch import Batch, Scene
from wane.learners.gradients import WeighsWeights, add_to_gradient, gradient_vector, vector_of

__all__ = ["SI"]


@dataclass(frozen=True)
class Options:
    """What can be set."""

    c: NonNegativeFloat = 0.5
    """Weight of the penalty."""
    xi: PositiveFloat = 1.0
    """Keeps the importance of a parameter that hardly moved finite."""
    clip: NonNegativeFloat = 1.0
    """Largest absolute value of a gradient's entry at the step, as in Mammoth; 0 for no limit, as in the paper."""


class SI(WeighsWeights):
    """Cross-entropy, plus c times the sum of Omega (theta - theta*)^2.

    Each step adds -g (theta_after - theta_before) to omega, where g is the gradient of the loss alone; at the end of a
    task Omega grows by omega / ((theta - theta_start)^2 + xi). The penalty's gradient is added in closed form after g
    was taken. Omega may be negative, as in Mammoth. Avalanche's g includes the penalty's gradient, and its Omega has a
    ceiling.
    """

    title = "SI"
    source = "Zenke et al., Continual Learning Through Synaptic Intelligence, ICML 2017"
    Options: ClassVar[type[Any]] = Options

    vectors = ("importance", "path", "anchor")
    importance: Tensor
    path: Tensor
    anchor: Tensor

    def begin_task(self, scene: Scene) -> None:
        """Room for the importances, once; where the task starts."""
        super().begin_task(scene)
        # what a step needs for a moment: fresh memory for it would cost more than the sums
        self.before, self.gradient, self.now = (torch.empty_like(self.anchor) for _ in range(3))
        if self.task == 0:
            vector_of(self.weights, out=self.anchor)

    def after_backward(self, batch: Batch) -> None:
        """Keep the loss's own gradient, then add the penalty's, then clip."""
        vector_of(self.weights, out=self.before)
        gradient_vector(self.weights, out=self.gradient)
        if self.task > 0:
            away = torch.sub(self.before, self.anchor, out=self.now)
            add_to_gradient(self.weights, away.mul_(self.importance).mul_(2 * self.options.c))
        if self.options.clip > 0:
            torch.nn.utils.clip_grad_value_(self.weights, self.options.clip)

    def after_step(self, batch: Batch) -> None:
        """What this step took off the loss, to first order."""
        self.path.addcmul_(self.gradient, self.before.sub_(vector_of(self.weights, out=self.now)))

    def end_task(self, scene: Scene) -> None:
        """From the path to the importance; the next task starts here."""
        now = vector_of(self.weights)
        self.importance += self.path / ((now - self.anchor).square() + self.options.xi)
        self.anchor.copy_(now)
        self.path.zero_()
