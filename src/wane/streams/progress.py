"""Progress of fetching and decoding, which are slow: a bar on a terminal, one plain line elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from wane.escaping import visible

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class Bar:
    """A bar drawn by rich, with the names that pooch calls on one: total, update, reset, close."""

    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress, self._task = progress, task

    @property
    def total(self) -> float:
        """The amount of work; 0 if it is unknown."""
        return self._progress.tasks[0].total or 0

    @total.setter
    def total(self, value: float) -> None:
        self._progress.update(self._task, total=value or None)

    def update(self, amount: float) -> None:
        """Count `amount` as done."""
        self._progress.advance(self._task, amount)

    def reset(self) -> None:
        """Start again from 0."""
        self._progress.update(self._task, completed=0)

    def close(self) -> None:
        """No-op: `progress_bar` removes the bar when its block ends."""


@contextmanager
def progress_bar(title: str, *, total: float | None = None, in_bytes: bool = False) -> Iterator[Bar]:
    """A bar on standard error while the block runs."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    title = visible(title)  # the name of a folder, perhaps
    console = Console(stderr=True)
    if not console.is_terminal:
        print(title, file=sys.stderr)
    count = DownloadColumn() if in_bytes else MofNCompleteColumn()
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), count, TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as progress:
        yield Bar(progress, progress.add_task(title, total=total))
