"""What to keep: where each offered row goes, as pure functions of labels, priorities and random integers."""

import numpy as np
import torch

from wane.memory.groups import Integers, rank_in_group

__all__ = ["balanced_slots", "random_integers", "reservoir_slots", "shares"]


def random_integers(n: int, generator: torch.Generator) -> Integers:
    """`n` integers, uniform over all of 0 to 2^63 - 1."""
    integers: Integers = torch.empty(n, dtype=torch.int64).random_(generator=generator).numpy()
    return integers


def reservoir_slots(draws: Integers, seen: int, capacity: int) -> Integers:
    """Vitter's algorithm R on a whole batch: the slot where each row ends up, -1 for a row that is not kept.

    One by one, the row that comes after t others takes slot t while there is room, and later slot `draw` if
    there is such a slot, `draw` being uniform over 0 to t. A slot hit twice in a batch belongs to the last.

    Args:
        draws: (n,) integers, the i-th uniform over 0 to seen + i.
        seen: Rows offered before this batch.
        capacity: Slots.

    >>> draws = np.array([0, 1, 0, 1, 5, 1])  # slot 0 is hit by rows 0 and 2, slot 1 by rows 1, 3 and 5
    >>> reservoir_slots(draws, seen=0, capacity=2).tolist()
    [-1, -1, 0, -1, -1, 1]
    """
    slots = np.where(draws < capacity, draws, -1)
    room = max(0, min(capacity - seen, len(draws)))
    slots[:room] = np.arange(seen, seen + room)
    rows = (slots >= 0).nonzero()[0]
    rows = rows[slots[rows].argsort(kind="stable")]  # by slot, and within a slot in order of arrival
    lost = rows[:-1][slots[rows[:-1]] == slots[rows[1:]]]
    slots[lost] = -1
    return slots


def shares(counts: Integers, capacity: int) -> Integers:
    """How many rows each class may keep: equal, but what a small class cannot use goes to the others.

    Slots are dealt in rounds, one to each class that has rows left, lowest class first. So classes with
    enough rows differ by at most one, and the memory is as full as possible. As counts grow, a share once cut
    never grows again: so the rows of lowest random priority stay an exact uniform sample of a class.

    >>> shares(np.array([500, 3, 500, 0]), capacity=100).tolist()
    [49, 3, 48, 0]
    """
    sizes = np.sort(counts)
    # full rounds, if every class of fewer rows than this one were served whole
    rounds = (capacity - (sizes.cumsum() - sizes)) // np.arange(len(sizes), 0, -1)
    short = sizes > rounds
    if not short.any():
        return counts.copy()
    level = rounds[short.argmax()]
    dealt = np.minimum(counts, level)
    more = counts > level
    last_round: Integers = dealt + (more & (more.cumsum() <= capacity - dealt.sum()))
    return last_round


def balanced_slots(
    labels: Integers,
    priority: Integers,
    held: Integers,
    held_priority: Integers,
    capacity: int,
    num_classes: int,
) -> Integers:
    """The class-balanced choice: each class keeps the rows of lowest priority, as many as its share.

    With random priorities, the kept rows of a class are a uniform sample of all its rows ever offered, as a
    reservoir's are, however its share shrank meanwhile.

    Args:
        labels: (n,) classes of the offered rows.
        priority: (n,) their priorities.
        held: (m,) classes of the rows in slots 0 to m - 1.
        held_priority: (m,) their priorities.
        capacity: Slots.
        num_classes: Classes.

    Returns:
        (n,) slots for the offered rows, -1 for those not kept. A slot that is given away loses its row.

    >>> held, held_priority = np.array([0, 0, 0]), np.array([7, 2, 9])
    >>> balanced_slots(np.array([0, 1, 1]), np.array([4, 5, 1]), held, held_priority, 3, 2).tolist()
    [0, -1, 2]
    """
    have = np.bincount(held, minlength=num_classes)
    share = shares(have + np.bincount(labels, minlength=num_classes), capacity)
    worst = np.full(num_classes, -1)
    np.maximum.at(worst, held, held_priority)
    # a row worse than all held ones of a class that has its share cannot stay. Late in a stream this is nearly
    # every row, and only the few classes touched by the others, or whose share shrank, need the sort below
    rows = ((have < share)[labels] | (priority < worst[labels])).nonzero()[0]
    slots = np.full(len(labels), -1)
    if len(rows) == 0:
        return slots
    touched = have > share
    touched[labels[rows]] = True
    both = np.concatenate([held, labels[rows]])
    some = touched[both].nonzero()[0]
    order = np.concatenate([held_priority, priority[rows]])[some].argsort()
    kept = np.ones(len(both), dtype=bool)
    kept[some] = rank_in_group(both[some], order, num_classes) < share[both[some]]
    rows = rows[kept[len(held) :]]
    free = np.ones(capacity, dtype=bool)
    free[: len(held)] = ~kept[: len(held)]
    slots[rows] = free.nonzero()[0][: len(rows)]
    return slots
