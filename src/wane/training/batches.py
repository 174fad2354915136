"""The rows of a step, new and replayed, and the passes that a learner may ask for."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate, pairwise

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from wane.learners import Batch, Observed, Scene
from wane.streams import Task, crop_and_flip, eval_batch, normalise, strong_views
from wane.training.draws import Draw
from wane.training.session import Session

__all__ = ["epoch_rows", "make_batch", "make_scene", "memory_batches", "remember", "split_rows", "task_batches"]


def epoch_rows(session: Session, task: Task, draw: Draw) -> Tensor:
    """The rows of an epoch in random order. A negative number -s - 1 stands for slot s of the memory."""
    learner, memory = session.learner, session.memory
    rows = session.training_rows(task)
    if learner.rows == "seen":
        rows = torch.cat([session.stream[k].train for k in range(task.index + 1)])
    elif learner.rows == "task_and_memory" and memory is not None and task.index >= learner.first_replay:
        rows = torch.cat([rows, -draw.exemplars(memory, session.state.generators["draw"]) - 1])
    return rows[torch.randperm(len(rows), generator=session.state.generators["order"]).to(session.device)]


def split_rows(session: Session, task: Task, order: Tensor) -> list[Tensor]:
    """The rows of each step of an epoch, without those of the draws.

    With batch normalisation, a last row that would be alone in its step joins the step before: a single row may have
    no variance. It is not alone with a draw, unless each has a pass of its own.
    """
    learner, size = session.learner, session.config.learner.batch_size
    parts = list(torch.split(order, size))
    joined = learner.draws > 0 and learner.means == "one" and task.index >= learner.first_replay
    alone = len(parts[-1]) == 1 and not joined and 1 < size < len(order)
    if alone and any(isinstance(module, _BatchNorm) for module in learner.modules()):
        parts[-2:] = [torch.cat(parts[-2:])]
    return parts


def make_batch(
    session: Session, task: Task, rows: Tensor, draw: Draw, *, progress: float, epoch_progress: float
) -> tuple[Batch, Tensor]:
    """The rows of a step, new and replayed, augmented as one; and the new rows' raw images, for the memory."""
    config, state, dataset, learner = session.config, session.state, session.dataset, session.learner
    memory, drawn = session.memory, [rows.new_empty(0)]
    if learner.rows == "task_and_memory":
        drawn, rows = [-rows[rows < 0] - 1], rows[rows >= 0]
    elif memory is not None and task.index >= learner.first_replay:
        drawn = [draw.slots(memory, state.generators["draw"]) for _ in range(learner.draws)]
    slots, new = _joined(drawn) if drawn else rows.new_empty(0), dataset.train.images.index_select(0, rows)
    which = _joined([torch.full_like(some, k + 1) for k, some in enumerate(drawn)]) if drawn else slots
    if learner.means == "task" and memory is not None:
        by_task = memory.tasks[slots].argsort(stable=True)
        slots, which = slots[by_task], which[by_task]

    images, extras = [new], {}
    ys, ts = ([column.index_select(0, rows)] for column in (dataset.train.labels, session.stream.tasks_of("train")))
    if memory is not None:
        images.append(memory.images.index_select(0, slots))
        ys.append(memory.labels.index_select(0, slots))
        ts.append(memory.tasks.index_select(0, slots))
        extras = {
            name: torch.cat([column.new_zeros(len(rows), *column.shape[1:]), column.index_select(0, slots)])
            for name, column in memory.extras.items()
        }
    raw = _joined(images)
    moved = crop_and_flip(raw, config.data.padding, config.data.flip, state.generators["augment"])
    batch = Batch(
        images=normalise(moved, dataset.mean, dataset.std, channels_last=state.channels_last),
        labels=_joined(ys),
        tasks=_joined(ts),
        draw=torch.cat([torch.zeros_like(rows), which]),
        slots=torch.cat([torch.full_like(rows, -1), slots]),
        new=len(rows),
        extras=extras,
        progress=progress,
        epoch_progress=epoch_progress,
        parts=_parts(learner.means, len(rows), which, ts[-1][-len(slots) :] if len(slots) else slots),
        views=_views(session, raw, learner.views()),
    )
    return batch, new


