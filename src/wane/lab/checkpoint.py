"""One file, written atomically at the end of every epoch, that loads without executing anything.

The file before it is kept as `checkpoint.previous`: should the newest be damaged from outside, the run goes on from
there and, being deterministic, ends the same.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

__all__ = ["CheckpointError", "load_checkpoint", "save_checkpoint", "write_atomically"]

NAME, PREVIOUS = "checkpoint.pt", "checkpoint.previous.pt"


class CheckpointError(RuntimeError):
    """A checkpoint that cannot be read or written; says what to do."""


def save_checkpoint(folder: Path, state: dict[str, Any]) -> None:
    """Write `state`; whatever happens meanwhile, a whole checkpoint is in the folder."""
    newest, previous = folder / NAME, folder / PREVIOUS

    def keep_previous() -> None:
        if newest.exists():
            os.replace(newest, previous)

    try:
        write_atomically(newest, lambda file: torch.save(state, file), before_replace=keep_previous)
    except (OSError, RuntimeError) as error:  # torch reports a full disk as a RuntimeError
        raise CheckpointError(
            f"the checkpoint could not be written to {folder} ({_first_line(error)}): make room and run the same "
            "command again; it goes on from the checkpoint before"
        ) from error


def load_checkpoint(folder: Path) -> dict[str, Any] | None:
    """The newest whole checkpoint; None if the run has none yet."""
    candidates = [path for path in (folder / NAME, folder / PREVIOUS) if path.exists()]
    problems = []
    for path in candidates:
        try:
            state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
            return state
        except Exception as error:
            problems.append(f"{path.name}: {_first_line(error)}")
    if problems:
        raise CheckpointError(f"no checkpoint in {folder} can be read ({'; '.join(problems)}): restore one, or delete "
                              "them to start the run over")  # fmt: skip
    return None


def write_atomically(path: Path, write: Any, before_replace: Any = None) -> None:
    """Let `write` fill a scratch file, push it to the disk, and put it in the place of `path` in one move."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with scratch.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        if before_replace is not None:
            before_replace()
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
