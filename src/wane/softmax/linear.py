"""Row statistics of logits that never exist: hidden states times an output matrix, in blocks of the vocabulary.

A block of logits is made, read while it is in the cache, and forgotten; what is kept of a row are its greatest logit so
far, the sum of exponentials relative to it, and how many logits are above the label's (an online softmax).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from wane.softmax.row_statistics import CHUNK_ELEMENTS, RowStatistics, inside, wide_dtype

__all__ = ["Linear", "PairStatistics", "of_linear", "of_linear_pair"]

#: Rows x columns of the logits that are made at a time: the matrix product likes many rows, the memory few columns.
ROWS, COLUMNS = 512, 4096


class Linear(NamedTuple):
    """What logits are made of: `hidden @ weight.T + bias`."""

    hidden: Tensor  # (rows, features)
    weight: Tensor  # (vocabulary, features)
    bias: Tensor | None

    def logits_of(self, labels: Tensor) -> Tensor:
        """(rows, 1): each label's own logit, rounded as the matrix product would round it; NaN for no class."""
        own, no_class = inside(labels, len(self.weight))
        wide = wide_dtype(self.hidden.dtype)
        label = (self.hidden.to(wide) * self.weight[own].to(wide)).sum(1)
        if self.bias is not None:
            label = label + self.bias[own].to(wide)
        return label.to(self.hidden.dtype).to(wide).masked_fill(no_class, torch.nan)[:, None]

    def block(self, rows: slice, columns: slice, labels: Tensor, label: Tensor, out: Tensor) -> Tensor:
        """A block of the logits, in which the label's own column holds the label's own value.

        The two are computed differently: without that, rounding could rank the label above or below itself.
        """
        hidden, weight = self.hidden[rows], self.weight[columns]
        z = torch.mm(hidden, weight.T, out=out[: len(hidden) * len(weight)].view(len(hidden), len(weight)))
        if self.bias is not None:
            z += self.bias[columns]
        here = ((labels[rows] >= columns.start) & (labels[rows] < columns.stop)).nonzero()[:, 0]
        z[here, labels[rows][here] - columns.start] = label[rows][here, 0].to(z.dtype)
        return z


class _Rows(NamedTuple):
    """What is kept of some rows between blocks of columns; the tensors (rows, 1) are changed in place."""

    label: Tensor
    top: Tensor
    total: Tensor
    above: Tensor
    squared: Tensor  # of no rows where nobody asked for it

    @classmethod
    def begin(cls, label: Tensor, squares: bool) -> _Rows:
        zeros = [torch.zeros_like(label) for _ in range(3)]
        return cls(label, torch.full_like(label, -torch.inf), zeros[0], zeros[1], zeros[2] if squares else zeros[2][:0])

    def part(self, rows: slice) -> _Rows:
        return _Rows(*(column[rows] for column in self))

    def absorb(self, z: Tensor, work: Tensor) -> Tensor:
        """Take in a block of logits of these rows; returns by what the exponentials of earlier ones must be scaled.

        Afterwards `work` holds the exponentials of this block, relative to the greatest logit so far.
        """
        self.above.add_(torch.gt(z, self.label, out=work).sum(1, keepdim=True))
        top = torch.maximum(self.top, z.amax(1, keepdim=True))
        # exp(-inf - -inf) would be NaN where every class so far is masked; the total there is 0 anyway.
        shift = torch.where(top.isneginf(), 0.0, top)
        torch.sub(z, shift, out=work).exp_()
        scale = (self.top - shift).exp_()
        self.total.mul_(scale).add_(work.sum(1, keepdim=True))
        if len(self.squared):
            self.squared.mul_(scale.square()).add_(work.square().sum(1, keepdim=True))
        self.top.copy_(top)
        return scale

    def statistics(self) -> RowStatistics:
        squared = self.squared[:, 0] if len(self.squared) else None
        gap = self.label - self.top
        return RowStatistics(self.top[:, 0], gap[:, 0], self.total.log()[:, 0], self.above[:, 0], squared)


class PairStatistics(NamedTuple):
    """What two models make of the same rows."""

    first: RowStatistics
    second: RowStatistics
    kl: Tensor  # KL(first || second), in nats
    same_top: Tensor  # whether the greatest logit is that of the same class


