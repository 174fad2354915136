"""How far the runs of a store are. One listing tells what is done; only what is open is then looked at.

Many threads look: a store far away answers slowly, but answers many at once. No torch here.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from wane.files import parse_json
from wane.runs.layout import CONFIG, FAILED, HISTORY, LOCK, OWN_LOOP, REMOTE_LOCK, SUMMARY, SUMS
from wane.runs.lock import Owner, owner
from wane.runs.place import is_local, open_place
from wane.runs.reading import has_lost_its_config

__all__ = ["Status", "in_threads", "parse_failure", "statuses"]

THREADS = 32
Answer = TypeVar("Answer")


class Status(NamedTuple):
    """How far a run is: done, running, failed, stopped (begun, but no process runs it), waiting, or unreadable."""

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


def statuses(root: str | Path) -> dict[str, Status]:
    """How far each run below a folder or URL is, by its name below it ("" for the folder itself)."""
    fs, base = open_place(root)
    return _statuses(fs, base, _listing(fs, base))


def parse_failure(data: bytes, path: str) -> str:
    """Why a run failed, as far as it can be told.

    >>> parse_failure(b'{"error": "no room"}', "failed.json"), parse_failure(b"", "failed.json")
    ('no room', 'failed.json does not say why')
    """
    try:
        return str(parse_json(data)["error"])
    except (ValueError, KeyError, TypeError):
        return f"{path} does not say why"


def in_threads(function: Callable[[str], Answer], items: list[str]) -> list[Answer]:
    """The answers for all items, in their order, asked for side by side."""
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(function, items))


def _listing(fs: Any, base: str) -> dict[str, dict[str, int]]:
    """The files of every run folder, with a number that changes with the history."""
    runs: dict[str, dict[str, int]] = {}
    for folder, name, version in _local_files(base) if is_local(fs) else _remote_files(fs, base):
        runs.setdefault(folder, {})[name] = version

    def is_run(folder: str, files: dict[str, int]) -> bool:
        there = CONFIG in files or OWN_LOOP in files
        return there or (SUMS in files and is_local(fs) and has_lost_its_config(f"{base}/{folder}" if folder else base))

    return {folder: files for folder, files in runs.items() if is_run(folder, files)}


def _local_files(base: str) -> Iterator[tuple[str, str, int]]:
    # only the time is asked of the system, and of histories only: fsspec would ask everything about every file
    for folder, inside, names in os.walk(base):
        inside[:] = [name for name in inside if not name.startswith(".")]  # where the holder of a run writes
        below = "" if folder == base else os.path.relpath(folder, base)
        for name in names:
            version = 0
            if name == HISTORY:
                with suppress(OSError):  # what is wrong with it is said by whoever reads it
                    version = os.stat(os.path.join(folder, name)).st_mtime_ns
            yield below, name, version


def _remote_files(fs: Any, base: str) -> Iterator[tuple[str, str, int]]:
    fs.invalidate_cache()
    for path, about in fs.find(base, detail=True).items():
        folder, _, name = path.removeprefix(base).strip("/").rpartition("/")
        yield folder, name, about["size"]


def _statuses(fs: Any, base: str, files: dict[str, dict[str, int]]) -> dict[str, Status]:
    open_ones = [name for name, inside in files.items() if SUMMARY not in inside]

    def status(name: str) -> Status:
        place, inside = f"{base}/{name}" if name else base, files[name]
        try:
            holder = _owner(fs, place, inside)
            if holder is None and FAILED in inside:
                with suppress(FileNotFoundError):  # tried again a moment ago
                    return Status("failed", note=parse_failure(fs.cat_file(f"{place}/{FAILED}"), f"{place}/{FAILED}"))
        except OSError as error:  # one odd file must not hide the other runs
            return Status("unreadable", note=str(error))
        try:
            epochs = _epochs(fs, f"{place}/{HISTORY}", inside[HISTORY]) if HISTORY in inside else 0
        except (ValueError, OSError) as error:
            if holder is None:
                return Status("unreadable", note=str(error))
            epochs = 0  # the process that runs it writes the history anew
        if holder is not None:
            return Status("running", epochs, str(holder))
        return Status("stopped" if epochs else "waiting", epochs)

    return {name: Status("done") for name in files} | dict(zip(open_ones, in_threads(status, open_ones), strict=True))


def _owner(fs: Any, place: str, inside: Iterable[str]) -> Owner | None:
    if REMOTE_LOCK in inside:  # run at a URL, which may be that of a folder here
        from wane.runs.remote import object_owner

        found = object_owner(fs, f"{place}/{REMOTE_LOCK}")
        return found and found[0]
    here = is_local(fs) and any(name.startswith(LOCK) for name in inside)
    return owner(Path(place)) if here else None


@lru_cache(maxsize=10_000)
def _epochs(fs: Any, path: str, version: int) -> int:
    """Epochs in a history; `version` is there to read it again when it changed."""
    import polars as pl

    try:
        table = pl.read_parquet(io.BytesIO(fs.cat_file(path)), columns=["step", "split"])
    except pl.exceptions.PolarsError as error:
        raise ValueError(f"{path} is not a whole history ({error}): restore it, or delete it") from None
    # a method that needs the task is tested in that setting alone
    return max(table.filter(pl.col("split") == split)["step"].n_unique() for split in ("test", "test_task"))
