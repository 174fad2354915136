"""Bins of confidence: three sums each, which add up over batches, processes, classes and tasks.

A bin holds its samples, the sum of their confidences, and how many of their answers were right.

Bins of equal width are right-closed, (a, b], as in Guo et al. (2017): a confidence of 1 is in the last bin, one of 0 in
the first. With ``closed="left"`` they are [a, b) and a confidence of exactly 1, which float32 often gives, has a bin of
its own, as in torchmetrics. Edges are rounded to the type of the confidences, so that a float32 0.2 is at the edge
3/15. A bin without samples counts for nothing.

Bins of equal mass hold equally many samples, to one. Samples of equal confidence stay together, so that the order of
the data does not matter; where many are equal, bins differ in size, or are empty.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wane.measures.sums import on_grid
from wane.softmax.registry import Bins

__all__ = ["BINS", "add_to_bins", "as_bins", "bin_index", "equal_mass"]

#: As many as most papers take.
BINS = 15


def bin_index(confidence: Tensor, bins: int, closed: str = "right") -> Tensor:
    """Which bin of equal width; with ``closed="left"`` there is one bin more, for a confidence of exactly 1.

    >>> bin_index(torch.tensor([0.0, 0.2, 0.21, 1.0]), 5), bin_index(torch.tensor([0.0, 0.2, 0.21, 1.0]), 5, "left")
    (tensor([0, 0, 1, 4]), tensor([0, 1, 1, 5]))
    """
    edges = torch.arange(1, bins + (closed == "left"), dtype=torch.float64, device=confidence.device) / bins
    return torch.bucketize(confidence, edges.to(confidence.dtype), right=closed == "left")


def add_to_bins(counts: Tensor, sums: Tensor, ids: Tensor, confidence: Tensor, correct: Tensor) -> None:
    """Add samples to the bins (G, B) of their groups `ids`: to the counts, and to the sums (G, B, 2)."""
    groups, bins = counts.shape
    # A confidence of NaN belongs to no bin: its group's values become NaN in the last one.
    at = ids * bins + bin_index(confidence, bins).clamp_(max=bins - 1)
    counts += torch.bincount(at, minlength=groups * bins).view(groups, bins)
    added = on_grid(torch.stack([confidence.to(sums), correct.to(sums)], dim=1))
    sums.view(groups * bins, 2).index_add_(0, at, added)


def as_bins(counts: Tensor, sums: Tensor) -> Bins:
    """The state of a metric, (..., B) and (..., B, 2), as NumPy arrays."""
    confidence, correct = np.moveaxis(sums.cpu().numpy(), -1, 0)
    return Bins(counts.cpu().numpy(), confidence, correct)


def equal_mass(counts: NDArray[np.int64], bins: int) -> NDArray[np.int64]:
    """The bin of each block of equal confidences, in ascending order: that of the sample in its middle.

    >>> equal_mass(np.array([1, 1, 1, 1, 1, 1]), 3).tolist(), equal_mass(np.array([1, 4, 1]), 3).tolist()
    ([0, 0, 1, 1, 2, 2], [0, 1, 2])
    """
    middle = 2 * (counts.cumsum() - counts) + counts
    bin_of: NDArray[np.int64] = np.minimum(middle * bins // max(2 * int(counts.sum()), 1), bins - 1)
    return bin_of
