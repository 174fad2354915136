"""What a person sees while a run goes on: a live bar on a terminal, plain lines elsewhere, nothing when quiet."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from wane.measures.history import History
from wane.training.state import Position

__all__ = ["Progress"]


class Progress:
    """Told of steps and epochs by the loop. It only looks: a run is the same with or without it."""

    def __init__(
        self, title: str, *, epochs_per_task: int, quiet: bool = False, console: Console | None = None
    ) -> None:
        self.console = console or Console(stderr=True, quiet=quiet)
        self.title, self.epochs_per_task = title, epochs_per_task
        self.bar: Bar | None = None
        self.names: tuple[str, ...] = ()
        self.images, self.since = 0, time.perf_counter()
        #: Called with the history after every epoch: loggers, and whoever copies the run folder.
        self.after_epoch: list[Callable[[History], None]] = []
        if self.console.is_terminal and not quiet:
            first, last = (TextColumn(f"{{task.{part}}}", markup=False) for part in ("description", "fields[note]"))
            columns = (first, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), last)
            self.bar = Bar(*columns, console=self.console)

    def __enter__(self) -> Self:
        if self.bar is not None:
            self.bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.bar is not None:
            self.bar.stop()

    def start(self, position: Position, *, epochs: int, names: tuple[str, ...]) -> None:
        """The run begins, or goes on."""
        self.names = names
        done = position.task * self.epochs_per_task + position.epoch
        if done:
            self.say(f"{self.title}: going on after {done} of {epochs} epochs")
        if self.bar is not None:
            self.bar.add_task(self.title, total=epochs, completed=done, note="")
        self.since = time.perf_counter()

    def step_done(self, images: int) -> None:
        """A step trained on so many images."""
        self.images += images

    def epoch_done(self, task: int, epoch: int, history: History) -> None:
        """An epoch was trained and evaluated."""
        now = time.perf_counter()
        speed, self.images, self.since = self.images / (now - self.since), 0, now
        note = f"{speed:,.0f} images/s, {describe(history, self.names)}"
        if self.bar is not None:
            self.bar.update(self.bar.task_ids[0], advance=1, description=f"task {task + 1}", note=note)
        else:
            self.say(f"task {task + 1} epoch {epoch + 1}/{self.epochs_per_task}: {note}")
        for call in self.after_epoch:
            call(history)

    def say(self, text: str) -> None:
        """A line, as it is."""
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)


def describe(history: History, names: tuple[str, ...]) -> str:
    """Mean accuracy of the seen classes, and the class whose Log-TLR fell most since the evaluation before."""
    *before, last = history.tail(2, split="test")
    text = f"accuracy {history.column(last, 'accuracy').mean():.1%}"
    if before:
        common, i, j = np.intersect1d(before[0].classes, last.classes, return_indices=True)
        change = history.column(last, "log_tlr")[j] - history.column(before[0], "log_tlr")[i]
        worst = int(change.argmin())
        if change[worst] < 0:
            text += f", falling most: {names[common[worst]]} (log_tlr {change[worst]:+.2f})"
    return text
