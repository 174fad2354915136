"""The models by name, and the one function that builds a model, known or not."""

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from torch import nn

from wane.models.classifier import seeded
from wane.models.cnn import cnn
from wane.models.mlp import mlp
from wane.models.resnet import resnet18
from wane.registry import Registry

__all__ = ["MODELS", "Model", "build_model", "find_model"]


class Model(NamedTuple):
    """One row of the registry."""

    title: str
    build: Callable[..., nn.Module]
    shaped: Callable[[tuple[int, ...]], dict[str, Any]]
    """What the builder must be told about the shape of a row."""
    channels_last: bool
    """Whether `torch.channels_last`, for model and images, makes training on a CPU faster (measured)."""
    needs_images: bool = False
    """Whether a row must be an image, (channels, height, width)."""
    smallest: int = 1
    """The least height and width of an image."""


def _channels(shape: tuple[int, ...]) -> dict[str, Any]:
    return {"channels": shape[0]}


# channels_last: CPU time of a training step over that in the default format, at batches 64 / 512, one thread
# of an AVX-512 Xeon, torch 2.13. resnet18 width 8 0.75 / 0.61, width 20 0.72 / 0.57, on 16x16 0.81 / 0.73;
# cnn 0.60 / 0.60, on 16x16 0.63 / 0.62, with one channel 0.55 / 0.57; mlp 1.01 / 1.07.
#
# Other packages (entry points of the group wane.models) and `package.module:name` give a function instead of a row.
MODELS: Registry[Model] = Registry(
    "model",
    {
        "resnet18": Model("ResNet-18", resnet18, _channels, channels_last=True, needs_images=True),
        "cnn": Model("small CNN", cnn, _channels, channels_last=True, needs_images=True, smallest=4),
        "mlp": Model("MLP", mlp, lambda shape: {"in_features": math.prod(shape)}, channels_last=False),
    },
    group="wane.models",
)


def find_model(name: str) -> Model:
    """The row of a model: of `MODELS`, of an installed package, or made of the function at `package.module:name`."""
    found: Any = MODELS.find(name)
    if isinstance(found, Model):
        return found
    if not callable(found):
        raise ValueError(f"model {name!r} is {found!r}: it must be a function (num_classes, shape, seed, **options)")
    return Model(name, found, lambda shape: {"shape": shape}, channels_last=False)


def build_model(name: str, num_classes: int, image_shape: Sequence[int], *, seed: int = 0, **options: Any) -> nn.Module:
    """The model `name` for rows of a shape, its weights a function of `seed`.

    Args:
        name: A key of `MODELS`, or `package.module:function`, a function `(num_classes, shape, seed, **options)` that
            returns an `nn.Module`; it is called by these names.
        num_classes: Rows of the head: all classes of the stream, seen or not.
        image_shape: Channels, height and width of an image; `(d,)` for the rows of a table.
        seed: Initial weights are a function of it; no global generator is touched.
        options: What the builder takes besides: `width`, `stem`, `hidden`.

    >>> build_model("resnet18", 100, (3, 32, 32), width=8).head
    Linear(in_features=64, out_features=100, bias=True)
    >>> build_model("mlp", 3, (12,), hidden=[8]).head
    Linear(in_features=8, out_features=3, bias=True)
    >>> build_model("resnet", 100, (3, 32, 32))
    Traceback (most recent call last):
    wane.registry.UnknownNameError: unknown model 'resnet'; did you mean 'resnet18'? Known: resnet18, cnn, mlp
    """
    row, shape = find_model(name), tuple(image_shape)
    if num_classes < 1 or not shape or min(shape) < 1:
        raise ValueError(
            f"{name} for num_classes={num_classes} and image_shape={shape}: "
            "give at least one class, and (channels, height, width) or (d,), each at least 1"
        )
    if row.needs_images and len(shape) != 3:
        raise ValueError(
            f"{name} is for images (channels, height, width), but image_shape={shape}: use the mlp, or a model of your "
            "own, for rows of another shape"
        )
    if row.needs_images and min(shape[1:]) < row.smallest:
        raise ValueError(
            f"{name} is for images of at least {row.smallest} x {row.smallest} pixels, but these have {shape[1]} x "
            f"{shape[2]}: raise data.resolution, or use the mlp"
        )
    shaped = row.shaped(shape)
    fixed = {"num_classes": num_classes, "seed": seed, **shaped}
    _check_arguments(name, row.build, fixed, options)
    # Wane's own builders seed themselves; this is for functions that leave it to us.
    with seeded(seed):
        model = row.build(**fixed, **options)
    if not isinstance(model, nn.Module):
        raise ValueError(f"model {name!r} returned {type(model).__name__}: it must return a torch.nn.Module")
    return model


def _check_arguments(name: str, build: Callable[..., Any], fixed: dict[str, Any], options: dict[str, Any]) -> None:
    """Complain about options that the builder does not take, and about a builder that does not take the rest."""
    parameters = inspect.signature(build).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return
    if lacking := [key for key in fixed if key not in parameters]:
        raise ValueError(
            f"model {name!r} does not take {', '.join(lacking)}: it must be a function (num_classes, shape, seed, "
            f"**options)"
        )
    known = {key: None for key in parameters if key not in fixed}
    for key in options:
        Registry(f"option of {name}", known)[key]
