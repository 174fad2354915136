"""From the losses of rows to the loss of a step: signals, weights, and a mean for each part of the batch."""

from __future__ import annotations

import torch
from torch import Tensor

from wane.interventions.loss_weights import LossWeights
from wane.learners import Batch, Observed
from wane.softmax.signals import Signals, signals
from wane.streams import Task
from wane.training.groups import score_within
from wane.training.session import Session

__all__ = ["part_means", "score_rows", "weigh_parts"]


def score_rows(session: Session, task: Task, batch: Batch, observed: Observed, *, start: int) -> Signals:
    """The signals of the rows from `start` on, from the logits that the step had anyway."""
    logits, labels = observed.logits.detach()[start:].float(), batch.labels[start:]
    also = session.config.further_signals
    if session.learner.needs_task:
        return score_within(session.stream, logits, labels, also=also)
    return signals(logits, labels, classes=session.competing_classes(task), also=also, validate=False)


def weigh_parts(weigh: LossWeights, scored: Signals, parts: tuple[slice, ...], *, start: int) -> Tensor:
    """The weights of the rows from `start` on, which are those of `scored`: of mean 1 within each part.

    >>> logits = torch.tensor([[3.0, 0.0], [0.0, 0.0], [1.0, 0.0], [0.0, 2.0]])
    >>> scored = signals(logits, torch.zeros(4, dtype=torch.int64))
    >>> weights = weigh_parts(LossWeights("ctl"), scored, (slice(0, 2), slice(2, 4), slice(4, 6)), start=2)
    >>> [round(float(part.mean()), 6) for part in weights.split(2)]
    [1.0, 1.0]
    """
    inside = [slice(max(part.start, start) - start, part.stop - start) for part in parts if part.stop > start]
    if len(inside) < 2:
        return weigh(scored)
    return torch.cat([weigh(scored.map(lambda column, rows=rows: column[rows])) for rows in inside])  # type: ignore[misc]


def part_means(losses: Tensor, weights: Tensor | None, parts: tuple[slice, ...]) -> list[Tensor]:
    """The mean loss of each part; weights are those of the last rows, the rows before them count 1.

    >>> part_means(torch.tensor([1.0, 3.0, 5.0]), torch.tensor([2.0]), (slice(0, 2), slice(2, 3)))
    [tensor(2.), tensor(10.)]
    """
    if weights is not None and len(weights):
        losses = losses * torch.cat([losses.new_ones(len(losses) - len(weights)), weights])
    return [losses.mean()] if len(parts) == 1 else [losses[part].mean() for part in parts]
