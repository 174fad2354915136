"""The settings of whole runs that are done both here and by Mammoth's own code, on the real CIFAR-100, reduced."""

from __future__ import annotations

from typing import Any

METHODS = ("er", "er_ace", "derpp", "icarl")
SEEDS = tuple(range(8))
TASKS, PER_CLASS, RESOLUTION, PADDING = 5, 40, 16, 2
EPOCHS, BATCH, REPLAY, CAPACITY = 6, 32, 32, 500
WIDTH = 8
#: Learning rates; iCaRL's binary cross-entropy, a mean over all outputs, needs a larger one.
RATES = {"er": 0.1, "er_ace": 0.1, "derpp": 0.1, "icarl": 2.0}
OPTIONS: dict[str, dict[str, Any]] = {"derpp": {"alpha": 0.3, "beta": 0.5}, "icarl": {"weight_decay": 1e-5}}


def config_of(name: str, seed: int) -> dict[str, Any]:
    """A run as settings of wane."""
    return {
        "seed": seed,
        "device": "cpu",
        "threads": 1,
        "data": {"name": "cifar100", "tasks": TASKS, "per_class": PER_CLASS, "resolution": RESOLUTION,
                 "padding": PADDING, "flip": True},
        "model": {"name": "cnn", "width": WIDTH},
        "learner": {"name": name, "epochs": EPOCHS, "batch_size": BATCH, "replay_size": REPLAY, "lr": RATES[name],
                    "options": OPTIONS.get(name, {})},
        "memory": {"capacity": CAPACITY},
    }  # fmt: skip
