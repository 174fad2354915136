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

import numpy as np
import torch
from torch import Tensor

from wane.interventions.group_rows import Rows

if TYPE_CHECKING:
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


class Shares(NamedTuple):
    """The softmax of all rows over groups, kept where it fits into one block: what is near costs no more softmax."""

    p: Tensor  # (N, G)
    loss: Tensor  # (N,)


class Point(NamedTuple):
    """The objective somewhere."""

    offsets: Tensor
    value: float
    gradient: Tensor
    hessian: Tensor
    shares: Shares | None


def minimise(rows: Rows, smooth: Smooth, start: Tensor, ridge: float) -> tuple[Tensor, float]:
    """The offsets where `sum(weights * smooth(loss)) + ridge / 2 * sum(offsets ** 2)` has a minimum, and its value."""
    if _every(rows) > 1:
        return _minimise_many(rows, smooth, start, ridge)
    here = look(rows, smooth, start, ridge)
    for _ in range(STEPS):
        offsets = _step(rows, smooth, here, ridge)
        if offsets is None:
            break
        here = look(rows, smooth, offsets, ridge)
    return here.offsets, here.value


def _minimise_many(rows: Rows, smooth: Smooth, start: Tensor, ridge: float) -> tuple[Tensor, float]:
    """The same where whole Hessians would be dear, by L-BFGS."""
    from scipy.optimize import minimize

    def at(offsets: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        here = look(rows, smooth, torch.from_numpy(offsets.copy()), ridge, hessian="none")
        # scaled, as it ends where the objective changes by less than a rounding of 1
        return here.value * SCALE, here.gradient.numpy() * SCALE

    options = {"gtol": TOLERANCE * SCALE, "ftol": 0.0, "maxiter": STEPS, "maxcor": 20}
    found = minimize(at, start.numpy(), jac=True, method="L-BFGS-B", options=options)
    return torch.from_numpy(found.x), float(found.fun) / SCALE


def _step(rows: Rows, smooth: Smooth, here: Point, ridge: float) -> Tensor | None:
    """The next offsets, where the objective is lower; None where nothing is left to gain."""
    if float(here.gradient.abs().max()) <= TOLERANCE:
        return None
    step = _direction(rows, smooth, here, ridge)
    along = float(here.gradient @ step)
    for _ in range(40):
        if value_at(rows, smooth, here, step, ridge) < here.value + 1e-4 * along:
            return here.offsets + step
        step, along = step / 2, along / 2
    return None


def value_at(rows: Rows, smooth: Smooth, here: Point, step: Tensor, ridge: float) -> float:
    """The objective alone, a step away."""
    offsets = here.offsets + step
    total = ridge / 2 * float(offsets @ offsets)
    if here.shares is not None:
        loss = (here.shares.p @ step.exp()).log_().add_(here.shares.loss).sub_(step[rows.group])
        return total + float(rows.weights @ smooth.value(loss, rows.limit))
    for block in rows.blocks(rows.num_groups):
        total += float(rows.weights[block] @ smooth.value(_softmax(rows, block, offsets).loss, rows.limit))
    return total


def _every(rows: Rows) -> int:
    """A Hessian is taken over every so many rows."""
    return math.ceil(len(rows.label) * rows.num_groups**2 / PRODUCTS)


def look(rows: Rows, smooth: Smooth, offsets: Tensor, ridge: float, *, hessian: str = "full") -> Point:
    """The objective, its gradient and a Hessian: the "full" one, the "safe" one of majorise-minimise, or "none"."""
    groups, every, shares = rows.num_groups, _every(rows), None
    value, gradient = ridge / 2 * float(offsets @ offsets), ridge * offsets
    second, mass = torch.zeros(groups, groups, dtype=torch.float64), torch.zeros(groups, dtype=torch.float64)
    curved = torch.zeros_like(second)
    for block in rows.blocks(groups):
        p, loss = shares = _softmax(rows, block, offsets)
        weights, group = rows.weights[block], rows.group[block]
        value += float(weights @ smooth.value(loss, rows.limit))
        slope = weights * smooth.slope(loss, rows.limit)
        inside = slope @ p
        mass += inside
        gradient = (gradient + inside).index_add_(0, group, -slope)
        if hessian == "none":
            continue
        if every > 1:
            p, slope, group, weights, loss = (x[::every] for x in (p, slope, group, weights, loss))
        if hessian == "full" and smooth.curvature is not None:
            # adds (p - e)^T bend (p - e), with e = 1 at the label's group
            bend = weights * smooth.curvature(loss, rows.limit)
            slope = slope - bend
            mixed = torch.zeros_like(second).index_add_(0, group, p * bend[:, None])
            curved -= mixed + mixed.T
            curved.diagonal().index_add_(0, group, bend)
        second += (p.T * slope) @ p
    # Of a part of the rows, p p^T is scaled so that its rows still sum to those of the diagonal: H has 1 in its kernel.
    if every > 1:
        second *= float(mass.sum() / second.sum().clamp(min=1e-300))
    kept = shares if shares is not None and len(shares.loss) == len(rows.label) else None
    return Point(offsets, value, gradient, torch.diag(mass + ridge) - second + curved, kept)


def _softmax(rows: Rows, block: slice, offsets: Tensor) -> Shares:
    """The share of each group in a row, and the row's loss."""
    p = rows.scores[block].to("cpu", torch.float64) + offsets
    top = p.amax(1, keepdim=True)
    np.exp(p.sub_(top).numpy(), out=p.numpy())  # twice as fast as torch's
    total = p.sum(1, keepdim=True)
    loss = (top + total.log())[:, 0] - rows.label[block] - offsets[rows.group[block]]
    return Shares(p.div_(total), loss)


def _direction(rows: Rows, smooth: Smooth, here: Point, ridge: float) -> Tensor:
    """A step downhill: Newton's where the Hessian is positive, else that of majorise-minimise."""
    hessian, gradient = here.hessian, here.gradient
    for _ in range(2):
        raised = torch.diag(1e-10 * hessian.diagonal().max().expand(len(gradient)))
        factor, failed = torch.linalg.cholesky_ex(hessian + raised)
        if not int(failed):
            step = torch.cholesky_solve(-gradient[:, None], factor)[:, 0]
            if bool(step.isfinite().all()) and float(step @ gradient) < 0:
                return step * min(1.0, LONGEST / max(float(step.abs().max()), 1e-300))
        if smooth.curvature is None:
            break
        hessian = look(rows, smooth, here.offsets, ridge, hessian="safe").hessian
    return -gradient * min(1.0, LONGEST / float(gradient.abs().max()))


def evidence(rows: Rows, start: Tensor) -> tuple[Tensor, float]:
    """Offsets by `loss` with the ridge under which the rows are most likely, and that ridge (MacKay's fixed point).

    The offsets are taken as drawn from a normal distribution whose variance is unknown; the ridge is the variance that
    explains them, over the number of rows. Rows that show no bias make it great, and the offsets small.
    """
    n, smooth = rows.effective, SMOOTH["loss"]
    offsets, ridge = start, 1.0 / n
    for _ in range(STEPS):
        here = look(rows, smooth, offsets, ridge)
        curvature = (torch.linalg.eigvalsh(here.hessian) - ridge).clamp(min=0)
        moved = _step(rows, smooth, here, ridge)
        offsets = offsets if moved is None else moved
        known = float((curvature / (curvature + ridge)).sum())
        new = min(max(known / (n * max(float(offsets @ offsets), 1e-12)), MILDEST), STRONGEST)
        settled, ridge = abs(math.log(new / ridge)) < 0.01, new
        if settled:
            break
    return minimise(rows, smooth, offsets, ridge)[0], ridge
