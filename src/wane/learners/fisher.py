"""How much each parameter matters to what a network answers: the diagonal of the Fisher information."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from wane.learners.batch import Batch
from wane.learners.gradients import vector_of

__all__ = ["empirical_fisher"]


def empirical_fisher(model: nn.Module, batches: Iterator[Batch], *, chunk: int = 32) -> Tensor:
    """The mean over rows of the squared gradient of log p(label), a vector in the order of `vector_of`.

    Each row's own gradient is squared: the square of a batch's mean gradient would be about 1 / batch of this. In eval
    mode, so that rows do not see each other through batch norm.

    >>> model = nn.Linear(1, 2, bias=False)
    >>> nn.init.zeros_(model.weight).shape
    torch.Size([2, 1])
    >>> row = torch.tensor([[2.0]]), torch.tensor([0])
    >>> batch = Batch(*row, tasks=row[1], draw=row[1], slots=row[1] - 1, new=1)
    >>> empirical_fisher(model, iter([batch]))  # (2 * (1 - 1/2))^2 for both
    tensor([1., 1.])
    """
    names = [name for name, p in model.named_parameters() if p.requires_grad]
    weights = {name: p.detach() for name, p in model.named_parameters() if p.requires_grad}
    rest = {name: p.detach() for name, p in model.named_parameters() if not p.requires_grad} | dict(
        model.named_buffers()
    )

    def log_probability(chosen: dict[str, Tensor], image: Tensor, label: Tensor) -> Tensor:
        logits = functional_call(model, (chosen, rest), (image[None],))
        return F.log_softmax(logits.float(), 1)[0].gather(0, label[None])[0]

    each = vmap(grad(log_probability), in_dims=(None, 0, 0))
    total, rows = {name: torch.zeros_like(weights[name]) for name in names}, 0
    was_training = model.training
    model.eval()
    for batch in batches:
        for images, labels in zip(*(torch.split(x, chunk) for x in (batch.images, batch.labels)), strict=True):
            for name, gradient in each(weights, images, labels).items():
                total[name] += gradient.square().sum(0)
            rows += len(labels)
    model.train(was_training)
    return vector_of([total[name] for name in names]) / max(1, rows)
