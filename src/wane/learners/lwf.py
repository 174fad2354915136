"""LwF (Li and Hoiem, 2016): the network before the task teaches the old classes, on the new task's images."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
import torch.nn.functional as F
from pydantic import NonNegativeFloat, PositiveFloat
from torch import nn

from wane.learners.batch import Batch, Observed, Scene
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
        self.past: tuple[int, ...] = ()  # the classes of earlier tasks
        self.seen: tuple[int, ...] = ()  # and of this one

    def begin_task(self, scene: Scene) -> None:
        """The network before this task; in the first there is none."""
        self.past, self.seen = self.seen, scene.seen
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

    def observe(self, batch: Batch) -> Observed:
        """Both terms for each row."""
        logits = self.model(batch.images)
        unseen = torch.ones(self.num_classes, dtype=torch.bool, device=logits.device)
        unseen[list(self.seen)] = False
        losses = F.cross_entropy(logits.masked_fill(unseen, -torch.inf), batch.labels, reduction="none")
        if self.teacher is not None:
            past = list(self.past)
            with torch.no_grad():
                wanted = (self.teacher(batch.images)[:, past] / self.options.temperature).softmax(1)
            answered = (logits[:, past] / self.options.temperature).log_softmax(1)
            losses = losses - self.options.alpha * (wanted * answered).sum(1)
        return Observed(losses, logits)
