"""Offsets by a signal that depends on the label's rank alone, one line after the other, each searched exactly.

A line is a range of groups whose logits are shifted together. Along it a row's rank changes by one wherever a logit on
one side of the line meets the label on the other, and nowhere else: sorted, these places and what each is worth are
the whole objective. Where they are many, they are first counted into the bins of a grid, which is exact at its points,
and only the two bins beside the best point are sorted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from wane.interventions import group_rows
from wane.interventions.group_rows import FEW_GROUPS, Rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]
    Counts = NDArray[np.intp]

__all__ = ["Ranked", "ascend", "rank_rows"]

#: Numbers worked on at a time: few enough for a processor's nearest memory.
BLOCK = 2**15
#: Points of the grid, and how many places are sorted without one.
POINTS, FEW_PLACES = 1024, 8192
#: Rounds over all lines at most; and the least gain of a shift that is worth another.
ROUNDS, LEAST = 5, 1e-6
#: With many groups the last rounds bring next to nothing: so many at most, and none after one that gained less.
FEWER_ROUNDS, ENOUGH = 4, 5e-4
#: Less than any difference of logits, but not 0: a tie is the label's, so it is passed just before or just after.
TIE = 1e-300


@dataclass(frozen=True)
class Ranked:
    """Rows in the order of their label's group, with the classes in the order of their groups.

    Attributes:
        logits: (N, K) those that can change the signal.
        label: (N,) the label's own logit.
        group: (N,) the group of the label.
        weights: (N,) of sum 1.
        rows, columns: (G + 1,) where each group begins.
        value: (K + 1,) the signal by how many logits are above the label, with its sign so that more is better.
        cost: (K,) of one more of them.
        ridge: times half of the squared offsets, subtracted.
        furthest, spread: greatest value and standard deviation of what logits and their row's label differ by.
    """

    logits: NDArray[Any]
    label: Numbers
    group: Counts
    weights: Numbers
    rows: list[int]
    columns: list[int]
    value: Numbers
    cost: Numbers
    ridge: float
    furthest: float
    spread: float


def rank_rows(rows: Rows, value: Tensor, ridge: float) -> Ranked:
    """The rows in order; `value` (C,) is the signal by how many logits are above the label."""
    steps = (value[1:] != value[:-1]).nonzero()
    depth = int(steps[-1]) + 1 if len(steps) else 1
    order, classes = rows.group.argsort(stable=True), (rows.members >= 0).nonzero()[:, 0]
    classes = classes[rows.members[classes].argsort(stable=True)]
    source, sizes = rows.logits, rows.members[classes].bincount()
    if depth == 1 and len(sizes) < len(classes):
        source, classes, sizes = rows.tops, torch.arange(len(sizes)), torch.ones_like(sizes)
    # Beyond rank k nothing changes for top-k: of each group the k greatest logits are enough.
    kept = sizes.clamp(max=depth)
    label, weights, group = (x[order].numpy() for x in (rows.label, rows.weights, rows.group))
    first_row, first_column = ([0, *x.cumsum(0).tolist()] for x in (rows.group.bincount(), kept))
    logits = np.empty((len(order), int(kept.sum())), np.float64 if source.dtype == torch.float64 else np.float32)
    for block in rows.blocks(len(classes)):
        part = source[order[block].to(source.device)].cpu()[:, classes]
        if not torch.equal(kept, sizes):
            inside = zip(torch.split(part, sizes.tolist(), 1), kept.tolist(), strict=True)
            part = torch.cat([x.topk(k, 1).values for x, k in inside], 1)
        logits[block] = part.to(torch.float64 if logits.dtype == np.float64 else torch.float32).numpy()
    table = torch.cat([value, value[-1:]])[: logits.shape[1] + 1].double().numpy()
    return Ranked(logits, label, group, weights, first_row, first_column, table, table[:-1] - table[1:], ridge,
                  *_differences(logits, label))  # fmt: skip


def _differences(logits: NDArray[Any], label: Numbers) -> tuple[float, float]:
    """The greatest, and the standard deviation, of what logits and their row's label differ by; masked ones aside."""
    furthest, count, total, squares = 0.0, 0, 0.0, 0.0
    for rows in _blocks(0, len(label), logits.shape[1]):
        apart = (logits[rows] - label[rows, None]).ravel()
        if apart.min() == -np.inf:
            apart = apart[np.isfinite(apart)]
        furthest = max(furthest, float(apart.max()), -float(apart.min()))
        count, total, squares = count + len(apart), total + float(apart.sum()), squares + float(apart @ apart)
    return furthest, math.sqrt(max(squares / count - (total / count) ** 2, 0.0))


