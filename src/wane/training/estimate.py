"""How long a run will take and how much memory it needs, told before it starts: a few real steps, timed and scaled."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from wane.runs.config import Config

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

__all__ = ["Estimate", "Extent", "estimate", "extent_of", "spelled_bytes", "spelled_time"]

FEW = 8  # rows of the first step, which is not counted: it says how many rows can be afforded
BUDGET = 1.0  # seconds for each of the two things that are timed
ROWS = {"cifar10": (50_000, 10_000), "cifar100": (50_000, 10_000), "tiny_imagenet": (100_000, 10_000)}


class Extent(NamedTuple):
    """The size of a data set, as a run uses it."""

    train: int
    test: int
    classes: int
    shape: tuple[int, ...]  # of one row


class Estimate(NamedTuple):
    """What a run takes."""

    seconds: float  # of training and evaluation
    bytes: int  # data set, memory, model with gradients and optimiser, and the activations of a step
    disk: int  # the two checkpoints, and the history
    how: str  # it was found out

    def __str__(self) -> str:
        return (f"about {spelled_time(self.seconds)}, {spelled_bytes(self.bytes)} of memory and "
                f"{spelled_bytes(self.disk)} on disk ({self.how})")  # fmt: skip


def estimate(config: Config, *, extent: Extent | None = None) -> Estimate:
    """Build the model of a run, time a few steps and evaluation batches on made-up data, and scale them up.

    A rough number, and rather too low: augmentation, signals and a method's further passes are not timed, and on a busy
    machine two demo runs took 1.3 to 2.1 times as long. The data set is not fetched for this.

    Args:
        config: the run.
        extent: of its data set; default: what `extent_of` finds.

    >>> from wane.runs.config import build_config
    >>> config = build_config({"model": {"name": "mlp", "hidden": [16]}, "learner": {"epochs": 2}})
    >>> one = estimate(config, extent=Extent(2_000, 500, 10, (1, 6, 6)))
    >>> 0 < one.seconds < 60, one.how
    (True, '512 rows a step, timed on cpu')
    """
    import torch

    from wane.learners import LEARNERS, build_learner
    from wane.models import MODELS, build_model
    from wane.training.state import pick_device, use_threads

    extent = extent or extent_of(config)
    method, device = LEARNERS.find(config.learner.name), pick_device(config.device)
    options = config.model.model_dump(exclude_none=True, exclude={"name"})
    with torch.random.fork_rng(devices=[]), use_threads(config.threads):
        shape: Any = extent.shape
        model = build_model(config.model.name, extent.classes, shape, seed=0, **options).to(device)
        last = getattr(MODELS.get(config.model.name), "channels_last", False) and len(shape) == 3
        layout = torch.channels_last if last else torch.contiguous_format
        model = model.to(memory_format=layout)  # type: ignore[call-overload]
        bf16 = config.precision == "bf16"
        whole = method.replay == "whole"
        capacity = config.memory.capacity if method.has_memory() else 0
        replayed = capacity if whole else method.draws * config.learner.replay_size
        learner = build_learner(config.learner.name, model, extent.classes, config.learner.options)
        rows = (config.learner.batch_size + replayed) * (1 + learner.views())

        def images(count: int) -> Tensor:
            return torch.rand(count, *shape, device=device).to(memory_format=layout)

        step = _seconds(lambda n: _step(model, images(n), bf16), rows, device)
        row = _seconds(lambda n: _predict(model, images(n), bf16), 512, device) / 512
        activations = rows * _activations(model, images(1))
    seconds = _passes(config, extent, method.rows, capacity, step, row)
    if config.devices and device.type == "cuda":
        seconds /= config.devices
    size, pixels = sum(p.numel() * p.element_size() for p in model.parameters()), math.prod(extent.shape)
    kept = size * (2 if config.learner.momentum else 1) + capacity * pixels
    history = config.total_epochs * extent.classes * 100
    memory = (extent.train + extent.test) * pixels + kept + size + activations
    how = f"{rows} rows a step, timed on {device.type}"
    return Estimate(seconds, memory, 2 * kept + history, how)


def extent_of(config: Config) -> Extent:
    """The size of a run's data set, without fetching it, and without decoding the images of a folder."""
    from wane.streams import DATASETS, Source
    from wane.training.run import load_data

    data = config.data
    row = DATASETS.get(data.name)
    if data.name in ROWS and isinstance(row, Source):
        train, test = ROWS[data.name]
        train = min(train, (data.per_class or train) * row.classes) - data.holdout * row.classes
        shape = (row.size[0], data.resolution, data.resolution) if data.resolution else row.size
        return Extent(max(train, row.classes), test, row.classes, shape)
    if data.name not in DATASETS and Path(data.name).is_dir():
        return _extent_of_folder(config)
    dataset = load_data(config)
    return Extent(len(dataset.train), len(dataset.test), dataset.num_classes, dataset.row_shape)


