"""A new linear head on features as they are: multinomial logistic regression with an L2 penalty.

A convex problem, solved the same way every time: L-BFGS from a fixed start, with the inverse curvature of a head that
knows nothing as its first guess. It runs in float32 as far as that goes, and in float64 to the tolerance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from wane.checks import finite, whole

__all__ = ["STRENGTHS", "LinearHead", "fit_head"]

#: What cross-validation chooses from unless told otherwise, the strongest first.
STRENGTHS = (1_000.0, 300.0, 100.0, 30.0, 10.0)
#: Pairs of steps and changes of the gradient that L-BFGS remembers.
MEMORY = 20
#: The curvature is estimated on at most this many rows: it only guides the search.
SOME_ROWS = 4096
#: Smallest entry of a gradient that float32 still tells from rounding.
FLOAT32_LIMIT = 1e-4
#: Enough for any penalty worth having; what is left then is in `LinearHead.gradient`.
MOST_EVALUATIONS = 1000


@dataclass(frozen=True)
class LinearHead:
    """`features @ weight.T + bias`.

    Attributes:
        weight: (C, d) float64.
        bias: (C,) float64; -inf for a class that was not fitted and had no head before.
        strength: of the penalty, as given or as chosen.
        gradient: the largest entry of the objective's gradient at the end; at most the tolerance.
        evaluations: how often the objective was evaluated, the search for the strength not counted.
    """

    weight: Tensor
    bias: Tensor
    strength: float
    gradient: float
    evaluations: int

    def __call__(self, features: Tensor) -> Tensor:
        """The (N, C) logits, float64, on the device of the features."""
        like = features.device
        logits: Tensor = features.double() @ self.weight.to(like).T + self.bias.to(like)
        return logits


def fit_head(
    features: Tensor,
    labels: Tensor,
    *,
    classes: Sequence[int] | None = None,
    strength: float | Sequence[float] = STRENGTHS,
    toward: tuple[Tensor, Tensor] | None = None,
    folds: int = 4,
    rows_for_choice: int | None = None,
    balanced: bool = True,
    tolerance: float = 1e-3,
) -> LinearHead:
    """Fit a linear head by multinomial logistic regression with an L2 penalty.

    It minimises the mean cross-entropy plus ``strength / (2 n)`` times the sum of squares of the weights, with the
    features centred and divided by one number, the root of their mean variance. So a strength means the same for any
    number of rows and any scale of the features. The bias is free.

    Args:
        features: (N, d), the inputs of the head.
        labels: (N,) classes.
        classes: those that compete; each needs a row. Default: 0 to the largest label.
        strength: of the penalty, or several, of which the one with the highest accuracy in cross-validation is taken.
            The search goes from the strongest down, and ends when the accuracy falls; of equals the strongest counts.
        toward: weight (C, d) and bias (C,) of a head that there is already: it is the start, the penalty is on the
            *change* of its weights, and classes that do not compete keep their part of it. Default: zeros.
        folds: of the cross-validation. Rows take turns within their class, so nothing is random.
        rows_for_choice: of each class at most this many rows, evenly spread, choose the strength. Default: all.
        balanced: each class counts the same, however many rows it has.
        tolerance: largest entry of the gradient at the end.

    >>> generator = torch.Generator().manual_seed(0)
    >>> labels = torch.arange(60) % 3
    >>> features = torch.eye(3)[labels] + 0.3 * torch.randn(60, 3, generator=generator)
    >>> head = fit_head(features, labels)
    >>> head.strength, float((head(features).argmax(1) == labels).double().mean())
    (1000.0, 1.0)
    >>> fit_head(features, labels, classes=[0, 1, 2, 3])
    Traceback (most recent call last):
    ...
    ValueError: no row of class 3 among 60 rows: give rows of every class, or leave it out of `classes`
    """
    x, y, competing = _checked(features, labels, classes, toward)
    strengths = sorted({float(s) for s in _as_list(strength)}, reverse=True)
    if not strengths or not all(0 < s < float("inf") for s in strengths):
        raise ValueError(f"strength={strength}: give a finite number above 0, or several")
    if len(strengths) > 1:
        whole("folds", folds, least=2)
    finite("tolerance", tolerance, above=0)
    before = None if toward is None else tuple(part.to(x.device).double() for part in toward)
    start = None if before is None else (before[0][competing], before[1][competing])
    chosen = strengths[0]
    if len(strengths) > 1:
        some = _evenly(y, rows_for_choice)
        near = x if some is None else x[some]
        chosen = _choose(near, y if some is None else y[some], strengths, start, folds, balanced, tolerance)
    problem = _pose(x, y, _weights(y, len(competing), balanced), start)
    theta, gradient, evaluations = _solve(problem, chosen / len(x), tolerance)
    return _put_back(problem, theta, competing, before, chosen, gradient, evaluations)


class _Problem(NamedTuple):
    """What is minimised, in float64: K classes, d + 1 columns, the last of them 1."""

    x: Tensor  # (n, d + 1) centred and scaled
    y: Tensor  # (n,)
    w: Tensor  # (n,) sums to 1
    offset: Tensor | None  # (n, K) logits before the change
    centre: Tensor  # (d,)
    scale: float
    classes: int


def _pose(x: Tensor, y: Tensor, w: Tensor, start: tuple[Tensor, Tensor] | None) -> _Problem:
    centre = w @ x
    centred = x - centre
    scale = float((w @ centred.square()).mean().sqrt())
    scale = scale if scale > 0 else 1.0  # features that never vary: only the bias can learn
    offset = None if start is None else torch.addmm(start[1], x, start[0].T)
    ones = torch.ones(len(x), 1, dtype=x.dtype, device=x.device)
    return _Problem(torch.cat([centred / scale, ones], 1), y, w, offset, centre, scale, int(y.max()) + 1)


def _solve(
    problem: _Problem, penalty: float, tolerance: float, theta: Tensor | None = None, *, certain: bool = True
) -> tuple[Tensor, float, int]:
    """The minimum, the largest entry of the gradient there, and the number of evaluations.

    Unless it must be `certain`, float32 is enough for a tolerance that it can tell.
    """
    guess = _inverse_curvature(problem, penalty)
    if theta is None:
        theta = torch.zeros(problem.classes, problem.x.shape[1], dtype=torch.float64, device=problem.x.device)
    evaluations, gradient = 0, float("inf")
    alone = not certain and tolerance >= FLOAT32_LIMIT
    for dtype in (torch.float32,) if alone else (torch.float32, torch.float64):  # most of the way at half the cost
        enough = max(tolerance, FLOAT32_LIMIT) if dtype == torch.float32 else tolerance
        objective = _objective(problem, penalty, dtype)
        theta, gradient, more = _minimise(objective, theta.to(dtype), guess.to(dtype), enough)
        evaluations += more
    return theta.double(), gradient, evaluations


def _objective(problem: _Problem, penalty: float, dtype: torch.dtype) -> Callable[[Tensor], tuple[float, Tensor]]:
    """Theta (K, d + 1) to the objective and its gradient."""
    x, w = problem.x.to(dtype), problem.w.to(dtype)
    offset = None if problem.offset is None else problem.offset.to(dtype)
    rows, y = torch.arange(len(x), device=x.device), problem.y
    penalised = torch.ones(x.shape[1], dtype=dtype, device=x.device)
    penalised[-1] = 0.0
    penalised *= penalty

    def evaluate(theta: Tensor) -> tuple[float, Tensor]:
        logits = x @ theta.T if offset is None else torch.addmm(offset, x, theta.T)
        normaliser = logits.logsumexp(1)
        losses = (normaliser - logits[rows, y]).double()
        pulled = theta * penalised
        value = float(problem.w @ losses) + 0.5 * float((pulled.double() * theta).sum())
        residual = logits.sub_(normaliser[:, None]).exp_()
        residual[rows, y] -= 1
        residual.mul_(w[:, None])
        return value, pulled.addmm_(residual.T, x)

    return evaluate


def _inverse_curvature(problem: _Problem, penalty: float) -> Tensor:
    """(d + 1, d + 1) inverse of the curvature of one class's part where all classes are equally likely."""
    x, w, share = problem.x, problem.w, (1 - 1 / problem.classes) / problem.classes
    if len(x) > SOME_ROWS:
        some = torch.linspace(0, len(x) - 1, SOME_ROWS, device=x.device).long()
        x, w = x[some], w[some] / w[some].sum()
    curvature = share * (x.T @ (w[:, None] * x))
    curvature.diagonal()[:-1] += penalty  # the bias has none
    return torch.cholesky_inverse(torch.linalg.cholesky(curvature))


