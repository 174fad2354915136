"""The models by name, and the one function that builds them."""

import inspect
import math
from collections.abc import Callable
from typing import Any, NamedTuple

from wane.models.classifier import Classifier
from wane.models.cnn import cnn
from wane.models.mlp import mlp
from wane.models.resnet import resnet18
from wane.registry import Registry

__all__ = ["MODELS", "Model", "build_model"]


class Model(NamedTuple):
    """One row of the registry."""

    title: str
    build: Callable[..., Classifier]
    shaped: Callable[[tuple[int, int, int]], dict[str, int]]
    """What the builder must be told of the image's (channels, height, width)."""
    channels_last: bool
    """Whether `torch.channels_last`, for model and images, makes training on a CPU faster (measured)."""


# channels_last: CPU time of a training step over that in the default format, at batches 64 / 512, one thread
# of an AVX-512 Xeon, torch 2.13. resnet18 width 8 0.75 / 0.61, width 20 0.72 / 0.57, on 16x16 0.81 / 0.73;
# cnn 0.60 / 0.60, on 16x16 0.63 / 0.62, with one channel 0.55 / 0.57; mlp 1.01 / 1.07.
MODELS = Registry(
    "model",
    {
        "resnet18": Model("ResNet-18", resnet18, lambda shape: {"channels": shape[0]}, channels_last=True),
        "cnn": Model("small CNN", cnn, lambda shape: {"channels": shape[0]}, channels_last=True),
        "mlp": Model("MLP", mlp, lambda shape: {"in_features": math.prod(shape)}, channels_last=False),
    },
)


def build_model(
    name: str, num_classes: int, image_shape: tuple[int, int, int], *, seed: int = 0, **options: Any
) -> Classifier:
    """The model `name` for images of shape (channels, height, width), its weights a function of `seed`.

    Args:
        name: A key of `MODELS`.
        num_classes: Rows of the head: all classes of the stream, seen or not.
        image_shape: Channels, height and width of an image.
        seed: Initial weights are a function of it; no global generator is touched.
        options: What the builder takes besides: `width`, `stem`, `hidden`.

    >>> build_model("resnet18", 100, (3, 32, 32), width=8).head
    Linear(in_features=64, out_features=100, bias=True)
    >>> build_model("resnet", 100, (3, 32, 32))
    Traceback (most recent call last):
    wane.registry.UnknownNameError: unknown model 'resnet'; did you mean 'resnet18'? Known: resnet18, cnn, mlp
    """
    row = MODELS[name]
    if num_classes < 1 or len(image_shape) != 3 or min(image_shape) < 1:
        raise ValueError(
            f"{name} for num_classes={num_classes} and image_shape={tuple(image_shape)}: "
            "give at least one class, and (channels, height, width), each at least 1"
        )
    shaped = row.shaped(image_shape)
    fixed = {"num_classes", "seed", *shaped}
    known = {key: None for key in inspect.signature(row.build).parameters if key not in fixed}
    for key in options:
        Registry(f"option of {name}", known)[key]
    return row.build(num_classes, **shaped, **options, seed=seed)
