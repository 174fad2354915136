"""Loggers show a run in a tool of its own: TensorBoard, Weights & Biases, MLflow. None changes a run, or can stop it.

A logger is a module with a class `RunLogger` of the kind below; adding one is a module and a line here. Where a tool
keeps its data is set in the tool's own way (`WANDB_MODE`, `MLFLOW_TRACKING_URI`, ...); wane has no setting for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from wane.registry import Registry

__all__ = ["LOGGERS", "Logger", "LoggerError", "load_logger"]

LOGGERS = Registry(
    "logger",
    {
        "tensorboard": "event files in the run folder, for `tensorboard --logdir runs`",
        "wandb": "Weights & Biases: a run of the project WANDB_PROJECT, or wane",
        "mlflow": "MLflow: a run of the experiment MLFLOW_EXPERIMENT_NAME, or wane",
    },
)


class LoggerError(OSError):
    """A logger failed: its server is gone, say. Training goes on."""


class Logger(Protocol):
    """The run as a tool has it, open for writing.

    It is opened with the run folder, the settings by dotted name, and, to go on with a run that it has, the `id` that
    it then gave and the last step of which all is known to have been sent, or -1. What it has beyond that step is sent
    again and must not count twice.
    """

    id: str  # the tool's id of the run
    where: str  # to look at it: a URL, or a command

    def __init__(self, folder: Path, settings: Mapping[str, Any], *, id: str, step: int) -> None: ...

    def log_values(self, step: int, values: Mapping[str, float]) -> None:
        """What was measured at a step; steps come in order, each once."""

    def log_summary(self, step: int, values: Mapping[str, float]) -> None:
        """The final values; `step` is the last one."""

    def log_figures(self, step: int, figures: Mapping[str, Path]) -> None:
        """PNG files by name."""

    def close(self, *, done: bool) -> None:
        """Everything is written out; `done` says whether the run came to its end."""


def load_logger(name: str) -> type[Logger]:
    """The logger of that name; an error says what to install for it.

    >>> load_logger("tensorbord")
    Traceback (most recent call last):
    ...
    wane.registry.UnknownNameError: unknown logger 'tensorbord'; did you mean 'tensorboard'? Known: tensorboard, ...
    """
    LOGGERS[name]
    try:
        logger: type[Logger] = import_module(f"wane.loggers.{name}").RunLogger
    except ModuleNotFoundError as error:
        raise ValueError(f"logger {name!r} needs the package {error.name}: pip install 'wane[{name}]'") from None
    return logger
