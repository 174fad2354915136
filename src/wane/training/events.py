"""Who is told how a run goes: displays, loggers, whoever copies the run folder. None of them changes the run."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wane.training.session import Session

__all__ = ["Events", "Listener"]


class Listener:
    """Told of a run as it goes; override what you need. An error that is raised here stops the run."""

    #: Whether `run_ended` is also wanted for a run that was done before this call; its folder is then locked.
    hears_of_done_runs: bool = False

    def run_started(self, session: Session) -> None:
        """The run begins, or goes on: `session.state.position` says where."""

    def step_done(self, session: Session, rows: int) -> None:
        """A step of the optimiser was done, on this many rows."""

    def epoch_done(self, session: Session, task: int, epoch: int) -> None:
        """An epoch was trained and evaluated, and its files are written; both numbers count from 0."""

    def run_ended(self, folder: Path, summary: dict[str, Any] | None) -> None:
        """The run is done; without a summary it was stopped, or failed. Called exactly once, whatever happened."""

    def said(self, text: str) -> None:
        """Another listener has something to tell the user."""


class Events:
    """All listeners of a run, told in order."""

    def __init__(self, listeners: Iterable[Listener] = ()) -> None:
        self.listeners = tuple(listeners)

    def run_started(self, session: Session) -> None:
        """See `Listener`."""
        for listener in self.listeners:
            listener.run_started(session)

    def step_done(self, session: Session, rows: int) -> None:
        """See `Listener`."""
        for listener in self.listeners:
            listener.step_done(session, rows)

    def epoch_done(self, session: Session, task: int, epoch: int) -> None:
        """See `Listener`."""
        for listener in self.listeners:
            listener.epoch_done(session, task, epoch)

    def run_ended(self, folder: Path, summary: dict[str, Any] | None) -> None:
        """See `Listener`; all are told, also where one of them raises an error."""
        with ExitStack() as stack:
            for listener in reversed(self.listeners):
                stack.callback(listener.run_ended, folder, summary)

    def say(self, text: str) -> None:
        """A line for the user."""
        for listener in self.listeners:
            listener.said(text)
