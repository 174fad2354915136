"""All parameters of a network as one vector, and their gradients likewise: for methods that project or weigh them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from wane.learners.batch import Batch, Scene
from wane.learners.learner import Learner

__all__ = [
    "SeparatePasses", "WeighsWeights", "add_decay", "add_to_gradient", "decay", "gradient_of",
    "gradient_vector", "set_gradient", "trained", "vector_of",
]  # fmt: skip


def trained(module: nn.Module) -> list[nn.Parameter]:
    """The parameters that are trained, in the module's own order.

    >>> [tuple(p.shape) for p in trained(nn.Linear(3, 2))]
    [(2, 3), (2,)]
    """
    return [p for p in module.parameters() if p.requires_grad]


def vector_of(parameters: Sequence[Tensor], out: Tensor | None = None) -> Tensor:
    """The parameters one after the other, each in the order in which it lies in memory, detached: a copy, into `out`.

    >>> vector_of([torch.ones(2, 2), torch.zeros(1)])
    tensor([1., 1., 1., 1., 0.])
    >>> images = torch.arange(4.0).view(1, 2, 1, 2)
    >>> vector_of([images]), vector_of([images.to(memory_format=torch.channels_last)])
    (tensor([0., 1., 2., 3.]), tensor([0., 2., 1., 3.]))
    """
    return torch.cat([_as_laid_out(p.detach(), p).reshape(-1) for p in parameters], out=out)


def _as_laid_out(tensor: Tensor, like: Tensor) -> Tensor:
    """A view whose dimensions are in the order in which those of `like` lie in memory.

    Weights of convolutions are mostly channels last. In any other order, copies and sums of them take several times as
    long.
    """
    return tensor.permute(0, 2, 3, 1) if _is_channels_last(like) else tensor


def _is_channels_last(tensor: Tensor) -> bool:
    return tensor.ndim == 4 and not tensor.is_contiguous() and tensor.is_contiguous(memory_format=torch.channels_last)


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


def add_to_gradient(parameters: Sequence[nn.Parameter], vector: Tensor) -> None:
    """Add a vector, in the order of `vector_of`, to the gradient that the optimiser sees.

    Where a parameter has no gradient, that counts as zeros.

    >>> w = nn.Parameter(torch.zeros(1, 2))
    >>> add_to_gradient([w], torch.tensor([6.0, 8.0]))
    >>> add_to_gradient([w], torch.tensor([1.0, 1.0]))
    >>> w.grad
    tensor([[7., 9.]])
    """
    for p in parameters:
        if p.grad is None:
            p.grad = torch.zeros_like(p)
    gradients = [_as_laid_out(p.grad, p) for p in parameters if p.grad is not None]
    pieces = torch.split(vector, [g.numel() for g in gradients])
    torch._foreach_add_(gradients, [piece.view(g.shape) for piece, g in zip(pieces, gradients, strict=True)])


def gradient_vector(parameters: Sequence[nn.Parameter], out: Tensor | None = None) -> Tensor:
    """The gradient that is there, in the order of `vector_of`; zeros where there is none. A copy, into `out`.

    >>> w, unused = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(1))
    >>> w.grad = torch.tensor([6.0, 8.0])
    >>> gradient_vector([w, unused])
    tensor([6., 8., 0.])
    """
    found = ((torch.zeros_like(p) if p.grad is None else p.grad, p) for p in parameters)
    return torch.cat([_as_laid_out(gradient, p).reshape(-1) for gradient, p in found], out=out)


def decay(parameters: Sequence[nn.Parameter], strength: float) -> Tensor:
    """`strength` times the sum of all squared parameters: its value. `add_decay` adds its gradient.

    >>> decay([nn.Parameter(torch.tensor([3.0, 4.0]))], 0.1)
    tensor(2.5000)
    """
    norms = torch._foreach_norm([p.detach() for p in parameters])
    return strength * torch.stack(norms).square().sum()


def add_decay(parameters: Sequence[nn.Parameter], strength: float) -> None:
    """Add the gradient of `decay`; cheaper than through autograd.

    >>> w = nn.Parameter(torch.tensor([3.0, 4.0]))
    >>> w.grad = torch.ones(2)
    >>> add_decay([w], 0.1)
    >>> w.grad
    tensor([1.6000, 1.8000])
    """
    graded = [(p.grad, p.detach()) for p in parameters if p.grad is not None]
    torch._foreach_add_([gradient for gradient, _ in graded], [p for _, p in graded], alpha=2 * strength)


class SeparatePasses:
    """Forward passes over the parts of a batch, each of which can be differentiated at its own cost alone.

    Losses are made of `logits`, which is cut off from the network. Were it not, the gradient of one part would go back
    through the passes of all the others too, with zeros.

    Args:
        model: the network.
        batch: its parts are passed one after the other (see `Batch.passes`).
        idle: parts, by number, whose gradient will not be asked for.
    """

    def __init__(self, model: nn.Module, batch: Batch, idle: frozenset[int] = frozenset()) -> None:
        self.rows, self.outputs = batch.passes(), list[Tensor]()
        asked = [part.start for k, part in enumerate(batch.parts) if k not in idle]
        for rows in self.rows:
            with torch.set_grad_enabled(any(rows.start <= start < rows.stop for start in asked)):
                self.outputs.append(model(batch.images[rows]))
        self.logits = torch.cat([out.detach() for out in self.outputs]).requires_grad_()

    def gradient(self, loss: Tensor, part: slice, parameters: Sequence[nn.Parameter]) -> Tensor:
        """The gradient, as one vector, of a loss of one part's rows."""
        (at,) = torch.autograd.grad(loss, self.logits, retain_graph=True)
        k = next(i for i, rows in enumerate(self.rows) if rows.start <= part.start < rows.stop)
        rows, shared = self.rows[k], self.rows[k] != part  # a part of one row shares the pass of the part before
        through = (self.outputs[k] * at[rows]).sum()
        return gradient_of(through, parameters, keep=shared)


class WeighsWeights(Learner):
    """A learner that keeps vectors over all weights, such as their importance: buffers, in the order of `vector_of`.

    In a state dict they are in the order of the weights' dimensions, so that it says the same whatever the layout.
    """

    #: The names of these buffers.
    vectors: tuple[str, ...] = ()

    def begin_task(self, scene: Scene) -> None:
        """Which weights there are, and room for the vectors, once."""
        self.weights, self.task = trained(self.model), scene.task.index
        if self.task == 0:
            for name in self.vectors:
                self.register_buffer(name, torch.zeros_like(vector_of(self.weights)))

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        for name in self.vectors:
            if prefix + name in destination:
                destination[prefix + name] = _laid_out(destination[prefix + name], self.weights, as_in_memory=False)

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *rest: Any) -> None:
        names = [prefix + name for name in self.vectors if prefix + name in state_dict]
        found = {name: _laid_out(state_dict[name], self.weights, as_in_memory=True) for name in names}
        super()._load_from_state_dict({**state_dict, **found}, prefix, *rest)


def _laid_out(vector: Tensor, parameters: Sequence[Tensor], *, as_in_memory: bool) -> Tensor:
    """From the order of dimensions to that of memory, or back."""
    pieces = []
    for piece, p in zip(torch.split(vector, [p.numel() for p in parameters]), parameters, strict=True):
        if not _is_channels_last(p):
            pieces.append(piece)
        elif as_in_memory:
            pieces.append(piece.view(p.shape).permute(0, 2, 3, 1).reshape(-1))
        else:
            pieces.append(piece.view(_as_laid_out(p, p).shape).permute(0, 3, 1, 2).reshape(-1))
    return torch.cat(pieces)
