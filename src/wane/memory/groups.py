"""Rows grouped by class without a loop over classes: what keeping and drawing are built on.

Which slot a row goes to, or comes from, is arithmetic on a few thousand integers. It is done in NumPy, on the
CPU, whatever device holds the images: an operation costs a third of torch's, and the slots never depend on
the device.
"""

import numpy as np
from numpy.typing import NDArray

__all__ = ["Integers", "group", "rank_in_group"]

Integers = NDArray[np.int64]


def group(groups: Integers, num_groups: int) -> Integers:
    """Indices that sort `groups`, all below `num_groups`; equal ones stay in their order of appearance.

    >>> group(np.array([2, 0, 2, 1]), num_groups=3).tolist()
    [1, 3, 0, 2]
    """
    # integers of 8 and 16 bits are sorted by radix, in linear time: 10 microseconds for 2,000, where int64 takes 60
    return groups.astype(np.min_scalar_type(num_groups)).argsort(kind="stable")


def rank_in_group(groups: Integers, order: Integers, num_groups: int) -> Integers:
    """The rank of each row among the rows of its group, when all rows are taken in `order`.

    >>> rank_in_group(np.array([1, 0, 1, 1]), order=np.array([1, 2, 3, 0]), num_groups=2).tolist()
    [2, 0, 0, 1]
    """
    order = order[group(groups[order], num_groups)]
    counts = np.bincount(groups, minlength=num_groups)
    starts = counts.cumsum() - counts
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order)) - starts[groups[order]]
    return rank
