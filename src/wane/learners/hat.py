"""HAT (Serrà et al., 2018): each task learns which units it uses; what earlier tasks use is not changed any more."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import torch
import torch.nn.functional as F
from pydantic import NonNegativeFloat, PositiveFloat
from torch import Tensor, nn

from wane.learners.batch import Batch, Observed, Scene
from wane.learners.gradients import trained
from wane.learners.learner import Learner
from wane.models.blocks import Block, blocks_of, head_of, over_units

__all__ = ["HAT"]

#: Limits of the authors' code: of s e inside cosh, and of e itself.
MOST_COSH, MOST_EMBEDDING = 50.0, 6.0


@dataclass(frozen=True)
class Options:
    """What can be set."""

    s_max: PositiveFloat = 400.0
    """Steepness of the gates at the end of an epoch, and at test time."""
    c: NonNegativeFloat = 0.75
    """Weight of the units that a task takes beyond those of earlier tasks."""
    clip: PositiveFloat = 10_000.0
    """Largest norm of the gradient."""


class Free(NamedTuple):
    """What earlier tasks leave to a task; it does not change while that is learnt."""

    units: Tensor  # 1 - a, of all blocks one after the other
    room: Tensor  # the sum of these
    weights: list[tuple[Tensor, Tensor]]  # each parameter of the blocks, and by what its gradient is multiplied
    clipped: list[nn.Parameter]  # all that is trained


class HAT(Learner):
    """Gates sigmoid(s e) on every unit, an embedding e for each task; s rises from 1 / s_max to s_max in every epoch.

    Cross-entropy over the task's own classes, plus c times the share of still free units that the task takes. The
    gradient of a weight is multiplied by 1 - min(a_out, a_in), where a are the gates of all earlier tasks together:
    where both are 1 the weight never moves, to the bit. Weight decay would move it, and is refused; momentum does no
    harm, as every task has an optimiser of its own. Batch norm, if the network has any, is each task's own. The rising
    s takes the share of the epoch's steps before this one, as the authors' code does with rows. Their plateau schedule
    of the learning rate, and the return to the best validation weights, are not part of it.
    """

    title = "HAT"
    source = "Serrà et al., Overcoming Catastrophic Forgetting with Hard Attention to the Task, ICML 2018"
    Options: ClassVar[type[Any]] = Options
    needs_task = True
    answers_ahead = False
    needs_new_classes = True
    decays = False

    def __init__(self, model: nn.Module, num_classes: int, options: Any = None) -> None:
        super().__init__(model, num_classes, options)
        self.blocks: list[Block] = blocks_of(model)
        self.embeddings = nn.ParameterList()  # one for each block of each task, the first task's first
        self.norms = nn.ModuleList()  # likewise
        self.free: Free | None = None  # in the current task
        for i, block in enumerate(self.blocks):
            self.register_buffer(f"used_{i}", torch.zeros(block.units))

    def begin_task(self, scene: Scene) -> None:
        """An embedding for each block, and batch norm of the task's own."""
        self.task, self.free = scene.task.index, None  # the state of a run that resumes is loaded after this
        barred = torch.ones(self.num_classes, dtype=torch.bool)
        barred[list(scene.task.classes)] = False
        self.barred = barred.to(self.blocks[0].weighted.weight.device)
        for earlier in (*self.embeddings, *self.norms):
            earlier.requires_grad_(False)
        for block in self.blocks:
            self.embeddings.append(nn.Parameter(torch.randn(block.units).to(block.weighted.weight.device)))
            own = nn.Identity() if block.norm is None else copy.deepcopy(block.norm).requires_grad_(True)
            if block.norm is not None:
                own.reset_parameters()  # type: ignore[operator]
                block.norm.requires_grad_(False)  # each task has its own
            self.norms.append(own)

    def train(self, mode: bool = True) -> Self:
        """Batch norm of earlier tasks never follows new rows."""
        super().train(mode)
        for earlier in self.norms[: getattr(self, "task", 0) * len(self.blocks)]:
            earlier.eval()
        return self

    def observe(self, batch: Batch) -> Observed:
        """The gated pass of the current task; gates are soft at first, and hard at the end of the epoch."""
        self.s = 1 / self.options.s_max + (self.options.s_max - 1 / self.options.s_max) * batch.epoch_progress
        logits, gates = self._pass(batch.images, self.task, self.s)
        losses = F.cross_entropy(logits.masked_fill(self.barred, -torch.inf), batch.labels, reduction="none")
        if self.free is None:
            self.free = self._free()
        return Observed(losses, logits, self.options.c * torch.dot(gates, self.free.units) / self.free.room)

    def after_backward(self, batch: Batch) -> None:
        """Mask what earlier tasks use; undo the gates' flatness in the embeddings' gradient; clip. In that order."""
        assert self.free is not None
        for parameter, free in self.free.weights:
            if self.task > 0 and parameter.grad is not None:
                parameter.grad *= free
        own = self._embeddings(self.task)
        e = torch.cat(own).detach()
        steep = (self.s * e).clamp(-MOST_COSH, MOST_COSH).cosh() + 1
        factor = self.options.s_max / self.s * steep / (e.cosh() + 1)
        for each, gradient_factor in zip(own, torch.split(factor, [len(each) for each in own]), strict=True):
            if each.grad is not None:
                each.grad *= gradient_factor
        torch.nn.utils.clip_grad_norm_(self.free.clipped, self.options.clip)

    @torch.no_grad()
    def after_step(self, batch: Batch) -> None:
        """Embeddings stay where a gate can still be turned round."""
        for e in self._embeddings(self.task):
            e.clamp_(-MOST_EMBEDDING, MOST_EMBEDDING)

    @torch.no_grad()
    def end_task(self, scene: Scene) -> None:
        """What this task uses is used from now on."""
        for used, e in zip(self._used(), self._embeddings(self.task), strict=True):
            used.copy_(torch.maximum(used, (self.options.s_max * e).sigmoid()))

    def predict(self, images: Tensor, tasks: Tensor | None = None) -> Tensor:
        """Each row through the hard gates of its own task."""
        assert tasks is not None
        logits = images.new_empty(len(images), self.num_classes)
        for task in torch.unique(tasks).tolist():
            rows = (tasks == task).nonzero()[:, 0]
            logits[rows] = self._pass(images[rows], task, self.options.s_max)[0].to(logits.dtype)
        return logits

    def _pass(self, x: Tensor, task: int, s: float) -> tuple[Tensor, Tensor]:
        """The logits, and the gates of all blocks one after the other."""
        gates = (s * torch.cat(self._embeddings(task))).sigmoid()
        each = torch.split(gates, [block.units for block in self.blocks])
        for i, (block, gate) in enumerate(zip(self.blocks, each, strict=True)):
            norm = self.norms[task * len(self.blocks) + i]
            x = block.after(norm(block.between(block.weighted(block.before(x)))))
            x = x * over_units(gate, x)
        return head_of(self.model)(x), gates

    def _free(self) -> Free:
        """What is left to the current task."""
        units = [1 - used for used in self._used()]
        room = torch.stack([free.sum() for free in units]).sum()
        return Free(torch.cat(units), room.clamp(min=torch.finfo(room.dtype).tiny), self._free_weights(), trained(self))

    def _free_weights(self) -> list[tuple[Tensor, Tensor]]:
        """Each parameter of the blocks, and how far no earlier task uses it: 1 - min(a_out, a_in)."""
        found: list[tuple[Tensor, Tensor]] = []
        before: Tensor | None = None  # the gates of the layer below; None for the image
        for block, used in zip(self.blocks, self._used(), strict=True):
            keep = used if before is None else torch.minimum(used[:, None], _inputs(before, block.weighted)[None])
            shape = (len(used), -1, *[1] * (block.weighted.weight.ndim - 2))
            found.append((block.weighted.weight, 1 - keep.reshape(shape)))
            if block.weighted.bias is not None:
                found.append((block.weighted.bias, 1 - used))
            before = used
        return found

    def _embeddings(self, task: int) -> list[Tensor]:
        return [self.embeddings[task * len(self.blocks) + i] for i in range(len(self.blocks))]

    def _used(self) -> list[Tensor]:
        return [getattr(self, f"used_{i}") for i in range(len(self.blocks))]


def _inputs(used: Tensor, layer: nn.Linear | nn.Conv2d) -> Tensor:
    """The gates of the units below as those of a layer's inputs: several for each channel that was flattened."""
    wanted = layer.in_features if isinstance(layer, nn.Linear) else layer.in_channels
    return used.repeat_interleave(wanted // len(used))