def _minimise(
    objective: Callable[[Tensor], tuple[float, Tensor]], theta: Tensor, guess: Tensor, tolerance: float
) -> tuple[Tensor, float, int]:
    """L-BFGS with a first guess of the inverse curvature, and steps that are halved until the value falls enough."""
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


def _choose(
    x: Tensor, y: Tensor, strengths: list[float], start: tuple[Tensor, Tensor] | None, folds: int, balanced: bool,
    tolerance: float,
) -> float:  # fmt: skip
    """The strength with the highest held-out accuracy; they come strongest first, and each fit starts at the last.

    A class with a single row is never held out: there would be nothing to fit it on.
    """
    classes = int(y.max()) + 1
    turn = _rank_in_class(y) % folds
    turn = torch.where(y.bincount(minlength=classes)[y] > 1, turn, folds)
    held = [(turn == fold).nonzero()[:, 0] for fold in range(folds)]
    parts = []
    for rows in held:
        if len(rows):
            kept = (~torch.isin(torch.arange(len(y), device=y.device), rows)).nonzero()[:, 0]
            w = _weights(y[kept], classes, balanced)
            parts.append((rows, len(kept), _pose(x[kept], y[kept], w, start)))
    if not parts:
        return strengths[0]
    everyone = _weights(y, classes, balanced)
    thetas: list[Tensor | None] = [None] * len(parts)
    best, highest = strengths[0], -1.0
    for strength in strengths:
        right = 0.0
        for i, (rows, count, problem) in enumerate(parts):
            theta, _, _ = _solve(problem, strength / count, tolerance, thetas[i], certain=False)
            said = _logits(problem, theta, x[rows], start).argmax(1)
            right += float(everyone[rows] @ (said == y[rows]).double())
            thetas[i] = theta
        if right < highest:
            break
        if right > highest:
            best, highest = strength, right
    return best


