"""A data set split into a stream of tasks, each with its own classes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from wane.streams.dataset import DataError, Dataset


@dataclass(frozen=True, eq=False)
class Task:
    """One step of the stream.

    Attributes:
        index: position in the stream, from 0.
        classes: the labels that are new in this task, in the order of the stream.
        train: rows of `dataset.train` that belong to it, ascending.
        test: rows of `dataset.test` that belong to it, ascending.
    """

    index: int
    classes: tuple[int, ...]
    train: Tensor
    test: Tensor


class ClassIncremental:
    """The classes of a data set in `tasks` groups of equal size, learnt one group after the other.

    Labels stay as they are; only their order of appearance changes.

    Args:
        dataset: what to split.
        tasks: how many tasks; must divide the number of classes.
        class_order: "label" (0, 1, 2, ...), "shuffled" (a permutation drawn from `seed`), or the labels
            themselves in the order wanted.
        seed: of the shuffle; unused otherwise.

    >>> from wane.streams import from_arrays
    >>> images, labels = torch.zeros(6, 1, 4, 4, dtype=torch.uint8), torch.tensor([0, 1, 2, 3, 2, 1])
    >>> stream = ClassIncremental(from_arrays(images, labels, images, labels, layout="NCHW"), tasks=2)
    >>> [(task.classes, task.train.tolist()) for task in stream]
    [((0, 1), [0, 1, 5]), ((2, 3), [2, 3, 4])]
    >>> stream.class_to_task
    tensor([0, 0, 1, 1])
    >>> stream.seen(1)
    (0, 1, 2, 3)
    """

    def __init__(
        self,
        dataset: Dataset,
        tasks: int = 5,
        class_order: Literal["label", "shuffled"] | Sequence[int] = "label",
        seed: int = 0,
    ) -> None:
        classes = dataset.num_classes
        if tasks < 1 or classes % tasks:
            divisors = ", ".join(str(n) for n in range(1, classes + 1) if classes % n == 0)
            raise DataError(
                f"{classes} classes of {dataset.name} cannot be split evenly into tasks={tasks}: use one of {divisors}"
            )
        self.dataset = dataset
        self.class_order = _order(class_order, classes, seed)
        self.classes_per_task = classes // tasks
        device = dataset.train.labels.device
        self.class_to_task = torch.empty(classes, dtype=torch.int64, device=device)
        self.class_to_task[list(self.class_order)] = torch.arange(classes, device=device) // self.classes_per_task
        self._tasks = tuple(
            Task(
                index=k,
                classes=self.class_order[k * self.classes_per_task : (k + 1) * self.classes_per_task],
                train=(self.class_to_task[dataset.train.labels] == k).nonzero()[:, 0],
                test=(self.class_to_task[dataset.test.labels] == k).nonzero()[:, 0],
            )
            for k in range(tasks)
        )

    def __len__(self) -> int:
        return len(self._tasks)

    def __getitem__(self, index: int) -> Task:
        return self._tasks[index]

    def __iter__(self) -> Iterator[Task]:
        return iter(self._tasks)

    def seen(self, k: int) -> tuple[int, ...]:
        """The classes of tasks 0..k, in the order of the stream."""
        if not 0 <= k < len(self):
            raise DataError(f"there is no task {k}: the stream has tasks 0..{len(self) - 1}")
        return self.class_order[: (k + 1) * self.classes_per_task]


def _order(class_order: str | Sequence[int], classes: int, seed: int) -> tuple[int, ...]:
    if class_order == "label":
        return tuple(range(classes))
    if class_order == "shuffled":
        return tuple(torch.randperm(classes, generator=torch.Generator().manual_seed(seed)).tolist())
    if isinstance(class_order, str):
        raise DataError(
            f"class_order={class_order!r} is unknown: use 'label', 'shuffled', or the labels in the order wanted"
        )
    order = tuple(int(label) for label in class_order)
    if sorted(order) != list(range(classes)):
        raise DataError(f"class_order={list(order)} must name each label 0..{classes - 1} exactly once")
    return order
