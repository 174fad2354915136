"""Weights & Biases: online, or with `WANDB_MODE=offline` in the run folder, to be uploaded by `wandb sync` later."""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import wandb

__all__ = ["RunLogger"]


class RunLogger:
    """A run of the project WANDB_PROJECT. Steps that it has are dropped by W&B itself, whose steps only grow."""

    def __init__(self, folder: Path, settings: Mapping[str, Any], *, id: str, step: int) -> None:
        self.id = id or uuid.uuid4().hex[:8]
        data = Path(os.environ.get("WANDB_DIR") or folder)
        self.run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "wane"), name=folder.name, id=self.id, resume="allow",
            config=dict(settings), dir=data, reinit="create_new",  # a run of the user's own goes on beside it
            settings=wandb.Settings(console="off", silent=True),
        )  # fmt: skip
        self.where = f"wandb sync {self.run.settings.sync_dir}" if self.run.offline else str(self.run.url)

    def log_values(self, step: int, values: Mapping[str, float]) -> None:
        """A row of W&B's history, complete."""
        self.run.log(dict(values), step=step, commit=True)

    def log_summary(self, step: int, values: Mapping[str, float]) -> None:
        """Into the summary of the run, beside the last value of every series."""
        self.run.summary.update(dict(values))

    def log_figures(self, step: int, figures: Mapping[str, Path]) -> None:
        """A row of their own, after the last: that one is complete."""
        self.run.log({f"figures/{name}": wandb.Image(str(path)) for name, path in figures.items()})

    def close(self, *, done: bool) -> None:
        """Wait until all is written or uploaded."""
        self.run.finish(exit_code=0 if done else 1)
