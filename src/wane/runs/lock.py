"""At most one process runs a folder, on this machine or on any other that shares the file system.

A lock is a file `lock.N`; its owner is written in it, its time is the owner's last sign of life. The highest N counts.
A process that takes over from a dead owner creates `lock.N+1`, which the file system grants to exactly one of those
that try; and a process that wakes up to find a higher number has lost the lock, and stops. No torch here.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from wane.errors import CheckpointError
from wane.runs.layout import CONFIG, LOCK, SUMMARY
from wane.runs.lease import BEAT, STALE, HeldError, LostError, Owner, is_dead, is_silent, leased, parse_owner

__all__ = ["BEAT", "STALE", "HeldError", "LostError", "Owner", "check_held", "held", "is_dead", "owner"]


@contextmanager
def held(folder: Path, *, patience: float = 0.0) -> Iterator[None]:
    """Hold the lock of `folder` (made if need be); a HeldError names who has it, after `patience` seconds of waiting.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, held(Path(folder)):
    ...     owner(Path(folder)).pid == os.getpid()
    True
    """
    folder.mkdir(parents=True, exist_ok=True)
    with leased(FileLock(folder), patience=patience, beat=BEAT):
        yield


def check_held(folder: Path) -> None:
    """A LostError if another process runs the folder, or has finished the run: before its work is written over.

    A process that was suspended learns that otherwise only by its next beat, seconds after waking up.
    """
    now = owner(folder)
    if now not in (None, Owner.me()) or (folder / SUMMARY).exists():
        raise LostError(f"{folder} was taken over by {now or 'another process'}: nothing is lost, what it did is kept")


def owner(folder: Path, *, now: float | None = None) -> Owner | None:
    """Who runs the folder; None if no process does, or one did but gave no sign of life for `STALE` seconds."""
    return _owner(folder / f"{LOCK}{_latest(folder)}", time.time() if now is None else now)


def _owner(path: Path, now: float) -> Owner | None:
    try:
        last, text = path.stat().st_mtime, path.read_bytes()
    except OSError:
        return None
    if is_silent(last, now):
        return None
    known = parse_owner(text)
    if known is None:
        return Owner("an unknown host", 0)  # created a moment ago, and not yet written
    return None if is_dead(known) else known


class FileLock:
    """The lock of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.place = folder, str(folder)
        self.path = folder  # of the lock that is ours, once one is
        self.free = 0  # the number that nobody holds, as `holder` found

    def holder(self) -> Owner | None:
        """Who holds it."""
        self.free = _latest(self.folder)
        return _owner(self.folder / f"{LOCK}{self.free}", _clock(self.folder)) if self.free else None

    def claim(self) -> bool:
        """Create the number after the one that nobody holds: whoever took that over meanwhile has created it."""
        number = self.free + 1
        self.path = self.folder / f"{LOCK}{number}"
        if not _created(self.path) or _latest(self.folder) != number:
            return False
        for older in _locks(self.folder):
            if older != self.path:
                older.unlink(missing_ok=True)
        return True

    def is_ours(self) -> bool:
        """Whether there is no higher number, and this one is still there."""
        return self.path.exists() and _latest(self.folder) == _number(self.path)

    def beat(self) -> None:
        """Touch the file; needs no room on the disk."""
        os.utime(self.path)

    def release(self) -> None:
        """Give it back. The file stays while the run is not done: numbers must not start over while others count on.

        Once the run is done they may, for the next process finds the summary; so may those of a folder without a run.
        """
        if (self.folder / SUMMARY).exists() or not (self.folder / CONFIG).exists():
            self.path.unlink()
        elif _latest(self.folder) == _number(self.path):
            os.utime(self.path, (0, 0))


def _created(path: Path) -> bool:
    """Create the lock, unless it is there."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(json.dumps({"host": socket.gethostname(), "pid": os.getpid()}))
    except FileExistsError:
        return False
    except OSError as error:
        with contextlib.suppress(OSError):
            path.unlink()
        raise CheckpointError(f"{path} could not be written ({error.strerror}): make room, or see to it that you may "
                              "write there, and run the same command again") from error  # fmt: skip
    return True


def _clock(folder: Path) -> float:
    """The time by the clock that also stamps signs of life: on a network file system, the server's."""
    scratch = folder / f".{LOCK}{os.getpid()}.{threading.get_ident()}.tmp"
    try:
        scratch.touch()
        return scratch.stat().st_mtime
    except OSError:
        return time.time()
    finally:
        with contextlib.suppress(OSError):
            scratch.unlink(missing_ok=True)


def _locks(folder: Path) -> list[Path]:
    return [path for path in folder.glob(f"{LOCK}[0-9]*") if re.fullmatch(r"\d{1,18}", path.suffix[1:])]


def _latest(folder: Path) -> int:
    return max(map(_number, _locks(folder)), default=0)


def _number(path: Path) -> int:
    return int(path.suffix[1:])