def _extent_of_folder(config: Config) -> Extent:
    """Files counted; all images are taken to be as large as the first."""
    from PIL import Image

    from wane.streams.image_files import image_formats

    data, root = config.data, Path(config.data.name)
    files = [path for path in sorted(root.rglob("*.*")) if path.is_file() and not path.name.startswith(".")]
    if not files:
        raise ValueError(f"{root} has no image file")
    classes = len({path.parent.name for path in files})
    test = sum(path.relative_to(root).parts[0] == "test" for path in files) or len(files) // 5
    train = len(files) - test - data.holdout * classes
    with Image.open(files[0], formats=image_formats()) as first:
        shape = (3, data.resolution, data.resolution) if data.resolution else (3, first.height, first.width)
    return Extent(max(classes, min(train, (data.per_class or train) * classes)), test, classes, shape)


def spelled_time(seconds: float) -> str:
    """A duration for people.

    >>> [spelled_time(s) for s in (12, 400, 9000, 900_000)]
    ['12 s', '7 min', '2.5 h', '10 days']
    """
    for unit, size, digits in (("days", 86_400, 0), ("h", 3_600, 1), ("min", 60, 0)):
        if seconds >= 2 * size or (unit == "min" and seconds >= size):
            return f"{seconds / size:.{digits}f} {unit}"
    return f"{seconds:.0f} s"


def spelled_bytes(count: float) -> str:
    """A size for people.

    >>> spelled_bytes(3_000_000), spelled_bytes(2_500_000_000)
    ('3 MB', '2.5 GB')
    """
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{max(1, round(count / 1e6))} MB"


def _passes(config: Config, extent: Extent, rows: str, capacity: int, step: float, row: float) -> float:
    """Seconds of all steps and evaluations of the stream, from those of one step and of one evaluated row."""
    tasks, every = config.num_tasks, config.record.eval_every
    seconds = 0.0
    for k in range(tasks):
        part = extent.train / tasks * (k + 1 if rows == "seen" else 1) + (capacity if rows == "task_and_memory" else 0)
        steps = math.ceil(part / config.learner.batch_size)
        evaluations = 1 + (steps // every if every else 0)
        seconds += steps * step + evaluations * row * extent.test * (k + 1) / tasks
    return config.learner.epochs * seconds


def _seconds(call: Callable[[int], None], rows: int, device: torch.device) -> float:
    """What `call(rows)` takes; of a slow one, fewer rows are timed and scaled up."""
    few = min(FEW, rows)
    call(few)  # the first call allocates and chooses kernels
    once = _timed(call, few, device)
    count = rows if once * rows / few < BUDGET else max(few, min(rows, int(few * BUDGET / once)))
    if count == few and once > BUDGET / 4:
        return once * rows / few
    times = sorted(_timed(call, count, device) for _ in range(3))
    return times[1] * rows / count  # the median: what else runs on the machine will slow the run, too


def _timed(call: Callable[[int], None], rows: int, device: torch.device) -> float:
    import torch

    began = time.perf_counter()
    call(rows)
    if device.type != "cpu":
        torch.accelerator.synchronize()
    return time.perf_counter() - began


def _step(model: nn.Module, images: Tensor, bf16: bool) -> None:
    import torch

    model.train()
    with torch.autocast(images.device.type, torch.bfloat16, enabled=bf16):
        logits = model(images)
    labels = torch.arange(len(images), device=images.device) % logits.shape[1]
    loss: Any = torch.nn.functional.cross_entropy(logits.float(), labels)
    loss.backward()
    for parameter in model.parameters():
        parameter.grad = None


def _predict(model: nn.Module, images: Tensor, bf16: bool) -> None:
    import torch

    model.eval()
    with torch.no_grad(), torch.autocast(images.device.type, torch.bfloat16, enabled=bf16):
        model(images)


def _activations(model: nn.Module, image: Tensor) -> int:
    """Bytes that a training step keeps of one row: the outputs of all layers."""
    import torch

    total = 0

    def add(_module: nn.Module, _inputs: Any, output: Any) -> None:
        nonlocal total
        total += output.numel() * output.element_size() if isinstance(output, torch.Tensor) else 0

    hooks = [layer.register_forward_hook(add) for layer in model.modules() if not list(layer.children())]
    _predict(model, image, False)
    for hook in hooks:
        hook.remove()
    return total
