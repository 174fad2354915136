"""A run whose folder is a URL: it runs in a scratch folder here, which is copied to the store as it goes.

Copied are all files that changed, the checkpoint last: after an epoch, if the last time was `EVERY` seconds ago, and at
the end. A process that starts the run elsewhere begins with a copy of what is there, so at most that much is done over.

The lock is an object too. Not every object store can grant a name to exactly one of two processes; so a process that
writes the lock waits for a moment, and has it if it is still its own then. Should two get through, one finds out at
its next sign of life and stops: time is lost, but nothing else, for both write the same. Clocks should agree within
half a minute. What `wane.runs.writing` promises of folders is not promised here: a process that lost its run notices
before the next object that it copies, but one that is suspended in the act may still put that object, and there are
no checksums.
"""

from __future__ import annotations

import json
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from wane.files import parse_json
from wane.runs.layout import CHECKPOINT, FAILED, LOCK, PREVIOUS, REMOTE_LOCK, SUMMARY, SUMS
from wane.runs.lease import BEAT, STALE, Owner, is_dead, leased, parse_owner
from wane.runs.place import open_place

__all__ = ["EVERY", "mirrored", "object_owner"]

EVERY = 30.0  #: seconds between copies
SETTLE = 1.0  #: seconds after which a lock that was written is believed
LAST = (PREVIOUS, CHECKPOINT, FAILED, SUMMARY)  # copied after everything else, in this order


@contextmanager
def mirrored(
    url: str, *, patience: float = 0.0, files: tuple[str, ...] | None = None
) -> Iterator[tuple[Path, Callable[[], None]]]:
    """A folder that holds what is at `url`, and a function to call after each epoch; copied back at the end.

    `files`: fetch these only.
    """
    fs, there = open_place(url)
    lease_of = leased(ObjectLock(fs, there, url), patience=patience, beat=2 * BEAT)
    with lease_of as lease, tempfile.TemporaryDirectory(prefix="wane-") as scratch:
        folder, copied = Path(scratch) / Path(there).name, {}
        folder.mkdir()
        for name in _names(fs, there) if files is None else files:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            fs.get_file(f"{there}/{name}", str(folder / name))
            copied[name] = _version(folder / name)
        if fs.exists(f"{there}/{SUMS}"):
            fs.rm_file(f"{there}/{SUMS}")  # of a copy; what is written now it does not know
        last = time.monotonic()

        def push(always: bool = False) -> None:
            nonlocal last
            if not (always or time.monotonic() - last > EVERY) or not lease.check():
                return
            names = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
            for name in sorted(names, key=lambda name: LAST.index(name) if name in LAST else -1):
                version = _version(folder / name)
                if not lease.check():
                    return
                if copied.get(name) != version and not name.startswith(".") and name != SUMS:
                    fs.put_file(str(folder / name), f"{there}/{name}")
                    copied[name] = version
            for gone in [name for name in copied if not (folder / name).exists()]:
                fs.rm_file(f"{there}/{gone}")
                del copied[gone]
            last = time.monotonic()

        try:
            yield folder, push
        finally:
            push(always=True)


def object_owner(fs: Any, path: str) -> tuple[Owner, str] | None:
    """Who holds the lock at `path`, with the token of that lock; None if no process that is alive does."""
    try:
        text = fs.cat_file(path)
    except FileNotFoundError:
        return None
    known = parse_owner(text)
    if known is None:
        return None  # damaged: no process will give a sign of life for it
    said = parse_json(text)
    try:
        silent = abs(time.time() - float(said["time"])) > STALE
    except (KeyError, TypeError, ValueError):
        return None
    return None if silent or is_dead(known) else (known, str(said.get("token")))


class ObjectLock:
    """The lock of a run at a URL."""

    def __init__(self, fs: Any, there: str, url: str) -> None:
        self.fs, self.there, self.place = fs, there, url
        self.path, self.token = f"{there}/{REMOTE_LOCK}", uuid.uuid4().hex

    def holder(self) -> Owner | None:
        """Who holds it."""
        found = object_owner(self.fs, self.path)
        return found and found[0]

    def claim(self) -> bool:
        """Write it, and see whether it stays."""
        self.beat()
        time.sleep(SETTLE)
        found = object_owner(self.fs, self.path)
        return found is not None and found[1] == self.token

    def is_ours(self) -> bool:
        """Whether no other process took over: one that did may even have finished and be gone."""
        found = object_owner(self.fs, self.path)
        return found[1] == self.token if found else not self.fs.exists(f"{self.there}/{SUMMARY}")

    def beat(self) -> None:
        """Write it, with the time of now."""
        said = {**Owner.me()._asdict(), "token": self.token, "time": time.time()}
        self.fs.pipe_file(self.path, json.dumps(said).encode())

    def release(self) -> None:
        """Remove it."""
        self.fs.rm_file(self.path)


def _names(fs: Any, there: str) -> list[str]:
    fs.invalidate_cache()
    names = [file.removeprefix(there).strip("/") for file in fs.find(there)]
    return [name for name in names if not name.startswith(LOCK) and name != SUMS]


def _version(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_mtime_ns, found.st_size
