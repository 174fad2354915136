"""At most one process runs a folder, on this machine or on any other that shares the file system.

A lock is a file `lock.N`; its owner is written in it, its time is the owner's last sign of life. The highest N counts.
Who takes over from a dead owner creates `lock.N+1`, which the file system grants to exactly one of those who try; and
who wakes up to find a higher number has lost the lock, and stops. No torch here.
"""

from __future__ import annotations

import _thread
import contextlib
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from wane.errors import CheckpointError, RunError

__all__ = ["BEAT", "STALE", "HeldError", "LostError", "Owner", "check_held", "hearing", "held", "is_dead", "owner"]

#: Seconds between signs of life, and without one until the owner is taken for dead (also on a network file system).
BEAT, STALE = 5.0, 60.0


class HeldError(OSError):
    """Someone else is at this run."""


class LostError(RunError):
    """Someone else took this run over, because this process gave no sign of life for a while."""


class Owner(NamedTuple):
    """Who runs a folder."""

    host: str
    pid: int

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


@contextmanager
def held(folder: Path, *, patience: float = 0.0) -> Iterator[None]:
    """Hold the lock of `folder` (made if need be); a HeldError names who has it, after `patience` seconds of waiting.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, held(Path(folder)):
    ...     owner(Path(folder)).pid == os.getpid()
    True
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = _take(folder, time.monotonic() + patience)
    stop, lost = threading.Event(), threading.Event()
    interruptible = threading.current_thread() is threading.main_thread()
    beat = threading.Thread(target=_beat, args=(path, stop, lost, interruptible), daemon=True)
    beat.start()
    try:
        with hearing(lost):
            yield
    except KeyboardInterrupt:
        if lost.is_set():
            now = owner(folder)
            raise LostError(f"{folder} was taken over by {now or 'another process'}, because this one was not heard of "
                            f"for {STALE:.0f} s: nothing is lost, it goes on there") from None  # fmt: skip
        raise
    finally:
        stop.set()
        beat.join()
        _release(path)


def check_held(folder: Path) -> None:
    """A LostError if another process is at the run, or has finished it: before something is written over its work.

    Who was suspended learns of it by the next beat only, seconds after waking up.
    """
    now = owner(folder)
    if now not in (None, Owner(socket.gethostname(), os.getpid())) or (folder / "summary.json").exists():
        raise LostError(f"{folder} was taken over by {now or 'another process'}: nothing is lost, what it did is kept")


_losses: list[threading.Event] = []


@contextmanager
def hearing(lost: threading.Event) -> Iterator[None]:
    """See to it that the loss of a lock interrupts, also in the background of a script, where SIGINT is ignored.

    There `_thread.interrupt_main` would do nothing. Ctrl-C stays ignored.
    """
    main = threading.current_thread() is threading.main_thread()
    deaf = main and signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    _losses.append(lost)
    if deaf:
        signal.signal(signal.SIGINT, _interrupt_if_lost)
    try:
        yield
    finally:
        _losses.remove(lost)
        if deaf:
            signal.signal(signal.SIGINT, signal.SIG_IGN)


def _interrupt_if_lost(_number: int, _frame: object) -> None:
    if any(lost.is_set() for lost in _losses):
        raise KeyboardInterrupt


def owner(folder: Path, *, now: float | None = None) -> Owner | None:
    """Who runs the folder; None if nobody does, or did but gave no sign of life for `STALE` seconds."""
    path = folder / f"lock.{_latest(folder)}"
    try:
        last, text = path.stat().st_mtime, path.read_text(encoding="utf-8")
    except OSError:
        return None
    if last == 0 or (time.time() if now is None else now) - last > STALE:
        return None
    try:
        found = json.loads(text)
        known = Owner(found["host"], found["pid"])
    except (ValueError, KeyError):
        return Owner("an unknown host", 0)  # created a moment ago, and not yet written
    return None if is_dead(known) else known


def is_dead(known: Owner) -> bool:
    """Whether this machine knows that the process is no more; of another machine nothing is known."""
    if known.host != socket.gethostname() or os.name != "posix":
        return False
    try:
        os.kill(known.pid, 0)
        # killed, but not yet noticed by its parent
        return Path(f"/proc/{known.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in "ZX"
    except ProcessLookupError:
        return True
    except (OSError, IndexError):  # someone else's process, or a system without /proc
        return False


def _take(folder: Path, until: float) -> Path:
    while True:
        latest = _latest(folder)
        holder = owner(folder, now=_clock(folder)) if latest else None
        if holder is not None and time.monotonic() >= until:
            raise HeldError(f"{folder} is being run by {holder}: wait for it, or stop it there")
        mine = folder / f"lock.{latest + 1}"
        if holder is None and _created(mine) and _latest(folder) == latest + 1:
            for older in folder.glob("lock.[0-9]*"):
                if older != mine:
                    older.unlink(missing_ok=True)
            return mine
        time.sleep(0.1 if holder is None else min(1.0, max(0.0, until - time.monotonic())))


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


def _release(path: Path) -> None:
    """Give the lock back. The file stays while the run is not done: numbers must not start over under someone's feet.

    Once it is done they may, for whoever gets the lock then finds the summary; so may those of a folder without a run.
    """
    folder = path.parent
    with contextlib.suppress(FileNotFoundError):
        if (folder / "summary.json").exists() or not (folder / "config.toml").exists():
            path.unlink()
        elif _latest(folder) == _number(path):
            os.utime(path, (0, 0))  # needs no room on the disk


def _beat(path: Path, stop: threading.Event, lost: threading.Event, interruptible: bool) -> None:
    while not stop.wait(BEAT):
        try:
            os.utime(path)
            taken_over = _latest(path.parent) > _number(path)
        except FileNotFoundError:
            taken_over = True
        except OSError:
            continue  # a network that hiccups
        if taken_over:
            lost.set()
            if interruptible:
                _thread.interrupt_main()
            return


def _clock(folder: Path) -> float:
    """The time by the clock that also stamps signs of life: on a network file system, the server's."""
    scratch = folder / f".lock.{os.getpid()}.{threading.get_ident()}.tmp"
    try:
        scratch.touch()
        return scratch.stat().st_mtime
    except OSError:
        return time.time()
    finally:
        scratch.unlink(missing_ok=True)


def _latest(folder: Path) -> int:
    return max(map(_number, folder.glob("lock.[0-9]*")), default=0)


def _number(path: Path) -> int:
    return int(path.suffix[1:])
