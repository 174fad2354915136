"""What every signal is made of: four numbers a row, read off the logits without keeping their softmax.

All kernels here return the same `RowStatistics`; they differ in how they walk over the logits:

* `plain`: one expression. Differentiable, and what `torch.compile` fuses, with the signals' formulas after it, into two
  reads of the logits.
* `chunked`: the same in cache-sized blocks of rows through one small buffer, for where there is no compiler.
* `of_probabilities`: from probabilities that were kept instead of logits.
* `of_linear` in `wane.softmax.linear`: from hidden states and the output matrix, in blocks of the vocabulary.

The count of greater logits is summed as float32 on purpose: it is exact up to 2**24 classes, and both the eager and the
compiled reduction are several times faster than over booleans or int64.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from wane.softmax.compiled import FEW_CLASSES

#: Rows x classes worked on at a time and thread: 512 KiB of float32, which stays in the second-level cache.
CHUNK_ELEMENTS = 2**17
#: Inputs up to here are one block: there the calls of several blocks would cost more than the cache saves.
ONE_BLOCK = 2**20


class RowStatistics(NamedTuple):
    """Four numbers a row; everything is relative to the row's maximum, so logits of 1e4 lose nothing.

    The fifth, `squares`, is None unless it was asked for.
    """

    top: Tensor  # the greatest logit (or the greatest probability)
    gap: Tensor  # label's logit minus the greatest: 0 if the label is on top (for probabilities: the logarithm's)
    log_sum: Tensor  # log(sum(exp(z - top))): minus the log of the greatest probability
    above: Tensor  # how many classes have a strictly greater logit, as a float
    squares: Tensor | None = None  # sum(exp(z - top)^2) (or the sum of the squared probabilities)


def plain(logits: Tensor, labels: Tensor, *, to_compile: bool = False, squares: bool = False) -> RowStatistics:
    """The definition: (N, C) logits, (N,) labels. Half precision is accumulated in float32."""
    z = widen(logits)
    label = _of_label(z, labels)
    if to_compile:
        # Changes nothing, but makes the compiler store the column: it would look it up in every loop that needs it.
        label = label.as_strided((z.shape[0], 1), (1, 1))
    top = z.amax(1, keepdim=True)
    # A compiled sum adds one after the other: over many classes float32 would lose digits, float64 costs nothing then.
    wide = z.dtype if z.shape[1] <= FEW_CLASSES else torch.float64
    weights = (z - top).exp()
    log_sum = weights.sum(1, dtype=wide).to(z.dtype).log()
    above = (z > label).to(z.dtype).sum(1)
    squared = weights.square().sum(1, dtype=wide).to(z.dtype) if squares else None
    return RowStatistics(top[:, 0], (label - top)[:, 0], log_sum, above, squared)


def chunked(logits: Tensor, labels: Tensor, *, squares: bool = False) -> RowStatistics:
    """`plain` without a compiler: each block of rows is read from the cache by the five passes, not from memory."""
    rows, classes = logits.shape
    dtype = wide_dtype(logits.dtype)
    label = _of_label(logits, labels).to(dtype)
    top, total, above = (logits.new_empty(rows, 1, dtype=dtype) for _ in range(3))
    squared = logits.new_empty(rows, 1, dtype=dtype) if squares else None
    step = rows_per_chunk(rows, classes)
    buffer = logits.new_empty(step, classes, dtype=dtype)
    for i in range(0, rows, step):
        block = slice(i, i + step)
        z = logits[block].to(dtype)
        work = buffer[: len(z)]
        torch.gt(z, label[block], out=work)
        torch.sum(work, 1, keepdim=True, out=above[block])
        torch.amax(z, 1, keepdim=True, out=top[block])
        torch.sub(z, top[block], out=work).exp_()
        torch.sum(work, 1, keepdim=True, out=total[block])
        if squared is not None:
            torch.sum(work.square_(), 1, keepdim=True, out=squared[block])
    return RowStatistics(
        top[:, 0], (label - top)[:, 0], total.log_()[:, 0], above[:, 0], None if squared is None else squared[:, 0]
    )


def of_probabilities(
    probabilities: Tensor, labels: Tensor, *, squares: bool = False
) -> tuple[RowStatistics, Tensor, Tensor]:
    """The statistics, and each row's least probability and sum, which tell whether they were probabilities."""
    p = widen(probabilities)
    label = _of_label(p, labels)
    top = p.amax(1)
    above = torch.cat([(b > y).to(p.dtype).sum(1) for b, y in zip(_blocks(p), _blocks(label, p), strict=True)])
    log_top = top.log()
    squared = p.square().sum(1) if squares else None
    return RowStatistics(top, label[:, 0].log() - log_top, -log_top, above, squared), p.amin(1), p.sum(1)


def of_logits(logits: Tensor, labels: Tensor, *, squares: bool = False) -> RowStatistics:
    """By the fastest kernel that needs no compiler of its own."""
    if torch.compiler.is_compiling() or (logits.requires_grad and torch.is_grad_enabled()):
        return plain(logits, labels, squares=squares)
    with torch.no_grad():
        return chunked(logits, labels, squares=squares)


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """The type to accumulate in: float64 stays, everything else becomes float32."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def widen(x: Tensor) -> Tensor:
    """`x` in the type to accumulate in."""
    return x.to(wide_dtype(x.dtype))


def rows_per_chunk(rows: int, classes: int) -> int:
    """How many rows one block holds."""
    if rows * classes <= ONE_BLOCK:
        return max(1, rows)
    return max(1, min(rows, CHUNK_ELEMENTS * torch.get_num_threads() // classes))


def _of_label(scores: Tensor, labels: Tensor) -> Tensor:
    """(N, 1): the label's own score, NaN where the label is no class."""
    own, no_class = inside(labels, scores.shape[1])
    return scores.gather(1, own[:, None]).masked_fill(no_class[:, None], torch.nan)


def inside(labels: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Labels that can be looked up, and which of them were no class: a compiled kernel could only abort at those."""
    own = labels.clamp(0, classes - 1)
    return own, own != labels


def _blocks(x: Tensor, like: Tensor | None = None) -> tuple[Tensor, ...]:
    rows, classes = (x if like is None else like).shape
    return torch.split(x, rows_per_chunk(rows, classes))
