"""Multinomial logistic regression with an L2 penalty, posed once and solved for one penalty after the other.

It runs in float32 as far as that can tell, and beyond in float64. Of many rows a quarter is solved first: from there
the way is short.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from wane.interventions import lbfgs

__all__ = ["Regression", "class_weights", "pose", "rank_in_class", "solve"]

#: More rows than this are thinned to find a start.
MANY_ROWS = 4096
#: The curvature is estimated on at most this many rows: it only guides the search.
SOME_ROWS = 4096
#: Rows whose logits are handled together: they stay in the caches.
TOGETHER = 2048
#: Smallest entry of a gradient that float32 still tells from rounding.
FLOAT32_LIMIT = 1e-4


class Regression(NamedTuple):
    """What is minimised: K classes, d + 1 columns, the last of them 1."""

    x: Tensor  # (n, d + 1) of the features' own precision, centred and scaled
    y: Tensor  # (n,)
    w: Tensor  # (n,) sums to 1
    offset: Tensor | None  # (n, K) logits before the change
    centre: Tensor  # (d,)
    scale: float
    classes: int
    curvature: Tensor  # (d + 1, d + 1) of one class's part where all classes are equally likely, without a penalty

    def logits(self, theta: Tensor, x: Tensor) -> Tensor:
        """Of features as they came, without what was there before."""
        return torch.addmm(theta[:, -1], (x - self.centre) / self.scale, theta[:, :-1].T)


def pose(x: Tensor, y: Tensor, w: Tensor, start: tuple[Tensor, Tensor] | None) -> Regression:
    """The problem for features (n, d), labels without gaps, weights, and a head that there is already."""
    weights = w.to(x.dtype)
    centre = weights @ x
    offset = None if start is None else torch.addmm(start[1].to(x.dtype), x, start[0].to(x.dtype).T)
    whole = x.new_ones(len(x), x.shape[1] + 1)
    part = torch.sub(x, centre, out=whole[:, :-1])  # in place: of many rows a copy costs more than the sums
    scale = float((weights @ part.square()).mean().sqrt())
    scale = scale if scale > 0 else 1.0  # features that never vary: only the bias can learn
    part.div_(scale)
    classes = int(y.max()) + 1
    return Regression(whole, y, w, offset, centre.double(), scale, classes, _curvature(whole, w, classes))


def _curvature(x: Tensor, w: Tensor, classes: int) -> Tensor:
    if len(x) > SOME_ROWS:
        some = torch.linspace(0, len(x) - 1, SOME_ROWS, device=x.device).long()
        x, w = x[some], w[some] / w[some].sum()
    rough = x.float()
    return (1 - 1 / classes) / classes * (rough.T @ (w.float()[:, None] * rough)).double()


def solve(
    problem: Regression, penalty: float, tolerance: float, theta: Tensor | None = None
) -> tuple[Tensor, float, int]:
    """The minimum, the largest entry of the gradient there, and the number of evaluations over all rows."""
    if theta is None and len(problem.x) > MANY_ROWS:
        theta = solve(_thinned(problem), penalty, tolerance)[0]
    if theta is None:
        theta = torch.zeros(problem.classes, problem.x.shape[1], dtype=torch.float64, device=problem.x.device)
    curvature = problem.curvature.clone()
    curvature.diagonal()[:-1] += penalty  # the bias has none
    curvature.diagonal().add_(1e-6 * curvature.diagonal().mean())  # it is known to float32 only
    guess = torch.cholesky_inverse(torch.linalg.cholesky(curvature))
    evaluations, gradient = 0, float("inf")
    for dtype in (torch.float32, torch.float64):  # most of the way at half the cost
        enough = max(tolerance, FLOAT32_LIMIT) if dtype == torch.float32 else tolerance
        objective = _objective(problem, penalty, dtype)
        theta, gradient, more = lbfgs.minimise(objective, theta.to(dtype), guess.to(dtype), enough)
        evaluations += more
        if tolerance > FLOAT32_LIMIT and gradient <= tolerance:
            break
    return theta.double(), gradient, evaluations


def _thinned(problem: Regression) -> Regression:
    """A quarter of the rows of each class."""
    some = (rank_in_class(problem.y) % 4 == 0).nonzero()[:, 0]
    w, offset = problem.w[some], None if problem.offset is None else problem.offset[some]
    return problem._replace(x=problem.x[some], y=problem.y[some], w=w / w.sum(), offset=offset)


def _objective(problem: Regression, penalty: float, dtype: torch.dtype) -> Callable[[Tensor], tuple[float, Tensor]]:
    """Theta (K, d + 1) to the objective and its gradient."""
    x, w = problem.x.to(dtype), problem.w.to(dtype)
    offset = None if problem.offset is None else problem.offset.to(dtype)
    blocks = [slice(start, start + TOGETHER) for start in range(0, len(x), TOGETHER)]
    penalised = torch.ones(x.shape[1], dtype=dtype, device=x.device)
    penalised[-1] = 0.0
    penalised *= penalty

    def evaluate(theta: Tensor) -> tuple[float, Tensor]:
        gradient = theta * penalised
        value = 0.5 * (gradient.double() * theta).sum()
        for part in blocks:
            rows, label = x[part], problem.y[part, None]
            logits = rows @ theta.T if offset is None else torch.addmm(offset[part], rows, theta.T)
            logs = logits.log_softmax(1)
            value -= problem.w[part] @ logs.gather(1, label)[:, 0].double()
            residual = logs.exp_().scatter_add_(1, label, logs.new_full(label.shape, -1.0)).mul_(w[part, None])
            gradient.addmm_(residual.T, rows)
        return float(value), gradient

    return evaluate


def class_weights(y: Tensor, classes: int, balanced: bool) -> Tensor:
    """(n,) of sum 1: the same for each row or, balanced, in sum the same for each class."""
    counts = y.bincount(minlength=classes).double()
    weights = 1 / counts[y] if balanced else torch.ones(len(y), dtype=torch.float64, device=y.device)
    return weights / weights.sum()


def rank_in_class(labels: Tensor) -> Tensor:
    """The number of earlier rows with the same label, for every row.

    >>> rank_in_class(torch.tensor([1, 0, 1, 1]))
    tensor([0, 0, 1, 2])
    """
    order = labels.argsort(stable=True)
    counts = labels.bincount()
    first = (counts.cumsum(0) - counts)[labels[order]]
    return torch.empty_like(order).scatter_(0, order, torch.arange(len(labels), device=labels.device) - first)
