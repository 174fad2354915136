"""Writing the files of a run: whole or not at all, and only by the process that holds the run."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wane.errors import CheckpointError
from wane.files import read_whole, replace_file
from wane.runs.lock import check_held

if TYPE_CHECKING:
    import polars

__all__ = ["add_rows", "write_atomically"]


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