def _logits(problem: _Problem, theta: Tensor, x: Tensor, start: tuple[Tensor, Tensor] | None) -> Tensor:
    """Of features as they came."""
    logits = torch.addmm(theta[:, -1], (x - problem.centre) / problem.scale, theta[:, :-1].T)
    return logits if start is None else logits + torch.addmm(start[1], x, start[0].T)


def _put_back(
    problem: _Problem, theta: Tensor, competing: Tensor, before: tuple[Tensor, ...] | None, strength: float,
    gradient: float, evaluations: int,
) -> LinearHead:  # fmt: skip
    """The head for features as they came; adding one number to every bias changes nothing, so the mean change is 0."""
    weight = theta[:, :-1] / problem.scale
    bias = theta[:, -1] - weight @ problem.centre
    if before is None:
        count = int(competing.max()) + 1
        whole = weight.new_zeros(count, weight.shape[1])
        constant = weight.new_full((count,), -torch.inf)
        constant[competing] = 0.0
    else:
        whole, constant = before[0].clone(), before[1].clone()
    whole[competing] += weight
    constant[competing] += bias - bias.mean()
    return LinearHead(whole, constant, strength, gradient, evaluations)


def _weights(y: Tensor, classes: int, balanced: bool) -> Tensor:
    counts = y.bincount(minlength=classes).double()
    weights = 1 / counts[y] if balanced else torch.ones(len(y), dtype=torch.float64, device=y.device)
    return weights / weights.sum()


