"""At most one process runs a folder, on this machine or on any other that shares the file system.

A lock is a file `lock.N`; its owner is written in it, its time is the owner's last sign of life. The highest N
counts. A process that takes over from a dead owner creates `lock.N+1`, which the file system grants to exactly one of
those that try; and a process that wakes up to find a higher number has lost the lock, and stops. What it cannot do
until it notices is write: its folder `.writing-TOKEN` was taken from it, see `wane.runs.writing`. Everyone makes that
folder before looking for those of others, so that of two who believe to hold the run one at least has lost its
folder. No torch here.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from wane.errors import CheckpointError, DamagedError
from wane.runs.layout import LOCK, PREVIOUS, STAGING, SUMMARY, SUMS
from wane.runs.lease import BEAT, STALE, HeldError, LostError, Owner, is_dead, is_silent, leased, parse_owner
from wane.runs.reading import read_file
from wane.runs.sums import parse_sums
from wane.runs.writing import RunFiles, discard, fence, remove, staging_in, writing

__all__ = ["BEAT", "STALE", "HeldError", "LostError", "Owner", "held", "is_dead", "owner", "tidy"]


@contextmanager
def held(folder: Path, *, patience: float = 0.0) -> Iterator[RunFiles]:
    """Hold the lock of `folder` (made if need be); a HeldError names who has it, after `patience` seconds of waiting.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, held(Path(folder)):
    ...     owner(Path(folder)).pid == os.getpid()
    True
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CheckpointError(f"{folder} could not be made ({error.strerror}): give another place") from error
    lock = FileLock(folder)
    with leased(lock, patience=patience, beat=BEAT), writing(folder, lock.staging, lambda: owner(folder)) as files:
        yield files


def tidy(folder: Path) -> None:
    """Clear away what a process left that was killed after its run was done; nothing if another holds the run."""
    with contextlib.suppress(HeldError, CheckpointError, LostError, DamagedError, FileNotFoundError):
        names = os.listdir(folder)
        left = [name for name in names if name == PREVIOUS or name.startswith((STAGING, LOCK))]
        if SUMMARY not in names or not (left or _is_unsettled(folder)):
            return
        read_file(folder, SUMMARY)  # a damaged run is left as it is: whoever reads it says so
        with held(folder) as files:
            remove(folder / PREVIOUS)
            files.settle()


def _is_unsettled(folder: Path) -> bool:
    """Whether the sums still list what a file was before: the process was stopped when it had moved the last one."""
    return any(len(sums) > 1 for sums in parse_sums((folder / SUMS).read_bytes(), str(folder / SUMS)).values())


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
        self.staging = folder  # where its holder writes, once we are that
        self.free = 0  # the number that nobody holds, as `holder` found

    def holder(self) -> Owner | None:
        """Who holds it."""
        self.free = _latest(self.folder)
        path = self.folder / f"{LOCK}{self.free}"
        if not self.free:
            return None
        # our own clock first: the other needs a file in the folder
        return _owner(path, time.time()) or _owner(path, _clock(self.folder))

    def claim(self) -> bool:
        """Create the number after the one that nobody holds: whoever took that over meanwhile has created it."""
        number = self.free + 1
        self.path = self.folder / f"{LOCK}{number}"
        try:
            self.staging = staging_in(self.folder)
        except OSError as error:
            raise _not_written(self.folder, error) from error
        try:
            if _created(self.path):
                if _latest(self.folder) == number:
                    fence(self.folder, self.staging)
                    for older in _locks(self.folder):
                        if _number(older) < number:
                            older.unlink(missing_ok=True)
                    if self.staging.is_dir():
                        return True
                self.path.unlink(missing_ok=True)
        except BaseException:
            discard(self.staging)
            raise
        discard(self.staging)
        return False

    def is_ours(self) -> bool:
        """Whether there is no higher number, and nobody took the folder that we write in."""
        return self.staging.is_dir() and self.path.exists() and _latest(self.folder) == _number(self.path)

    def beat(self) -> None:
        """Touch the file; needs no room on the disk."""
        os.utime(self.path)

    def release(self) -> None:
        """Give it back. It is moved, so that it stays if it is no longer ours."""
        os.replace(self.path, self.staging / self.path.name)
        discard(self.staging)


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
        raise _not_written(path, error) from error
    return True


def _not_written(path: Path, error: OSError) -> CheckpointError:
    return CheckpointError(f"{path} could not be written ({error.strerror}): make room, or see to it that you may "
                           "write there, and run the same command again")  # fmt: skip


def _clock(folder: Path) -> float:
    """The time by the clock that also stamps signs of life: on a network file system, the server's."""
    try:
        scratch = staging_in(folder)  # should we be killed now, the next holder clears it away with others of its kind
    except OSError:
        return time.time()
    try:
        return scratch.stat().st_mtime
    except OSError:
        return time.time()
    finally:
        with contextlib.suppress(OSError):
            scratch.rmdir()


def _locks(folder: Path) -> list[Path]:
    return [path for path in folder.glob(f"{LOCK}[0-9]*") if re.fullmatch(r"\d{1,18}", path.suffix[1:])]


def _latest(folder: Path) -> int:
    return max(map(_number, _locks(folder)), default=0)


def _number(path: Path) -> int:
    return int(path.suffix[1:])