def _joined(parts: list[Tensor]) -> Tensor:
    """One after the other; a single one as it is, not copied."""
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _views(session: Session, raw: Tensor, count: int) -> Tensor | None:
    """(B, count, C, H, W) strongly augmented versions of each row; None if there are to be none."""
    if count == 0:
        return None
    data, state = session.dataset, session.state
    made = strong_views(raw, count, state.generators["augment"]).flatten(0, 1)
    laid_out = normalise(made, data.mean, data.std, channels_last=state.channels_last)
    return laid_out.view(len(raw), count, *raw.shape[1:])


def _parts(means: str, new: int, which: Tensor, tasks: Tensor) -> tuple[slice, ...]:
    """Where each mean is taken.

    >>> _parts("draw", 4, torch.tensor([1, 1, 2, 2]), torch.tensor([0, 1, 0, 0]))
    (slice(0, 4, None), slice(4, 6, None), slice(6, 8, None))
    >>> _parts("task", 4, torch.tensor([1, 1, 1]), torch.tensor([0, 2, 2]))
    (slice(0, 4, None), slice(4, 5, None), slice(5, 7, None))
    >>> _parts("one", 4, torch.tensor([1, 1, 1]), torch.tensor([0, 2, 2]))
    (slice(0, 7, None),)
    """
    if means == "one":
        return (slice(0, new + len(which)),)
    counts = torch.unique_consecutive(which if means == "draw" else tasks, return_counts=True)[1].tolist()
    edges = accumulate([0, *(count for count in (new, *counts) if count)])
    return tuple(slice(start, stop) for start, stop in pairwise(edges))


def remember(session: Session, task: Task, batch: Batch, images: Tensor, observed: Observed) -> None:
    """Renew what is stored with replayed rows, and offer the new rows, as they are in the data set, to the memory."""
    state, learner = session.state, session.learner
    offered, renewed = learner.offers and batch.new > 0, learner.rewrites and batch.new < len(batch.labels)
    if state.memory is None or not (offered or renewed):
        return
    extras = learner.extras_of(batch, observed)
    if renewed:  # before a new row may take the slot
        state.memory.rewrite(batch.slots[batch.new :], {name: value[batch.new :] for name, value in extras.items()})
    if not offered:
        return
    state.memory.offer(
        images,
        batch.labels[: batch.new],
        task=task.index,
        step=state.position.step,
        generator=state.generators["keep"],
        extras={name: value[: batch.new] for name, value in extras.items()},
    )


def make_scene(session: Session, task: Task) -> Scene:
    """What a learner is told when a task begins or ends."""
    return Scene(
        task=task,
        step=session.state.position.step,
        seen=session.stream.seen(task.index),
        memory=session.memory,
        batches=lambda: task_batches(session, task),
        remembered=lambda: memory_batches(session),
        classes=tuple(each.classes for each in session.stream),
        generator=session.state.generators["method"],
    )


def task_batches(session: Session, task: Task) -> Iterator[tuple[Batch, Tensor]]:
    """A pass over the task's own rows, in order and not augmented."""
    data, layout = session.dataset, session.state.channels_last
    for rows in torch.split(session.training_rows(task), session.config.learner.batch_size):
        labels = data.train.labels[rows]
        none = torch.zeros_like(labels)
        images = eval_batch(data.train.images, rows, data.mean, data.std, channels_last=layout)
        yield (
            Batch(images, labels, torch.full_like(labels, task.index), none, none - 1, new=len(rows)),
            data.train.images.index_select(0, rows),
        )


def memory_batches(session: Session) -> Iterator[Batch]:
    """A pass over the rows in the memory, slot after slot and not augmented."""
    memory, data, layout = session.memory, session.dataset, session.state.channels_last
    if memory is None:
        return
    for slots in torch.split(torch.arange(len(memory), device=memory.device), session.config.learner.batch_size):
        labels = memory.labels[slots]
        images = eval_batch(memory.images, slots, data.mean, data.std, channels_last=layout)
        extras = {name: column[slots] for name, column in memory.extras.items()}
        yield Batch(images, labels, memory.tasks[slots], torch.ones_like(labels), slots, new=0, extras=extras)
