"""The seam between the loop and a method: what a method asks of the loop, and when it is called.

The loop owns time, data, memory updates, evaluation, history and checkpoints. A learner owns what is learnt, and adds
nothing to the loop: it sets the class attributes and overrides the hooks that it needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from operator import add
from types import MappingProxyType
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wane.learners.batch import Batch, Observed, Scene

__all__ = ["Learner", "NoOptions"]


@dataclass(frozen=True)
class NoOptions:
    """For a method without hyper-parameters of its own."""


class Learner(nn.Module):
    """A method: a model, and what to do with the rows of a step. Its state dict is all that a checkpoint keeps of it.

    Class attributes say what the method is, and what the loop must provide:
        Options: a frozen dataclass of the method's hyper-parameters, each with a default and a docstring below it. They
            are the settings `learner.options.NAME`, and `self.options` of an instance.
        title: what to call the method; default: the name of the class.
        source: the paper that it comes from.
        draws: independent draws from the memory in each step; 0 for none.
        replay: what a draw holds: ``"draw"`` rows chosen anew, as many as the config says, or the ``"whole"`` memory
            (GEM); where the config draws by class or by trend, as many rows as the memory holds.
        first_replay: index of the first task in which rows are replayed.
        rows: an epoch goes over the rows of the current ``"task"``, of all ``"seen"`` tasks, or of
            ``"task_and_memory"`` as one data set (iCaRL): each row once, in random order; rows of the memory count as
            replayed ones.
        means: how row losses become one loss: ``"one"`` mean over all rows; a mean for the new rows plus one for each
            ``"draw"``; or a mean for the new rows plus one for the replayed rows of each ``"task"``. See `Batch.parts`.
        policy: what the memory keeps, where the method itself says so (``"herding"``); None leaves it to the config.
        offers: whether the loop offers the new rows of every step to the memory. If not, the method fills it itself, by
            `scene.memory.offer` at the end of a task (X-DER).
        rewrites: whether what is stored with replayed rows is renewed in every step, by their rows of `extras_of`.
        needs_task: whether `predict` must be told the task of each row. Such a method is evaluated in the
            task-incremental setting only.
        answers_ahead: whether it can be asked about tasks that have not begun. If not (a column for each task, class
            means), forward transfer is not measured.
        compass: what the CLEVA-Compass should say of it beyond what the attributes above and the config tell, such as
            ``{"multiple_models": 1}``: 1 for what needs supervision, 2 for what does not.
        needs_new_classes: whether no class may come twice; a stream of domains is then refused.
        decays: whether the optimiser's weight decay may act on it; if not, `learner.weight_decay` must be 0.
    """

    Options: ClassVar[type[Any]] = NoOptions
    title: ClassVar[str] = ""
    source: ClassVar[str] = ""
    draws: ClassVar[int] = 0
    replay: ClassVar[Literal["draw", "whole"]] = "draw"
    first_replay: ClassVar[int] = 0
    rows: ClassVar[Literal["task", "seen", "task_and_memory"]] = "task"
    means: ClassVar[Literal["one", "draw", "task"]] = "one"
    policy: ClassVar[Literal["reservoir", "class_balanced", "herding"] | None] = None
    offers: ClassVar[bool] = True
    rewrites: ClassVar[bool] = False
    needs_task: ClassVar[bool] = False
    answers_ahead: ClassVar[bool] = True
    needs_new_classes: ClassVar[bool] = False
    compass: ClassVar[Mapping[str, int]] = MappingProxyType({})
    decays: ClassVar[bool] = True

    def __init__(self, model: nn.Module, num_classes: int, options: Any = None) -> None:
        super().__init__()
        self.model = model
        self.num_classes = num_classes
        self.options: Any = self.Options() if options is None else options

    @classmethod
    def has_memory(cls) -> bool:
        """Whether the method replays."""
        return cls.draws > 0 or cls.rows == "task_and_memory"

    def observe(self, batch: Batch) -> Observed:
        """One forward pass over all rows, one cross-entropy over all rows and all logits. Most methods extend this.

        Batch norm then sees new and replayed rows together. For a pass of its own over each part, see `logits_by_part`.
        """
        logits = self.model(batch.images)
        return Observed(F.cross_entropy(logits, batch.labels, reduction="none"), logits)

    def logits_by_part(self, batch: Batch) -> Tensor:
        """The logits of all rows, from a separate forward pass over each part: batch norm never mixes them."""
        return torch.cat([self.model(batch.images[rows]) for rows in batch.passes()])

    def predict(self, images: Tensor, tasks: Tensor | None = None) -> Tensor:
        """Logits for evaluation, in eval mode. iCaRL, say, answers by nearest mean here.

        Override it as `predict(self, images)`, or, with `needs_task`, as `predict(self, images, tasks)`: `tasks` (N,)
        is then the task of each row. There are gradients only where `record.recovery` fine-tunes a copy.
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

    def before_evaluation(self, scene: Scene) -> None:
        """Before every evaluation, in eval mode: class means that follow the features, say."""

    def backward(self, parts: list[Tensor], penalty: Tensor | float, batch: Batch) -> None:
        """Leave a gradient in every parameter: by default that of the sum of all parts and the penalty.

        `parts` holds the (weighted) mean loss of each of `batch.parts`. GEM and A-GEM take the gradient of each part
        (`wane.learners.gradients.SeparatePasses`), and combine them. A method that overrides this trains on one device
        only.
        """
        torch.autograd.backward(reduce(add, parts) + penalty)

    def after_backward(self, batch: Batch) -> None:
        """Between backward and step: project or mask gradients."""

    def after_step(self, batch: Batch) -> None:
        """After the optimiser's step: watch how far parameters moved."""

    def stored_extras(self) -> dict[str, tuple[int, ...]]:
        """What the memory keeps with each row besides image, label and task: name to shape of one row."""
        return {}

    def extras_of(self, batch: Batch, observed: Observed) -> dict[str, Tensor]:
        """The values of `stored_extras` for every row of the step; the loop stores those of the new rows.

        With `rewrites` it also stores those of the replayed rows, where they came from. Of a row that was drawn
        twice in a step the first is stored.
        """
        return {}

    def views(self) -> int:
        """How many strongly augmented versions of each row the next step needs, in `batch.views`, beside the row."""
        return 0
