"""LwF (Li and Hoiem, 2016): the network before the task teaches the old classes, on the new task's images."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
import torch.nn.functional as F
from pydantic import NonNegativeFloat, PositiveFloat
from torch import Tensor, nn

from wane.learners.batch import Batch, Observed, Scene
from wane.learners.gradients import trained
from wane.learners.learner import Learner

__all__ = ["LwF", "Teacher"]


@dataclass(frozen=True)
class Options:
    """What can be set."""

    alpha: NonNegativeFloat = 1.0
    """Weight of the distillation."""
    temperature: PositiveFloat = 2.0
    """By which both softmaxes are softened."""


class Teacher(Learner):
    """A learner that keeps the network as it was before the current task: frozen, and always in eval mode."""

    def __init__(self, model: nn.Module, num_classes: int, options: Any = None) -> None:
        super().__init__(model, num_classes, options)
        self.teacher: nn.Module | None
        self.register_module("teacher", None)
        self.past: Tensor  # the classes of earlier tasks
        self.seen = torch.empty(0, dtype=torch.int64)  # and of this one

    def begin_task(self, scene: Scene) -> None:
        """The network before this task; in the first there is none."""
        self.weights = trained(self.model)
        device = self.weights[0].device
        self.past, self.seen = self.seen.to(device), torch.tensor(scene.seen, device=device)
        if scene.task.index > 0:
            self.teacher = copy.deepcopy(self.model).requires_grad_(False).eval()

    def train(self, mode: bool = True) -> Self:
        """The teacher stays in eval mode: its batch norm must not follow the new task."""
        super().train(mode)
        if self.teacher is not None:
            self.teacher.eval()
        return self


class LwF(Teacher):
    """Cross-entropy over the classes seen so far, plus alpha times that of the softened old network on the old classes.

    The teacher sees the same augmented batch, in eval mode, and its softmax is over the past classes, at temperature 2,
    without the factor T^2. Mammoth computes the teacher's logits once, on images that were not normalised, and first
    trains the new classes' head for as many epochs as the task has; Avalanche's teacher stays in train mode, so that
    its batch norm drifts.
    """

    title = "LwF"
    source = "Li and Hoiem, Learning without Forgetting, ECCV 2016"
    Options: ClassVar[type[Any]] = Options

    def begin_task(self, scene: Scene) -> None:
        """Which classes do not compete yet."""
        super().begin_task(scene)
        self.unseen = torch.ones(self.num_classes, dtype=torch.bool, device=self.seen.device)
        self.unseen[self.seen] = False

    def observe(self, batch: Batch) -> Observed:
        """Both terms for each row."""
        logits = self.model(batch.images)
        losses = F.cross_entropy(logits.masked_fill(self.unseen, -torch.inf), batch.labels, reduction="none")
        if self.teacher is not None:
            with torch.no_grad():
                taught = self.teacher(batch.images).index_select(1, self.past)
                wanted = (taught / self.options.temperature).softmax(1)
            answered = (logits.index_select(1, self.past) / self.options.temperature).log_softmax(1)
            losses = losses - self.options.alpha * (wanted * answered).sum(1)
        return Observed(losses, logits)
