"""GEM (Lopez-Paz and Ranzato, 2017): the step must not, to first order, raise the loss of any earlier task's memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from pydantic import NonNegativeFloat
from torch import Tensor

from wane.learners.batch import Batch, Observed, Scene
from wane.learners.gradients import SeparatePasses, set_gradient, trained
from wane.learners.learner import Learner

__all__ = ["GEM", "multipliers"]

#: Added to the diagonal of the quadratic programme, as in the authors' code.
RIDGE = 1e-3


@dataclass(frozen=True)
class Options:
    """What can be set."""

    gamma: NonNegativeFloat = 0.5
    """Least multiplier of every earlier task's gradient once any is violated: biases the step towards old tasks."""


class GEM(Learner):
    """The gradient of the new rows, moved as little as it takes to agree with that of every earlier task's memory.

    Every step passes the whole memory through the network, augmented anew, each task on its own. Where the gradients of
    an earlier task and of the new rows point apart, the step is g + G^T v, where v >= gamma solves the dual programme.
    gamma bounds v, as in the authors' code, Mammoth and Avalanche; the paper's words, gamma added to the solution, are
    another thing. The memory is the lab's, filled in every step; rows of the current task are in it, and are no
    constraint. All classes compete, as in Mammoth (the authors' code masks the logits to the task).
    """

    title = "GEM"
    source = "Lopez-Paz and Ranzato, Gradient Episodic Memory for Continual Learning, NeurIPS 2017"
    Options: ClassVar[type[Any]] = Options
    draws = 1
    replay = "whole"
    means = "task"
    first_replay = 1
    policy = "class_balanced"

    passes: SeparatePasses | None = None  # of the step at hand

    def begin_task(self, scene: Scene) -> None:
        """Which task is no constraint."""
        self.task = scene.task.index

    def observe(self, batch: Batch) -> Observed:
        """A forward pass for the new rows and one for each task in the memory."""
        past = [k for k, rows in enumerate(batch.parts) if k > 0 and int(batch.tasks[rows.start]) < self.task]
        self.past = tuple(past)
        idle = frozenset(range(1, len(batch.parts))).difference(past)
        self.passes = made = SeparatePasses(self.model, batch, idle)
        return Observed(F.cross_entropy(made.logits, batch.labels, reduction="none"), made.logits)

    def backward(self, parts: Sequence[Tensor], penalty: Tensor | float, batch: Batch) -> None:
        """The gradient of the new rows and of each earlier task, then the projection."""
        passes, self.passes = self.passes, None  # a learner that holds a graph cannot be copied
        assert passes is not None
        parameters = trained(self.model)
        gradient = passes.gradient(parts[0], batch.parts[0], parameters)
        if self.past:
            past = torch.stack([passes.gradient(parts[k], batch.parts[k], parameters) for k in self.past])
            inner = past @ gradient
            if bool((inner < 0).any()):
                p = (past.double() @ past.double().T).cpu().numpy()
                v = multipliers(p, inner.double().cpu().numpy(), self.options.gamma)
                gradient = gradient + past.T @ torch.from_numpy(v).to(past)
        set_gradient(parameters, gradient)


def multipliers(p: NDArray[np.float64], q: NDArray[np.float64], gamma: float) -> NDArray[np.float64]:
    """The v >= gamma that minimises v (P + ridge I) v / 2 + q v, exactly: a non-negative least squares problem.

    >>> multipliers(np.eye(2), np.array([-3.0, 1.0]), 0.5).round(3).tolist()
    [2.997, 0.5]
    """
    from scipy.linalg import cholesky, solve_triangular
    from scipy.optimize import nnls

    ridged = p + RIDGE * np.eye(len(p))
    lower = cholesky(ridged, lower=True)
    moved = q + gamma * ridged.sum(1)
    solution, _ = nnls(lower.T, -solve_triangular(lower, moved, lower=True))
    found: NDArray[np.float64] = solution + gamma
    return found