def ascend(ranked: Ranked, start: Tensor) -> tuple[Tensor, float]:
    """Shift one group at a time, and the older ones against the newer, until no shift gains anything.

    With many groups no shift goes beyond the spread of the logits at once, the older are not shifted together, and the
    end comes when a round gains little. Returns the offsets and the objective.
    """
    standing, groups = Standing.under(ranked, start.numpy().copy()), len(start)
    lines, rounds, enough = [(g, g + 1) for g in range(groups)], FEWER_ROUNDS, ENOUGH
    if groups <= FEW_GROUPS:
        lines, rounds, enough = lines + [(0, g) for g in range(2, groups)], ROUNDS, 0.0
    for _ in range(rounds):
        if sum(standing.improve(line) for line in lines) <= enough:
            break
    return torch.from_numpy(standing.offsets), standing.objective


@dataclass
class Standing:
    """The rows under the offsets found so far."""

    ranked: Ranked
    offsets: Numbers  # (G,)
    columns: Numbers  # (K,) the offset of each column
    labels: Numbers  # (N,) the label's own logit with its offset
    above: Counts  # (N,) how many logits are above it

    @classmethod
    def under(cls, ranked: Ranked, offsets: Numbers) -> Standing:
        columns, labels = np.repeat(offsets, np.diff(ranked.columns)), ranked.label + offsets[ranked.group]
        above = np.empty(len(labels), np.intp)
        for rows in _blocks(0, len(labels), ranked.logits.shape[1]):
            above[rows] = _count(ranked.logits[rows] + columns > labels[rows, None])
        return cls(ranked, offsets, columns, labels, above)

    @property
    def objective(self) -> float:
        ranked, offsets = self.ranked, self.offsets
        return float(ranked.weights @ ranked.value[self.above] - ranked.ridge / 2 * offsets @ offsets)

    def improve(self, groups: tuple[int, int]) -> float:
        """Shift these groups to their best; what that gained."""
        line = Line(self, groups)
        shift, gain = best_shift(line)
        if gain <= LEAST:
            return 0.0
        for some in line:
            self.above[some.rows] = some.above(shift)
        self.offsets[slice(*groups)] += shift
        self.columns[slice(*line.columns)] += shift
        self.labels[slice(*line.rows)] += shift
        return gain


class Meetings(NamedTuple):
    """For some rows, where each logit on the other side of a line meets the label, as a shift, ascending.

    Until then it is above a label that is shifted, and from then on above one that is not.
    """

    rows: slice
    shifted: bool  # the labels, or the logits
    places: Numbers  # (n, m)
    others: Counts  # (n,) logits on the label's own side that are above it

    def above(self, shift: float) -> Counts:
        """(n,) how many logits are above the label after a shift."""
        return self.others + _count(self.places > shift if self.shifted else self.places < shift)

    def worth(self, ranked: Ranked) -> Numbers:
        """(n, m) what the objective gains at each place."""
        last, weights = self.places.shape[1], ranked.weights[self.rows, None]
        passed = np.arange(last - 1, -1, -1) if self.shifted else np.arange(last)
        costs: Numbers = ranked.cost.take(self.others[:, None] + passed, mode="clip")
        costs *= weights if self.shifted else -weights
        return costs

    def between(self, ranked: Ranked, first: float, last: float) -> tuple[Numbers, Numbers]:
        """The places within these bounds that change anything, and what they are worth."""
        if self.shifted:
            keep = (self.places > first) & (self.places <= last)
        else:
            keep = (self.places >= first) & (self.places < last)
        worth = self.worth(ranked)
        keep &= worth != 0
        return self.places[keep], worth[keep]


