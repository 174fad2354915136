"""From the losses of rows to the loss of a step: signals, weights, and a mean for each part of the batch."""

from __future__ import annotations

import torch
from torch import Tensor

from wane.interventions.loss_weights import LossWeights
from wane.learners import Batch
from wane.measures.group_metrics import GroupMetrics
from wane.softmax.signals import Signals, signals
from wane.streams import Task
from wane.training.groups import count, new_metrics, score_within
from wane.training.session import Session

__all__ = ["ReplayedSignals", "part_means", "score_rows", "weigh_parts"]

#: Logits that wait to be scored together: half a megabyte.
WAITING = 2**17


class ReplayedSignals:
    """The signals of the rows that an epoch replays, from the logits that its steps had anyway.

    Rows are scored many at a time: thirty small calls in every step would take longer than what they compute. Rows do
    not see each other and the sums are exact, so the result is the same to the bit.
    """

    def __init__(self, session: Session, task: Task) -> None:
        self._session, self._task = session, task
        self._metrics = new_metrics(session.stream, also=session.config.further_signals)
        self._waiting: list[tuple[Tensor, Tensor, Tensor]] = []
        self._elements = 0

    def add(self, batch: Batch, logits: Tensor) -> None:
        """The replayed rows of a step; `logits` are those of all its rows."""
        old = slice(batch.new, None)
        self._waiting.append((logits.detach()[old], batch.labels[old], batch.tasks[old]))
        self._elements += self._waiting[-1][0].numel()
        if self._elements >= WAITING:
            self._score()

    def total(self) -> GroupMetrics:
        """The means of the whole epoch."""
        self._score()
        return self._metrics

    def _score(self) -> None:
        if not self._waiting:
            return
        logits, labels, tasks = (torch.cat(column) for column in zip(*self._waiting, strict=True))
        scored = score_rows(self._session, self._task, logits, labels)
        count(self._metrics, self._session.stream.groups(labels, tasks), scored, None)
        self._waiting, self._elements = [], 0


def score_rows(session: Session, task: Task, logits: Tensor, labels: Tensor) -> Signals:
    """The signals of some rows of a step."""
    logits, also = logits.detach().float(), session.config.further_signals
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
