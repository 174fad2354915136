"""Herding: the exemplars of a class whose mean feature stays nearest to the mean feature of the class."""

import torch
from torch import Tensor

__all__ = ["herding_ranks"]


def herding_ranks(features: Tensor, labels: Tensor, wanted: Tensor) -> Tensor:
    """The turn at which iCaRL's greedy choice takes each row for its class; -1 for rows it does not take.

    At turn k a class takes the row, of those not yet taken, that brings the mean of its k + 1 taken rows
    nearest to the mean of all its rows (Rebuffi et al., 2017, algorithm 4). The first few taken are thus the
    best few, and a share that shrinks later drops the last. iCaRL scales every feature to length 1 first: do
    so for its choice.

    All classes take their turns at once: `wanted.max()` steps, each one matrix-vector product a class.

    Args:
        features: (n, d) features of the candidates.
        labels: (n,) their classes.
        wanted: (classes,) how many rows each class wants; a class with fewer gives them all.

    >>> features = torch.tensor([[0.0], [4.0], [1.0], [3.0], [9.0]])  # the mean of class 0 is 2
    >>> herding_ranks(features, torch.tensor([0, 0, 0, 0, 1]), torch.tensor([3, 1]))
    tensor([ 2, -1,  0,  1,  0])
    """
    counts = torch.bincount(labels, minlength=len(wanted))
    present = counts.nonzero().squeeze(1)
    ranks = torch.full_like(labels, -1)
    if len(present) == 0:
        return ranks
    sizes, wanted = counts[present], torch.minimum(wanted, counts)[present]

    # classes side by side, (classes, rows), the short ones padded
    padding = torch.arange(int(sizes.max()), device=labels.device) >= sizes[:, None]
    row = torch.zeros_like(padding, dtype=torch.int64)
    row[~padding] = labels.argsort(stable=True)
    f = features.to(torch.promote_types(features.dtype, torch.float32))[row].masked_fill(padding[..., None], 0.0)

    # |mean - (sum of taken + f) / (k + 1)| is least where |f - aim| is, aim being (k + 1) mean - sum of taken
    mean = f.sum(1) / sizes[:, None]
    aim = mean.clone()
    square = f.square().sum(2).masked_fill(padding, torch.inf)
    classes = torch.arange(len(present), device=labels.device)
    for turn in range(int(wanted.max())):
        choice = (square - 2 * (f @ aim[..., None]).squeeze(2)).argmin(1)
        taking = turn < wanted
        ranks[row[classes, choice][taking]] = turn
        square[classes, choice] = torch.inf
        aim += mean - f[classes, choice]
    return ranks
