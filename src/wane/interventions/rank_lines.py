"""Offsets by a signal that depends on the label's rank alone, one line after the other, each searched exactly.

A line is a range of groups whose logits are shifted together. Along it a row's rank changes by one wherever a logit on
one side of the line meets the label on the other, and nowhere else: sorted, these places and what each is worth are
the whole objective. Where they are many, they are first counted into the bins of a grid, which is exact at its points,
and only the two bins beside the best point are sorted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from wane.interventions import group_rows
from wane.interventions.group_rows import Rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]
    Counts = NDArray[np.intp]

__all__ = ["Ranked", "ascend", "rank_rows"]

#: Points of the grid, and how many places are sorted without one.
POINTS, FEW_PLACES = 1024, 8192
#: Up to here the older groups are also shifted against the newer.
FEW_GROUPS = 32
#: Rounds over all lines at most; and the least gain of a shift that is worth another.
ROUNDS, LEAST = 5, 1e-6


@dataclass(frozen=True)
class Ranked:
    """Rows in the order of their label's group, with the classes in the order of their groups.

    Attributes:
        logits: (N, K) those that can change the signal.
        label: (N,) the label's own logit.
        group: (N,) the group of the label.
        weights: (N,) of sum 1.
        rows, columns: (G + 1,) where each group begins.
        lowest, highest: (G, G) extremes of a logit of group j less a label of group i, without -inf.
        value: (K + 1,) the signal by how many logits are above the label, with its sign so that more is better.
        ridge: times half of the squared offsets, subtracted.
    """

    logits: NDArray[Any]
    label: Numbers
    group: Counts
    weights: Numbers
    rows: list[int]
    columns: list[int]
    lowest: Numbers
    highest: Numbers
    value: Numbers
    ridge: float


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
        passed = self.places > shift if self.shifted else self.places < shift
        counts: Counts = self.others + np.count_nonzero(passed, axis=1)
        return counts

    def worth(self, ranked: Ranked) -> Numbers:
        """(n, m) what the objective gains at each place."""
        last = self.places.shape[1]
        passed = np.arange(last - 1, -1, -1) if self.shifted else np.arange(last)
        step = ranked.value[:-1] - ranked.value[1:]
        weights = ranked.weights[self.rows, None]
        return step[self.others[:, None] + passed] * (weights if self.shifted else -weights)


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
    extremes = np.empty((2, len(order), len(sizes)))
    for block in rows.blocks(len(classes)):
        part = source[order[block].to(source.device)].cpu()[:, classes]
        if not torch.equal(kept, sizes):
            inside = zip(torch.split(part, sizes.tolist(), 1), kept.tolist(), strict=True)
            part = torch.cat([x.topk(k, 1).values for x, k in inside], 1)
        logits[block] = part.to(torch.float64 if logits.dtype == np.float64 else torch.float32).numpy()
        apart = logits[block] - label[block, None]
        extremes[1, block] = np.maximum.reduceat(apart, first_column[:-1], axis=1)
        apart[np.isneginf(apart)] = np.inf
        extremes[0, block] = np.minimum.reduceat(apart, first_column[:-1], axis=1)
    lowest = np.minimum.reduceat(extremes[0], first_row[:-1], axis=0)
    highest = np.maximum.reduceat(extremes[1], first_row[:-1], axis=0)
    table = torch.cat([value, value[-1:]])[: logits.shape[1] + 1].double().numpy()
    return Ranked(logits, label, group, weights, first_row, first_column, lowest, highest, table, ridge)


def ascend(ranked: Ranked, start: Tensor) -> tuple[Tensor, float]:
    """Shift one group at a time, and the older ones against the newer, until no shift gains anything.

    Returns the offsets and the objective.
    """
    offsets, groups = start.numpy().copy(), len(start)
    lines = [(g, g + 1) for g in range(groups)]
    if groups <= FEW_GROUPS:
        lines += [(0, g) for g in range(2, groups)]
    above = np.zeros(len(ranked.label), np.intp)
    for rows in _blocks(0, len(above), ranked.logits.shape[1]):
        shifted = ranked.logits[rows] + _by_column(ranked, offsets)
        above[rows] = np.count_nonzero(shifted > _labels(ranked, offsets, rows), axis=1)
    for _ in range(ROUNDS):
        moved = False
        for line in lines:
            meetings = Line(ranked, offsets.copy(), above, line)
            shift, gain = best_shift(meetings)
            if gain > LEAST:
                for some in meetings:
                    above[some.rows] = some.above(shift)
                offsets[slice(*line)] += shift
                moved = True
        if not moved:
            break
    value = ranked.weights @ ranked.value[above] - ranked.ridge / 2 * offsets @ offsets
    return torch.from_numpy(offsets), float(value)


@dataclass
class Line:
    """A range of groups that are shifted together; iterating gives all meetings, kept where they are not too many."""

    ranked: Ranked
    offsets: Numbers
    above: Counts
    groups: tuple[int, int]

    def __post_init__(self) -> None:
        first, last = self.groups
        self.rows = self.ranked.rows[first], self.ranked.rows[last]
        self.columns = self.ranked.columns[first], self.ranked.columns[last]
        n, k = self.ranked.logits.shape
        rows, columns = self.rows[1] - self.rows[0], self.columns[1] - self.columns[0]
        self.places = rows * (k - columns) + (n - rows) * columns
        self.kept = list(self._find()) if self.places <= 4 * group_rows.CHUNK else None

    def __iter__(self) -> Iterator[Meetings]:
        return self._find() if self.kept is None else iter(self.kept)

    def _find(self) -> Iterator[Meetings]:
        ranked, (begin, end), (left, right) = self.ranked, self.rows, self.columns
        n, k = ranked.logits.shape
        columns = _by_column(ranked, self.offsets)
        for rows in _blocks(begin, end, k - right + left):
            places = np.empty((rows.stop - rows.start, k - right + left))
            np.add(ranked.logits[rows, :left], columns[:left], out=places[:, :left])
            np.add(ranked.logits[rows, right:], columns[right:], out=places[:, left:])
            places -= _labels(ranked, self.offsets, rows)
            others = self.above[rows] - np.count_nonzero(places > 0, axis=1)
            places.sort(axis=1)
            yield Meetings(rows, True, places, others)
        for rows in (*_blocks(0, begin, right - left), *_blocks(end, n, right - left)):
            places = _labels(ranked, self.offsets, rows) - (ranked.logits[rows, left:right] + columns[left:right])
            others = self.above[rows] - np.count_nonzero(places < 0, axis=1)
            if right - left > 1:
                places.sort(axis=1)
            yield Meetings(rows, False, places, others)

    def penalty(self, shifts: Numbers) -> Numbers:
        """What the ridge costs beyond no shift."""
        inside = self.offsets[slice(*self.groups)]
        cost: Numbers = self.ranked.ridge * shifts * (inside.sum() + len(inside) / 2 * shifts)
        return cost

    def range(self) -> tuple[float, float]:
        """The least and the greatest shift at which a logit meets a label; infinite where there is none."""
        inside, outside = slice(*self.groups), np.ones(len(self.offsets), bool)
        outside[inside] = False
        between = self.offsets - self.offsets[:, None]
        low, high = self.ranked.lowest + between, self.ranked.highest + between
        return (min(low[inside][:, outside].min(), -high[outside][:, inside].max()),
                max(high[inside][:, outside].max(), -low[outside][:, inside].min()))  # fmt: skip


def best_shift(line: Line) -> tuple[float, float]:
    """The middle of the interval of shifts where the objective is greatest; of equal ones, the widest; and the gain."""
    first, last, base = -np.inf, np.inf, 0.0
    low, high = line.range() if line.places > FEW_PLACES else (0.0, 0.0)
    if 0 < high - low < np.inf:
        step = float(high - low) / (POINTS - 1)
        zero = min(max(0, int(np.ceil(-low / step))), POINTS)
        points = np.arange(-zero, POINTS + 1 - zero, dtype=np.float64) * step
        change = np.zeros(POINTS + 2)
        for some in line:
            bins = some.places * (1 / step)
            bins = np.ceil(bins, out=bins) if some.shifted else np.floor(bins, out=bins)
            bins += zero if some.shifted else zero + 1
            np.clip(bins, 0, POINTS + 1, out=bins)
            change += np.bincount(bins.astype(np.intp).ravel(), some.worth(line.ranked).ravel(), POINTS + 2)
        total = change.cumsum()[:-1]
        best = int((total - line.penalty(points)).argmax())
        left, right = max(best - 1, 0), min(best + 1, POINTS)
        first, last, base = points[left], points[right], total[left] - total[zero]
    found, worths = [], []
    for some in line:
        worth = some.worth(line.ranked)
        if first == -np.inf:
            base -= worth[some.places <= 0 if some.shifted else some.places < 0].sum()
            keep = worth != 0
        elif some.shifted:
            keep = (some.places > first) & (some.places <= last)
        else:
            keep = (some.places >= first) & (some.places < last)
        found.append(some.places[keep])
        worths.append(worth[keep])
    places, worth = np.concatenate(found), np.concatenate(worths)
    finite = np.isfinite(places)
    if not finite.all():
        base += worth[np.isneginf(places)].sum()
        places, worth = places[finite], worth[finite]
    if len(places) == 0:
        return 0.0, 0.0
    order = places.argsort()
    places, total = places[order], base + np.concatenate([[0.0], worth[order].cumsum()])
    # Beyond the first and the last place nothing changes: there the interval is 2 wide.
    ends = np.concatenate([[max(first, places[0] - 2)], places, [min(last, places[-1] + 2)]])
    middles: Numbers = (ends[1:] + ends[:-1]) / 2
    widths = ends[1:] - ends[:-1]
    values = np.where(widths > 0, total - line.penalty(middles), -np.inf)
    at = int(np.where(values >= values.max() - 1e-12, widths, -1.0).argmax())
    return float(middles[at]), float(values[at])


def _blocks(first: int, last: int, width: int) -> Iterator[slice]:
    """Some rows at a time, where each needs `width` numbers."""
    step = max(1, group_rows.CHUNK // max(width, 1))
    for start in range(first, last, step):
        yield slice(start, min(start + step, last))


def _by_column(ranked: Ranked, offsets: Numbers) -> Numbers:
    """(K,) the offset of each column."""
    return np.repeat(offsets, np.diff(ranked.columns))


def _labels(ranked: Ranked, offsets: Numbers, rows: slice) -> Numbers:
    """(n, 1) the labels' own logits with their offsets."""
    return (ranked.label[rows] + offsets[ranked.group[rows]])[:, None]
