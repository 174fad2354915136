"""The run store: folders below a folder, or below a URL that fsspec can reach. Here it is read; runs write it.

One listing tells what is done; only what is asked for is then read, by many threads: a store far away answers slowly,
but answers many at once. No torch here.
"""

from __future__ import annotations

import io
import json
import os
import tomllib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from wane.files import replace_file
from wane.runs.config import Config, ConfigError, build_config, flat
from wane.runs.lock import Owner, owner
from wane.runs.settings import naming

if TYPE_CHECKING:
    import polars

__all__ = [
    "Run",
    "Status",
    "absolute",
    "cells",
    "load_runs",
    "parse_failure",
    "parse_summary",
    "read_runs",
    "statuses",
    "write_config",
]

THREADS = 32


class Status(NamedTuple):
    """How far a run is: done, running, failed, stopped (begun, but nobody is at it), waiting, or unreadable."""

    state: str
    epochs: int = 0  # trained and evaluated; not counted for a run that is done
    note: str = ""  # who runs it, why it failed, or what cannot be read

    def words(self, total: int) -> str:
        """For a table.

        >>> Status("running", 3, "process 7 on here").words(10), Status("stopped", 3).words(10)
        ('running, 3 of 10 epochs, process 7 on here', 'stopped, 3 of 10 epochs')
        """
        if self.state in ("failed", "unreadable"):
            return f"{self.state}: {self.note}"
        epochs = f"{self.epochs} of {total} epochs" if self.state in ("running", "stopped") else ""
        return ", ".join(part for part in (self.state, epochs, self.note) if part)


class Run(NamedTuple):
    """A run of the store, as far as it is."""

    name: str  # of its folder, below the root
    status: Status
    config: Config | None  # None if it cannot be read
    summary: dict[str, Any] | None


def load_runs(root: str | Path = "runs") -> polars.DataFrame:
    """All runs below a folder or URL, one row each: name, state, title, every setting, every metric, seconds.

    Columns of settings are named as in the config (`learner.trend.signal`), those of metrics by signal and summary
    (`accuracy.forgetting`). What a run has not is null: a setting that is off, metrics while it is not done.

    >>> import tempfile
    >>> load_runs(tempfile.mkdtemp()).columns
    ['name', 'state', 'title']
    """
    import polars as pl

    from wane.runs.identity import method_title

    rows: list[dict[str, Any]] = []
    for run in read_runs(root):
        summary: dict[str, Any] = run.summary or {}
        title = run.config and method_title(run.config)
        settings = run.config.model_dump(mode="json") if run.config else {}
        rows.append({
            "name": run.name, "state": run.status.state, "title": title,
            **cells(settings), **cells(summary.get("metrics", {})),
            **{key: summary[key] for key in ("steps", "seconds") if key in summary},
        })  # fmt: skip
    if not rows:
        return pl.DataFrame(schema={"name": pl.String, "state": pl.String, "title": pl.String})
    columns = list(dict.fromkeys(key for row in rows for key in row))
    return pl.DataFrame({key: pl.Series([row.get(key) for row in rows], strict=False) for key in columns})


def read_runs(root: str | Path) -> list[Run]:
    """All runs below a folder or URL, in the order of their names, each with its config, and summary if it is done.

    A run that cannot be read does not hide the others: its status says why.
    """
    fs, base = _open(root)
    files = _listing(fs, base)
    found = _statuses(fs, base, files)

    def read(name: str) -> Run:
        place = f"{base}/{name}" if name else base
        status, summary = found[name], None
        config: Config | None = None
        try:
            settings = _toml(fs, f"{place}/config.toml")
            with naming(f"{place}/config.toml"):
                config = build_config(settings)
            if status.state == "done":
                summary = parse_summary(fs.cat_file(f"{place}/summary.json"), f"{place}/summary.json")
        except (ValueError, OSError) as error:  # or it was moved away a moment ago
            status = Status("unreadable", note=str(error))
        return Run(name or Path(base).name, status, config, summary)

    return _map(read, sorted(found))


def statuses(root: str | Path) -> dict[str, Status]:
    """How far each run below a folder or URL is, by name."""
    fs, base = _open(root)
    return _statuses(fs, base, _listing(fs, base))


def write_config(place: str, text: str) -> None:
    """Put the config where the run will be, so that it is seen to wait; leaves one alone that is there."""
    fs, base = _open(place)
    if fs.exists(f"{base}/config.toml"):
        return
    fs.makedirs(base, exist_ok=True)
    if "://" in place:
        fs.pipe_file(f"{base}/config.toml", text.encode())
        return
    try:
        replace_file(Path(base) / "config.toml", text.encode())
    except FileNotFoundError:  # the run began meanwhile, for someone else, and tidied its folder
        if not fs.exists(f"{base}/config.toml"):
            raise


def absolute(root: str | Path) -> str:
    """Where a store is, whatever the working folder: a path, also of `file://`, or a URL.

    >>> absolute("file:///data/runs/"), absolute("memory://runs/")
    ('/data/runs', 'memory://runs')
    """
    fs, base = _open(root)
    return os.path.abspath(base) if _is_local(fs) else str(root).rstrip("/")


