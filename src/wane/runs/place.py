"""Where runs are: a folder here, or a URL that fsspec can reach. No torch here."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from wane.runs.settings import ConfigError

__all__ = ["absolute", "is_local", "is_url", "open_place", "place_of"]


def place_of(where: str | os.PathLike[str]) -> str:
    """A folder or URL as text; `Path` makes s3:/x of s3://x, which is put right.

    >>> place_of(Path("s3://lab/runs")), place_of(Path("runs/er"))
    ('s3://lab/runs', 'runs/er')
    """
    text = os.fspath(where)
    mangled = re.match(r"([a-z][a-z0-9+.-]+):/(?!/)", text)
    if mangled and not Path(text).exists():
        return f"{mangled[1]}://{text[mangled.end() :]}"
    return text


def is_url(where: str | os.PathLike[str]) -> bool:
    """Whether it is a URL.

    >>> is_url("memory://runs"), is_url("runs")
    (True, False)
    """
    return "://" in place_of(where)


def absolute(where: str | os.PathLike[str]) -> str:
    """Where a store is, whatever the working folder: a path, also of `file://`, or a URL.

    >>> absolute("file:///data/runs/"), absolute("memory://runs/")
    ('/data/runs', 'memory://runs')
    """
    fs, base = open_place(where)
    return os.path.abspath(base) if is_local(fs) else place_of(where).rstrip("/")


def open_place(where: str | os.PathLike[str]) -> tuple[Any, str]:
    """The file system of a folder or URL, and the path there."""
    import fsspec  # type: ignore[import-untyped, unused-ignore]

    try:
        fs, base = fsspec.core.url_to_fs(place_of(where))
    except ImportError as error:
        raise ConfigError(f"{where} needs another package ({error}): install it, or give a folder") from None
    return fs, str(base).rstrip("/")


def is_local(fs: Any) -> bool:
    """Whether a file system of fsspec is that of this machine."""
    return "file" in fs.protocol
