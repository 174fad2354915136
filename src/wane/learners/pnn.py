"""Progressive networks (Rusu et al., 2016): a new column for each task, fed by the frozen ones before it."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wane.learners.batch import Batch, Observed, Scene
from wane.learners.learner import Learner
from wane.models.blocks import Block, blocks_of, head_of

__all__ = ["PNN"]


class Adapter(nn.Module):
    """U relu(V (alpha h)): what the columns before have at one depth, made an input of the new column's next layer."""

    def __init__(self, columns: int, layer: nn.Linear | nn.Conv2d) -> None:
        super().__init__()
        inputs = layer.in_features if isinstance(layer, nn.Linear) else layer.in_channels
        self.alpha = nn.Parameter(torch.ones(columns))
        if isinstance(layer, nn.Linear):
            self.reduce: nn.Module = nn.Linear(columns * inputs, inputs)
        else:
            self.reduce = nn.Conv2d(columns * inputs, inputs, 1)
        self.expand = copy.deepcopy(layer)  # the same shape and stride, without a bias
        self.expand.bias = None
        self.expand.reset_parameters()

    def forward(self, below: list[Tensor]) -> Tensor:
        """`below`: the outputs of the columns before, at the depth of the layer's input."""
        joined = torch.cat([a * h for a, h in zip(self.alpha, below, strict=True)], dim=1)
        out: Tensor = self.expand(F.relu(self.reduce(joined)))
        return out


class Column(nn.Module):
    """The layers of one task, with an adapter for each of them but the first, and a head of its own."""

    def __init__(self, blocks: list[Block], head: nn.Linear, before: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(block.weighted for block in blocks)
        self.norms = nn.ModuleList(nn.Identity() if block.norm is None else block.norm for block in blocks)
        self.blocks = blocks
        self.around = nn.ModuleList(part for b in blocks for part in (b.before, b.between, b.after))  # dropout, say
        self.head = head
        self.adapters = nn.ModuleList(Adapter(before, b.weighted) for b in blocks[1:] if before)

    def forward(self, x: Tensor, before: list[list[Tensor]]) -> list[Tensor]:
        """The output of every block; `before` has those of each earlier column."""
        outputs: list[Tensor] = []
        for depth, (block, layer, norm) in enumerate(zip(self.blocks, self.layers, self.norms, strict=True)):
            x = block.before(x)
            below = layer(x)
            if before and depth:
                below = below + self.adapters[depth - 1]([block.before(column[depth - 1]) for column in before])
            x = block.after(norm(block.between(below)))
            outputs.append(x)
        return outputs


class PNN(Learner):
    """Each task has a column of its own, which also sees what the columns of earlier tasks see; those are frozen.

    h_i = f(W_i h_{i-1} + U relu(V alpha h_{i-1} of all earlier columns)). Earlier columns, batch norm included, do not
    change at all, so neither do their answers. The adapters grow with the square of the number of tasks. Mammoth copies
    old columns without their lateral connections, and passes their input through the new column's batch norm: not so
    here.
    """

    title = "Progressive networks"
    source = "Rusu et al., Progressive Neural Networks, 2016"
    needs_task = True
    answers_ahead = False
    compass: ClassVar[Mapping[str, int]] = {"multiple_models": 1}  # a column for each task, which it must be told

    def __init__(self, model: nn.Module, num_classes: int, options: Any = None) -> None:
        super().__init__(model, num_classes, options)
        self.blocks = blocks_of(model)
        self.columns = nn.ModuleList()

    def begin_task(self, scene: Scene) -> None:
        """A new column; the first one is the network itself."""
        self.columns.requires_grad_(False)
        head = head_of(self.model)
        self.barred = torch.ones(self.num_classes, dtype=torch.bool, device=head.weight.device)
        self.barred[list(scene.task.classes)] = False
        if scene.task.index == 0:
            self.columns.append(Column(self.blocks, head, 0))
        else:
            fresh = nn.Linear(head.in_features, head.out_features)
            made = Column([block.fresh() for block in self.blocks], fresh, scene.task.index)
            self.columns.append(made.to(head.weight.device).requires_grad_(True))

    def train(self, mode: bool = True) -> Self:
        """Columns of earlier tasks stay in eval mode."""
        super().train(mode)
        for column in list(self.columns)[:-1]:
            column.eval()
        return self

    def observe(self, batch: Batch) -> Observed:
        """Cross-entropy over the task's own classes, through the newest column."""
        logits = self._pass(batch.images, len(self.columns) - 1)
        own = logits.masked_fill(self.barred, -torch.inf)
        return Observed(F.cross_entropy(own, batch.labels, reduction="none"), logits)

    def predict(self, images: Tensor, tasks: Tensor | None = None) -> Tensor:
        """Each row through the column of its own task."""
        assert tasks is not None
        logits = images.new_empty(len(images), self.num_classes)
        for task in torch.unique(tasks).tolist():
            rows = (tasks == task).nonzero()[:, 0]
            logits[rows] = self._pass(images[rows], task).to(logits.dtype)
        return logits

    def _pass(self, images: Tensor, task: int) -> Tensor:
        before: list[list[Tensor]] = []
        for column in list(self.columns)[: task + 1]:
            before.append(column(images, before))
        logits: Tensor = head_of(self.columns[task])(before[-1][-1])
        return logits
