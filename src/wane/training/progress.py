"""What a person sees while a run goes on: a live bar on a terminal, plain lines elsewhere, nothing when quiet."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from wane.escaping import visible
from wane.training.events import Listener
from wane.training.session import Session

__all__ = ["Progress"]


class Progress(Listener):
    """A display. It only looks: a run is the same with or without it."""

    def __init__(self, title: str = "", *, quiet: bool = False, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True, quiet=quiet)
        self.title, self.quiet = title, quiet
        self.bar: Bar | None = None
        self.rows, self.since = 0, time.perf_counter()

    def run_started(self, session: Session) -> None:
        """Show where the run is."""
        config, position = session.config, session.state.position
        title, epochs = visible(self.title or config.recipe), len(session.stream) * config.learner.epochs
        done = position.task * config.learner.epochs + position.epoch
        if done:
            self.said(f"{title}: going on after {done} of {epochs} epochs")
        if self.console.is_terminal and not self.quiet:
            first, last = (TextColumn(f"{{task.{part}}}", markup=False) for part in ("description", "fields[note]"))
            columns = (first, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), last)
            self.bar = Bar(*columns, console=self.console)
            self.bar.start()
            self.bar.add_task(title, total=epochs, completed=done, note="")
        self.since = time.perf_counter()

    def step_done(self, session: Session, rows: int) -> None:
        """Count the rows, for the speed."""
        self.rows += rows

    def epoch_done(self, session: Session, task: int, epoch: int) -> None:
        """Show the speed, the accuracy and the class that falls most."""
        now = time.perf_counter()
        speed, self.rows, self.since = self.rows / (now - self.since), 0, now
        note = visible(f"{speed:,.0f} images/s, {describe(session)}")
        if self.bar is not None:
            self.bar.update(self.bar.task_ids[0], advance=1, description=f"task {task + 1}", note=note)
        else:
            self.said(f"task {task + 1} epoch {epoch + 1}/{session.config.learner.epochs}: {note}")

    def run_ended(self, folder: Path, summary: dict[str, Any] | None) -> None:
        """Leave the terminal as it was."""
        if self.bar is not None:
            self.bar.stop()
            self.bar = None

    def said(self, text: str) -> None:
        """A line, as it is."""
        self.console.print(visible(text), highlight=False, markup=False, emoji=False, soft_wrap=True)


def describe(session: Session) -> str:
    """Mean accuracy of the seen classes, and the class whose Log-TLR fell most since the evaluation before."""
    *before, last = session.state.history.tail(2, split=session.split)
    column = session.state.history.column
    text = f"accuracy {np.nanmean(column(last, 'accuracy')):.1%}"
    if before:
        common, i, j = np.intersect1d(before[0].classes, last.classes, return_indices=True)
        change = np.nan_to_num(column(last, "log_tlr")[j] - column(before[0], "log_tlr")[i])
        worst = int(change.argmin())
        if change[worst] < 0:
            name = session.stream.group_names[common[worst]]
            text += f", falling most: {name} (log_tlr {change[worst]:+.2f})"
    return text
