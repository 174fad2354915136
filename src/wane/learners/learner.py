"""The seam between the loop and a method: what a step sees, what a method gives back, and when it is asked.

The loop owns time, data, memory updates, evaluation, history and checkpoints. A learner owns what is learnt, and adds
nothing to the loop: it overrides the hooks it needs, and is one row of `LEARNERS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from wane.memory import Memory
from wane.streams import Task

__all__ = ["Batch", "Learner", "Observed", "Scene"]


@dataclass(frozen=True)
class Batch:
    """The rows of one step: the new ones of the stream first, then those of each draw from the memory.

    Attributes:
        images: (B, C, H, W) float, augmented and normalised.
        labels: (B,) classes.
        tasks: (B,) the task that each row belongs to.
        draw: (B,) 0 for a new row, k for a row of the k-th draw from the memory.
        slots: (B,) where in the memory a row came from, -1 for a new row.
        new: how many rows are new; the first `new` are.
        extras: what was stored with a row, by name; zeros for a new row.
        progress: how much of the task's training is done, from 0 to 1.
    """

    images: Tensor
    labels: Tensor
    tasks: Tensor
    draw: Tensor
    slots: Tensor
    new: int
    extras: dict[str, Tensor] = field(default_factory=dict)
    progress: float = 0.0

    @property
    def replayed(self) -> Tensor:
        """The mask that tells replayed rows from new ones."""
        return self.draw > 0


@dataclass(frozen=True)
class Observed:
    """What a learner makes of a step. The loss stays a row's own until the loop has weighted it.

    The loop minimises `(weights * losses).mean() + penalty`, all weights being 1 unless an intervention sets them.
    """

    losses: Tensor  # (B,)
    logits: Tensor  # (B, classes), of the very forward pass that trains
    penalty: Tensor | float = 0.0


@dataclass(frozen=True)
class Scene:
    """Where in the stream a learner is when a task begins or ends.

    Attributes:
        task: the task.
        step: how many steps of the optimiser were done before.
        seen: all classes up to and including this task's.
        memory: the replay memory, None for a learner without one.
        batches: a pass over the task's own training rows, each once, in order and not augmented (for importance or
            features at the end of a task). Each item is a `Batch` and the rows' raw uint8 images.
        remembered: a pass over the rows in the memory at the time of the call, slot after slot and not augmented (for
            class means, or to rewrite what is stored with a row).
    """

    task: Task
    step: int
    seen: tuple[int, ...]
    memory: Memory | None
    batches: Callable[[], Iterator[tuple[Batch, Tensor]]]
    remembered: Callable[[], Iterator[Batch]]


class Learner(nn.Module):
    """A method: a model, and what to do with the rows of a step. Its state dict is all that a checkpoint keeps of it.

    Class attributes say what the loop must provide:
        draws: independent draws from the memory in each step; 0 for a method without memory.
        rows: train on the rows of the current ``"task"``, or of all ``"seen"`` tasks.
        policy: what the memory keeps, where the method itself says so (``"herding"``); None leaves it to the config.
    """

    draws: int = 0
    rows: Literal["task", "seen"] = "task"
    policy: Literal["reservoir", "class_balanced", "herding"] | None = None

    def __init__(self, model: nn.Module, num_classes: int) -> None:
        super().__init__()
        self.model = model
        self.num_classes = num_classes

    def observe(self, batch: Batch) -> Observed:
        """One forward pass over all rows, one cross-entropy over all rows and all logits. Most methods extend this."""
        logits = self.model(batch.images)
        return Observed(F.cross_entropy(logits, batch.labels, reduction="none"), logits)

    def predict(self, images: Tensor) -> Tensor:
        """Logits for evaluation, in eval mode. iCaRL, say, answers by nearest mean here.

        There are gradients only where `record.recovery` fine-tunes a copy.
        """
        logits: Tensor = self.model(images)
        return logits

    def begin_task(self, scene: Scene) -> None:
        """Before the optimiser is made. May change the structure: a new column, a frozen copy.

        What it builds may depend on the task alone: a run that resumes calls it again for every task so far, and
        then loads the state.
        """

    def end_task(self, scene: Scene) -> None:
        """After the last epoch, in eval mode, before the task's last evaluation: importance, exemplars, means."""

    def after_backward(self, batch: Batch) -> None:
        """Between backward and step: project or mask gradients."""

    def after_step(self, batch: Batch) -> None:
        """After the optimiser's step: watch how far parameters moved."""

    def stored_extras(self) -> dict[str, tuple[int, ...]]:
        """What the memory keeps with each row besides image, label and task: name to shape of one row."""
        return {}

    def extras_of(self, batch: Batch, observed: Observed) -> dict[str, Tensor]:
        """The values of `stored_extras` for every row of the step; the loop stores those of the new rows."""
        return {}
