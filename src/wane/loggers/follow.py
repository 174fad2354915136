"""Bring a logger up to date with a run folder: after every epoch, at the end, after a kill, or long afterwards.

What it was sent is written down in the run folder, in `logged.NAME.json`. So there is one way of sending, whatever the
occasion: the part of the history that is not yet written down, and, once, the summary and the figures of a run that is
done.
"""

from __future__ import annotations

import json
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from wane.files import replace_file
from wane.loggers import Logger, LoggerError, load_logger
from wane.loggers.series import series_of, summary_values
from wane.runs.folder import RunFolder
from wane.runs.layout import logged
from wane.runs.store import cells

if TYPE_CHECKING:
    from wane.measures.history import History
    from wane.training.progress import Progress

__all__ = ["followed", "send_run"]


class Sent(NamedTuple):
    """What a logger is known to have of a run."""

    id: str = ""  # of the run, there
    step: int = 0  # the history up to here
    done: bool = False  # the summary and the figures, too


class Follower:
    """One logger on one run folder. Whatever goes wrong in the logger is a LoggerError."""

    def __init__(self, name: str, folder: Path, class_names: Sequence[str]) -> None:
        self.name, self.folder, self.class_names = name, folder, class_names
        self.make = load_logger(name)
        self.path = folder / logged(name)
        self.sent = Sent(**json.loads(self.path.read_text(encoding="utf-8"))) if self.path.exists() else Sent()
        self.logger: Logger | None = None

    def open(self) -> Logger:
        """The logger, opened if it is not; its id is written down at once."""
        if self.logger is None:
            settings = RunFolder(self.folder).config.model_dump(mode="json", exclude_none=True)
            with self._guarded():
                self.logger = self.make(self.folder, cells(settings), id=self.sent.id, step=self.sent.step)
                self._write_down(id=self.logger.id)
        assert self.logger is not None
        return self.logger

    def catch_up(self, history: History) -> None:
        """Send what the logger lacks of the history."""
        logger, tasks = self.open(), history.class_to_task
        assert tasks is not None  # a run of the lab knows them
        new: dict[int, dict[str, float]] = {}
        for evaluation in history.evaluations:
            if evaluation.step > self.sent.step:
                values = series_of(evaluation, tasks, self.class_names, history.signals)
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
        replace_file(self.path, json.dumps(self.sent._asdict()).encode())

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


@contextmanager
def followed(folder: Path, loggers: Sequence[str], class_names: Sequence[str], progress: Progress) -> Iterator[None]:
    """While inside, every epoch is sent to the loggers; at the end, if it is a good one, the summary and the figures.

    A logger that fails is warned of once, left alone until the end, and then tried once more.
    """
    failed: set[str] = set()
    followers = [Follower(name, folder, class_names) for name in dict.fromkeys(loggers)]

    @contextmanager
    def forgiven(follower: Follower) -> Iterator[None]:
        try:
            yield
        except LoggerError as error:
            if follower.name not in failed:
                warnings.warn(f"{error}; the run goes on without it", stacklevel=2)
            failed.add(follower.name)

    def after_epoch(history: History) -> None:
        for follower in followers:
            if follower.name not in failed:
                with forgiven(follower):
                    follower.catch_up(history)

    for follower in followers:
        with forgiven(follower):
            progress.say(f"{follower.name}: {follower.open().where}")
    progress.after_epoch.insert(0, after_epoch)  # before the folder is copied to a store far away
    try:
        yield
        if followers:
            with drawn_figures(folder) as figures:
                for follower in followers:
                    with forgiven(follower):
                        follower.finish(figures)
    finally:
        progress.after_epoch.remove(after_epoch)
        for follower in followers:
            with forgiven(follower):
                follower.close()


def send_run(folder: Path, name: str) -> str | None:
    """Send a run that is done to a logger, as far as it lacks it; returns where to look, None if it lacked nothing."""
    follower = Follower(name, folder, RunFolder(folder).class_names)
    if follower.sent.done:
        return None
    where = follower.open().where
    try:
        with drawn_figures(folder) as figures:
            follower.finish(figures)
    finally:
        follower.close()
    return where


@contextmanager
def drawn_figures(folder: Path) -> Iterator[dict[str, Path]]:
    """The figures that can be drawn of one run, as PNG files."""
    # The only place where the lab looks at views: a logger wants the pictures, too.
    from wane.views.figures import FIGURES, draw_figure, save_figure

    figures: dict[str, Path] = {}
    with tempfile.TemporaryDirectory(prefix="wane-") as scratch:
        for name in FIGURES:
            path = Path(scratch) / f"{name}.png"
            try:
                save_figure(draw_figure(name, [RunFolder(folder)], width="page"), path)
            except ValueError:
                continue  # it is one of many runs, or of what this run did not record
            except Exception as error:
                warnings.warn(f"figure {name} of {folder} is left out ({type(error).__name__}: {error})", stacklevel=2)
                continue
            figures[name] = path
        yield figures
