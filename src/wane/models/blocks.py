"""A network taken apart: one block for each layer with weights. For methods that mask units, or join columns."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from wane.models.classifier import Classifier

__all__ = ["Block", "blocks_of", "features_of", "has_features", "head_of", "over_units", "statistics_kept"]

WEIGHTED = (nn.Linear, nn.Conv2d)
PLAIN = (
    nn.ReLU,
    nn.MaxPool2d,
    nn.AvgPool2d,
    nn.AdaptiveMaxPool2d,
    nn.AdaptiveAvgPool2d,
    nn.Flatten,
    nn.Dropout,
    nn.Identity,
)


@dataclass(frozen=True)
class Block:
    """`after(norm(between(weighted(before(x)))))`: a layer with weights and what stands around it.

    `units` is the number of its outputs: features of a linear layer, channels of a convolution.
    """

    before: nn.Module
    weighted: nn.Linear | nn.Conv2d
    between: nn.Module
    norm: nn.Module | None
    after: nn.Module

    @property
    def units(self) -> int:
        """Outputs of the layer."""
        return self.weighted.out_features if isinstance(self.weighted, nn.Linear) else self.weighted.out_channels

    def fresh(self) -> Block:
        """The same block with weights of its own, initialised anew from the global generator."""
        made = copy.deepcopy(self)
        for part in (made.weighted, made.norm):
            if part is not None:
                part.reset_parameters()  # type: ignore[operator]
        return made


def blocks_of(model: nn.Module) -> list[Block]:
    """The blocks of a network's body, in order; a network that is no plain chain of layers is one clear error.

    >>> from wane.models import build_model
    >>> [block.units for block in blocks_of(build_model("cnn", 10, (3, 16, 16), width=8))]
    [8, 16, 32]
    >>> blocks_of(build_model("resnet18", 10, (3, 16, 16), width=8))
    Traceback (most recent call last):
    ...
    ValueError: this method takes networks apart layer by layer, and knows no _Block: use the mlp or the cnn, ...
    """
    body = (
        list(model.body.children()) if isinstance(model, Classifier) and isinstance(model.body, nn.Sequential) else None
    )
    for layer in [model] if body is None else body:
        if body is None or not isinstance(layer, (*WEIGHTED, *PLAIN, nn.BatchNorm2d, nn.BatchNorm1d)):
            raise ValueError(
                f"this method takes networks apart layer by layer, and knows no {type(layer).__name__}: use the mlp or "
                "the cnn, or a wane.models.Classifier whose body is an nn.Sequential of linear layers, convolutions, "
                "batch norm, ReLU and pooling"
            )
    assert body is not None
    found = [(i, layer) for i, layer in enumerate(body) if isinstance(layer, WEIGHTED)]
    at = [i for i, _ in found]
    blocks = []
    for number, (i, weighted) in enumerate(found):
        start = 0 if number == 0 else i
        rest = body[i + 1 : at[number + 1] if number + 1 < len(at) else len(body)]
        norms = [k for k, layer in enumerate(rest) if isinstance(layer, (nn.BatchNorm2d, nn.BatchNorm1d))]
        cut = norms[0] if norms else 0
        blocks.append(
            Block(
                nn.Sequential(*body[start:i]),
                weighted,
                nn.Sequential(*rest[:cut]),
                rest[cut] if norms else None,
                nn.Sequential(*rest[cut + bool(norms) :]),
            )
        )
    return blocks


def head_of(model: nn.Module) -> nn.Linear:
    """The linear layer that makes logits of features; a network that has none is one clear error.

    >>> head_of(nn.Flatten())
    Traceback (most recent call last):
    ...
    ValueError: this method needs a network with a linear layer `head` and a method `features`, as in ...
    """
    head = getattr(model, "head", None)
    if not isinstance(head, nn.Linear):
        raise ValueError(
            "this method needs a network with a linear layer `head` and a method `features`, as in "
            f"wane.models.Classifier; {type(model).__name__} has no such head"
        )
    return head


def has_features(model: nn.Module) -> bool:
    """Whether a network is a linear layer `head` after a method `features`.

    >>> has_features(nn.Flatten())
    False
    """
    return isinstance(getattr(model, "head", None), nn.Linear) and callable(getattr(model, "features", None))


def features_of(model: nn.Module, images: Tensor) -> Tensor:
    """The input of a network's head."""
    features: Tensor = model.features(images)  # type: ignore[operator]
    return features


def over_units(values: Tensor, like: Tensor) -> Tensor:
    """A value for each unit, shaped to multiply a block's output: of a convolution, or flattened after one.

    >>> import torch
    >>> over_units(torch.tensor([1.0, 0.0]), torch.zeros(5, 2, 3, 3)).shape
    torch.Size([1, 2, 1, 1])
    >>> over_units(torch.tensor([1.0, 0.0]), torch.zeros(5, 4))  # two channels of two pixels
    tensor([[1., 1., 0., 0.]])
    """
    if like.ndim == 2:
        return values.repeat_interleave(like.shape[1] // len(values))[None]
    return values.view(1, -1, *[1] * (like.ndim - 2))


@contextmanager
def statistics_kept(model: nn.Module, kept: bool = True) -> Iterator[None]:
    """Inside, training passes leave the running statistics of batch norm as they are; without `kept` nothing changes.

    >>> import torch
    >>> norm = nn.BatchNorm1d(1).train()
    >>> with statistics_kept(norm):
    ...     norm(torch.tensor([[4.0], [8.0]])).flatten().tolist()
    [-0.999..., 0.999...]
    >>> norm.running_mean
    tensor([0.])
    """
    followed = [m for m in model.modules() if kept and isinstance(m, _BatchNorm) and m.track_running_stats]
    for norm in followed:
        norm.track_running_stats = False
    try:
        yield
    finally:
        for norm in followed:
            norm.track_running_stats = True