def _rank_in_class(labels: Tensor) -> Tensor:
    """The number of earlier rows with the same label, for every row."""
    order = labels.argsort(stable=True)
    counts = labels.bincount()
    first = (counts.cumsum(0) - counts)[labels[order]]
    return torch.empty_like(order).scatter_(0, order, torch.arange(len(labels), device=labels.device) - first)


def _evenly(y: Tensor, most: int | None) -> Tensor | None:
    """At most so many rows of each class, evenly spread over its rows; None for all."""
    if most is None:
        return None
    rank, counts = _rank_in_class(y), y.bincount()[y]
    # row r of n is kept if the multiples of n / most pass it: floor rises there
    kept = ((rank + 1) * most).div(counts, rounding_mode="floor") > (rank * most).div(counts, rounding_mode="floor")
    return (kept | (counts <= most)).nonzero()[:, 0]


def _as_list(strength: float | Sequence[float]) -> Sequence[float]:
    return strength if isinstance(strength, Sequence) else [strength]


def _checked(
    features: Tensor, labels: Tensor, classes: Sequence[int] | None, toward: tuple[Tensor, Tensor] | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Features in float64, labels as positions among the competing classes, and those classes."""
    if features.ndim != 2 or not features.is_floating_point():
        raise ValueError(f"features are {features.dtype} of shape {tuple(features.shape)}: give floats of shape (N, d)")
    if labels.shape != features.shape[:1] or labels.is_floating_point() or labels.dtype == torch.bool:
        raise ValueError(f"labels are {labels.dtype} of shape {tuple(labels.shape)}: give integers of shape "
                         f"({len(features)},)")  # fmt: skip
    if not bool(features.isfinite().all()):
        row, column = (~features.isfinite()).nonzero()[0].tolist()
        raise ValueError(f"features[{row}, {column}] is {float(features[row, column])}: a head needs finite features")
    if len(labels) == 0:
        raise ValueError("there is no row: give features and labels of each class")
    device = torch.device("cpu") if features.device.type == "mps" else features.device  # mps has no float64
    y = labels.to(device, torch.int64)
    wanted = torch.arange(int(y.max()) + 1) if classes is None else torch.tensor(sorted({int(c) for c in classes}))
    wanted = wanted.to(device)
    if int(y.min()) < 0 or not bool(torch.isin(y, wanted).all()):
        stranger = int(y[~torch.isin(y, wanted)][0]) if int(y.min()) >= 0 else int(y.min())
        raise ValueError(f"a row has the label {stranger}, which is not among the {len(wanted)} classes that compete")
    absent = wanted[~torch.isin(wanted, y)].tolist()
    if absent:
        more = f" (nor of {len(absent) - 1} more)" if len(absent) > 1 else ""
        raise ValueError(f"no row of class {absent[0]}{more} among {len(y)} rows: give rows of every class, or leave "
                         f"{'them' if more else 'it'} out of `classes`")  # fmt: skip
    if len(wanted) < 2:
        raise ValueError(f"all {len(y)} rows are of class {int(y[0])}: a head needs at least two classes")
    if toward is not None:
        size = (int(wanted.max()) + 1, features.shape[1])
        weight, bias = toward
        if weight.ndim != 2 or weight.shape[1] != size[1] or len(weight) < size[0] or bias.shape != weight.shape[:1]:
            raise ValueError(f"toward has a weight of shape {tuple(weight.shape)} and a bias of {tuple(bias.shape)}: "
                             f"give (C, {size[1]}) and (C,) with C at least {size[0]}")  # fmt: skip
    return features.to(device).double(), torch.searchsorted(wanted, y), wanted
