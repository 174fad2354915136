"""How the mean of any signal changes while the logits of some groups are shifted together, and where it is greatest.

The signal is looked at on a grid, on which the counts of greater logits are exact, and which is made finer around its
best point. One that depends on the label's rank alone is searched exactly instead: see `rank_lines`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from wane.interventions.group_rows import FEW_GROUPS, Rows
from wane.softmax.registry import SIGNALS, Sample

__all__ = ["Problem", "ascend", "best_shift", "objective", "shift_once"]

#: Points of a grid, and how often it is made finer: a range of 20 nats ends in steps of 0.001.
POINTS, FINER = 41, 2
#: Signals that need no count of greater logits, which is the dear part.
WITHOUT_RANK = ("loss", "nkl", "ctl", "cm")
#: Signals that need the loss, and no top.
SMOOTH_SIGNALS = ("loss", "nkl", "ctl")
#: Rounds over all lines at most; and the least gain of a shift that is worth another.
ROUNDS, LEAST = 5, 1e-6


@dataclass(frozen=True)
class Problem:
    """Find the offsets, one a group, that make the weighted mean of signal `by` greatest, less a ridge."""

    rows: Rows
    by: str
    ridge: float


class Sides(NamedTuple):
    """Some rows with their offsets: what is shifted, and the others, as (n, groups) or, for ranks, (n, classes)."""

    shifted: Tensor
    others: Tensor
    label: Tensor  # (n,) the label's own logit
    own: Tensor  # (n,) whether it is shifted


def ascend(problem: Problem, start: Tensor) -> Tensor:
    """Shift one group at a time, and the older ones against the newer, until no shift gains anything."""
    offsets, alone = start, torch.eye(len(start), dtype=torch.bool)
    older = torch.ones_like(alone).tril()[1 : -1 if len(start) <= FEW_GROUPS else 1]
    for _ in range(ROUNDS):
        moved = False
        for line in (*alone, *older):
            shift, gain = best_shift(problem, offsets, line)
            if gain > LEAST:
                offsets, moved = offsets + shift * line, True
        if not moved:
            break
    return offsets


def objective(problem: Problem, offsets: Tensor) -> float:
    """The weighted mean of the signal, with its sign so that more is better, less the ridge."""
    line, by_nothing = torch.arange(len(offsets)) == 0, torch.zeros(1, dtype=torch.float64)
    return float(_means(problem, offsets, line, by_nothing) - _penalty(problem, offsets, line, by_nothing))


def shift_once(problem: Problem, offsets: Tensor) -> Tensor:
    """The best single shift of one group, on the coarse grid: a look beyond the nearest maximum."""
    best, most = offsets, 0.0
    for line in torch.eye(len(offsets), dtype=torch.bool):
        shift, gain = best_shift(problem, offsets, line, finer=0)
        if gain > most:
            best, most = offsets + shift * line, gain
    return best


def best_shift(problem: Problem, offsets: Tensor, line: Tensor, *, finer: int = FINER) -> tuple[float, float]:
    """The shift of the groups in the mask `line` that makes the objective greatest, and what it gains over none."""
    low, high = _range(problem, offsets, line)
    best, gain = 0.0, 0.0
    for _ in range(1 + finer):
        grid = torch.linspace(low, high, POINTS, dtype=torch.float64)
        shifts = torch.cat([grid, torch.zeros(1, dtype=torch.float64)]).sort().values
        values = _means(problem, offsets, line, shifts) - _penalty(problem, offsets, line, shifts)
        at, zero = int(values.argmax()), int((shifts == 0).nonzero()[0, 0])
        if float(values[at] - values[zero]) > gain:
            best, gain = float(shifts[at]), float(values[at] - values[zero])
        step = (high - low) / (POINTS - 1)
        low, high = best - step, best + step
    return best, gain


def _means(problem: Problem, offsets: Tensor, line: Tensor, shifts: Tensor) -> Tensor:
    """(T,) the weighted mean of the signal at each shift, with its sign so that more is better."""
    rows, signal, ranked = problem.rows, SIGNALS[problem.by], problem.by not in WITHOUT_RANK
    total = torch.zeros(len(shifts), dtype=torch.float64)
    for block in rows.blocks(rows.logits.shape[1] if ranked else rows.num_groups + len(shifts)):
        side = _sides(rows, rows.scores, block, offsets, line)
        shifted, others = side.shifted.logsumexp(1), side.others.logsumexp(1)
        # the share of the shifted groups in all mass, and that of the label and of the top in its own side's
        mass = ((shifted - others)[:, None] + shifts).sigmoid_()
        rest = 1 - mass
        share = (side.label - torch.where(side.own, shifted, others)).exp()[:, None]
        p = share * torch.where(side.own[:, None], mass, rest)
        loss = p if problem.by == "cm" else -p.log()
        p_max = above = p  # what a signal does not look at
        if problem.by not in SMOOTH_SIGNALS:
            tops = _sides(rows, rows.tops, block, offsets, line)
            high, other = (tops.shifted.amax(1) - shifted).exp(), (tops.others.amax(1) - others).exp()
            p_max = torch.maximum(mass * high[:, None], rest * other[:, None])
        if ranked:
            above = _above(_class_sides(rows, block, offsets, line), shifts)
        sample = Sample(p, p_max, loss, above, above + 1, rows.classes, rows.limit)
        assert signal.of is not None  # a pooled row is refused by the correction
        total += rows.weights[block] @ signal.of(sample).double()
    return total * signal.sign


def _above(side: Sides, shifts: Tensor) -> Tensor:
    """(n, T) how many logits are greater than the label's, at each of the sorted shifts."""
    points = len(shifts)
    found = torch.empty(len(side.label), points, dtype=torch.float64)
    for own, still, moving in ((True, side.shifted, side.others), (False, side.others, side.shifted)):
        mine = (side.own == own).nonzero()[:, 0]
        label = side.label[mine, None]
        fixed = (still[mine] > label).sum(1, keepdim=True)
        # a logit of the other side is passed by a shifted label, or passes one that is not, where the shift is `meet`
        meet = moving[mine] - label if own else label - moving[mine]
        index = torch.bucketize(meet, shifts, right=not own)
        flat = index + torch.arange(len(mine))[:, None] * (points + 1)
        counts = torch.bincount(flat.reshape(-1), minlength=len(mine) * (points + 1)).view(len(mine), points + 1)
        passed = counts.cumsum(1)[:, :points]
        found[mine] = (fixed + (moving.shape[1] - passed if own else passed)).double()
    return found


