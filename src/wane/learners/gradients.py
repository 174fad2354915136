"""All parameters of a network as one vector, and their gradients likewise: for methods that project or weigh them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

__all__ = ["gradient_of", "set_gradient", "trained", "vector_of"]


def trained(module: nn.Module) -> list[nn.Parameter]:
    """The parameters that are trained, in the module's own order.

    >>> [tuple(p.shape) for p in trained(nn.Linear(3, 2))]
    [(2, 3), (2,)]
    """
    return [p for p in module.parameters() if p.requires_grad]


def vector_of(parameters: Sequence[Tensor]) -> Tensor:
    """The parameters one after the other, detached: a copy.

    >>> vector_of([torch.ones(2, 2), torch.zeros(1)])
    tensor([1., 1., 1., 1., 0.])
    """
    return torch.cat([p.detach().reshape(-1) for p in parameters])


def gradient_of(loss: Tensor, parameters: Sequence[nn.Parameter], *, keep: bool = False) -> Tensor:
    """The gradient of a loss as one vector, zeros where it does not depend on a parameter; nothing is accumulated.

    >>> w = nn.Parameter(torch.tensor([3.0, 4.0]))
    >>> gradient_of((w * w).sum(), [w])
    tensor([6., 8.])
    """
    found = torch.autograd.grad(loss, parameters, retain_graph=keep, allow_unused=True)
    return torch.cat(
        [(torch.zeros_like(p) if g is None else g).reshape(-1) for g, p in zip(found, parameters, strict=True)]
    )


def set_gradient(parameters: Sequence[nn.Parameter], vector: Tensor) -> None:
    """Make `vector` the gradient that the optimiser sees.

    >>> w = nn.Parameter(torch.zeros(1, 2))
    >>> set_gradient([w], torch.tensor([6.0, 8.0]))
    >>> w.grad
    tensor([[6., 8.]])
    """
    start = 0
    for p in parameters:
        p.grad = vector[start : start + p.numel()].view_as(p).clone()
        start += p.numel()
