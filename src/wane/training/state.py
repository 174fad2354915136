"""Everything that changes during a run, in one place: what a checkpoint holds, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from wane.learners import Learner, build_learner
from wane.measures.history import Evaluation, History
from wane.memory import Memory
from wane.models import build_model, find_model
from wane.runs.config import Config, ConfigError
from wane.softmax.registry import SIGNALS
from wane.streams import Dataset, Stream
from wane.training.groups import new_history
from wane.training.replay_log import ReplayLog

__all__ = [
    "Position",
    "State",
    "build_state",
    "clean_slots",
    "make_optimiser",
    "pick_device",
    "unpack",
    "use_threads",
]

#: Of the checkpoint's content; raised when a checkpoint of an earlier version of wane can no longer be read.
VERSION = 2

#: One generator for each kind of choice, so that a change in one (another augmentation, say) leaves the others alone.
CHOICES = ("order", "augment", "keep", "draw", "method")


@dataclass
class Position:
    """Where the run is: the task and epoch to do next, and how many steps of the optimiser were done."""

    task: int = 0
    epoch: int = 0
    step: int = 0


@dataclass
class State:
    """A run between two epochs."""

    learner: Learner
    memory: Memory | None
    history: History
    generators: dict[str, torch.Generator]
    optimiser: torch.optim.Optimizer | None
    position: Position
    channels_last: bool
    replay_log: ReplayLog = field(default_factory=ReplayLog)
    seconds: float = 0.0  # spent in training and evaluation, over all sittings

    def state_dict(self) -> dict[str, Any]:
        """Tensors and plain values only, so that it loads with `weights_only=True`."""
        return {
            "version": VERSION,
            "learner": self.learner.state_dict(),
            "memory": None if self.memory is None else self.memory.state_dict(),
            "history": _pack(self.history),
            "generators": {name: g.get_state() for name, g in self.generators.items()},
            "global_generator": torch.get_rng_state(),
            "optimiser": None if self.optimiser is None else self.optimiser.state_dict(),
            "position": vars(self.position),
            "replay_log": self.replay_log.state_dict(),
            "seconds": self.seconds,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go back to where `state` was taken. The learner must have begun the same tasks before."""
        self.learner.load_state_dict(state["learner"])
        if self.memory is not None:
            self.memory.load_state_dict(state["memory"])
        self.history.evaluations, self.history.signals = unpack(state["history"])
        self.history.costs = state["history"].get("costs")
        for name, g in self.generators.items():
            if name in state["generators"]:  # checkpoints of earlier versions had no choices of methods
                g.set_state(state["generators"][name])
        torch.set_rng_state(state["global_generator"])
        if self.optimiser is not None:
            self.optimiser.load_state_dict(state["optimiser"])
        self.position = Position(**state["position"])
        self.replay_log.load_state_dict(state["replay_log"])
        self.seconds = state["seconds"]


def build_state(config: Config, stream: Stream, model: nn.Module | None, device: torch.device) -> State:
    """The state of a run that has not begun."""
    dataset: Dataset = stream.dataset
    channels_last = False
    if model is None:
        options = config.model.model_dump(exclude_none=True, exclude={"name"})
        model = build_model(config.model.name, dataset.num_classes, dataset.row_shape, seed=config.seed, **options)
        channels_last = find_model(config.model.name).channels_last and dataset.is_images
    learner = build_learner(config.learner.name, model, dataset.num_classes, config.learner.options)
    learner.to(device)
    if channels_last:
        learner.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    memory = None
    if learner.has_memory():
        policy = learner.policy or config.memory.policy
        replayed = config.memory.capacity - clean_slots(config)
        memory = Memory(replayed, dataset.row_shape, dataset.num_classes, policy=policy,
                        extras=learner.stored_extras(), device=device, dtype=dataset.train.images.dtype)  # fmt: skip
    seeds = np.random.SeedSequence(config.seed).generate_state(len(CHOICES), dtype=np.uint32)
    generators = {name: torch.Generator().manual_seed(int(seed)) for name, seed in zip(CHOICES, seeds, strict=True)}
    return State(learner, memory, new_history(stream), generators, None, Position(), channels_last)


