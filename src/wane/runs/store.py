"""The run store: folders below a folder, or below a URL that fsspec can reach. Here it is read; runs write it.

No torch here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wane.files import replace_file
from wane.runs.config import flat
from wane.runs.folder import RunFolder
from wane.runs.layout import CONFIG
from wane.runs.place import absolute, is_url, open_place
from wane.runs.status import Status, in_threads, statuses

if TYPE_CHECKING:
    import polars

__all__ = ["Status", "absolute", "cells", "load_runs", "read_runs", "statuses", "write_config"]


def load_runs(root: str | Path = "runs") -> polars.DataFrame:
    """All runs below a folder or URL, one row each: name, state, title, every setting, every metric, seconds.

    Columns of settings are named as in the config (`learner.trend.signal`), those of metrics by signal and summary
    (`accuracy.forgetting`; in other settings `task_incremental.accuracy.forgetting`, `corrected.accuracy.forgetting`).
    What a run does not have is null: a setting that is off, metrics while it is not done.

    >>> import tempfile
    >>> load_runs(tempfile.mkdtemp()).columns
    ['name', 'state', 'title']
    """
    import polars as pl

    rows: list[dict[str, Any]] = []
    for run in read_runs(root):
        row: dict[str, Any] = {"name": run.name, "state": run.status.state, "title": None}
        if run.status.state != "unreadable":
            summary = run.summary or {}
            row |= {"title": run.method.title, **cells(run.settings)}
            row |= cells(summary.get("metrics") or {})
            row |= cells({name: summary.get(name) or {} for name in ("task_incremental", "corrected")})
            row |= {key: summary[key] for key in ("steps", "seconds") if key in summary}
        rows.append(row)
    if not rows:
        return pl.DataFrame(schema={"name": pl.String, "state": pl.String, "title": pl.String})
    columns = list(dict.fromkeys(key for row in rows for key in row))
    return pl.DataFrame({key: pl.Series([row.get(key) for row in rows], strict=False) for key in columns})


def read_runs(root: str | Path) -> list[RunFolder]:
    """All runs below a folder or URL, in the order of their names, each with its status.

    A run that cannot be read does not hide the others: its status says why, and its config is not to be asked for.
    """
    base, found = absolute(root), statuses(root)

    def read(name: str) -> RunFolder:
        run = RunFolder(f"{base}/{name}" if name else base, name)
        run.know(found[name])
        return run

    return in_threads(read, sorted(found))


def write_config(place: str, text: str) -> None:
    """Put the config where the run will be, so that it is listed as waiting; leaves one alone that is there."""
    fs, base = open_place(place)
    if fs.exists(f"{base}/{CONFIG}"):
        return
    fs.makedirs(base, exist_ok=True)
    if is_url(place):
        fs.pipe_file(f"{base}/{CONFIG}", text.encode())
        return
    try:
        replace_file(Path(base) / CONFIG, text.encode())
    except FileNotFoundError:  # another process began the run meanwhile, and tidied its folder
        if not fs.exists(f"{base}/{CONFIG}"):
            raise


def cells(nested: dict[str, Any]) -> dict[str, Any]:
    """Settings by dotted name; a list is written as JSON, for a column must be of one kind.

    >>> cells({"seed": 0, "model": {"hidden": [16, 16]}})
    {'seed': 0, 'model.hidden': '[16, 16]'}
    """
    return {key: json.dumps(value) if isinstance(value, list) else value for key, value in flat(nested).items()}