def _range(problem: Problem, offsets: Tensor, line: Tensor) -> tuple[float, float]:
    """Between the least and the greatest shift at which a logit meets the label's, and 1 further."""
    rows, ranked = problem.rows, problem.by not in WITHOUT_RANK
    low, high = math.inf, -math.inf
    for block in rows.blocks(rows.logits.shape[1] if ranked else rows.num_groups):
        side = _class_sides(rows, block, offsets, line) if ranked else _sides(rows, rows.tops, block, offsets, line)
        for own, moving in ((True, side.others), (False, side.shifted)):
            mine = side.own == own
            meet = (moving if ranked else moving.amax(1, keepdim=True))[mine] - side.label[mine, None]
            meet = meet[meet.isfinite()] * (1 if own else -1)
            if len(meet):
                low, high = min(low, float(meet.min())), max(high, float(meet.max()))
    return (low - 1, high + 1) if low <= high else (-1.0, 1.0)


def _sides(rows: Rows, values: Tensor, block: slice, offsets: Tensor, line: Tensor) -> Sides:
    """Groups that are shifted and others, in float64."""
    group = rows.group[block]
    moved = values[block].to("cpu", torch.float64) + offsets
    return Sides(moved[:, line], moved[:, ~line], rows.label[block] + offsets[group], line[group])


def _class_sides(rows: Rows, block: slice, offsets: Tensor, line: Tensor) -> Sides:
    """Classes that are shifted and others, in float64."""
    taking_part, members, group = rows.members >= 0, rows.members.clamp(min=0), rows.group[block]
    moved = rows.logits[block].to("cpu", torch.float64) + offsets[members]
    shifted = taking_part & line[members]
    return Sides(
        moved[:, shifted], moved[:, taking_part & ~shifted], rows.label[block] + offsets[group], line[group]
    )  # fmt: skip


def _penalty(problem: Problem, offsets: Tensor, line: Tensor, shifts: Tensor) -> Tensor:
    """(T,) of the ridge."""
    return problem.ridge / 2 * (offsets + shifts[:, None] * line).square().sum(1)
