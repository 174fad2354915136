"""A data set divided into a stream of tasks: by its classes, or by its domains."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor

from wane.streams.dataset import DataError, Dataset, Split

__all__ = ["Kind", "Order", "Stream", "Task", "Tasks", "make_stream"]

Kind = Literal["classes", "domains"]
Tasks = int | Sequence[Sequence[str | int]]
Order = Literal["label", "shuffled"] | Sequence[int]


@dataclass(frozen=True, eq=False)
class Task:
    """One step of the stream.

    Attributes:
        index: position in the stream, from 0.
        name: "task 1" and so on; in a stream of domains the name of the domain.
        classes: the labels of this task, in the order of the stream. In a stream of domains, those that occur in it.
        train: rows of `dataset.train` that belong to it, ascending.
        test: rows of `dataset.test` that belong to it, ascending.
    """

    index: int
    name: str
    classes: tuple[int, ...]
    train: Tensor
    test: Tensor


class Stream:
    """A data set in tasks that are learnt one after the other. See `make_stream` for the arguments.

    Labels stay as they are; only their order of appearance changes.

    A *group* is what a history tells apart: a class, or in a stream of domains a class within a task, because there
    every class may occur in every task.

    Attributes:
        dataset: what is divided.
        kind: "classes" or "domains".
        order: the labels (or the numbers of the domains) in the order of the stream.
    """

    def __init__(
        self, dataset: Dataset, tasks: Tasks | None = None, class_order: Order = "label", kind: Kind = "classes",
        seed: int = 0,
    ) -> None:  # fmt: skip
        self.dataset, self.kind = dataset, kind
        names = _unit_names(dataset, kind)
        if tasks is None:
            tasks = 5 if kind == "classes" else len(names)
        parts = _parts(dataset.name, names, tasks, class_order, kind, seed)
        self.order = tuple(unit for part in parts for unit in part)
        device = dataset.train.labels.device
        unit_to_task = torch.empty(len(names), dtype=torch.int64, device=device)
        sizes = torch.tensor([len(part) for part in parts])
        unit_to_task[list(self.order)] = torch.arange(len(parts)).repeat_interleave(sizes).to(device)
        self._unit_to_task = unit_to_task
        self._tasks_of = {
            name: unit_to_task[_units(split, kind, name, dataset.name)]
            for name, split in (("train", dataset.train), ("test", dataset.test), ("holdout", dataset.holdout))
            if split is not None
        }
        rows = {name: [(of == k).nonzero()[:, 0] for k in range(len(parts))] for name, of in self._tasks_of.items()}
        self._tasks = tuple(
            Task(
                index=k,
                name=f"task {k + 1}" if kind == "classes" else ", ".join(names[unit] for unit in part),
                classes=part if kind == "classes" else _occurring(dataset, rows["train"][k], rows["test"][k]),
                train=rows["train"][k],
                test=rows["test"][k],
            )
            for k, part in enumerate(parts)
        )
        for task in self._tasks:
            if len(task.train) == 0:
                raise DataError(f"task {task.index + 1} ({task.name}) of {dataset.name} has no training row: add some, "
                                "or leave its domain out")  # fmt: skip

    def __len__(self) -> int:
        return len(self._tasks)

    def __getitem__(self, index: int) -> Task:
        return self._tasks[index]

    def __iter__(self) -> Iterator[Task]:
        return iter(self._tasks)

    @property
    def class_order(self) -> tuple[int, ...]:
        """All labels in the order in which the stream brings them."""
        return self.seen(len(self) - 1)

    @property
    def class_to_task(self) -> Tensor:
        """(C,) the task of each class; only in a stream of classes."""
        if self.kind != "classes":
            raise DataError("in a stream of domains a class has no task of its own: use tasks_of or group_to_task")
        return self._unit_to_task

    def seen(self, k: int) -> tuple[int, ...]:
        """The classes of tasks 0..k, in the order of the stream."""
        if not 0 <= k < len(self):
            raise DataError(f"there is no task {k}: the stream has tasks 0..{len(self) - 1}")
        return tuple(dict.fromkeys(c for task in self._tasks[: k + 1] for c in task.classes))

    def task_classes(self, k: int) -> tuple[int, ...]:
        """The classes of task k."""
        return self._tasks[k].classes

    def tasks_of(self, split: str) -> Tensor:
        """(N,) the task of every row of "train", "test" or "holdout"."""
        if split not in self._tasks_of:
            raise DataError(f"there is no split {split!r} in {self.dataset.name}: it has {', '.join(self._tasks_of)}")
        return self._tasks_of[split]

    @property
    def num_groups(self) -> int:
        """How many groups there are: the classes, or in a stream of domains tasks x classes."""
        return self.dataset.num_classes * (1 if self.kind == "classes" else len(self))

    @property
    def group_names(self) -> tuple[str, ...]:
        """The name of each group: that of the class, or "domain: class"."""
        if self.kind == "classes":
            return self.dataset.class_names
        return tuple(f"{task.name}: {name}" for task in self for name in self.dataset.class_names)

    @property
    def group_to_task(self) -> Tensor:
        """(G,) the task of each group."""
        if self.kind == "classes":
            return self._unit_to_task
        device = self._unit_to_task.device
        return torch.arange(len(self), device=device).repeat_interleave(self.dataset.num_classes)

    def groups(self, labels: Tensor, tasks: Tensor) -> Tensor:
        """(N,) the group of each row, by its label and its task."""
        return labels if self.kind == "classes" else tasks * self.dataset.num_classes + labels


def make_stream(
    dataset: Dataset, tasks: Tasks | None = None, class_order: Order = "label", kind: Kind = "classes", seed: int = 0
) -> Stream:
    """Divide a data set into tasks: its classes (class-incremental), or its domains (domain-incremental).

    Args:
        dataset: what to divide.
        tasks: how many tasks. The classes are spread as evenly as possible, larger tasks first: 10 classes in 3 tasks
            are 4, 3, 3. Or the tasks themselves, as lists of class names or labels that name every class once:
            `[["cat", "dog"], ["car"]]`. By default 5 tasks; in a stream of domains one for each domain.
        class_order: "label" (0, 1, 2, ...), "shuffled" (a permutation drawn from `seed`), or the labels themselves in
            the order wanted.
        kind: "classes": a task brings new classes. "domains": a task brings new data of the same classes, such as
            another font or camera; `tasks` and `class_order` then say how the domains are spread over the tasks.
        seed: of the shuffle; unused otherwise.

    >>> from wane.streams import from_arrays
    >>> images, labels = torch.zeros(6, 1, 4, 4, dtype=torch.uint8), torch.tensor([0, 1, 2, 3, 2, 1])
    >>> data = from_arrays(images, labels, images, labels, layout="NCHW", class_names=["ant", "bee", "cow", "dog"])
    >>> stream = make_stream(data, tasks=2)
    >>> [(task.classes, task.train.tolist()) for task in stream]
    [((0, 1), [0, 1, 5]), ((2, 3), [2, 3, 4])]
    >>> stream.class_to_task, stream.seen(1)
    (tensor([0, 0, 1, 1]), (0, 1, 2, 3))
    >>> [task.classes for task in make_stream(data, tasks=3)]
    [(0, 1), (2,), (3,)]
    >>> [task.classes for task in make_stream(data, tasks=[["dog", "bee"], ["ant", "cow"]])]
    [(3, 1), (0, 2)]
    """
    return Stream(dataset, tasks, class_order, kind, seed)


def _unit_names(dataset: Dataset, kind: str) -> tuple[str, ...]:
    """The names of what is spread over the tasks."""
    if kind == "classes":
        return dataset.class_names
    if kind != "domains":
        raise DataError(f"kind={kind!r} is unknown: use 'classes' or 'domains'")
    if not dataset.domain_names:
        raise DataError(
            f"{dataset.name} has no domains: give from_arrays train_domains and test_domains, or from_folder "
            "domains=True and a folder for each domain that holds the folders of the classes"
        )
    return dataset.domain_names


def _units(split: Split, kind: str, name: str, dataset: str) -> Tensor:
    if kind == "classes":
        return split.labels
    if split.domains is None:
        raise DataError(f"split {name!r} of {dataset} has no domains: give the domain of each row")
    return split.domains


def _occurring(dataset: Dataset, train: Tensor, test: Tensor) -> tuple[int, ...]:
    labels = torch.cat([dataset.train.labels[train], dataset.test.labels[test]])
    return tuple(torch.unique(labels).tolist())


def _parts(
    dataset: str, names: Sequence[str], tasks: Tasks, order: Order, kind: Kind, seed: int
) -> tuple[tuple[int, ...], ...]:
    """Labels (or domains) of each task."""
    if not isinstance(tasks, int):
        if not isinstance(order, str) or order != "label":
            raise DataError(f"class_order={order!r}, but lists as tasks give the order already: leave it at 'label'")
        return _named_parts(dataset, names, tasks, kind)
    if not 1 <= tasks <= len(names):
        raise DataError(f"tasks={tasks}, but {dataset} has {len(names)} {kind}: use 1 to {len(names)} tasks")
    units, (size, larger) = _order(order, len(names), seed), divmod(len(names), tasks)
    edges = [k * size + min(k, larger) for k in range(tasks + 1)]
    return tuple(units[low:high] for low, high in pairwise(edges))


def _order(class_order: Order, count: int, seed: int) -> tuple[int, ...]:
    if isinstance(class_order, str):
        if class_order == "label":
            return tuple(range(count))
        if class_order == "shuffled":
            return tuple(torch.randperm(count, generator=torch.Generator().manual_seed(seed)).tolist())
        raise DataError(
            f"class_order={class_order!r} is unknown: use 'label', 'shuffled', or the labels in the order wanted"
        )
    order = tuple(int(label) for label in class_order)
    if sorted(order) != list(range(count)):
        raise DataError(f"class_order={list(order)} must name each label 0..{count - 1} exactly once")
    return order


def _named_parts(
    dataset: str, names: Sequence[str], tasks: Sequence[Sequence[str | int]], kind: Kind
) -> tuple[tuple[int, ...], ...]:
    """Tasks written out by name or label; all that is wrong with them in one error."""
    if isinstance(tasks, str) or any(isinstance(task, str | int) for task in tasks):
        raise DataError(f"tasks={tasks!r}: give a number, or a list of lists such as [['cat', 'dog'], ['car']]")
    found = [[_unit(entry, names) for entry in task] for task in tasks]
    flat = [unit for part in found for unit in part if isinstance(unit, int)]
    wrong = [unit for part in found for unit in part if isinstance(unit, str)]
    wrong += [f"task {k + 1} is empty" for k, part in enumerate(found) if not part]
    if double := _quoted([names[unit] for unit in dict.fromkeys(flat) if flat.count(unit) > 1]):
        wrong.append(f"{double} named more than once")
    if missing := _quoted([name for unit, name in enumerate(names) if unit not in set(flat)]):
        wrong.append(f"{missing} missing")
    if wrong:
        raise DataError(f"tasks must name each of the {len(names)} {kind} of {dataset} once: {'; '.join(wrong)}")
    return tuple(tuple(unit for unit in part if isinstance(unit, int)) for part in found)


def _unit(entry: str | int, names: Sequence[str]) -> int | str:
    """The label of a name or label; a sentence if there is none, or more than one."""
    if isinstance(entry, str) and entry in names:
        if names.count(entry) > 1:
            labels = ", ".join(str(i) for i, name in enumerate(names) if name == entry)
            return f"{entry!r} is the name of labels {labels}: use the labels"
        return names.index(entry)
    try:
        label = int(entry)
    except ValueError:
        near = get_close_matches(str(entry), names, n=1, cutoff=0.5)
        return f"{entry!r} is unknown" + (f" (did you mean {near[0]!r}?)" if near else "")
    return label if 0 <= label < len(names) else f"{entry!r} is unknown (labels are 0..{len(names) - 1})"


def _quoted(names: Sequence[str], most: int = 10) -> str:
    """At most ten names in quotes, and "is" or "are"."""
    if not names:
        return ""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(repr(name) for name in names[:most]) + more + (" is" if len(names) == 1 else " are")
