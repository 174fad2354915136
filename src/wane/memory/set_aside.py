"""Slots that are never replayed: which rows of a stream they hold while each task is learnt."""

import numpy as np
import torch
from numpy.typing import NDArray

from wane.memory.groups import Integers, rank_in_group
from wane.memory.keep import random_integers, shares

__all__ = ["rows_set_aside"]


def rows_set_aside(groups: Integers, tasks: Integers, capacity: int, generator: torch.Generator) -> list[Integers]:
    """For each task, the rows that are set aside while it is learnt: a clean sample of all groups so far.

    When a task begins, some of its rows are drawn at random and go to the clean slots before any training. Groups have
    equal shares, as in a class-balanced memory, but at most half of their rows; as new groups come, the shares shrink,
    and a group gives up those of its rows that were drawn last. So what is kept of a group is at any time a uniform
    sample of its rows, and what was given up never comes back.

    Args:
        groups: (N,) the group of each row of the stream (its class).
        tasks: (N,) the task that brings it.
        capacity: clean slots.
        generator: source of all randomness, on the CPU.

    >>> rows = rows_set_aside(np.arange(40) // 10, np.arange(40) // 20, 8, torch.Generator().manual_seed(0))
    >>> [len(some) for some in rows], [np.bincount(some // 10).tolist() for some in rows]
    ([8, 8], [[4, 4], [2, 2, 2, 2]])
    >>> set(rows[1][rows[1] < 20]) < set(rows[0])
    True
    """
    num_groups = int(groups.max()) + 1
    turn = rank_in_group(groups, random_integers(len(groups), generator).argsort(), num_groups)
    found = []
    for task in range(int(tasks.max()) + 1):
        here: NDArray[np.bool_] = tasks <= task
        share = shares(np.bincount(groups[here], minlength=num_groups) // 2, capacity)
        found.append((here & (turn < share[groups])).nonzero()[0])
    return found
