"""The task of each class or group, for a head that may grow: what was given, and what growing adds to it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["grown", "merged", "tasks_of"]

Ints = NDArray[np.int64]


def tasks_of(class_to_task: Ints | None, ids: Ints) -> Ints:
    """(K,) the task of each of these groups, -1 where it is not known.

    >>> tasks_of(np.array([0, 1]), np.array([1, 2])).tolist(), tasks_of(None, np.array([1])).tolist()
    ([1, -1], [-1])
    """
    if class_to_task is None or not len(class_to_task):
        return np.full(len(ids), -1)
    if not len(ids) or ids[-1] < len(class_to_task):  # ascending, and all known: the usual case
        return np.asarray(class_to_task[ids])
    return np.where(ids < len(class_to_task), class_to_task[np.minimum(ids, len(class_to_task) - 1)], -1)


def grown(class_to_task: Ints, given: int, ids: Ints, task: int) -> Ints:
    """The map after groups `ids` had samples while `task` was learnt: those that nobody gave a task belong to it.

    Args:
        class_to_task: so far.
        given: how many of its entries were given; -1 there says that a group belongs to no task, and stays.
        ids: ascending.
        task: that was being learnt.

    >>> grown(np.array([0, 0]), 2, np.array([0, 1, 3]), 1).tolist()
    [0, 0, -1, 1]
    """
    new = ids[(ids >= given) & (tasks_of(class_to_task, ids) < 0)]
    if not len(new):
        return class_to_task
    longer = np.full(max(len(class_to_task), int(new[-1]) + 1), -1)
    longer[: len(class_to_task)] = class_to_task
    longer[new] = task
    return longer


def merged(one: Ints | None, other: Ints | None) -> Ints | None:
    """One map out of two, the longer where they agree; an error where they do not.

    >>> merged(np.array([0, 0]), np.array([0, 0, 1])).tolist()
    [0, 0, 1]
    """
    if one is None or other is None:
        return other if one is None else one
    both = min(len(one), len(other))
    if not np.array_equal(one[:both], other[:both]):
        raise ValueError("the two histories divide the classes into tasks differently: "
                         f"{one.tolist()} and {other.tolist()}")  # fmt: skip
    return one if len(one) >= len(other) else other
