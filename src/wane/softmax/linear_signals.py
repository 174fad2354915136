"""The signals of language models: from hidden states and the output matrix, without (tokens x vocabulary) logits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from wane.checks import whole
from wane.softmax.container import Signals
from wane.softmax.inputs import as_tensor, check_logits, read_labels, read_scores
from wane.softmax.linear import COLUMNS, Linear, of_linear, of_linear_pair
from wane.softmax.registry import SIGNALS
from wane.softmax.row_statistics import RowStatistics
from wane.softmax.scoring import Rows, finished, read_squares, score_statistics

__all__ = ["PairSignals", "linear_pair_signals", "linear_signals"]


class PairSignals(NamedTuple):
    """What two models make of the same tokens."""

    base: Signals
    tuned: Signals
    kl_base_tuned: Tensor
    """KL(base || tuned), in nats: how far the second model's next-token distribution has moved from the first's."""
    same_top: Tensor
    """Whether both have the same token on top: 1 or 0."""


@torch.no_grad()
def linear_signals(
    hidden: Any,
    weight: Any,
    labels: Any,
    bias: Any = None,
    *,
    also: Sequence[str] = (),
    ignore_index: int | None = None,
    validate: bool = True,
    vocabulary_chunk: int = COLUMNS,
) -> Signals:
    """The signals of `hidden @ weight.T + bias` without ever holding those logits.

    For language models: 512 tokens of a vocabulary of 128,000 are 262 MB of float32 logits; this needs about 10 MB
    beyond its inputs. Values only, no gradients.

    Args:
        hidden: last hidden states, any leading shape, features last.
        weight: the output matrix, (vocabulary, features).
        labels: the next tokens, in the leading shape of `hidden`.
        bias: (vocabulary,) or None.
        also: as in `signals`.
        ignore_index: as in `signals`.
        validate: as in `signals`.
        vocabulary_chunk: columns of the logits held at a time.

    >>> hidden, weight = torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> linear_signals(hidden, weight, [1]).rank.tolist()  # logits 1, 2, 3
    [2]
    """
    linear, rows, labels, ignored = _read(hidden, weight, labels, bias, ignore_index)
    measures, columns = SIGNALS.of_samples(also), whole("vocabulary_chunk", vocabulary_chunk, least=1)
    found = of_linear(linear, rows, columns=columns, squares=read_squares(measures))
    return _scored(found, linear, measures, labels, ignored, validate)


@torch.no_grad()
def linear_pair_signals(
    hidden: tuple[Any, Any],
    weight: tuple[Any, Any],
    labels: Any,
    bias: tuple[Any, Any] = (None, None),
    *,
    also: Sequence[str] = (),
    ignore_index: int | None = None,
    validate: bool = True,
) -> PairSignals:
    """The signals of two models of the same tokens, and the divergence of one from the other, in one pass.

    Args:
        hidden: last hidden states of the base and of the tuned model, of one leading shape.
        weight: their output matrices, of one vocabulary.
        labels: the next tokens.
        bias: theirs, or None.
        also: as in `signals`.
        ignore_index: as in `signals`.
        validate: as in `signals`.

    >>> hidden, weight = torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> pair = linear_pair_signals((hidden, 2 * hidden), (weight, weight), [2])
    >>> round(float(pair.kl_base_tuned), 4), float(pair.same_top)  # the second is surer of the same answer
    (0.1601, 1.0)
    """
    if len(weight[0]) != len(weight[1]):
        raise ValueError(f"the output matrices have {len(weight[0])} and {len(weight[1])} rows: compare models of one "
                         "vocabulary")  # fmt: skip
    read = [_read(h, w, labels, b, ignore_index) for h, w, b in zip(hidden, weight, bias, strict=True)]
    (first, rows, labels, ignored), (second, _, others, _) = read
    if others.shape != labels.shape:
        raise ValueError(f"the hidden states have shapes {tuple(hidden[0].shape)} and {tuple(hidden[1].shape)}: give "
                         "those of the same tokens")  # fmt: skip
    if first.hidden.dtype != second.hidden.dtype:
        raise ValueError(f"the models compute in {first.hidden.dtype} and {second.hidden.dtype}: give both in one type")
    measures = SIGNALS.of_samples(also)
    found = of_linear_pair(first, second, rows, squares=read_squares(measures))
    of_each = ((found.first, first), (found.second, second))
    base, tuned = (_scored(s, linear, measures, labels, ignored, validate) for s, linear in of_each)
    kl, same = found.kl.view(labels.shape), found.same_top.to(found.kl.dtype).view(labels.shape)
    if ignored is not None:
        kl, same = (value.masked_fill(ignored, torch.nan) for value in (kl, same))
    return PairSignals(base, tuned, kl, same)


def _read(
    hidden: Any, weight: Any, labels: Any, bias: Any, ignore_index: int | None
) -> tuple[Linear, Tensor, Tensor, Tensor | None]:
    """Checked: what logits are made of, the flat labels, the labels in their shape, and which are to be ignored."""
    hidden = read_scores(hidden, "hidden states")
    labels = read_labels(labels, hidden)
    weight = read_scores(weight, "the output matrix")
    bias = None if bias is None else as_tensor(bias, "bias")
    if weight.ndim != 2 or weight.shape[1] != hidden.shape[-1]:
        raise ValueError(
            f"weight has shape {tuple(weight.shape)} but the hidden states end in {hidden.shape[-1]} features: "
            f"weight should be (vocabulary, {hidden.shape[-1]}), as in nn.Linear"
        )
    for name, part in (("the output matrix", weight), ("the bias", bias)):
        if part is not None and part.dtype != hidden.dtype:
            raise ValueError(f"hidden states are {hidden.dtype}, {name} {part.dtype}: give both in one type")
        if part is not None and part.device != hidden.device:
            raise ValueError(f"hidden states are on {hidden.device}, {name} on {part.device}: move one of them")
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
    return Linear(hidden.reshape(-1, hidden.shape[-1]), weight, bias), labels.reshape(-1), labels, ignored


def _scored(
    statistics: RowStatistics, linear: Linear, measures: Rows, labels: Tensor, ignored: Tensor | None, validate: bool
) -> Signals:
    count = len(linear.weight)

    def top_and_label(row: int) -> tuple[float, float]:
        one = linear._replace(hidden=linear.hidden[row : row + 1])
        return float(statistics.top[row]), float(one.logits_of(labels.reshape(-1)[row : row + 1]))

    scored = score_statistics(statistics, measures, count, math.log(count), checked=validate)
    if validate:
        check_logits(scored.loss, labels, count, ignored, top_and_label)
    return finished(scored, labels.shape, ignored)
