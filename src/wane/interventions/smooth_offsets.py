"""Offsets that minimise the mean of a smooth function of the loss, by Newton steps with a line search.

With R the log-sum-exp of each group's logits less the label's own logit, a row's loss under offsets o is
logsumexp(R + o) - o[group of the label].

For loss, NKL and CTL a concave function of that loss l is minimised: l itself, min(l, ln C) and -exp(-l); and the loss
is convex in the offsets. So where the Hessian of the objective is not positive, that of the losses, weighted by their
slopes, still is: it belongs to a majorant. Every step goes downhill, and for `loss` there is one minimum.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from wane.interventions.group_rows import Rows

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["MILDEST", "SMOOTH", "TOLERANCE", "Smooth", "evidence", "minimise"]

#: A search ends where no component of the gradient (of a mean over rows) exceeds this.
TOLERANCE = 1e-8
#: A bound that no search should reach.
STEPS = 200
#: No offset moves further in one step: far from a minimum the Hessian tells little.
LONGEST = 4.0
#: The least ridge: it decides where the rows do not care, as where a signal has given a group up.
MILDEST = 1e-6
STRONGEST = 1e3
#: What L-BFGS minimises is so many times the objective.
SCALE = 1e4
#: Products of one Hessian, about a quarter of a second; where there would be more, it is taken over
#: every k-th row, which is enough to choose a ridge, and L-BFGS does the rest.
PRODUCTS = 4 * 10**9


class Smooth(NamedTuple):
    """A function of the loss to be minimised, and its derivatives; `limit` is ln C."""

    value: Callable[[Tensor, float], Tensor]
    slope: Callable[[Tensor, float], Tensor]
    curvature: Callable[[Tensor, float], Tensor] | None  # None for zero


#: Minus the signal, up to a constant.
SMOOTH: dict[str, Smooth] = {
    "loss": Smooth(lambda loss, limit: loss, lambda loss, limit: torch.ones_like(loss), None),
    "nkl": Smooth(
        lambda loss, limit: loss.clamp(max=limit) / limit, lambda loss, limit: (loss < limit).double() / limit, None
    ),
    "ctl": Smooth(lambda loss, limit: -(-loss).exp(), lambda loss, limit: (-loss).exp(),
                  lambda loss, limit: -(-loss).exp()),
}  # fmt: skip


class Point(NamedTuple):
    """The objective somewhere."""

    value: float
    gradient: Tensor
    hessian: Tensor
    safe: Tensor  # the Hessian of majorise-minimise, never negative


def minimise(rows: Rows, smooth: Smooth, start: Tensor, ridge: float) -> tuple[Tensor, float]:
    """The offsets where `sum(weights * smooth(loss)) + ridge / 2 * sum(offsets ** 2)` has a minimum, and its value."""
    if _every(rows) > 1:
        return _minimise_many(rows, smooth, start, ridge)
    offsets: Tensor | None = start
    here = look(rows, smooth, start, ridge)
    for _ in range(STEPS):
        offsets = _step(rows, smooth, start, here, ridge)
        if offsets is None:
            break
        start, here = offsets, look(rows, smooth, offsets, ridge)
    return start, here.value


def _minimise_many(rows: Rows, smooth: Smooth, start: Tensor, ridge: float) -> tuple[Tensor, float]:
    """The same where whole Hessians would be dear, by L-BFGS."""
    from scipy.optimize import minimize

    def at(offsets: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        here = look(rows, smooth, torch.from_numpy(offsets.copy()), ridge, hessian=False)
        # scaled, as it ends where the objective changes by less than a rounding of 1
        return here.value * SCALE, here.gradient.numpy() * SCALE

    options = {"gtol": TOLERANCE * SCALE, "ftol": 0.0, "maxiter": STEPS, "maxcor": 20}
    found = minimize(at, start.numpy(), jac=True, method="L-BFGS-B", options=options)
    return torch.from_numpy(found.x), float(found.fun) / SCALE


def _step(rows: Rows, smooth: Smooth, offsets: Tensor, here: Point, ridge: float) -> Tensor | None:
    """The next offsets, where the objective is lower; None where nothing is left to gain."""
    if float(here.gradient.abs().max()) <= TOLERANCE:
        return None
    step = _direction(here)
    along = float(here.gradient @ step)
    for _ in range(40):
        there = offsets + step
        if value_at(rows, smooth, there, ridge) < here.value + 1e-4 * along:
            return there
        step, along = step / 2, along / 2
    return None


def value_at(rows: Rows, smooth: Smooth, offsets: Tensor, ridge: float) -> float:
    """The objective alone."""
    total = ridge / 2 * float(offsets @ offsets)
    for block in rows.blocks(rows.num_groups):
        loss = (_relative(rows, block) + offsets).logsumexp(1) - offsets[rows.group[block]]
        total += float(rows.weights[block] @ smooth.value(loss, rows.limit))
    return total


def _every(rows: Rows) -> int:
    """A Hessian is taken over every so many rows."""
    return math.ceil(len(rows.label) * rows.num_groups**2 / PRODUCTS)


def look(rows: Rows, smooth: Smooth, offsets: Tensor, ridge: float, *, hessian: bool = True) -> Point:
    """The objective with its derivatives; without the second ones, those are zero."""
    groups, every = rows.num_groups, _every(rows)
    value, gradient = 0.0, ridge * offsets
    second = torch.zeros(groups, groups, dtype=torch.float64)
    extra = torch.zeros_like(second) if smooth.curvature else None
    mass = torch.zeros(groups, dtype=torch.float64)
    for block in rows.blocks(groups):
        scores = _relative(rows, block).add_(offsets)
        total = scores.logsumexp(1)
        loss = total - offsets[rows.group[block]]
        p = scores.sub_(total[:, None]).exp_()
        weights, group = rows.weights[block], rows.group[block]
        value += float(weights @ smooth.value(loss, rows.limit))
        slope = weights * smooth.slope(loss, rows.limit)
        inside = slope @ p
        mass += inside
        gradient = (gradient + inside).index_add_(0, group, -slope)
        if not hessian:
            continue
        if every > 1:
            p, slope, group, weights, loss = (x[::every] for x in (p, slope, group, weights, loss))
        second += (p.T * slope) @ p
        if extra is not None and smooth.curvature is not None:
            bend = weights * smooth.curvature(loss, rows.limit)
            p[torch.arange(len(p)), group] -= 1
            extra += (p.T * bend) @ p
    value += ridge / 2 * float(offsets @ offsets)
    # Of a part of the rows, p p^T is scaled so that its rows still sum to those of the diagonal: H has 1 in its kernel.
    if every > 1:
        second *= float(mass.sum() / second.sum().clamp(min=1e-300))
    safe = torch.diag(mass + ridge) - second
    return Point(value, gradient, safe if extra is None else safe + every * extra, safe)


def _relative(rows: Rows, block: slice) -> Tensor:
    """(n, G) scores less the label's own logit."""
    return rows.scores[block].to("cpu", torch.float64) - rows.label[block, None]