class Line:
    """A range of groups that are shifted together; iterating gives all meetings, kept where they are not too many."""

    def __init__(self, standing: Standing, groups: tuple[int, int]) -> None:
        ranked, (first, last) = standing.ranked, groups
        self.standing, self.ranked = standing, ranked
        self.rows = ranked.rows[first], ranked.rows[last]
        self.columns = ranked.columns[first], ranked.columns[last]
        self.count, self.sum = last - first, float(standing.offsets[first:last].sum())
        self.limit = math.inf if len(standing.offsets) <= FEW_GROUPS else ranked.spread
        n, k = ranked.logits.shape
        rows, columns = self.rows[1] - self.rows[0], self.columns[1] - self.columns[0]
        self.places = rows * (k - columns) + (n - rows) * columns
        self.kept = list(self._find()) if self.places <= 4 * group_rows.CHUNK else None

    def __iter__(self) -> Iterator[Meetings]:
        return self._find() if self.kept is None else iter(self.kept)

    def _find(self) -> Iterator[Meetings]:
        (begin, end), (left, right) = self.rows, self.columns
        columns, labels, above = self.standing.columns, self.standing.labels, self.standing.above
        logits, (n, k) = self.ranked.logits, self.ranked.logits.shape
        # One column is taken whole, as two halves would cost more than the rows of shifted labels, which never meet it.
        rest = [(0, n)] if right - left == 1 else [(0, begin), (end, n)]
        for rows in (rows for part in rest for rows in _blocks(*part, right - left)):
            places = labels[rows, None] - (logits[rows, left:right] + columns[left:right])
            places[max(begin - rows.start, 0) : max(end - rows.start, 0)] = np.inf
            others = above[rows] - _count(places < 0)
            places += TIE
            if right - left > 1:
                places.sort(axis=1)
            yield Meetings(rows, False, places, others)
        for rows in _blocks(begin, end, k - right + left):
            places = np.empty((rows.stop - rows.start, k - right + left))
            np.add(logits[rows, :left], columns[:left], out=places[:, :left])
            np.add(logits[rows, right:], columns[right:], out=places[:, left:])
            places -= labels[rows, None]
            others = above[rows] - _count(places > 0)
            places -= TIE
            places.sort(axis=1)
            yield Meetings(rows, True, places, others)

    def penalty(self, shifts: Numbers) -> Numbers:
        """What the ridge costs beyond no shift."""
        cost: Numbers = shifts * (self.ranked.ridge * self.sum + self.ranked.ridge * self.count / 2 * shifts)
        return cost


def best_shift(line: Line) -> tuple[float, float]:
    """The middle of the interval of shifts where the objective is greatest; of equal ones, the widest; and the gain."""
    first, last, base = -line.limit, line.limit, None
    if line.places > FEW_PLACES:
        first, last, base = _around_best_point(line)
    found = [some.between(line.ranked, first, last) for some in line]
    places, worth = (np.concatenate(parts) for parts in zip(*found, strict=True))
    if len(places) == 0:
        return 0.0, 0.0
    order = places.argsort()
    places, total = places[order], np.zeros(len(places) + 1)
    worth[order].cumsum(out=total[1:])
    total += -total[places.searchsorted(0.0)] if base is None else base
    # Beyond the first and the last place nothing changes: there the interval is 2 wide.
    ends = np.concatenate([[max(first, places[0] - 2)], places, [min(last, places[-1] + 2)]])
    widths = ends[1:] - ends[:-1]
    middles = ends[:-1] + widths / 2
    total -= line.penalty(middles)
    total[widths <= 0] = -np.inf
    best = (total >= total.max() - 1e-12).nonzero()[0]
    at = best[widths[best].argmax()]
    return float(middles[at]), float(total[at])


def _around_best_point(line: Line) -> tuple[float, float, float]:
    """The points of a grid beside the one with the best objective, and what the first gains over no shift."""
    end = min(line.limit, line.ranked.furthest + float(np.ptp(line.standing.offsets)))
    step, zero = 2 * end / POINTS, POINTS // 2
    change = np.zeros(POINTS + 2)
    for some in line:
        bins = some.places * (1 / step)
        bins = np.ceil(bins, out=bins) if some.shifted else np.floor(bins, out=bins)
        bins += zero if some.shifted else zero + 1
        np.clip(bins, 0, POINTS + 1, out=bins)
        change += np.bincount(bins.astype(np.intp).ravel(), some.worth(line.ranked).ravel(), POINTS + 2)
    points, total = np.arange(-zero, zero + 1, dtype=np.float64) * step, change.cumsum()[:-1]
    best = int((total - line.penalty(points)).argmax())
    left, right = max(best - 1, 0), min(best + 1, POINTS)
    return float(points[left]), float(points[right]), float(total[left] - total[zero])


def _count(passed: NDArray[np.bool_]) -> Counts:
    """(n,) how many of each row; one column, which is what a class has, needs no sum."""
    counts: Counts = passed[:, 0].astype(np.intp) if passed.shape[1] == 1 else np.count_nonzero(passed, axis=1)
    return counts


def _blocks(first: int, last: int, width: int) -> Iterator[slice]:
    """Some rows at a time, where each needs `width` numbers."""
    step = max(1, min(BLOCK, group_rows.CHUNK) // max(width, 1))
    for start in range(first, last, step):
        yield slice(start, min(start + step, last))
