"""The one way in which a file of a run is read: whole, and only if it is as it was written. No torch here."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from wane.errors import DamagedError
from wane.runs.layout import CHECKPOINT, CONFIG, FAILED, LOGGED, PREVIOUS, SUMMARY, SUMS
from wane.runs.place import is_url, open_place
from wane.runs.sums import ABSENT, parse_sums, sum_of

__all__ = ["check_sum", "damage", "has_lost_its_config", "read_file"]

#: How often to look again while a run is being written: each look follows a write, so more are hardly needed.
LOOKS = 50
#: What may be deleted by hand: the run goes on, or starts over, and ends the same.
MAY_LACK = (CHECKPOINT, PREVIOUS, SUMMARY, FAILED)


def read_file(place: str | os.PathLike[str], name: str) -> bytes | None:
    """A file of the run at a folder or URL; None if there is none. One that is not as it was written is a DamagedError.

    The sums are read before and after: if they did not change, the file was not being replaced meanwhile, and what
    was read must be among what they list.
    """
    get = _getter(place)
    before = get(SUMS)
    for _ in range(LOOKS):
        data = get(name)
        if before is None:
            return data
        sums = parse_sums(before, f"{os.fspath(place)}/{SUMS}")
        if check_sum(name, sum_of(data), sums.get(name)):
            return data
        after = get(SUMS)
        if after == before:
            raise DamagedError(damage(f"{os.fspath(place)}/{name}", name, missing=data is None))
        before = after
    raise OSError(f"{os.fspath(place)}/{name} is replaced faster than it can be read: try again")


def has_lost_its_config(place: str | os.PathLike[str]) -> bool:
    """Whether a folder with sums is that of a run without the file that tells so: it must not pass for no run."""
    try:
        read_file(place, CONFIG)
    except DamagedError:
        return True
    return False


def check_sum(name: str, found: str, listed: tuple[str, ...] | None) -> bool:
    """Whether a sum is right for a file, given those that are listed for it."""
    if found == ABSENT and (name in MAY_LACK or name.startswith(LOGGED.partition("*")[0])):
        return True
    return found in (listed or (ABSENT,))


def damage(path: str, name: str, *, missing: bool) -> str:
    """The sentence for a file that is missing, or is not as it was written."""
    what = "is missing" if missing else "is not as it was written (damaged, or changed by hand)"
    if name == CONFIG:
        return f"{path} {what}: restore it; to run other settings, give another --out"
    return f"{path} {what}: restore it, or delete {SUMMARY} and the checkpoints beside it and run the same config again"


def _getter(place: str | os.PathLike[str]) -> Callable[[str], bytes | None]:
    """Reads a file as it is at this moment."""
    remote = is_url(place)
    fs: Any
    fs, base = open_place(place) if remote else (None, "")
    folder = Path(place)

    def get(name: str) -> bytes | None:
        try:
            if not remote:
                return (folder / name).read_bytes()
            data: bytes = fs.cat_file(f"{base}/{name}")
            return data
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            return None

    return get
