"""Bring a logger up to date with a run folder: after every epoch, at the end, after a kill, or long afterwards.

What it was sent is written down in the run folder, in `logged.NAME.json`. So there is one way of sending, whatever the
occasion: the part of the history that is not yet written down, and, once, the summary and the figures of a run that is
done.
"""

from __future__ import annotations

import json
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from wane.files import parse_json
from wane.loggers import Logger, LoggerError, load_logger
from wane.loggers.series import series_of, summary_values
from wane.runs.folder import RunFolder
from wane.runs.layout import logged
from wane.runs.reading import read_file
from wane.runs.store import cells
from wane.runs.writing import write_atomically
from wane.training.events import Listener

if TYPE_CHECKING:
    from wane.measures.history import History
    from wane.training.session import Session

__all__ = ["Figures", "Follow", "send_run"]

#: Draws the figures of a run folder into a scratch folder.
Figures = Callable[[Path, Path], dict[str, Path]]


class Sent(NamedTuple):
    """What a logger is known to have of a run."""

    id: str = ""  # the tool's id of the run
    step: int = -1  # the history up to here; -1 for nothing, as the untrained model is at step 0
    done: bool = False  # the summary and the figures, too


def read_sent(folder: Path, name: str) -> Sent:
    """What a logger is known to have of the run in a folder; a LoggerError if that cannot be told."""
    try:
        data = read_file(folder, logged(name))
        sent = Sent() if data is None else Sent(**parse_json(data))
        if [type(value) for value in sent] != [str, int, bool] or sent.step < -1:
            raise ValueError
    except (ValueError, TypeError):
        raise LoggerError(f"{folder / logged(name)} does not say what {name} has of the run: delete it, and all is "
                          "sent again") from None  # fmt: skip
    return sent


class Follower:
    """One logger on one run folder. Whatever goes wrong in the logger is a LoggerError."""

    def __init__(self, name: str, folder: Path, class_names: Sequence[str]) -> None:
        self.name, self.folder, self.class_names = name, folder, class_names
        self.make = load_logger(name)
        self.path = folder / logged(name)
        self.sent = read_sent(folder, name)
        self.logger: Logger | None = None

    def open(self) -> Logger:
        """The logger, opened if it is not; its id is written down at once."""
        if self.logger is None:
            settings = {
                key: value for key, value in cells(RunFolder(self.folder).settings).items() if value is not None
            }
            with self._guarded():
                self.logger = self.make(self.folder, settings, id=self.sent.id, step=self.sent.step)
                self._write_down(id=self.logger.id)
        assert self.logger is not None
        return self.logger

    def catch_up(self, history: History) -> None:
        """Send what the logger lacks of the history."""
        logger = self.open()
        new: dict[int, dict[str, float]] = {}
        for evaluation in history.evaluations:
            if evaluation.step > self.sent.step:
                values = series_of(history, evaluation, self.class_names)
                new.setdefault(evaluation.step, {}).update(values)
        with self._guarded():
            for step, values in new.items():
                logger.log_values(step, values)
            self._write_down(step=max(new, default=self.sent.step))

    def finish(self, figures: dict[str, Path]) -> None:
        """Send all that the logger lacks of a run that is done."""
        run = RunFolder(self.folder)
        if run.summary is None:
            raise ValueError(f"{self.folder} is not done: `wane run` with --logger {self.name} goes on with it")
        self.catch_up(run.history)
        logger = self.open()
        with self._guarded():
            logger.log_summary(self.sent.step, summary_values(run.summary))
            logger.log_figures(self.sent.step, figures)
        self.close(done=True)
        with self._guarded():
            self._write_down(done=True)

    def close(self, *, done: bool = False) -> None:
        """Close the logger, if it is open."""
        logger, self.logger = self.logger, None
        if logger is not None:
            with self._guarded():
                logger.close(done=done)

    def _write_down(self, **what: str | int | bool) -> None:
        self.sent = self.sent._replace(**what)  # type: ignore[arg-type]
        text = json.dumps(self.sent._asdict())
        write_atomically(self.path, lambda file: file.write(text.encode()))

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            said = (str(error).strip().splitlines() or [""])[0][:200]
            logger, self.logger = self.logger, None  # the next attempt opens it anew
            with suppress(Exception):
                if logger is not None:
                    logger.close(done=False)
            command = f"wane log {self.folder} --to {self.name}"
            raise LoggerError(f"{self.name} did not take {self.folder.name} ({type(error).__name__}: {said}): once the "
                              f"run is done, `{command}` sends what is missing") from error  # fmt: skip


class Follow(Listener):
    """Sends every epoch of a run to a logger and, once the run is done, its summary and figures.

    A logger that fails is warned of once, left alone until the end, and then tried once more.

    Args:
        name: of the logger.
        folder: the run folder.
        figures: draws the figures of a finished run into an empty folder: PNG files by name. None for none.
    """

    hears_of_done_runs = True

    def __init__(self, name: str, folder: Path, figures: Figures | None = None) -> None:
        load_logger(name)  # what is missing is said before anything is begun
        self.name, self.folder, self.figures = name, Path(folder), figures
        self.follower: Follower | None = None
        self.failed = False

    def run_started(self, session: Session) -> None:
        """Open the logger, and say where to look."""
        with self._forgiven():
            self.follower = Follower(self.name, self.folder, session.stream.group_names)
            session.events.say(f"{self.name}: {self.follower.open().where}")

    def epoch_done(self, session: Session, task: int, epoch: int) -> None:
        """Send what was measured."""
        if self.follower is not None and not self.failed:
            with self._forgiven():
                self.follower.catch_up(session.state.history)

    def run_ended(self, folder: Path, summary: dict[str, Any] | None) -> None:
        """Send the rest of a run that is done; close the logger."""
        if summary is not None and self.follower is None and not self.failed:  # it was done before
            send_run(self.folder, self.name, self.figures)
            return
        if self.follower is None:
            return
        if summary is not None:
            with self._forgiven(), drawn(self.folder, self.figures) as figures:
                self.follower.finish(figures)
        with self._forgiven():
            self.follower.close()

    @contextmanager
    def _forgiven(self) -> Iterator[None]:
        try:
            yield
        except LoggerError as error:
            if not self.failed:
                warnings.warn(f"{error}; the run goes on without it", stacklevel=2)
            self.failed = True


def send_run(folder: Path, name: str, figures: Figures | None = None) -> str | None:
    """Send a run that is done to a logger, as far as it lacks it; returns where to look, None if it lacked nothing."""
    run = RunFolder(folder)
    follower = Follower(name, folder, run.history.names or run.class_names)
    if follower.sent.done:
        return None
    where = follower.open().where
    try:
        with drawn(folder, figures) as files:
            follower.finish(files)
    finally:
        follower.close()
    return where


@contextmanager
def drawn(folder: Path, figures: Figures | None) -> Iterator[dict[str, Path]]:
    """The figures of a run as files that last as long as the context."""
    with tempfile.TemporaryDirectory(prefix="wane-") as scratch:
        yield {} if figures is None else figures(folder, Path(scratch))
