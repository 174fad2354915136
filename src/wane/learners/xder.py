"""X-DER (Boschini et al., 2022): DER++ whose stored logits learn of later classes, and whose future heads prepare."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import torch
import torch.nn.functional as F
from annotated_types import Interval
from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from wane.learners.batch import Batch, Observed, Scene
from wane.learners.contrast import positives_of, supervised_contrast
from wane.learners.learner import Learner
from wane.models.blocks import statistics_kept

__all__ = ["XDER", "implant"]


@dataclass(frozen=True)
class Options:
    """What can be set; the defaults are those of Mammoth for CIFAR-100 and 2,000 slots, but for `views`."""

    alpha: NonNegativeFloat = 0.6
    """Weight of the first draw's distance to its stored logits, a mean over the classes (0.3 for 500 slots)."""
    beta: NonNegativeFloat = 0.9
    """Weight of the second draw's cross-entropy over the past classes (0.8 for 500 slots)."""
    gamma: Annotated[float, Interval(gt=0, le=1)] = 0.85
    """Largest implanted logit, as a share of that of the label; the paper has 0.75."""
    views: NonNegativeInt = 2
    """Strongly augmented views of each row for the contrastive loss, each as dear as the rest of the step.
    Mammoth has 4; 0 leaves that loss out."""
    contrast: NonNegativeFloat = 0.05
    """Weight of the contrastive loss of the future classes (lambda)."""
    temperature: PositiveFloat = 5.0
    """Of the contrastive loss."""
    eta: NonNegativeFloat = 0.01
    """Weight of the margin between a row's own task and the future classes (0.001 for 500 slots)."""
    margin: float = 0.2
    """By how much the best logit of a row's own task should exceed the best future one (0.7 for 500 slots)."""
    align_bn: bool = True
    """Whether batch norm's running statistics follow the first draw, with a few new rows, instead of every pass."""


