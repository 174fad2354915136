"""One step of training, without the learning: the rows it sees, what the memory keeps of them, what is measured."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from wane.learners import Batch, Observed
from wane.memory import Memory, class_uniform
from wane.runs.config import Config
from wane.softmax.signals import Signals, signals
from wane.streams import ClassIncremental, Task, crop_and_flip, eval_batch, normalise
from wane.training.state import State

__all__ = [
    "competing_classes",
    "draw_probabilities",
    "drawable",
    "make_batch",
    "memory_batches",
    "remember",
    "score_rows",
    "split_rows",
    "task_batches",
    "weighted_mean",
]


def split_rows(state: State, order: Tensor, size: int) -> list[Tensor]:
    """The new rows of each step of an epoch.

    A last row that would be alone, as no replayed ones join it, goes with the step before if there is batch
    normalisation: a single row may have no variance.
    """
    parts = list(torch.split(order, size))
    alone = len(parts[-1]) == 1 and state.memory is None and 1 < size < len(order)
    if alone and any(isinstance(module, _BatchNorm) for module in state.learner.modules()):
        parts[-2:] = [torch.cat(parts[-2:])]
    return parts


def make_batch(
    state: State, config: Config, stream: ClassIncremental, rows: Tensor, probabilities: Tensor | None, done: float
) -> tuple[Batch, Tensor]:
    """The rows of a step, new and replayed, augmented as one; and the new rows' raw images, for the memory."""
    dataset, memory, draws = stream.dataset, state.memory, state.learner.draws
    new, labels = dataset.train.images.index_select(0, rows), dataset.train.labels[rows]
    images, ys, tasks = [new], [labels], [stream.tasks_of("train")[rows]]
    draw, slots, extras = [torch.zeros_like(labels)], [torch.full_like(labels, -1)], {}
    if memory is not None:
        extras = {name: [column.new_zeros(len(rows), *column.shape[1:])] for name, column in memory.extras.items()}
        among = drawable(memory, config, state.position.task)
        for k in range(draws):
            generator = state.generators["draw"]
            drawn = memory.draw(
                config.learner.replay_size, generator=generator, class_probabilities=probabilities, among=among
            )
            images.append(memory.images.index_select(0, drawn))
            ys.append(memory.labels[drawn])
            tasks.append(memory.tasks[drawn])
            draw.append(torch.full_like(drawn, k + 1))
            slots.append(drawn)
            for name, column in memory.extras.items():
                extras[name].append(column[drawn])
    moved = crop_and_flip(torch.cat(images), config.data.padding, config.data.flip, state.generators["augment"])
    batch = Batch(
        images=normalise(moved, dataset.mean, dataset.std, channels_last=state.channels_last),
        labels=torch.cat(ys),
        tasks=torch.cat(tasks),
        draw=torch.cat(draw),
        slots=torch.cat(slots),
        new=len(rows),
        extras={name: torch.cat(parts) for name, parts in extras.items()},
        progress=done,
    )
    return batch, new


def drawable(memory: Memory, config: Config, task: int) -> Tensor | None:
    """The slots that a uniform draw is confined to: those of past tasks if the config says so; None is all."""
    if config.learner.trend is not None or (config.memory.draw, config.memory.scope) != ("uniform", "past"):
        return None  # a draw by class has its scope in the probabilities
    past = memory.tasks[: len(memory)] < task
    return past if bool(past.any()) else None  # where there is no past, all slots compete


def draw_probabilities(memory: Memory | None, config: Config, task: Task, trend: Tensor | None) -> Tensor | None:
    """Class probabilities of the draw: those of the trend where there is one; None is uniform over slots."""
    by_class = config.memory.draw == "class_uniform" or config.learner.trend is not None
    scope = config.memory.scope if config.learner.trend is None else config.learner.trend.scope
    if memory is None or not by_class or len(memory) == 0:
        return None
    if trend is not None and bool(trend[memory.labels[: len(memory)].cpu()].any()):
        return trend
    wanted = class_uniform(memory.class_counts()).cpu()
    past = wanted.clone()
    past[list(task.classes)] = 0
    # where there is no past, in the first task or in a memory that has lost it, all classes compete
    return past if scope == "past" and past.any() else wanted


def remember(state: State, task: Task, batch: Batch, images: Tensor, observed: Observed) -> None:
    """Offer the new rows of a step, as they are in the data set, to the memory."""
    if state.memory is None:
        return
    extras = {name: value[: batch.new] for name, value in state.learner.extras_of(batch, observed).items()}
    state.memory.offer(
        images,
        batch.labels[: batch.new],
        task=task.index,
        step=state.position.step,
        generator=state.generators["keep"],
        extras=extras,
    )


def score_rows(batch: Batch, observed: Observed, classes: range | list[int] | None, *, start: int) -> Signals:
    """The signals of the rows from `start` on, from the logits that the step had anyway."""
    logits, labels = observed.logits.detach()[start:].float(), batch.labels[start:]
    return signals(logits, labels, classes=classes, validate=False)


def weighted_mean(losses: Tensor, weights: Tensor | None) -> Tensor:
    """The mean loss; weights are those of the last rows, the rows before them count 1."""
    if weights is None or len(weights) == 0:
        return losses.mean()
    rest = losses.new_ones(len(losses) - len(weights))
    return (losses * torch.cat([rest, weights])).mean()


def task_batches(state: State, config: Config, stream: ClassIncremental, task: Task) -> Iterator[tuple[Batch, Tensor]]:
    """A pass over the task's own rows, in order and not augmented."""
    dataset = stream.dataset
    for rows in torch.split(task.train, config.learner.batch_size):
        labels = dataset.train.labels[rows]
        none = torch.zeros_like(labels)
        images = eval_batch(dataset.train.images, rows, dataset.mean, dataset.std, channels_last=state.channels_last)
        yield (
            Batch(images, labels, torch.full_like(labels, task.index), none, none - 1, new=len(rows)),
            dataset.train.images.index_select(0, rows),
        )


def memory_batches(state: State, config: Config, stream: ClassIncremental) -> Iterator[Batch]:
    """A pass over the rows in the memory, slot after slot and not augmented."""
    memory, dataset = state.memory, stream.dataset
    if memory is None:
        return
    for slots in torch.split(torch.arange(len(memory), device=memory.device), config.learner.batch_size):
        labels = memory.labels[slots]
        images = eval_batch(memory.images, slots, dataset.mean, dataset.std, channels_last=state.channels_last)
        extras = {name: column[slots] for name, column in memory.extras.items()}
        yield Batch(images, labels, memory.tasks[slots], torch.ones_like(labels), slots, new=0, extras=extras)


def competing_classes(config: Config, stream: ClassIncremental, task: Task) -> range | list[int] | None:
    """The classes in the softmax of the signals; None for the whole head. A range is read in place."""
    if config.record.classes == "all":
        return None
    seen = sorted(stream.seen(task.index))
    return range(len(seen)) if seen == list(range(len(seen))) else seen