def _open(root: str | Path) -> tuple[Any, str]:
    import fsspec  # type: ignore[import-untyped, unused-ignore]

    try:
        fs, base = fsspec.core.url_to_fs(str(root))
    except ImportError as error:
        raise ConfigError(f"{root} needs another package ({error}): install it, or give a folder") from None
    return fs, str(base).rstrip("/")


def _listing(fs: Any, base: str) -> dict[str, dict[str, int]]:
    """The files of every run folder, with their sizes."""
    runs: dict[str, dict[str, int]] = {}
    for folder, name, size in _local_files(base) if _is_local(fs) else _remote_files(fs, base):
        runs.setdefault(folder, {})[name] = size
    return {folder: files for folder, files in runs.items() if "config.toml" in files}


def _local_files(base: str) -> Iterator[tuple[str, str, int]]:
    # the size alone is asked of the system, and of histories only: fsspec would ask everything about every file
    for folder, _, names in os.walk(base):
        below = "" if folder == base else os.path.relpath(folder, base)
        for name in names:
            with suppress(FileNotFoundError):  # moved away a moment ago
                yield below, name, os.stat(os.path.join(folder, name)).st_mtime_ns if name == "history.parquet" else 0


def _remote_files(fs: Any, base: str) -> Iterator[tuple[str, str, int]]:
    fs.invalidate_cache()
    for path, about in fs.find(base, detail=True).items():
        folder, _, name = path.removeprefix(base).strip("/").rpartition("/")
        yield folder, name, about["size"]


def _statuses(fs: Any, base: str, files: dict[str, dict[str, int]]) -> dict[str, Status]:
    open_ones = [name for name, inside in files.items() if "summary.json" not in inside]

    def status(name: str) -> Status:
        place, inside = f"{base}/{name}" if name else base, files[name]
        holder = _owner(fs, place, inside)
        if holder is None and "failed.json" in inside:
            with suppress(FileNotFoundError):  # tried again a moment ago
                return Status("failed", note=parse_failure(fs.cat_file(f"{place}/failed.json"), f"{place}/failed.json"))
        history = "history.parquet"
        try:
            epochs = _epochs(fs, f"{place}/{history}", inside[history]) if history in inside else 0
        except (ValueError, OSError) as error:
            if holder is None:
                return Status("unreadable", note=str(error))
            epochs = 0  # whoever is at it writes it anew
        if holder is not None:
            return Status("running", epochs, str(holder))
        return Status("stopped" if epochs else "waiting", epochs)

    return {name: Status("done") for name in files} | dict(zip(open_ones, _map(status, open_ones), strict=True))


def _owner(fs: Any, place: str, inside: Iterable[str]) -> Owner | None:
    if "lock.json" in inside:  # run at a URL, which may be that of a folder here
        from wane.runs.remote import object_owner

        found = object_owner(fs, f"{place}/lock.json")
        return found and found[0]
    here = _is_local(fs) and any(name.startswith("lock.") for name in inside)
    return owner(Path(place)) if here else None


@lru_cache(maxsize=10_000)
def _epochs(fs: Any, path: str, version: int) -> int:
    """Epochs in a history; `version` is there to read it again when it changed."""
    import polars as pl

    try:
        table = pl.read_parquet(io.BytesIO(fs.cat_file(path)), columns=["step", "split"])
    except pl.exceptions.PolarsError as error:
        raise ValueError(f"{path} is not a whole history ({error}): restore it, or delete it") from None
    return table.filter(pl.col("split") == "test")["step"].n_unique()


def _toml(fs: Any, path: str) -> dict[str, Any]:
    try:
        return tomllib.loads(fs.cat_file(path).decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from None


def parse_summary(data: bytes, path: str) -> dict[str, Any]:
    """The summary of a run; one that is damaged, or of something else, is an error that names it."""
    try:
        summary = json.loads(data)
    except ValueError as error:
        raise ValueError(f"{path} is not JSON ({error}): restore it, or delete it and run the config again") from None
    if not isinstance(summary, dict) or "class_names" not in summary:
        raise ValueError(f"{path} is not the summary of a run: restore it, or delete it and run the config again")
    return summary


def parse_failure(data: bytes, path: str) -> str:
    """Why a run failed, as far as it can be told.

    >>> parse_failure(b'{"error": "no room"}', "failed.json"), parse_failure(b"", "failed.json")
    ('no room', 'failed.json does not say why')
    """
    try:
        return str(json.loads(data)["error"])
    except (ValueError, KeyError, TypeError):
        return f"{path} does not say why"


def _map(function: Any, items: list[str]) -> list[Any]:
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(function, items))


def _is_local(fs: Any) -> bool:
    return "file" in fs.protocol


def cells(nested: dict[str, Any]) -> dict[str, Any]:
    """Settings by dotted name; a list is written as JSON, for a column must be of one kind.

    >>> cells({"seed": 0, "model": {"hidden": [16, 16]}})
    {'seed': 0, 'model.hidden': '[16, 16]'}
    """
    return {key: json.dumps(value) if isinstance(value, list) else value for key, value in flat(nested).items()}