def of_linear(linear: Linear, labels: Tensor, *, columns: int = COLUMNS, squares: bool = False) -> RowStatistics:
    """As `plain(hidden @ weight.T + bias, labels)`, holding `ROWS` x `columns` logits at a time."""
    kept = _Rows.begin(linear.logits_of(labels), squares)
    out, work = _buffers(linear, columns)
    for rows, chosen in _blocks(linear, columns):
        z = linear.block(rows, chosen, labels, kept.label, out)
        for some in _in_cache(rows, chosen):
            block = z[some.start - rows.start : some.stop - rows.start].to(work.dtype)
            kept.part(some).absorb(block, work[: block.numel()].view(block.shape))
    return kept.statistics()


def of_linear_pair(first: Linear, second: Linear, labels: Tensor, *, squares: bool = False) -> PairStatistics:
    """The statistics of two models, their divergence, and whether their answers agree, from one pass over both.

    The divergence is sum p (z - z') - lse(z) + lse(z'), with the sum kept relative to the greatest logit so far.
    """
    kept = [_Rows.begin(model.logits_of(labels), squares) for model in (first, second)]
    crossed = torch.zeros_like(kept[0].label, dtype=torch.float64)
    answers = [torch.full_like(labels, -1) for _ in kept]
    buffers = [_buffers(model, COLUMNS) for model in (first, second)]
    for rows, columns in _blocks(first, COLUMNS):
        logits = [
            model.block(rows, columns, labels, k.label, out)
            for model, k, (out, _) in zip((first, second), kept, buffers, strict=True)
        ]
        for some in _in_cache(rows, columns):
            here = slice(some.start - rows.start, some.stop - rows.start)
            parts = [z[here].to(work.dtype) for z, (_, work) in zip(logits, buffers, strict=True)]
            works = [work[: z.numel()].view(z.shape) for z, (_, work) in zip(parts, buffers, strict=True)]
            for z, k, answer in zip(parts, kept, answers, strict=True):
                values, indices = z.max(1)
                better = values > k.top[some, 0]
                answer[some] = torch.where(better, indices + columns.start, answer[some])
            scale = kept[0].part(some).absorb(parts[0], works[0])
            kept[1].part(some).absorb(parts[1], works[1])
            difference = torch.sub(parts[0], parts[1], out=works[1])
            crossed[some] = crossed[some] * scale + (works[0] * difference).sum(1, keepdim=True)
    found = [k.statistics() for k in kept]
    sums = [s.top.double() + s.log_sum.double() for s in found]
    kl = crossed[:, 0] / kept[0].total[:, 0].double() - sums[0] + sums[1]
    # Rounding can leave a trifle below zero; NaN stays.
    kl = torch.where(kl < 0, 0.0, kl).to(kept[0].top.dtype)
    return PairStatistics(found[0], found[1], kl, answers[0] == answers[1])


def _buffers(linear: Linear, most: int) -> tuple[Tensor, Tensor]:
    """For a block of logits, and for the part of one that is read at a time."""
    rows, columns = min(ROWS, len(linear.hidden)), min(most, len(linear.weight))
    made = linear.hidden.new_empty(rows * columns)
    work = made.new_empty(max(CHUNK_ELEMENTS, columns), dtype=wide_dtype(made.dtype))
    return made, work


def _blocks(linear: Linear, most: int) -> Iterator[tuple[slice, slice]]:
    """All rows, and for each block of them all columns."""
    rows, columns = len(linear.hidden), len(linear.weight)
    for i in range(0, rows, ROWS):
        for j in range(0, columns, most):
            yield slice(i, min(rows, i + ROWS)), slice(j, min(columns, j + most))


def _in_cache(rows: slice, columns: slice) -> Iterator[slice]:
    """The rows of a block, as few at a time as stay in the cache; on an accelerator that costs calls, not passes."""
    step = max(1, CHUNK_ELEMENTS // (columns.stop - columns.start))
    for i in range(rows.start, rows.stop, step):
        yield slice(i, min(rows.stop, i + step))