def clean_slots(config: Config) -> int:
    """How many slots are never replayed."""
    memory = config.memory
    return 0 if memory.holdout is None or memory.holdout_replayed else round(memory.capacity * memory.holdout)


def make_optimiser(config: Config, learner: Learner) -> torch.optim.Optimizer:
    """A new SGD for a new task."""
    settings = config.learner
    parameters = [p for p in learner.parameters() if p.requires_grad]
    return torch.optim.SGD(parameters, lr=settings.lr, momentum=settings.momentum, weight_decay=settings.weight_decay)


def pick_device(name: str) -> torch.device:
    """The device of that name, if it is there; `auto` is the accelerator, or else the CPU.

    >>> pick_device("cpu")
    device(type='cpu')
    """
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if name == "auto":
        return accelerator or torch.device("cpu")
    count = torch.accelerator.device_count() if accelerator else 0
    known = ["cpu", *([accelerator.type, *(f"{accelerator.type}:{i}" for i in range(count))] if accelerator else [])]
    if name not in known:
        raise ConfigError(f"device = {name!r} is not on this machine: set it to auto, or one of {', '.join(known)}")
    return torch.device(name)


@contextmanager
def use_threads(count: int | None) -> Iterator[None]:
    """Inside, torch has `count` threads; afterwards as many as before. None changes nothing."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _pack(history: History) -> dict[str, Any]:
    """A history as a few tensors: a checkpoint of a long run must not hold thousands of small ones."""
    e = history.evaluations
    return {
        "head": torch.tensor([(x.step, x.task, len(x.classes)) for x in e], dtype=torch.int64).reshape(-1, 3),
        "splits": [x.split for x in e],
        "signals": list(history.signals),
        "costs": history.costs,
        "classes": _joined([x.classes for x in e], np.int64),
        "n": _joined([x.n for x in e], np.int64),
        "values": _joined([x.values.reshape(-1) for x in e], np.float64),
        # the number of bins of each evaluation, and what is in them
        "bins": torch.tensor([0 if x.bins is None else x.bins.shape[1] for x in e], dtype=torch.int64),
        "bin_values": _joined([x.bins.reshape(-1) for x in e if x.bins is not None], np.float64),
    }


def unpack(packed: dict[str, Any]) -> tuple[list[Evaluation], tuple[str, ...]]:
    """The evaluations, and the signals of their columns; checkpoints that do not name them hold the first ones."""
    lengths = packed["head"][:, 2].tolist()
    columns = [torch.split(packed[name], lengths) for name in ("classes", "n")]
    signals = tuple(packed.get("signals", tuple(SIGNALS)[:8]))
    values = torch.split(packed["values"].reshape(sum(lengths), len(signals)), lengths)
    bins = packed.get("bins", torch.zeros(len(lengths), dtype=torch.int64)).tolist()
    sizes = [3 * count * length for count, length in zip(bins, lengths, strict=True)]
    in_bins = torch.split(packed.get("bin_values", torch.zeros(0)), sizes) if lengths else ()
    evaluations = [
        Evaluation(int(step), int(task), split, classes.numpy(), n.numpy(), v.numpy(),
                   b.reshape(len(n), count, 3).numpy() if count else None)
        for (step, task, _), split, classes, n, v, count, b in zip(
            packed["head"].tolist(), packed["splits"], *columns, values, bins, in_bins, strict=True
        )
    ]  # fmt: skip
    return evaluations, signals


def _joined(parts: list[Any], dtype: Any) -> Tensor:
    return torch.from_numpy(np.concatenate(parts) if parts else np.empty(0, dtype))
