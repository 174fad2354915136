"""What the workers of every engine do: one run, under its lock, with a log; a failure is written down, not raised."""

from __future__ import annotations

import faulthandler
import json
import os
import socket
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from wane.errors import DamagedError, RunError
from wane.registry import Registry
from wane.runs.layout import FAILED, LOG, SUMMARY
from wane.runs.lock import HeldError, LostError, held
from wane.sweeps.engines import RUN, Job, Outcome

if TYPE_CHECKING:
    from wane.training.events import Listener
    from wane.training.session import Session

__all__ = ["carry_out", "do_job", "failure", "job_died", "report_failure", "use_threads"]


#: Listeners come as references, ``package.module:name``.
LISTENERS: Registry[Callable[[Path], Listener]] = Registry("listener", {})


#: What jobs do comes as a reference, too.
WORK: Registry[Callable[..., Outcome]] = Registry("work", {})


def do_job(job: Job, *, threads: int | None = None, retry: bool = False, patience: float = 0.0) -> Outcome:
    """Do what a job asks for; the arguments are those of `carry_out`."""
    do = WORK.find(job.work)
    return do(job.settings, job.place, threads=threads, retry=retry, patience=patience, listeners=job.listeners)


def job_died(job: Job, sentence: str) -> Outcome:
    """What became of a job whose worker died."""
    return report_failure(job.place, sentence) if job.work == RUN else Outcome("failed", sentence)


def use_threads(threads: int | None) -> None:
    """Give torch and Polars so many threads; None changes nothing."""
    if threads is None:
        return
    os.environ["OMP_NUM_THREADS"] = os.environ["POLARS_MAX_THREADS"] = str(threads)
    import torch

    torch.set_num_threads(threads)


def carry_out(
    settings: dict[str, Any],
    place: str,
    *,
    threads: int | None = None,
    retry: bool = False,
    patience: float = 0.0,
    listeners: Sequence[str] = (),
) -> Outcome:
    """Run a config in a run folder, or at the URL of one, or go on with it there.

    Args:
        settings: the complete config.
        place: a folder that every worker sees, or a URL of fsspec, where the run is mirrored (`wane.runs.remote`).
        threads: of torch and Polars.
        retry: also if it failed before.
        patience: seconds to wait for a lock that another holds, such as one whose machine died a moment ago.
        listeners: references to functions folder -> Listener, told how the run goes.
    """
    use_threads(threads)
    try:
        if "://" in place:
            from wane.runs.remote import mirrored

            with mirrored(place, patience=patience) as (folder, push):
                return _attempt(settings, folder, retry, listeners, push)
        if (Path(place) / SUMMARY).exists():
            return Outcome("done")
        with held(Path(place), patience=patience):
            return _attempt(settings, Path(place), retry, listeners)
    except (HeldError, LostError) as error:
        return Outcome("held", str(error))


def failure(folder: Path) -> str | None:
    """The sentence that says why a run failed; None if it did not."""
    from wane.runs.status import parse_failure

    path = folder / FAILED
    return parse_failure(path.read_bytes(), str(path)) if path.exists() else None


def report_failure(place: str, sentence: str) -> Outcome:
    """Write down that a worker died, unless the run is done or another process runs it by now."""
    from wane.errors import CheckpointError
    from wane.runs.store import statuses

    if any(status.state == "done" for status in statuses(place).values()):
        return Outcome("done")
    try:
        if "://" in place:
            from wane.runs.remote import mirrored

            with mirrored(place, files=()) as (folder, _):
                return _write_failure(folder, sentence)
        with held(Path(place)):
            return _write_failure(Path(place), sentence)
    except (HeldError, LostError) as error:
        return Outcome("held", str(error))
    except CheckpointError as error:
        return Outcome("failed", f"{sentence}; {error}")


def _attempt(
    settings: dict[str, Any],
    folder: Path,
    retry: bool,
    listeners: Sequence[str],
    after_epoch: Callable[[], None] | None = None,
) -> Outcome:
    from rich.console import Console

    from wane.runs.complete import complete
    from wane.runs.config import build_config
    from wane.training.progress import Progress
    from wane.training.run import OccupiedError, run_held

    if (folder / SUMMARY).exists():
        return Outcome("done")
    failed = failure(folder)
    if failed is not None and not retry:
        return Outcome("failed", failed)
    with (folder / LOG).open("a", buffering=1, encoding="utf-8") as log, _spoken_into(log):
        print(time.strftime("%Y-%m-%d %H:%M:%S"), f"process {os.getpid()} on {socket.gethostname()}")
        try:
            config = complete(build_config(settings))
            console = Console(file=log, force_terminal=False, width=200)
            told = [Progress(config.recipe, console=console), *(LISTENERS.find(name)(folder) for name in listeners)]
            if after_epoch is not None:
                told.append(_copying(after_epoch))  # last: what the others wrote is copied, too
            run_held(config, folder, listeners=told)
        except Exception as error:
            traceback.print_exc(file=log)
            said = " ".join(str(error).split())
            if isinstance(error, OccupiedError):
                return Outcome("failed", said)  # nothing is written down: what is in the folder did not fail
            plain = isinstance(error, ValueError | OSError | RunError)
            return _write_failure(folder, said if plain and said else f"{type(error).__name__}: {said}")
    return Outcome("done")


def _copying(push: Callable[[], None]) -> Listener:
    """A listener that copies the run folder to a store far away after every epoch."""
    from wane.training.events import Listener

    class Copying(Listener):
        def epoch_done(self, session: Session, task: int, epoch: int) -> None:
            push()

    return Copying()


@contextmanager
def _spoken_into(log: TextIO) -> Iterator[None]:
    """Whatever is printed goes to the log, also the stack if the interpreter itself crashes."""
    ours = not faulthandler.is_enabled()
    if ours:
        faulthandler.enable(log)
    try:
        with redirect_stdout(log), redirect_stderr(log):
            yield
    finally:
        if ours:
            faulthandler.disable()


def _write_failure(folder: Path, sentence: str) -> Outcome:
    from wane.runs.writing import write_atomically

    said = {"error": sentence, "traceback": LOG, "host": socket.gethostname(), "time": time.time()}
    with suppress(DamagedError):  # where the sums are damaged nothing can be written; the outcome says why
        write_atomically(folder / FAILED, lambda file: file.write(json.dumps(said, indent=2).encode()))
    return Outcome("failed", sentence)
