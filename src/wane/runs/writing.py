"""Writing the files of a run: whole or not at all, with a checksum, and only by the process that holds the run.

Whoever holds a run has a folder of its own inside the run folder, `.writing-TOKEN`. A file is written there and moved
to its place; a file that is removed is moved into there. Whoever takes the run over moves that folder away first, and
empties it: from then on every such move of the former holder fails, whatever it was doing when it was suspended,
because one of the two names no longer leads anywhere. On one machine the kernel looks both names up in the act of
moving. On NFS another machine may hold a handle of the moved folder, so the new holder goes on only after it was
emptied and removed: then there is nothing to move, and the handle is stale. No torch here.
"""

from __future__ import annotations

import io
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wane.errors import CheckpointError, DamagedError
from wane.runs.layout import (
    ABOUT,
    CHECKPOINT,
    CONFIG,
    FAILED,
    FLOW,
    HISTORY,
    LADDER,
    LOGGED,
    OWN_LOOP,
    PREVIOUS,
    RECOVERY,
    REPLAY,
    SAMPLES,
    STAGING,
    SUMMARY,
    SUMS,
)  # fmt: skip
from wane.runs.lease import LostError
from wane.runs.reading import MAY_LACK, read_file
from wane.runs.sums import ABSENT, Sums, parse_sums, render_sums, sum_of

if TYPE_CHECKING:
    import polars

__all__ = ["RunFiles", "add_rows", "fence", "files_of", "remove", "staging_in", "write_atomically", "writing"]

#: Listed when a run without sums is first written to.
LISTED = (
    CONFIG,
    OWN_LOOP,
    ABOUT,
    HISTORY,
    REPLAY,
    SAMPLES,
    FLOW,
    RECOVERY,
    LADDER,
    SUMMARY,
    CHECKPOINT,
    PREVIOUS,
    FAILED,
)


def staging_in(folder: Path) -> Path:
    """A new folder for what is being written, made."""
    staging = folder / f"{STAGING}{uuid.uuid4().hex}"
    staging.mkdir()
    return staging


def fence(folder: Path, mine: Path) -> None:
    """Take their folders from all who wrote to the run before: what they have not moved into place, they never will."""
    for other in folder.glob(f"{STAGING}*"):
        if other != mine:
            gone = mine / f"fenced-{uuid.uuid4().hex}"
            with suppress(FileNotFoundError):
                os.rename(other, gone)
            discard(gone)


def discard(staging: Path) -> None:
    """Remove such a folder with its content, also while somebody still creates files in it."""
    for _ in range(100):
        try:
            shutil.rmtree(staging)
        except FileNotFoundError:
            return
        except OSError:  # a file was added, or NFS keeps the name of one that is open on this very machine
            continue
        return


