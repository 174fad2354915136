"""The supervised contrastive loss (Khosla et al., 2020): views of a class are alike, views of different classes not."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["positives_of", "supervised_contrast"]


def positives_of(labels: Tensor) -> Tensor:
    """(N, N) for each row the others of its class, each with weight 1 / their number; zeros for a row without any.

    >>> positives_of(torch.tensor([3, 3, 5, 3]))
    tensor([[0.0000, 0.5000, 0.0000, 0.5000],
            [0.5000, 0.0000, 0.0000, 0.5000],
            [0.0000, 0.0000, 0.0000, 0.0000],
            [0.5000, 0.5000, 0.0000, 0.0000]])
    """
    alike = (labels[:, None] == labels[None]).float().fill_diagonal_(0)
    return alike / alike.sum(1, keepdim=True).clamp(min=1)


def supervised_contrast(features: Tensor, positives: Tensor, temperature: float) -> Tensor:
    """The mean over rows of minus the mean log probability of a row's positives among all other rows.

    The probability of row j for row i is exp(f_i f_j / temperature) over the sum of these for all but i.

    Args:
        features: (N, d), each of length 1.
        positives: (N, N) from `positives_of`.
        temperature: the larger, the softer.

    >>> features = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    >>> supervised_contrast(features, positives_of(torch.tensor([0, 0, 1, 1])), 0.5)  # log(1 + 2 exp(-2))
    tensor(0.2395)
    """
    similar = features @ features.T / temperature
    itself = torch.eye(len(features), dtype=torch.bool, device=features.device)
    others = similar.masked_fill(itself, -torch.inf).logsumexp(1)
    return (positives.sum(1) * others - (positives * similar).sum(1)).mean()
