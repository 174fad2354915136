"""A run whose folder is a URL: it runs in a scratch folder here, which is copied to the store as it goes.

Copied are all files that changed, the checkpoint last: after an epoch, if the last time was `EVERY` seconds ago, and at
the end. Who starts the run elsewhere begins with a copy of what is there, so at most that much is done over.

The lock is an object too. Not every object store can grant a name to exactly one of two; so whoever writes the lock
waits for a moment, and has it if it is still theirs then. Should two get through, one finds out at its next sign of
life and stops: time is lost, but nothing else, for both write the same. Clocks should agree within half a minute.
"""

from __future__ import annotations

import _thread
import json
import os
import socket
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from wane.runs.lock import BEAT, STALE, HeldError, LostError, Owner, hearing, is_dead

__all__ = ["EVERY", "mirrored", "object_owner"]

EVERY = 30.0  #: seconds between copies
SETTLE = 1.0  #: seconds after which a lock that was written is believed
LAST = (
    "checkpoint.previous.pt",
    "checkpoint.pt",
    "failed.json",
    "summary.json",
)  # copied after all else, in this order


@contextmanager
def mirrored(
    url: str, *, patience: float = 0.0, files: tuple[str, ...] | None = None
) -> Iterator[tuple[Path, Callable[[], None]]]:
    """A folder that holds what is at `url`, and a function to call after each epoch; copied back at the end.

    `files`: fetch these only.
    """
    import fsspec  # type: ignore[import-untyped, unused-ignore]

    fs, there = fsspec.core.url_to_fs(url)
    with _held(fs, there, url, patience) as is_ours, tempfile.TemporaryDirectory(prefix="wane-") as scratch:
        folder, copied = Path(scratch) / Path(there).name, {}
        folder.mkdir()
        for name in _names(fs, there) if files is None else files:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            fs.get_file(f"{there}/{name}", str(folder / name))
            copied[name] = _version(folder / name)
        last = time.monotonic()

        def push(always: bool = False) -> None:
            nonlocal last
            if not (always or time.monotonic() - last > EVERY) or not is_ours():
                return
            names = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
            for name in sorted(names, key=lambda name: LAST.index(name) if name in LAST else -1):
                version = _version(folder / name)
                if copied.get(name) != version and not name.startswith("."):
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
    """Who holds the lock at `path`, with the token of that lock; None if nobody alive does."""
    try:
        found = json.loads(fs.cat_file(path))
    except FileNotFoundError:
        return None
    known = Owner(found["host"], found["pid"])
    return None if time.time() - found["time"] > STALE or is_dead(known) else (known, found["token"])


@contextmanager
def _held(fs: Any, there: str, url: str, patience: float) -> Iterator[Callable[[], bool]]:
    """Hold the lock; inside, a function that tells whether it still is ours, and interrupts if it is not."""
    path, token, until = f"{there}/lock.json", uuid.uuid4().hex, time.monotonic() + patience

    def write() -> None:
        said = {"host": socket.gethostname(), "pid": os.getpid(), "token": token, "time": time.time()}
        fs.pipe_file(path, json.dumps(said).encode())

    while True:
        holder = object_owner(fs, path)
        if holder is None:
            write()
            time.sleep(SETTLE)
            holder = object_owner(fs, path)
        if holder is not None and holder[1] == token:
            break
        if holder is not None and time.monotonic() >= until:
            raise HeldError(f"{url} is being run by {holder[0]}: wait for it, or stop it there")
        time.sleep(1.0)

    stop, lost = threading.Event(), threading.Event()
    interruptible = threading.current_thread() is threading.main_thread()

    def is_ours() -> bool:
        if lost.is_set():
            return False
        holder = object_owner(fs, path)
        # who was suspended for long may find that another took over, or has even finished and is gone
        taken_over = holder[1] != token if holder else fs.exists(f"{there}/summary.json")
        if taken_over:
            lost.set()
            if interruptible:
                _thread.interrupt_main()
        return not lost.is_set()

    def beat() -> None:
        while not stop.wait(2 * BEAT):
            with suppress(OSError):  # a network that hiccups
                if is_ours():
                    write()

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        with hearing(lost):
            yield is_ours
    except KeyboardInterrupt:
        if lost.is_set():
            raise LostError(f"{url} was taken over by another process: it goes on there") from None
        raise
    finally:
        stop.set()
        thread.join()
        if not lost.is_set():
            fs.rm_file(path)


def _names(fs: Any, there: str) -> list[str]:
    fs.invalidate_cache()
    names = [file.removeprefix(there).strip("/") for file in fs.find(there)]
    return [name for name in names if not name.startswith("lock.")]


def _version(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_mtime_ns, found.st_size
