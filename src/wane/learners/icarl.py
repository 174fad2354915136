"""iCaRL (Rebuffi et al., 2017): exemplars by herding, distillation by sigmoids, answers by the nearest class mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from pydantic import NonNegativeFloat
from torch import Tensor

from wane.learners.batch import Batch, Observed, Scene
from wane.learners.gradients import add_decay, decay
from wane.learners.lwf import Teacher
from wane.learners.lwf_mc import taught_targets
from wane.models.blocks import features_of, head_of

__all__ = ["ICaRL"]

#: Squared distance of opposite unit vectors: no class that has a mean is farther away than one that has none.
FARTHEST = 4.0


@dataclass(frozen=True)
class Options:
    """What can be set."""

    weight_decay: NonNegativeFloat = 1e-5
    """Weight of the sum of all squared parameters in the loss."""


class ICaRL(Teacher):
    """Binary cross-entropy over all outputs on the task's rows and the exemplars as one data set; nearest-mean answers.

    Targets of past classes are the old network's sigmoids, of the others the labels. At the end of a task the exemplars
    of its classes are chosen by herding on normalised features of plain images, and older sets are cut to their first
    ones. The answer is minus the squared distance of the normalised feature to the renormalised mean over a class's
    exemplars and their mirror images. While a task is learnt, the means of its classes are those of its training rows:
    it has no exemplars yet. Minus squared distances lie in [-4, 0], so with 100 classes no probability exceeds 0.36:
    compare ranks and accuracy with other methods, not ctl, nkl or loss. Mammoth's configuration file takes the means
    over all training images in place of the exemplars.
    """

    title = "iCaRL"
    source = "Rebuffi et al., iCaRL: Incremental Classifier and Representation Learning, CVPR 2017"
    Options: ClassVar[type[Any]] = Options
    rows = "task_and_memory"
    policy = "herding"
    answers_ahead = False
    needs_new_classes = True

    class_means: Tensor

    def begin_task(self, scene: Scene) -> None:
        """The old network, and room for the means."""
        super().begin_task(scene)
        if scene.task.index == 0:
            width = head_of(self.model).in_features
            self.register_buffer("class_means", torch.zeros(self.num_classes, width, device=self.seen.device))

    def observe(self, batch: Batch) -> Observed:
        """A row's loss is the mean over all outputs; those of future classes have target 0."""
        logits = self.model(batch.images)
        targets = taught_targets(self, batch, logits)
        losses = F.binary_cross_entropy_with_logits(logits, targets, reduction="none").mean(1)
        return Observed(losses, logits, decay(self.weights, self.options.weight_decay))

    def after_backward(self, batch: Batch) -> None:
        """The gradient of the decay, which has no graph."""
        add_decay(self.weights, self.options.weight_decay)

    def before_evaluation(self, scene: Scene) -> None:
        """The means move with the features."""
        sums = torch.zeros_like(self.class_means)
        for batch in scene.remembered():
            self._add(sums, batch.images, batch.labels)
        fresh = [c for c in scene.task.classes if not sums[c].any()]
        if fresh:
            for batch, _ in scene.batches():
                chosen = torch.isin(batch.labels, batch.labels.new_tensor(fresh))
                self._add(sums, batch.images[chosen], batch.labels[chosen])
        self.class_means.copy_(F.normalize(sums, dim=1))

    @torch.no_grad()
    def end_task(self, scene: Scene) -> None:
        """Choose the exemplars of the task's classes."""
        batches = [(self._features(b.images), b.labels, raw) for b, raw in scene.batches()]
        features, labels, images = (torch.cat(column) for column in zip(*batches, strict=True))
        assert scene.memory is not None
        scene.memory.select(images, labels, features, task=scene.task.index, step=scene.step)

    def predict(self, images: Tensor, tasks: Tensor | None = None) -> Tensor:
        """Minus the squared distance to each class's mean; classes without one are the farthest."""
        features = self._features(images)
        distances = torch.cdist(features, self.class_means).square()
        return -torch.where(self.class_means.any(1), distances, FARTHEST)

    def _features(self, images: Tensor) -> Tensor:
        return F.normalize(features_of(self.model, images), dim=1)

    @torch.no_grad()
    def _add(self, sums: Tensor, images: Tensor, labels: Tensor) -> None:
        features = self._features(images)
        if images.ndim == 4:  # the row of a table has no mirror image
            features = features + self._features(images.flip(-1))
        sums.index_add_(0, labels, features.to(sums))
