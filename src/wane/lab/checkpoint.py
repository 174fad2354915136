"""One file, written atomically at the end of every epoch, that loads without executing anything.

The file before it is kept as `checkpoint.previous`: should the newest be damaged from outside, the run goes on from
there and, being deterministic, ends the same.
"""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from wane.files import read_whole, replace_file
from wane.lab.errors import RunError
from wane.lab.lock import check_held

if TYPE_CHECKING:
    import polars

__all__ = ["CheckpointError", "add_rows", "load_checkpoint", "save_checkpoint", "write_atomically"]

NAME, PREVIOUS = "checkpoint.pt", "checkpoint.previous.pt"


class CheckpointError(RunError):
    """A checkpoint, or another file of a run, that cannot be read or written; says what to do."""


def save_checkpoint(folder: Path, state: dict[str, Any]) -> None:
    """Write `state`; whatever happens meanwhile, a whole checkpoint is in the folder."""
    newest, previous = folder / NAME, folder / PREVIOUS

    def keep_previous() -> None:
        if newest.exists():
            os.replace(newest, previous)

    write_atomically(newest, lambda file: torch.save(state, file), before_replace=keep_previous)


def load_checkpoint(folder: Path) -> dict[str, Any] | None:
    """The newest whole checkpoint; None if the run has none yet."""
    candidates = [path for path in (folder / NAME, folder / PREVIOUS) if path.exists()]
    problems = []
    for path in candidates:
        try:
            state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        except Exception as error:
            problems.append(f"{path.name}: {_first_line(error)}")
        else:
            if path.name == PREVIOUS:  # or the next save would put a damaged newest in the place of this good one
                os.replace(path, folder / NAME)
            return state
    if problems:
        raise CheckpointError(f"no checkpoint in {folder} can be read ({'; '.join(problems)}): restore one, or delete "
                              "them to start the run over")  # fmt: skip
    return None


def write_atomically(path: Path, write: Any, before_replace: Any = None) -> None:
    """Push what `write` writes of a run to the disk as a scratch file, and put that in the place of `path` in one move.

    Unless the run was lost to another process meanwhile: then it is an error, and what that one wrote stays.
    """
    buffer = io.BytesIO()  # torch and Polars have errors of their own for a full disk: let them write to memory
    write(buffer)
    check_held(path.parent)
    try:
        replace_file(path, buffer.getvalue(), before_replace=before_replace)
    except OSError as error:
        raise CheckpointError(f"{path} could not be written ({error.strerror}): make room and run the same command "
                              "again; it goes on from the last checkpoint") from error  # fmt: skip


def add_rows(path: Path, new: polars.DataFrame, *, step: int) -> None:
    """Add the rows of a step to a table. Rows of this or a later step, left by a killed attempt, are replaced."""
    import polars as pl

    if path.exists():
        new = pl.concat([pl.read_parquet(read_whole(path)).filter(pl.col("step") < step), new])
    write_atomically(path, new.write_parquet)


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
