"""The right to run a folder: taken by one process, kept by signs of life, lost by silence, and given back.

What is the same wherever the lock is; `wane.runs.lock` keeps it in files, `wane.runs.remote` in an object at a URL. No
torch here.
"""

from __future__ import annotations

import _thread
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, Protocol

from wane.errors import RunError
from wane.files import parse_json

__all__ = ["BEAT", "STALE", "HeldError", "Lease", "LostError", "Owner", "is_dead", "is_silent", "leased", "parse_owner"]

#: Seconds between signs of life, and without one until the owner is taken for dead (also on a network file system).
BEAT, STALE = 5.0, 60.0


class HeldError(OSError):
    """Another process runs this run."""


class LostError(RunError):
    """Another process took this run over, because this one gave no sign of life for a while."""


class Owner(NamedTuple):
    """The process that runs a folder."""

    host: str
    pid: int

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"

    @classmethod
    def me(cls) -> Owner:
        """This process."""
        return cls(socket.gethostname(), os.getpid())


class Lock(Protocol):
    """Where a lock is kept."""

    place: str  # for messages

    def holder(self) -> Owner | None:
        """Who holds it; None if no process that is alive does."""

    def claim(self) -> bool:
        """Try to take a lock that nobody holds; whether it is ours now."""

    def is_ours(self) -> bool:
        """Whether no other process took it meanwhile."""

    def beat(self) -> None:
        """Give a sign of life."""

    def release(self) -> None:
        """Give back a lock that is ours."""


class Lease:
    """A lock that is held, with a thread that gives signs of life."""

    def __init__(self, lock: Lock) -> None:
        self.lock = lock
        self.lost = threading.Event()
        self._stop = threading.Event()
        self._interruptible = threading.current_thread() is threading.main_thread()

    def check(self) -> bool:
        """Whether the lock is still ours; interrupts the main thread, once, if it is not."""
        if not self.lost.is_set() and not self.lock.is_ours():
            self.lost.set()
            if self._interruptible:
                _thread.interrupt_main()
        return not self.lost.is_set()

    def beat_every(self, seconds: float) -> None:
        """Give signs of life until the lock is lost or given back."""
        while not self._stop.wait(seconds):
            with suppress(OSError):  # the network failed for a moment
                if not self.check():
                    return
                self.lock.beat()

    def end(self, thread: threading.Thread) -> None:
        """Stop the signs of life, and give the lock back if it is ours."""
        self._stop.set()
        thread.join()
        if not self.lost.is_set():
            with suppress(OSError):  # it becomes stale by itself; whatever ended the run matters more
                self.lock.release()


@contextmanager
def leased(lock: Lock, *, patience: float, beat: float) -> Iterator[Lease]:
    """Hold a lock; a HeldError names who has it, after `patience` seconds of waiting."""
    _take(lock, time.monotonic() + patience)
    lease = Lease(lock)
    thread = threading.Thread(target=lease.beat_every, args=(beat,), daemon=True)
    thread.start()
    try:
        with _interrupted_by(lease.lost):
            yield lease
    except KeyboardInterrupt:
        if not lease.lost.is_set():
            raise
        raise LostError(
            f"{lock.place} was taken over by {lock.holder() or 'another process'}, because this one gave no sign of "
            f"life for {STALE:.0f} s: nothing is lost, it goes on there"
        ) from None
    finally:
        lease.end(thread)


def _take(lock: Lock, until: float) -> None:
    while True:
        holder = lock.holder()
        if holder is None and lock.claim():
            return
        if holder is not None and time.monotonic() >= until:
            raise HeldError(f"{lock.place} is being run by {holder}: wait for it, or stop it there")
        time.sleep(0.1 if holder is None else min(1.0, max(0.0, until - time.monotonic())))


def parse_owner(text: str | bytes) -> Owner | None:
    """The owner that a lock names; None if it names none.

    >>> parse_owner('{"host": "here", "pid": 7}'), parse_owner(""), parse_owner('{"host": 3, "pid": -1}')
    (Owner(host='here', pid=7), None, None)
    """
    try:
        found = parse_json(text)
        host, pid = found["host"], found["pid"]
    except (ValueError, KeyError, TypeError):
        return None
    return Owner(host, pid) if isinstance(host, str) and type(pid) is int and 0 < pid < 2**31 else None


def is_silent(last: float, now: float) -> bool:
    """Whether a sign of life is too old to count; one from the future does not count either.

    >>> is_silent(100.0, now=110.0), is_silent(100.0, now=200.0), is_silent(1e12, now=200.0)
    (False, True, True)
    """
    return abs(now - last) > STALE


def is_dead(known: Owner) -> bool:
    """Whether this machine knows that the process has ended; about other machines nothing is known."""
    if known.host != socket.gethostname() or os.name != "posix":
        return False
    try:
        os.kill(known.pid, 0)
        # killed, but not yet noticed by its parent
        return Path(f"/proc/{known.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in "ZX"
    except ProcessLookupError:
        return True
    except (OSError, IndexError):  # another user's process, or a system without /proc
        return False


_losses: list[threading.Event] = []


@contextmanager
def _interrupted_by(lost: threading.Event) -> Iterator[None]:
    """Let the loss of a lock interrupt, also in the background of a script, where SIGINT is ignored.

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
