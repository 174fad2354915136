"""Task-incremental signals: every row is scored among the classes of its own label's task."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from wane.softmax.container import Signals
from wane.softmax.inputs import check_logits, check_range, read_integers, read_labels, read_scores, top_and_label
from wane.softmax.registry import SIGNALS
from wane.softmax.row_statistics import wide_dtype
from wane.softmax.scoring import finished, score_logits

__all__ = ["signals_within"]


def signals_within(
    logits: Any, labels: Any, class_to_task: Sequence[int] | Tensor, *, also: Sequence[str] = (),
    ignore_index: int | None = None, validate: bool = True,
) -> Signals:  # fmt: skip
    """Task-incremental signals: the softmax of each row is restricted to the classes of its own label's task.

    The same as `signals(logits, labels, classes=...)` task by task, in one pass. Tasks may differ in size. In a task
    of a single class there is nothing to tell apart: its rows are NaN, with rank 0.

    Args:
        logits: any leading shape, classes last.
        labels: integers in the leading shape.
        class_to_task: (C,) the task of each class.
        also: as in `signals`.
        ignore_index: as in `signals`.
        validate: as in `signals`.

    >>> logits = torch.tensor([[5.0, 1.0, 2.0, 9.0], [5.0, 1.0, 2.0, 9.0]])
    >>> signals_within(logits, [0, 2], class_to_task=[0, 0, 1, 1]).rank.tolist()  # among 0, 1 and among 2, 3
    [1, 2]
    """
    scores = read_scores(logits, "logits")
    labels = read_labels(labels, scores)
    size = scores.shape[-1]
    tasks = read_integers(class_to_task, "class_to_task", scores.device)
    if labels.shape != scores.shape[:-1]:
        raise ValueError(f"labels have shape {tuple(labels.shape)} and logits {tuple(scores.shape)}: "
                         f"labels should have shape {tuple(scores.shape[:-1])}")  # fmt: skip
    if tasks.shape != (size,):
        raise ValueError(f"class_to_task has shape {tuple(tasks.shape)}, but the logits have {size} classes: "
                         "give the task of each")  # fmt: skip
    measures = SIGNALS.of_samples(also)
    ignored = None if ignore_index is None else labels == ignore_index
    if validate:
        check_range(labels, size, ignored)
    flat, own = scores.reshape(-1, size), labels.reshape(-1)
    counted = (own >= 0) & (own < size)
    parts: list[tuple[Tensor, Signals]] = []
    for among in _by_task_size(tasks):
        place = torch.full((size,), -1, device=flat.device)  # of a class in its task; -1 for classes of other sizes
        place[among] = torch.arange(among.shape[1], device=flat.device).expand(among.shape)
        row_of = torch.zeros(size, dtype=torch.int64, device=flat.device)
        row_of[among] = torch.arange(len(among), device=flat.device)[:, None].expand(among.shape)
        inside = torch.where(counted, place[own.clamp(0, size - 1)], -1)
        rows = (inside >= 0).nonzero()[:, 0]
        if among.shape[1] < 2 or not len(rows):
            continue
        every = len(rows) == len(own)
        z, y, at = (flat, own, inside) if every else (flat[rows], own[rows], inside[rows])
        scored = score_logits(z.gather(1, among[row_of[y]]), at, measures, False, validate)
        if validate:
            skipped = None if ignored is None else ignored.reshape(-1)[rows]
            check_logits(scored.loss, at, among.shape[1], skipped, partial(top_and_label, z, y))
        if every:
            return finished(scored, labels.shape, ignored)
        parts.append((rows, scored))
    width = parts[0][1].loss.dtype if parts else wide_dtype(flat.dtype)
    blank = torch.full((len(own),), torch.nan, dtype=width, device=flat.device)
    values = [blank] * len(measures) + [torch.zeros_like(own)]
    for rows, scored in parts:
        values = [value.index_copy(0, rows, new) for value, new in zip(values, scored, strict=True)]
    names = (*(row.name for row in measures), "rank")
    return finished(Signals(*values, names=names), labels.shape, ignored)


def _by_task_size(tasks: Tensor) -> list[Tensor]:
    """For each size that tasks have: (tasks of that size, size) classes in ascending order."""
    order = torch.argsort(tasks, stable=True)
    _, counts = torch.unique(tasks, return_counts=True)
    groups = torch.split(order, counts.tolist())
    return [torch.stack([g for g in groups if len(g) == n]) for n in sorted({len(g) for g in groups})]