class RunFiles:
    """The files of a run, for the process that may write them."""

    def __init__(self, folder: Path, staging: Path, owner: Callable[[], object] = lambda: None) -> None:
        self.folder, self.staging, self._owner = folder, staging, owner
        self._published: bytes | None = None  # sums.sha256 as it is
        self._sums: Sums | None = None

    @property
    def sums(self) -> Sums:
        """What is right for each file: one sum, or several after a kill in the middle of a move."""
        if self._sums is None:
            try:
                self._published = (self.folder / SUMS).read_bytes()
            except FileNotFoundError:
                names = (*LISTED, *(path.name for path in self.folder.glob(LOGGED)))
                self._sums = {name: (found,) for name in names if (found := self._actual(name)) != ABSENT}
            else:
                self._sums = parse_sums(self._published, str(self.folder / SUMS))
        return self._sums

    @property
    def has_written(self) -> bool:
        """Whether the sums may be other than before."""
        return self._sums is not None

    def write(self, name: str, data: bytes | None, *, keep_as: str | None = None) -> None:
        """Put `data` in the place of a file, whose content until now is kept under another name; None removes it."""
        new, sums = sum_of(data), self.sums
        old = sums.get(name, (ABSENT,))
        try:
            if data is not None:
                self._stage(name, data)
            listed = {**sums, name: (*old, new)}
            keeps = keep_as is not None and (self.folder / name).exists()
            if keep_as is not None and keeps:
                listed[keep_as] = (*sums.get(keep_as, (ABSENT,)), *old)
            self._sums = listed
            self._publish()
            if keep_as is not None and keeps:
                self._keep(name, keep_as)
                self._sums = {**self._sums, keep_as: old}
            if data is None:
                with suppress(FileNotFoundError):
                    os.replace(self.folder / name, self._staged(name))
                if not self.staging.is_dir():
                    raise FileNotFoundError(2, os.strerror(2), str(self.staging))
                self._staged(name).unlink(missing_ok=True)
            else:
                os.replace(self._staged(name), self.folder / name)
            # in memory only what is there now counts; on the disk the former sum stays valid until the next write
            self._sums = {k: v for k, v in self._sums.items() if k != name or new != ABSENT}
            if new != ABSENT:
                self._sums[name] = (new,)
        except OSError as error:
            raise self._sentence(error, self.folder / name) from error

    def settle(self) -> None:
        """List for every file the one sum that it has now."""
        if not self.staging.is_dir():
            return
        settled: Sums = {}
        for name, digests in self.sums.items():
            if len(digests) > 1 and (found := self._actual(name)) in digests:
                digests = (found,)
            gone = name in MAY_LACK and not (self.folder / name).exists()
            if digests != (ABSENT,) and not gone:
                settled[name] = digests
        self._sums = settled
        if self._published is not None and self._published != render_sums(settled):
            self._publish()

    def _publish(self) -> None:
        data = render_sums(self._sums or {})
        self._stage(SUMS, data)
        os.replace(self._staged(SUMS), self.folder / SUMS)
        self._published = data

    def _keep(self, name: str, keep_as: str) -> None:
        """Give a file a second name. A link, so that the file is there under one of them at every moment."""
        second = self._staged(keep_as)
        try:
            os.link(self.folder / name, second)
        except OSError:
            if not self.staging.is_dir():
                raise
            os.replace(self.folder / name, second)  # a file system without links
        os.replace(second, self.folder / keep_as)
        # a name is not moved onto another of the same file, as it is after a kill between this move and the next
        second.unlink(missing_ok=True)

    def _stage(self, name: str, data: bytes) -> None:
        with self._staged(name).open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def _staged(self, name: str) -> Path:
        return self.staging / f"{name}.tmp"

    def _actual(self, name: str) -> str:
        try:
            return sum_of((self.folder / name).read_bytes())
        except (FileNotFoundError, IsADirectoryError):
            return ABSENT

    def _sentence(self, error: OSError, path: Path) -> Exception:
        if self.folder.is_dir() and not self.staging.is_dir():
            return self._lost()
        with suppress(OSError):
            self._staged(path.name).unlink(missing_ok=True)
        return CheckpointError(f"{path} could not be written ({error.strerror}): make room, or see to it that you "
                               "may write there, and run the same command again; it goes on from there")  # fmt: skip

    def _lost(self) -> LostError:
        now = self._owner() or "another process"
        return LostError(f"{self.folder} was taken over by {now}: nothing is lost, what it did is kept")


#: The runs that this process holds.
_held: dict[str, RunFiles] = {}


@contextmanager
def writing(
    folder: Path, staging: Path | None = None, owner: Callable[[], object] = lambda: None
) -> Iterator[RunFiles]:
    """Write to a folder, with the `staging` of a lock, or to one that nobody else writes to; `owner` says who runs it.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, writing(Path(folder)) as files:
    ...     files.write("config.toml", b"seed = 1")
    ...     sorted(path.name for path in Path(folder).iterdir())[1:]
    ['config.toml', 'sums.sha256']
    """
    given, key = staging, os.path.abspath(folder)
    staging = staging or staging_in(folder)
    files, before = RunFiles(folder, staging, owner), _held.get(key)
    _held[key] = files
    try:
        yield files
    finally:
        if before is None:
            _held.pop(key, None)
        else:
            _held[key] = before
        with suppress(OSError, CheckpointError, LostError, DamagedError):
            if files.has_written:
                files.settle()  # whatever ended the run matters more
        if given is None:
            discard(staging)


@contextmanager
def files_of(folder: Path) -> Iterator[RunFiles]:
    """The files of a run that this process holds; of a folder that nobody holds, for as long as the context."""
    held = _held.get(os.path.abspath(folder))
    if held is not None:
        yield held
        return
    with writing(folder) as files:
        yield files


def write_atomically(path: Path, write: Any, *, keep_as: str | None = None) -> None:
    """Put what `write` writes in the place of a file of a run, in one move; `keep_as` is a name for the old one.

    Unless the run was lost to another process meanwhile: then it is an error, and what that one wrote stays.
    """
    buffer = io.BytesIO()  # torch and Polars have errors of their own for a full disk: let them write to memory
    write(buffer)
    with files_of(path.parent) as files:
        files.write(path.name, buffer.getvalue(), keep_as=keep_as)


def remove(*paths: Path) -> None:
    """Remove files of a run, as far as they are there."""
    for path in paths:
        if path.exists():
            with files_of(path.parent) as files:
                files.write(path.name, None)


def add_rows(path: Path, new: polars.DataFrame, *, step: int) -> None:
    """Add the rows of a step to a table. Rows of this or a later step, left by a killed attempt, are replaced."""
    import polars as pl

    old = read_file(path.parent, path.name)
    if old is not None:
        new = pl.concat([pl.read_parquet(io.BytesIO(old)).filter(pl.col("step") < step), new])
    write_atomically(path, new.write_parquet)
