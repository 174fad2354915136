"""Carry out a sweep: what is missing is handed to an engine, and what other processes run is waited for."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from wane.escaping import visible
from wane.runs.config import ConfigError, to_toml
from wane.runs.lock import tidy
from wane.runs.place import is_url
from wane.runs.store import Status, absolute, statuses, write_config
from wane.sweeps.engines import Job, Options, Outcome, load_engine
from wane.sweeps.plan import Planned

__all__ = ["parse_over", "plan_jobs", "run_sweep"]

POLL = 2.0  # seconds between looks at runs of other processes


def run_sweep(
    planned: Iterable[Planned],
    root: str | Path,
    *,
    engine: str = "local",
    options: Options | None = None,
    console: Console | None = None,
    listeners: Sequence[str] = (),
) -> dict[str, Outcome]:
    """Run what is missing below `root`, a folder or URL; returns how each run ended, done before or now.

    A run that fails does not stop the rest. A run that another process runs is waited for, and taken over if that
    process dies. Stopped at any moment, the same call goes on. `listeners` are references
    to functions of the run folder, such as ``"wane.cli.listeners:tensorboard"``.
    """
    options = options or Options()
    run_all = load_engine(engine)
    jobs = plan_jobs(planned, root, listeners)
    for job in jobs:
        write_config(job.place, to_toml_of(job))
    ended: dict[str, Outcome] = {}
    todo = list(jobs)
    with Shown(jobs, root, console or Console(stderr=True, highlight=False)) as shown:
        first = True
        while True:
            found = statuses(root)
            for job in todo:
                status = found.get(job.name, Status("waiting"))
                if status.state == "done" or (status.state == "failed" and not (options.retry_failed and first)):
                    ended[job.name] = Outcome("done" if status.state == "done" else "failed", status.note)
                    shown.ended(job, ended[job.name], before=first)
                    if status.state == "done" and not is_url(job.place):
                        tidy(Path(job.place))
            todo = [job for job in todo if job.name not in ended]
            if not todo:
                return {job.name: ended[job.name] for job in jobs}
            ready = [job for job in todo if found.get(job.name, Status("waiting")).state != "running"]
            for job, outcome in run_all(ready, options) if ready else ():
                if outcome.state != "held":
                    ended[job.name] = outcome
                    shown.ended(job, outcome)
            todo, first = [job for job in todo if job.name not in ended], False
            if todo:
                time.sleep(POLL)


def plan_jobs(planned: Iterable[Planned], root: str | Path, listeners: Sequence[str] = ()) -> list[Job]:
    """The jobs of a sweep below `root`."""
    base = absolute(root)
    return [
        Job(
            run.name,
            run.config.model_dump(mode="json", exclude_none=True),
            f"{base}/{run.name}",
            run.config.total_epochs,
            tuple(listeners),
        )
        for run in planned
    ]


def to_toml_of(job: Job) -> str:
    """The config of a job, as its run will write it."""
    from wane.runs.config import build_config

    return to_toml(build_config(job.settings))


def parse_over(texts: Sequence[str]) -> dict[str, list[Any]]:
    """`seed=0,1,2` as a key with its values: TOML, or plain strings.

    >>> parse_over(["seed=0,1", "learner.trend.signal=log_tlr, loss", "model.hidden=[8],[16,16]"])
    {'seed': [0, 1], 'learner.trend.signal': ['log_tlr', 'loss'], 'model.hidden': [[8], [16, 16]]}
    """
    import tomllib

    over: dict[str, list[Any]] = {}
    for text in texts:
        key, equals, values = text.partition("=")
        if not equals or not key.strip() or not values.strip():
            raise ConfigError(f"cannot read --over {text!r}: write it as section.key=a,b,c, such as seed=0,1,2")
        if key.strip() in over:
            raise ConfigError(f"--over {key.strip()} is given twice: give all its values at once")
        try:
            over[key.strip()] = tomllib.loads(f"v = [{values}]")["v"]
        except (tomllib.TOMLDecodeError, RecursionError):  # strings without quotes among them
            over[key.strip()] = [_value(part) for part in values.split(",")]
    return over


def _value(text: str) -> Any:
    import tomllib

    try:
        return tomllib.loads(f"v = {text}")["v"]
    except (tomllib.TOMLDecodeError, RecursionError):
        return text.strip()


class Shown:
    """What a person sees of a sweep; read from the run folders, so the same for every engine."""

    def __init__(self, jobs: Sequence[Job], root: str | Path, console: Console) -> None:
        self.jobs = {job.name: job for job in jobs}
        self.root, self.console = root, console
        self.outcomes: dict[str, Outcome] = {}
        self.bar = Progress(TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(),
                            TextColumn("epochs, left:"), TimeRemainingColumn(), console=console)  # fmt: skip
        self.task = self.bar.add_task("", total=sum(job.epochs for job in jobs))
        self.lines: list[Text] = []
        self.live = Live(get_renderable=self._picture, console=console, refresh_per_second=4)
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self.live.start()
        self.thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop.set()
        self.thread.join()
        if self.console.is_terminal:
            self.live.stop()

    def ended(self, job: Job, outcome: Outcome, *, before: bool = False) -> None:
        """A run ended, or had ended before."""
        self.outcomes[job.name] = outcome
        if before and outcome.state == "done":
            return  # many, perhaps, and nothing new
        what = outcome.state if not outcome.note else f"{outcome.state}: {outcome.note}"
        self._say(f"[{len(self.outcomes)}/{len(self.jobs)}] {job.name}: {what}")

    def _say(self, text: str) -> None:
        self.console.print(visible(text), markup=False, emoji=False, highlight=False, soft_wrap=True)

    def _look(self) -> None:
        """Keep an eye on the run folders, more rarely the longer a look takes."""
        since, said, pause = time.monotonic(), 0.0, 1.0
        while not self.stop.wait(pause):
            began = time.monotonic()
            try:
                found = {name: status for name, status in statuses(self.root).items() if name in self.jobs}
            except OSError:
                continue  # a file was removed while it was read, or the network failed for a moment
            pause = max(1.0, 20 * (time.monotonic() - began))
            running = {name: status for name, status in found.items() if status.state == "running"}
            epochs = sum(self.jobs[n].epochs if s.state in ("done", "failed") else s.epochs for n, s in found.items())
            ended = sum(status.state in ("done", "failed") for status in found.values())
            self.bar.update(self.task, completed=epochs, description=f"{ended} of {len(self.jobs)} runs")
            self.lines = [Text(f"  {n}: {s.words(self.jobs[n].epochs)}") for n, s in running.items()]
            if not self.console.is_terminal and began - max(since, said) > 60:
                said = began
                seconds = self.bar.tasks[0].time_remaining
                left = f", about {seconds / 60:.0f} min left" if seconds else ""
                self._say(f"{ended} of {len(self.jobs)} runs ended, {len(running)} running{left}")

    def _picture(self) -> Group:
        return Group(*self.lines, self.bar)
