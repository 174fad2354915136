"""The minimum of a smooth convex function, by L-BFGS with a first guess of the inverse curvature."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["minimise"]

#: Pairs of steps and changes of the gradient that are remembered.
MEMORY = 20
#: Enough for any problem worth solving.
MOST_EVALUATIONS = 1000


def minimise(
    objective: Callable[[Tensor], tuple[float, Tensor]], theta: Tensor, guess: Tensor, tolerance: float
) -> tuple[Tensor, float, int]:
    """The minimum, the largest entry of the gradient there, and the number of evaluations.

    `objective` takes theta (k, d) and gives its value and gradient; `guess` (d, d) is about the inverse curvature of
    each row of theta. Steps are halved until the value falls enough.

    >>> half_square = lambda theta: (float((theta - 3).square().sum()) / 2, theta - 3)
    >>> theta, gradient, evaluations = minimise(half_square, torch.zeros(1, 2), torch.eye(2) / 2, 1e-6)
    >>> theta, evaluations
    (tensor([[3., 3.]]), 3)
    """
    value, gradient = objective(theta)
    evaluations = 1
    pairs: list[tuple[Tensor, Tensor, float]] = []
    rounding = torch.finfo(theta.dtype).eps
    while float(gradient.abs().max()) > tolerance and evaluations < MOST_EVALUATIONS:
        direction = -_times_inverse(gradient, pairs, guess)
        slope = _dot(gradient, direction)
        step, found = 1.0, False
        while not found and step > 1e-6:
            new = theta + step * direction
            new_value, new_gradient = objective(new)
            evaluations += 1
            found = new_value <= value + 1e-4 * step * slope + rounding * abs(value)
            step /= 2
        if not found:  # rounding has the last word
            break
        moved, turned = new - theta, new_gradient - gradient
        if (product := _dot(moved, turned)) > 0:
            pairs = [*pairs[-(MEMORY - 1) :], (moved, turned, 1 / product)]
        theta, value, gradient = new, new_value, new_gradient
    return theta, float(gradient.abs().max()), evaluations


def _times_inverse(gradient: Tensor, pairs: list[tuple[Tensor, Tensor, float]], guess: Tensor) -> Tensor:
    """The gradient times the inverse curvature that the last steps tell (Nocedal's two loops)."""
    result, along = gradient.clone(), []
    for moved, turned, scale in reversed(pairs):
        share = scale * _dot(moved, result)
        along.append(share)
        result.sub_(turned, alpha=share)
    result = result @ guess
    if pairs:
        _, turned, scale = pairs[-1]
        result *= 1 / (scale * _dot(turned, turned @ guess))
    for (moved, turned, scale), share in zip(pairs, reversed(along), strict=True):
        result.add_(moved, alpha=share - scale * _dot(turned, result))
    return result


def _dot(a: Tensor, b: Tensor) -> float:
    return float(torch.dot(a.reshape(-1), b.reshape(-1)))
