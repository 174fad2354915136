"""A new linear head on features as they are: multinomial logistic regression with an L2 penalty.

A convex problem, solved the same way every time: L-BFGS from a fixed start, with the inverse curvature of a head that
knows nothing as its first guess (`softmax_regression`). The strength of the penalty is chosen by cross-validation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from wane.checks import finite, whole
from wane.interventions.softmax_regression import Regression, class_weights, pose, rank_in_class, solve

__all__ = ["STRENGTHS", "LinearHead", "fit_head"]

#: What cross-validation chooses from unless told otherwise, the strongest first.
STRENGTHS = (1_000.0, 300.0, 100.0, 30.0, 10.0)


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
    problem = pose(x, y, class_weights(y, len(competing), balanced), start)
    theta, gradient, evaluations = solve(problem, chosen / len(x), tolerance)
    return _put_back(problem, theta, competing, before, chosen, gradient, evaluations)


def _choose(
    x: Tensor, y: Tensor, strengths: list[float], start: tuple[Tensor, Tensor] | None, folds: int, balanced: bool,
    tolerance: float,
) -> float:  # fmt: skip
    """The strength with the highest held-out accuracy; they come strongest first, and each fit starts at the last.

    A class with a single row is never held out: there would be nothing to fit it on.
    """
    classes = int(y.max()) + 1
    turn = rank_in_class(y) % folds
    turn = torch.where(y.bincount(minlength=classes)[y] > 1, turn, folds)
    held = [(turn == fold).nonzero()[:, 0] for fold in range(folds)]
    parts = []
    for rows in held:
        if len(rows):
            kept = (~torch.isin(torch.arange(len(y), device=y.device), rows)).nonzero()[:, 0]
            w = class_weights(y[kept], classes, balanced)
            parts.append((rows, len(kept), pose(x[kept], y[kept], w, start)))
    if not parts:
        return strengths[0]
    everyone = class_weights(y, classes, balanced)
    thetas: list[Tensor | None] = [None] * len(parts)
    best, highest = strengths[0], -1.0
    for strength in strengths:
        right = 0.0
        for i, (rows, count, problem) in enumerate(parts):
            theta, _, _ = solve(problem, strength / count, tolerance, thetas[i])
            held_out = x[rows].double()
            logits = problem.logits(theta, held_out)
            said = (logits if start is None else logits + torch.addmm(start[1], held_out, start[0].T)).argmax(1)
            right += float(everyone[rows] @ (said == y[rows]).double())
            thetas[i] = theta
        if right < highest:
            break
        if right > highest:
            best, highest = strength, right
    return best


def _put_back(
    problem: Regression, theta: Tensor, competing: Tensor, before: tuple[Tensor, ...] | None, strength: float,
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


def _evenly(y: Tensor, most: int | None) -> Tensor | None:
    """At most so many rows of each class, evenly spread over its rows; None for all."""
    if most is None:
        return None
    rank, counts = rank_in_class(y), y.bincount()[y]
    # row r of n is kept if the multiples of n / most pass it: floor rises there
    kept = ((rank + 1) * most).div(counts, rounding_mode="floor") > (rank * most).div(counts, rounding_mode="floor")
    return (kept | (counts <= most)).nonzero()[:, 0]


def _as_list(strength: float | Sequence[float]) -> Sequence[float]:
    return strength if isinstance(strength, Sequence) else [strength]


def _checked(
    features: Tensor, labels: Tensor, classes: Sequence[int] | None, toward: tuple[Tensor, Tensor] | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Features in float32 or float64, labels as positions among the competing classes, and those classes."""
    if features.ndim != 2 or not features.is_floating_point():
        raise ValueError(f"features are {features.dtype} of shape {tuple(features.shape)}: give floats of shape (N, d)")
    if labels.shape != features.shape[:1] or labels.is_floating_point() or labels.dtype == torch.bool:
        raise ValueError(f"labels are {labels.dtype} of shape {tuple(labels.shape)}: give integers of shape "
                         f"({len(features)},)")  # fmt: skip
    if not bool(features.sum(dtype=torch.float64).isfinite()) and not bool(
        features.isfinite().all()
    ):  # a sum is quicker
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
    x = features.to(device)
    return x if x.dtype == torch.float64 else x.float(), torch.searchsorted(wanted, y), wanted
