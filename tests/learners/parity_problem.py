"""One small problem for our methods and for their peers' code: the same weights, batches, memory and draws for both.

Three tasks of two classes, a network without batch norm, three steps a task. Everything comes from one NumPy generator
of a fixed kind, so it is the same wherever it is made.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

CLASSES, FEATURES, HIDDEN, BATCH, DRAW, STEPS, RATE = 6, 12, 16, 10, 8, 3, 0.1
TASKS = ((0, 1), (2, 3), (4, 5))


class Step(NamedTuple):
    """New rows, and the slots of two draws from the memory of earlier tasks (empty in the first)."""

    rows: Tensor
    labels: Tensor
    first: Tensor
    second: Tensor


class Problem(NamedTuple):
    """What both sides are given."""

    weights: dict[str, Tensor]
    steps: list[list[Step]]  # by task
    memory: Tensor  # (24, 12), 12 rows of task 0, then 12 of task 1
    labels: Tensor
    tasks: Tensor
    logits: Tensor  # stored with the rows


def problem() -> Problem:
    """The problem, always the same."""
    rng = np.random.RandomState(7)

    def normal(*shape: int, scale: float = 1.0) -> Tensor:
        return torch.from_numpy((scale * rng.standard_normal(shape)).astype(np.float32))

    weights = {
        "body.0.weight": normal(HIDDEN, FEATURES, scale=0.3), "body.0.bias": normal(HIDDEN, scale=0.1),
        "head.weight": normal(CLASSES, HIDDEN, scale=0.3), "head.bias": normal(CLASSES, scale=0.1),
    }  # fmt: skip
    steps = []
    for task, classes in enumerate(TASKS):
        of_task = []
        for _ in range(STEPS):
            labels = torch.from_numpy(rng.choice(classes, BATCH)).long()
            slots = [torch.from_numpy(rng.permutation(12 * task)[:DRAW]).long() for _ in range(2)]
            of_task.append(Step(normal(BATCH, FEATURES), labels, *slots))
        steps.append(of_task)
    labels = torch.from_numpy(np.concatenate([rng.choice(TASKS[0], 12), rng.choice(TASKS[1], 12)])).long()
    tasks = torch.arange(2).repeat_interleave(12)
    return Problem(weights, steps, normal(24, FEATURES), labels, tasks, normal(24, CLASSES, scale=2.0))


#: What stands for X-DER's lots, in both codes: logits are renewed at the first and second draw of a row.
LOT = 0.4


def known_logits() -> Tensor:
    """The stored logits with those of the labels positive, as X-DER's rule takes for granted."""
    p = problem()
    own = torch.arange(len(p.labels)), p.labels
    logits = p.logits.clone()
    logits[own] = logits[own].abs() + 1
    return logits


def views_of(rows: Tensor, count: int) -> Tensor:
    """(N, count, features): what stands for augmented views."""
    return torch.stack([rows * (1 + 0.2 * k) + 0.1 * k for k in range(count)], 1)


class Network(nn.Module):
    """Linear, ReLU, linear: with the two halves within reach, as both sides want them."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(FEATURES, HIDDEN), nn.ReLU())
        self.head = nn.Linear(HIDDEN, CLASSES)
        self.load_state_dict(problem().weights)

    def features(self, x: Tensor) -> Tensor:
        return self.body(x)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))


def weights_of(network: nn.Module) -> Tensor:
    """All weights one after the other."""
    return torch.cat([p.detach().reshape(-1) for p in network.parameters()])


class Layers(NamedTuple):
    """Two hidden layers and a head; beside them what joins the second layer of a column to the columns before."""

    first: tuple[Tensor, Tensor]
    second: tuple[Tensor, Tensor]
    head: tuple[Tensor, Tensor]
    reduce: tuple[Tensor, Tensor] | None
    expand: Tensor | None


def columns() -> list[Layers]:
    """The initial weights of a column for each task; the first is the network of methods with a single one."""
    rng = np.random.RandomState(8)

    def linear(out: int, inputs: int) -> tuple[Tensor, Tensor]:
        made = ((0.3 * rng.standard_normal(shape)).astype(np.float32) for shape in ((out, inputs), (out,)))
        weight, bias = (torch.from_numpy(array) for array in made)
        return weight, bias

    return [
        Layers(
            linear(HIDDEN, FEATURES),
            linear(HIDDEN, HIDDEN),
            linear(CLASSES, HIDDEN),
            linear(HIDDEN, k * HIDDEN) if k else None,
            linear(HIDDEN, HIDDEN)[0] if k else None,
        )
        for k in range(len(TASKS))
    ]


def embeddings() -> Tensor:
    """(tasks, 2, 16): HAT's initial ones."""
    return torch.from_numpy((0.5 * np.random.RandomState(9).standard_normal((3, 2, HIDDEN))).astype(np.float32))
