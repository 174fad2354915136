"""Logits to signals: the kernels of `row_statistics`, then the formulas of the registry, compiled where that pays."""

import math
from functools import cache
from typing import Any

import torch
from torch import Tensor

from wane.softmax.compiled import Kernel, may_compile, run_kernel
from wane.softmax.container import Signals
from wane.softmax.registry import Sample, Signal
from wane.softmax.row_statistics import RowStatistics, of_logits, plain

__all__ = ["finished", "read_squares", "score_logits", "score_statistics"]

Rows = tuple[Signal, ...]


def read_squares(rows: Rows) -> bool:
    """Whether some formula needs the sum of the squared probabilities."""
    return any(row.squares for row in rows)


def score_logits(logits: Tensor, labels: Tensor, rows: Rows, compiled: bool | None, checked: bool) -> Signals:
    """Flat signals of logits of any leading shape. A slice such as logits[:, :-1] is walked through, not copied."""
    classes = logits.shape[-1]
    if logits.ndim > 2:
        try:
            logits, labels = logits.view(-1, classes), labels.reshape(-1)
        except RuntimeError:
            parts = [score_logits(z, y, rows, compiled, checked) for z, y in zip(logits, labels, strict=True)]
            return Signals(*(torch.cat(column) for column in zip(*parts, strict=True)), names=parts[0].names)

    def without_compiler() -> Signals:
        statistics = of_logits(logits, labels, squares=read_squares(rows))
        return score_statistics(statistics, rows, classes, math.log(classes), checked=checked)

    if not may_compile(logits, compiled):
        return without_compiler()
    names = tuple(row.name for row in rows)
    kernel = Kernel((names, tuple(row.of for row in rows)), _fused(rows))
    log_classes = _log_tensor(classes)
    values = run_kernel(kernel, without_compiler, logits, labels, log_classes, at_once=compiled is True)
    return Signals(*values, names=(*names, "rank"))


def _fused(rows: Rows) -> Any:
    """Row statistics and formulas in one function, to be compiled."""

    def fused(logits: Tensor, labels: Tensor, log_classes: Tensor) -> tuple[Tensor, ...]:
        # ln C is a tensor: `math.log` and float arguments would tie what is compiled to one number of classes.
        statistics = plain(logits, labels, to_compile=True, squares=read_squares(rows))
        return _values(rows, statistics, logits.shape[1], log_classes, checked=False)

    return fused


@cache
@torch.inference_mode(False)
def _log_tensor(classes: int) -> Tensor:
    return torch.tensor(math.log(classes), dtype=torch.float64, device="cpu")


def score_statistics(
    statistics: RowStatistics, rows: Rows, classes: int, log_classes: float | Tensor, *, probable: bool = False,
    checked: bool,
) -> Signals:  # fmt: skip
    """Flat signals from four or five numbers for each sample."""
    values = _values(rows, statistics, classes, log_classes, probable=probable, checked=checked)
    return Signals(*values, names=(*(row.name for row in rows), "rank"))


def _values(
    rows: Rows, statistics: RowStatistics, classes: int, log_classes: float | Tensor, *,
    probable: bool = False, checked: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    """From four numbers for each sample to the formulas of the registry, and the rank."""
    top, gap, log_sum, above, squares = statistics
    p_max = top if probable else (-log_sum).exp()
    loss = log_sum - gap
    p = top * gap.exp() if probable else (-loss).exp()
    rank = above + 1
    whole = rank.to(torch.int64)
    if not checked:
        # A NaN logit compares as "not greater" with everything: without this the row would look like a correct one.
        broken = loss != loss  # as isnan(), which is not vectorised when compiled
        above, rank = (torch.where(broken, torch.nan, x) for x in (above, rank))
        whole = torch.where(broken, 0, whole)
    if squares is not None and not probable:
        squares = squares * (-2 * log_sum).exp()
    sample = Sample(p, p_max, loss, above, rank, classes, log_classes, squares)
    return (*(_as_number(row.of(sample), loss) for row in rows if row.of is not None), whole)


def _as_number(value: Tensor, loss: Tensor) -> Tensor:
    """A formula's value as it is; what is true or false, or whole, in the type of the loss and NaN where that is."""
    if value.is_floating_point():
        return value
    return torch.where(loss != loss, torch.nan, value.to(loss.dtype))


def finished(flat: Signals, shape: torch.Size, ignored: Tensor | None) -> Signals:
    """In the shape of the labels, and blank where they are to be ignored."""
    if len(shape) > 1:  # a call for each signal, which a flat batch need not pay
        flat = flat.map(lambda value: value.view(shape))
    if ignored is None:
        return flat
    return flat.map(lambda value: value.masked_fill(ignored, torch.nan if value.is_floating_point() else 0))
