"""Logits and labels to eight per-sample signals of how well a class is still known.

Each signal is one row of `SIGNALS`: its formula is code (`of`) and text (`formula`) side by side, and every other part
of wane reads names, titles and orientation from there.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from wane.registry import Registry
from wane.softmax.compiled import repays_compiling, try_compiled
from wane.softmax.inputs import (
    check_logits,
    check_probabilities,
    check_range,
    read_labels,
    read_scores,
    restrict,
    statistics_of_row,
)
from wane.softmax.row_statistics import (
    RowStatistics,
    of_linear,
    of_logits,
    of_probabilities,
    plain,
    rows_per_chunk,
)

__all__ = ["SIGNALS", "Signal", "Signals", "linear_signals", "signals", "signals_within"]


class Signals(NamedTuple):
    """The signals of each sample, in the shape of the labels; NaN (and rank 0) where the label was to be ignored."""

    accuracy: Tensor
    loss: Tensor
    cm: Tensor
    tlr: Tensor
    log_tlr: Tensor
    rtlr: Tensor
    ctl: Tensor
    nkl: Tensor
    rank: Tensor

    def map(self, function: Callable[[Tensor], Tensor]) -> "Signals":
        """The function of every column."""
        return Signals(*(function(column) for column in self))


class Sample(NamedTuple):
    """What the formulas speak of: p_y, max_c p_c, -ln p_y, rank_y - 1 and rank_y (as floats), C and ln C."""

    p: Tensor
    p_max: Tensor
    loss: Tensor
    above: Tensor
    rank: Tensor
    classes: int
    log_classes: float | Tensor


@dataclass(frozen=True)
class Signal:
    """One row of the registry."""

    name: str
    title: str
    symbol: str
    family: str
    formula: str
    higher_is_better: bool
    of: Callable[[Sample], Tensor] = field(repr=False)


def _rows(*rows: Signal) -> dict[str, Signal]:
    return {row.name: row for row in rows}


SIGNALS: Registry[Signal] = Registry(
    "signal",
    _rows(
        # Written as 1 - above, not rank == 1, so that a rank of NaN gives NaN and not "wrong".
        Signal("accuracy", "Accuracy", "a", "decision", r"[\mathrm{rank}_y = 1]", True,
               lambda s: (1 - s.above).clamp(min=0)),
        Signal("loss", "Loss", r"\ell", "confidence", r"-\ln p_y", False,
               lambda s: s.loss),
        # Written so that a correct prediction gives exactly 1: 1 + p - p would round.
        Signal("cm", "Confusion margin", "m", "confidence", r"1 + p_y - \max_c p_c", True,
               lambda s: 1 - (s.p_max - s.p)),
        Signal("tlr", "True-label rank", "r", "rank", r"1 - \frac{\mathrm{rank}_y - 1}{C - 1}", True,
               lambda s: 1 - s.above / (s.classes - 1)),
        # The clamp keeps the last rank at 0: in float32 log(C) may exceed ln C by a rounding.
        Signal("log_tlr", "Log true-label rank", "l", "rank", r"1 - \frac{\ln \mathrm{rank}_y}{\ln C}", True,
               lambda s: (1 - s.rank.log() / s.log_classes).clamp(min=0)),
        Signal("rtlr", "Reciprocal true-label rank", "s", "rank",
               r"\frac{C - \mathrm{rank}_y}{(C - 1)\,\mathrm{rank}_y}", True,
               lambda s: (s.classes - s.rank) / ((s.classes - 1) * s.rank)),
        Signal("ctl", "True-label confidence", "q", "confidence", r"p_y", True,
               lambda s: s.p),
        Signal("nkl", "Normalised KL", "k", "divergence", r"1 - \frac{\min(-\ln p_y, \ln C)}{\ln C}", True,
               lambda s: (1 - s.loss / s.log_classes).clamp(min=0)),
    ),
)  # fmt: skip


def signals(
    logits: Any = None,
    labels: Any = None,
    *,
    probabilities: Any = None,
    classes: Sequence[int] | Tensor | None = None,
    ignore_index: int | None = None,
    validate: bool = True,
    compiled: bool | None = None,
) -> Signals:
    """Score every sample: how sure, how near and how high-ranked its true label is.

    Args:
        logits: any leading shape, classes last; float16, bfloat16, float32 or float64; a tensor or a NumPy array.
        labels: integers in the leading shape.
        probabilities: instead of `logits`, where only the softmax was kept. A label of probability 0 has infinite loss.
        classes: the classes that compete (the seen ones, or the task's own); C is then their number. Default: all.
            Labels keep their numbers. A `range` costs nothing, any other choice one copy of its columns.
        ignore_index: the label of padding; there every signal is NaN and the rank 0.
        validate: look for labels out of range, NaN, +inf, and probabilities that are none. Needs no pass of its own
            over the logits, but waits for the device; with False, broken rows come out as NaN.
        compiled: use `torch.compile` (True), do not (False), or for large inputs only (default). Where no compiler
            works, the eager kernel, which gives the same numbers to rounding, takes over.

    Gradients flow through `loss`, `cm`, `ctl` and `nkl`. Detach the logits where none are needed: that is faster.
    A tie goes to the label: rank counts strictly greater logits, and accuracy is rank 1.

    >>> a, b = [0.48, 0.49, 0.02, 0.01], [0.05, 0.10, 0.70, 0.15]  # both wrong; the paper's models A and B
    >>> s = signals(probabilities=torch.tensor([a, b]), labels=[0, 0])
    >>> s.accuracy.tolist(), s.rank.tolist()
    ([0.0, 0.0], [2, 4])
    >>> [round(x, 4) for x in s.cm.tolist()]
    [0.99, 0.35]
    >>> [round(x, 4) for x in s.log_tlr.tolist()]
    [0.5, 0.0]
    """
    if (logits is None) == (probabilities is None) or labels is None:
        raise TypeError("give labels and either logits or probabilities: signals(logits, labels), "
                        "or signals(probabilities=p, labels=y)")  # fmt: skip
    scores = read_scores(
        probabilities if logits is None else logits, "logits" if logits is not None else "probabilities"
    )
    labels = read_labels(labels, scores)
    if labels.shape != scores.shape[:-1]:
        raise ValueError(
            f"labels have shape {tuple(labels.shape)} and the {scores.ndim}-dimensional scores {tuple(scores.shape)}: "
            f"labels should have shape {tuple(scores.shape[:-1])}, one for each row, the classes last in the scores"
        )
    ignored = None if ignore_index is None else labels == ignore_index
    if ignored is not None:
        labels = torch.where(ignored, 0, labels)
    whole = scores
    if classes is not None:
        scores, labels = restrict(scores, labels, classes, ignored, validate)
    count = scores.shape[-1]
    if count < 2:
        raise ValueError(
            f"signals compare at least 2 classes, but the last dimension of {tuple(scores.shape)} is {count}"
        )

    if logits is None:
        # Restricted probabilities are those of the softmax over these classes alone.
        scores = scores if classes is None else scores / scores.sum(-1, keepdim=True)
        statistics, least, total = of_probabilities(scores.reshape(-1, count), labels.reshape(-1))
        if validate:
            check_range(labels, count, ignored)
            total = total if classes is None else whole.sum(-1).reshape(-1)
            check_probabilities(least, total, ignored)
        scored = _from_statistics(statistics, count, math.log(count), probable=True, checked=validate)
    else:
        scored = _from_logits(scores, labels, compiled, validate)
        if validate:
            check_logits(scored.loss, labels, count, ignored, lambda row: statistics_of_row(scores, labels, row))
    return _finished(scored, labels.shape, ignored)


def signals_within(logits: Tensor, labels: Tensor, class_to_task: Tensor, validate: bool = True) -> Signals:
    """Task-incremental signals: the softmax of each row is over the classes of its label's task.

    NaN (and rank 0) where a task has a single class.

    >>> logits = torch.tensor([[1.0, 0.0, 9.0, 9.0], [9.0, 9.0, 0.0, 1.0]])
    >>> signals_within(logits, torch.tensor([0, 2]), torch.tensor([0, 0, 1, 1])).rank
    tensor([1, 2])
    """
    of_row = class_to_task[labels]
    found: Signals | None = None
    for task in sorted(set(of_row.tolist())):
        rows = (of_row == task).nonzero()[:, 0]
        classes = (class_to_task == task).nonzero()[:, 0].tolist()
        if len(classes) < 2:
            continue
        block = range(classes[0], classes[-1] + 1)
        chosen = block if list(block) == classes else classes
        scored = signals(logits.index_select(0, rows), labels[rows], classes=chosen, validate=validate)
        if found is None:
            found = scored.map(lambda s: s.new_full(labels.shape, torch.nan if s.is_floating_point() else 0))
        for whole, part in zip(found, scored, strict=True):
            whole[rows] = part
    if found is None:
        nan = logits.new_full(labels.shape, torch.nan)
        found = Signals(*[nan] * len(SIGNALS), rank=torch.zeros_like(labels))  # type: ignore[misc]
    return found


@torch.no_grad()
def linear_signals(
    hidden: Any,
    weight: Tensor,
    labels: Any,
    bias: Tensor | None = None,
    *,
    ignore_index: int | None = None,
    validate: bool = True,
    vocabulary_chunk: int = 8192,
) -> Signals:
    """The signals of `hidden @ weight.T + bias` without ever holding those logits.

    For language models: 512 tokens of a vocabulary of 128,000 are 262 MB of float32 logits; this needs about 30 MB
    beyond its inputs. Values only, no gradients.

    Args:
        hidden: last hidden states, any leading shape, features last.
        weight: the output matrix, (vocabulary, features).
        labels: the next tokens, in the leading shape of `hidden`.
        bias: (vocabulary,) or None.
        ignore_index: as in `signals`.
        validate: as in `signals`.
        vocabulary_chunk: columns of the logits held at a time.

    >>> hidden, weight = torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> linear_signals(hidden, weight, [1]).rank.tolist()  # logits 1, 2, 3
    [2]
    """
    hidden = read_scores(hidden, "hidden states")
    labels = read_labels(labels, hidden)
    if weight.ndim != 2 or weight.shape[1] != hidden.shape[-1]:
        raise ValueError(
            f"weight has shape {tuple(weight.shape)} but the hidden states end in {hidden.shape[-1]} features: "
            f"weight should be (vocabulary, {hidden.shape[-1]}), as in nn.Linear"
        )
    count = len(weight)
    if bias is not None and bias.shape != (count,):
        raise ValueError(f"bias has shape {tuple(bias.shape)}, but weight has {count} rows: bias should be ({count},)")
    if labels.shape != hidden.shape[:-1]:
        raise ValueError(f"labels have shape {tuple(labels.shape)} but the hidden states {tuple(hidden.shape)}: "
                         f"labels should have shape {tuple(hidden.shape[:-1])}")  # fmt: skip
    if count < 2:
        raise ValueError(f"signals compare at least 2 classes, but weight has {count} row")
    ignored = None if ignore_index is None else labels == ignore_index
    if ignored is not None:
        labels = torch.where(ignored, 0, labels)
    rows, tokens = hidden.reshape(-1, hidden.shape[-1]), labels.reshape(-1)
    # More rows than for reading: the matrix product likes them.
    step = 8 * rows_per_chunk(len(rows), vocabulary_chunk)
    parts = [
        of_linear(h, weight, y, bias, vocabulary_chunk=vocabulary_chunk)
        for h, y in zip(torch.split(rows, step), torch.split(tokens, step), strict=True)
    ]
    statistics = RowStatistics(*(torch.cat(column) for column in zip(*parts, strict=True)))
    scored = _from_statistics(statistics, count, math.log(count), checked=validate)
    if validate:
        check_logits(
            scored.loss, labels, count, ignored, lambda row: RowStatistics(*(column[row] for column in statistics))
        )
    return _finished(scored, labels.shape, ignored)


def _from_logits(logits: Tensor, labels: Tensor, compiled: bool | None, checked: bool) -> Signals:
    """Flat signals of logits of any leading shape. A slice such as logits[:, :-1] is walked through, not copied."""
    classes = logits.shape[-1]
    if logits.ndim > 2:
        try:
            logits, labels = logits.view(-1, classes), labels.reshape(-1)
        except RuntimeError:
            parts = [_from_logits(z, y, compiled, checked) for z, y in zip(logits, labels, strict=True)]
            return Signals(*(torch.cat(column) for column in zip(*parts, strict=True)))
    if repays_compiling(logits, compiled):
        scored = try_compiled(_fused, logits, labels, _log_tensor(classes))
        if scored is not None:
            return Signals(*scored)
    return _from_statistics(of_logits(logits, labels), classes, math.log(classes), checked=checked)


def _fused(logits: Tensor, labels: Tensor, log_classes: Tensor) -> Signals:
    """Kernel and formulas in one, to be compiled.

    ln C comes as a tensor because `math.log` and float arguments would tie what is compiled to one number of classes.
    """
    return _from_statistics(plain(logits, labels, to_compile=True), logits.shape[1], log_classes, checked=False)


@cache
@torch.inference_mode(False)
def _log_tensor(classes: int) -> Tensor:
    return torch.tensor(math.log(classes), dtype=torch.float64, device="cpu")


def _from_statistics(
    statistics: RowStatistics, classes: int, log_classes: float | Tensor, *, probable: bool = False, checked: bool
) -> Signals:
    """From four numbers a row to the formulas of the registry."""
    top, gap, log_sum, above = statistics
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
    sample = Sample(p, p_max, loss, above, rank, classes, log_classes)
    return Signals(*[signal.of(sample) for signal in SIGNALS.values()] + [whole])


def _finished(flat: Signals, shape: torch.Size, ignored: Tensor | None) -> Signals:
    """In the shape of the labels, and blank where they are to be ignored."""
    if len(shape) > 1:  # nine calls that a flat batch need not pay
        flat = Signals(*(value.view(shape) for value in flat))
    if ignored is None:
        return flat
    return Signals(*(value.masked_fill(ignored, torch.nan if value.is_floating_point() else 0) for value in flat))
