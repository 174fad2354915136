"""Processes of our own on this machine: how they are started, that they end with us, and what their end says."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from typing import Any

__all__ = ["PRELOAD", "end_with_parent", "obituary", "start", "start_context", "use_environment"]

#: Imported once, not in every process (optimisers import _dynamo). None of them may start a thread, as Polars does:
#: threads do not survive the fork.
PRELOAD = ["torch._dynamo", "torchmetrics", "wane.training.loop", "wane.training.run", "wane.sweeps.engines.worker"]

#: How often a server that dies is replaced until its death counts.
RETRIES = 5


def start_context(*preload: str) -> Any:
    """Where processes come from: forked from a server that has torch imported, which is quick, where there is fork.

    `preload`: more modules for the server to import, if it does not run yet.
    """
    if os.name != "posix":
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*PRELOAD, *preload])
    return context


def start(process: Any) -> None:
    """Start a process of such a context; a server that died meanwhile, perhaps while it imported torch, is replaced."""
    for _ in range(RETRIES):
        try:
            process.start()
            return
        except (EOFError, ConnectionError):  # of the server, which the next attempt finds dead
            time.sleep(0.1)
    process.start()


def use_environment(of_parent: dict[str, str]) -> None:
    """In a process that was started: the environment as the parent has it now, not as the server has it."""
    os.environ.clear()
    os.environ.update(of_parent)


def end_with_parent() -> None:
    """In a process that was started: end at once when the process that started it ends, for whatever reason."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: Any) -> None:
    parent.join()
    os._exit(1)


def obituary(code: int | None) -> str:
    """What an exit code says.

    >>> obituary(-9), obituary(1)
    ('was killed by SIGKILL, as it is when memory runs out', 'ended with exit code 1')
    """
    if code is not None and code < 0:
        name = signal.Signals(-code).name
        return f"was killed by {name}" + (", as it is when memory runs out" if name == "SIGKILL" else "")
    return f"ended with exit code {code}"
