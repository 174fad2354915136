"""The stream as the loop asks for it: the task of every row, and the groups whose signals are recorded.

A group is a class; in a stream of domains it is a class of one domain. This is the only place in the loop that knows.
"""

from __future__ import annotations

from torch import Tensor

from wane.measures.group_metrics import ClassMetrics
from wane.measures.history import History
from wane.runs.config import Config
from wane.softmax.signals import Signals, signals, signals_within
from wane.streams import ClassIncremental, Dataset

__all__ = [
    "Stream", "by_class", "group_ids", "group_names", "group_tasks", "new_history", "new_metrics", "num_groups",
    "open_stream", "row_tasks", "score_within", "task_names",
]  # fmt: skip

Stream = ClassIncremental


def open_stream(config: Config, dataset: Dataset) -> Stream:
    """The stream of tasks that the config describes."""
    return ClassIncremental(dataset, config.data.tasks, config.data.class_order, seed=config.seed)


def by_class(stream: Stream) -> bool:
    """Whether tasks differ in their classes, so that a group is a class."""
    return bool(getattr(stream, "kind", "classes") == "classes")


def row_tasks(stream: Stream, split: str) -> Tensor:
    """(N,) the task of every row of ``"train"``, ``"test"`` or ``"holdout"``."""
    if hasattr(stream, "tasks_of"):
        tasks: Tensor = stream.tasks_of(split)
        return tasks
    return stream.class_to_task[getattr(stream.dataset, split).labels]


def group_ids(stream: Stream, labels: Tensor, tasks: Tensor) -> Tensor:
    """(N,) the group of each row."""
    if hasattr(stream, "groups"):
        groups: Tensor = stream.groups(labels, tasks)
        return groups
    return labels


def num_groups(stream: Stream) -> int:
    """How many groups there are in the whole stream."""
    return int(getattr(stream, "num_groups", stream.dataset.num_classes))


def group_tasks(stream: Stream) -> Tensor:
    """(G,) the task of each group."""
    tasks: Tensor = stream.group_to_task if hasattr(stream, "group_to_task") else stream.class_to_task
    return tasks


def group_names(stream: Stream) -> tuple[str, ...]:
    """What to call each group."""
    return tuple(getattr(stream, "group_names", stream.dataset.class_names))


def task_names(stream: Stream) -> tuple[str, ...]:
    """What to call each task."""
    return tuple(getattr(task, "name", "") or f"task {task.index + 1}" for task in stream)


def new_history(stream: Stream) -> History:
    """An empty history of the stream's groups."""
    return History(group_tasks(stream).cpu().numpy())


def new_metrics(stream: Stream, *, flow: bool = False) -> ClassMetrics:
    """Sums for each group, on the device of the data."""
    metrics = ClassMetrics(num_groups(stream), flow=flow, validate=False, sync_on_compute=False)
    return metrics.to(stream.dataset.train.labels.device)


def score_within(stream: Stream, logits: Tensor, labels: Tensor) -> Signals:
    """Task-incremental signals: each row among the classes of its own task, which in a stream of domains are all."""
    if by_class(stream):
        return signals_within(logits, labels, stream.class_to_task, validate=False)
    return signals(logits, labels, validate=False)
