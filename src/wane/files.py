"""Writing a file so that it is whole or as it was before, whatever happens meanwhile; and reading it so."""

import io
import json
import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

__all__ = ["parse_json", "read_whole", "replace_file", "write_page"]


def read_whole(path: Path) -> io.BytesIO:
    """A file as it is at this moment, for readers that open a path more than once.

    Polars does: it would take the footer of one table and the pages of the next, if a run wrote in between.
    """
    return io.BytesIO(path.read_bytes())


def parse_json(data: str | bytes) -> Any:
    """What JSON says; whatever is wrong with it is a ValueError, also brackets too deep for the reader.

    >>> parse_json(b"[1, 2]")
    [1, 2]
    >>> parse_json("[" * 100_000)
    Traceback (most recent call last):
    ...
    ValueError: it is nested too deep
    """
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def replace_file(path: Path, data: bytes | Callable[[IO[bytes]], object]) -> None:
    """Push `data` to the disk as a scratch file beside `path`, and put that in its place in one move.

    `data` may be a function that writes to the file it is given: what is large need not be in memory twice.
    """
    # a name of its own: another thread, or a process of the same number on another machine, may be at the same file
    scratch = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        with scratch.open("wb") as file:
            if isinstance(data, bytes):
                file.write(data)
            else:
                data(file)
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)


def write_page(path: str | os.PathLike[str], data: bytes) -> Path:
    """Write what someone asked for by name; a name that cannot be is one clear sentence. Returns where it is."""
    target = Path(path)
    if os.path.isdir(target):  # unlike Path.is_dir, raises nothing
        raise IsADirectoryError(f"{target} is a folder: give the name of a file in it")
    if not os.path.isdir(target.parent):
        raise NotADirectoryError(f"{target} cannot be written, as {target.parent} is not a folder: make it first")
    try:
        replace_file(target, data)
    except OSError as error:
        raise OSError(f"{target} cannot be written ({error.strerror}): choose another place") from error
    return target