class XDER(Learner):
    """Five terms, each a mean: new rows, two draws, and two that prepare the classes to come.

    Cross-entropy of new rows among the task's own classes; alpha times the squared distance of the first draw's logits
    to the stored ones, over all classes; beta times the cross-entropy of the second draw among past classes. Then eta
    times the mean, over rows where it is positive, of best future logit + margin - best logit of the row's own task;
    and lambda times the supervised contrastive loss of each future task's logits over strong views of all rows.

    Stored logits do not stay as they were. Those of classes that a row could not know when it was stored are implanted:
    the present network's, scaled down where they exceed gamma times the label's (`implant`), with probability
    1 / (times drawn in this task) in each step, and for all rows when a task ends. The memory is class-balanced, and is
    filled when a task ends; the logits of past classes are scaled likewise then.

    From Mammoth's `xder`. Departures: the contrastive loss takes the rows of the step, both draws included, where
    Mammoth draws 64 more; logits at the end of a task are those of plain images in eval mode; a label whose logit is
    not positive, for which scaling would turn signs round, has the others shifted down; tasks may differ in size.
    Mammoth's distance-preserving term and its past constraint, both off by default, are left out. The views make a
    step dear: 1 + views times the rows of DER++, in all tasks but the last. On several devices each process contrasts
    its own rows.
    """

    title = "X-DER"
    source = (
        "Boschini et al., Class-Incremental Continual Learning into the eXtended DER-verse, IEEE Transactions on "
        "Pattern Analysis and Machine Intelligence, 2022"
    )
    Options: ClassVar[type[Any]] = Options
    draws = 2
    means = "draw"
    first_replay = 1
    policy = "class_balanced"
    offers = False
    rewrites = True
    needs_new_classes = True

    future: tuple[tuple[int, ...], ...] = ()  # the classes of each task to come
    begun = False

    def begin_task(self, scene: Scene) -> None:
        """Which classes are past, present and future."""
        device = next(self.model.parameters()).device
        self.begun, self.task, self.generator = True, scene.task.index, scene.generator
        self.future = scene.classes[self.task + 1 :]
        self.past = torch.tensor([c for own in scene.classes[: self.task] for c in own], dtype=torch.int64).to(device)
        self.later = torch.tensor([c for own in scene.classes[self.task :] for c in own]).to(device)
        own = torch.zeros(len(scene.classes), self.num_classes, dtype=torch.bool)  # the classes of each task
        for k, classes in enumerate(scene.classes):
            own[k, list(classes)] = True
        everything = torch.ones_like(own[0])
        # among which classes a row competes: by the draw that it came from
        self.competing = torch.stack([own[self.task], everything, own[: self.task].any(0)]).to(device)
        self.own = own.to(device)

    def views(self) -> int:
        """None in the last task, which has no future."""
        return self.options.views if self.future or not self.begun else 0

    def stored_extras(self) -> dict[str, tuple[int, ...]]:
        """A row's logits, and how often it was drawn in the current task."""
        return {"logits": (self.num_classes,), "drawn": ()}

    def observe(self, batch: Batch) -> Observed:
        """A forward pass for the new rows, one for each draw, and one for the views."""
        logits = self._logits(batch)
        barred = ~self.competing[batch.draw]
        fit = F.cross_entropy(logits.masked_fill(barred, -torch.inf), batch.labels, reduction="none")
        hold = self.options.alpha * (logits - batch.extras["logits"]).square().mean(1)
        again = torch.where(batch.draw == 2, self.options.beta * fit, fit)
        penalty: Tensor | float = 0.0
        if self.future:
            penalty = self.options.eta * self._excess(batch, logits.float())
            if batch.views is not None:
                penalty = penalty + self.options.contrast * self._contrast(batch)
        return Observed(torch.where(batch.draw == 1, hold, again), logits, penalty)

    def extras_of(self, batch: Batch, observed: Observed) -> dict[str, Tensor]:
        """Implanted logits for rows that were not drawn before in this task, and for ever fewer of the others."""
        kept, drawn = batch.extras["logits"], batch.extras["drawn"] + 1
        lots = torch.rand(len(drawn), generator=self.generator).to(drawn.device)
        now = implant(kept, observed.logits.detach().float(), batch.labels, self.later, self.options.gamma)
        return {"logits": torch.where((lots * drawn < 1)[:, None], now, kept), "drawn": drawn}

    @torch.no_grad()
    def end_task(self, scene: Scene) -> None:
        """Fill the memory; then tell its older rows of this task's classes and of those to come."""
        memory, gamma = scene.memory, self.options.gamma
        assert memory is not None
        for batch, raw in scene.batches():
            logits = self.model(batch.images).float()
            extras = {"logits": implant(logits, logits, batch.labels, self.past, gamma)}
            extras["drawn"] = torch.zeros_like(logits[:, 0])
            memory.offer(raw, batch.labels, task=self.task, step=scene.step, generator=scene.generator, extras=extras)
        for batch in scene.remembered():
            kept = batch.extras["logits"]
            now = implant(kept, self.model(batch.images).float(), batch.labels, self.later, gamma)
            renewed = torch.where((batch.tasks < self.task)[:, None], now, kept)
            memory.rewrite(batch.slots, {"logits": renewed, "drawn": torch.zeros_like(kept[:, 0])})

    def _logits(self, batch: Batch) -> Tensor:
        """A pass for each part; with `align_bn`, only the first of replayed rows, if there is one, moves statistics."""
        aligned = self.options.align_bn and any(isinstance(m, _BatchNorm) for m in self.model.modules())
        passes, found = batch.passes(), []
        followed = next((k for k, rows in enumerate(passes) if rows.stop > batch.new), 0)
        for k, rows in enumerate(passes):
            images = batch.images[rows]
            if aligned and k == followed and self.task > 0:  # as many new rows as each past task has on average
                images = torch.cat([images, batch.images[: min(batch.new, len(images) // self.task)]])
            with statistics_kept(self.model, aligned and k != followed):
                found.append(self.model(images)[: rows.stop - rows.start])
        return torch.cat(found)

    def _excess(self, batch: Batch, logits: Tensor) -> Tensor:
        """The mean excess of future logits over those of a row's own task, over the rows that have any."""
        chosen = _first_of_each(batch.slots)
        best = logits.masked_fill(~self.own[batch.tasks], -torch.inf).amax(1)
        to_come = logits[:, [c for own in self.future for c in own]].amax(1)
        excess = (to_come + self.options.margin - best)[chosen]
        over = excess > 0
        mean: Tensor = (excess * over).sum() / over.sum().clamp(min=1)
        return mean

    def _contrast(self, batch: Batch) -> Tensor:
        """The supervised contrastive loss of the views, a mean over the future tasks."""
        assert batch.views is not None
        with statistics_kept(self.model, self.options.align_bn):
            logits = self.model(batch.views.flatten(0, 1)).float()
        positives = positives_of(batch.labels.repeat_interleave(batch.views.shape[1]))
        heads = [F.normalize(logits[:, list(classes)], dim=1) for classes in self.future]
        return torch.stack([supervised_contrast(h, positives, self.options.temperature) for h in heads]).mean()


def implant(kept: Tensor, now: Tensor, labels: Tensor, classes: Tensor, gamma: float) -> Tensor:
    """`kept` with the logits of `classes` from `now`, none of which may come near that of the label.

    Where the largest exceeds the label's, all are scaled so that it becomes gamma times the label's. If that is not
    positive, they are shifted instead, so that the largest lies as far below it: (1 - gamma) times its size.

    >>> kept = torch.tensor([[4.0, 0.0, 0.0], [4.0, 0.0, 0.0], [-4.0, 0.0, 0.0]])
    >>> now = torch.tensor([[0.0, 3.0, -1.0], [0.0, 8.0, -2.0], [0.0, 1.0, -2.0]])
    >>> implant(kept, now, torch.tensor([0, 0, 0]), torch.tensor([1, 2]), 0.75)
    tensor([[ 4.0000,  3.0000, -1.0000],
            [ 4.0000,  3.0000, -0.7500],
            [-4.0000, -5.0000, -8.0000]])
    """
    if len(classes) == 0:
        return kept
    given, label = now[:, classes], kept.gather(1, labels[:, None])
    largest = given.amax(1, keepdim=True)
    wanted = label - (1 - gamma) * label.abs()
    moved = torch.where(label > 0, given * (wanted / largest), given + (wanted - largest))
    return kept.index_copy(1, classes, torch.where(largest > label, moved, given))


def _first_of_each(slots: Tensor) -> Tensor:
    """A mask that leaves one row of each slot of the memory, the first, and all new rows.

    >>> _first_of_each(torch.tensor([-1, -1, 4, 7, 4]))
    tensor([ True,  True,  True,  True, False])
    """
    again = (slots[:, None] == slots[None]).tril(-1).any(1)
    return ~again | (slots < 0)
