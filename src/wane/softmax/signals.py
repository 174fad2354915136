"""Logits and labels to per-sample signals of how well a class is still known.

Which signals, and by which formulas, is a matter of the registry (`wane.softmax.registry`): whatever row is in
`SIGNALS` when a function is called is computed.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from wane.softmax.container import Signals
from wane.softmax.inputs import (
    check_logits,
    check_probabilities,
    check_range,
    read_labels,
    read_scores,
    restrict,
    top_and_label,
)
from wane.softmax.linear_signals import PairSignals, linear_pair_signals, linear_signals
from wane.softmax.registry import SIGNALS, Sample, Signal
from wane.softmax.row_statistics import of_probabilities
from wane.softmax.scoring import finished, read_squares, score_logits, score_statistics
from wane.softmax.within import signals_within

__all__ = [
    "SIGNALS", "PairSignals", "Sample", "Signal", "Signals", "linear_pair_signals", "linear_signals", "signals",
    "signals_within",
]  # fmt: skip


def signals(
    logits: Any = None,
    labels: Any = None,
    *,
    probabilities: Any = None,
    classes: Sequence[int] | Tensor | None = None,
    also: Sequence[str] = (),
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
        also: further measures from the same pass: ``"mrr"``, ``"ndcg"``, ``"top5"`` (any k), ``"confidence"``,
            ``"brier"`` and the others of `wane.SIGNALS.further`. For the ``"ece"`` and what else is made of bins, the
            confidence is what one sample has.
        ignore_index: the label of padding; there every signal is NaN and the rank 0.
        validate: look for labels out of range, NaN, +inf, and probabilities that are none. Needs no pass of its own
            over the logits, but waits for the device; with False, broken rows come out as NaN.
        compiled: use `torch.compile` at once (True), do not (False), or, for large inputs, once the plain kernel has
            cost this process as much time as compiling would (default; a warning says when). Where no compiler works,
            the plain kernel, which gives the same numbers to rounding, takes over, with a warning.

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
    >>> signals(probabilities=torch.tensor([a, b]), labels=[0, 0], also=["top2"]).top2.tolist()
    [1.0, 0.0]
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
    rows = SIGNALS.of_samples(also)
    count = scores.shape[-1]
    if count < 2:
        raise ValueError(
            f"signals compare at least 2 classes, but the last dimension of {tuple(scores.shape)} is {count}"
        )

    if logits is None:
        # Restricted probabilities are those of the softmax over these classes alone.
        scores = scores if classes is None else scores / scores.sum(-1, keepdim=True)
        statistics, least, total = of_probabilities(
            scores.reshape(-1, count), labels.reshape(-1), squares=read_squares(rows)
        )
        if validate:
            check_range(labels, count, ignored)
            total = total if classes is None else whole.sum(-1).reshape(-1)
            check_probabilities(least, total, ignored)
        scored = score_statistics(statistics, rows, count, math.log(count), probable=True, checked=validate)
    else:
        scored = score_logits(scores, labels, rows, compiled, validate)
        if validate:
            shown = scores if classes is None else None
            check_logits(scored.loss, labels, count, ignored, lambda row: top_and_label(scores, labels, row), shown)
    return finished(scored, labels.shape, ignored)