def _direction(point: Point) -> Tensor:
    """A step downhill: Newton's where the Hessian is positive, else that of majorise-minimise."""
    eye = torch.eye(len(point.gradient), dtype=torch.float64)
    size = float(point.safe.diagonal().max())
    for hessian in (point.hessian, point.safe):
        factor, failed = torch.linalg.cholesky_ex(hessian + 1e-10 * size * eye)
        if not int(failed):
            step = torch.cholesky_solve(-point.gradient[:, None], factor)[:, 0]
            if bool(step.isfinite().all()) and float(step @ point.gradient) < 0:
                return step * min(1.0, LONGEST / max(float(step.abs().max()), 1e-300))
    return -point.gradient * min(1.0, LONGEST / float(point.gradient.abs().max()))


def evidence(rows: Rows, start: Tensor) -> tuple[Tensor, float]:
    """Offsets by `loss` with the ridge under which the rows are most likely, and that ridge (MacKay's fixed point).

    The offsets are taken as drawn from a normal distribution whose variance is unknown; the ridge is the variance that
    explains them, over the number of rows. Rows that show no bias make it great, and the offsets small.
    """
    n, smooth = rows.effective, SMOOTH["loss"]
    offsets, ridge = start, 1.0 / n
    for _ in range(STEPS):
        here = look(rows, smooth, offsets, ridge)
        curvature = (torch.linalg.eigvalsh(here.safe) - ridge).clamp(min=0)
        moved = _step(rows, smooth, offsets, here, ridge)
        offsets = offsets if moved is None else moved
        known = float((curvature / (curvature + ridge)).sum())
        new = min(max(known / (n * max(float(offsets @ offsets), 1e-12)), MILDEST), STRONGEST)
        settled, ridge = abs(math.log(new / ridge)) < 0.01, new
        if settled:
            break
    return minimise(rows, smooth, offsets, ridge)[0], ridge
