"""A run folder as it lies on the disk: what the views draw from. Nothing here trains, or writes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from wane.files import read_whole
from wane.runs.about import About
from wane.runs.config import Config, build_config, read_toml
from wane.runs.settings import naming
from wane.runs.store import parse_summary

if TYPE_CHECKING:
    import polars

    from wane.measures.history import History

__all__ = ["RunFolder", "find_runs", "list_runs", "read_config", "read_summary"]


@dataclass(frozen=True)
class RunFolder:
    """One run; each part is read when it is first asked for."""

    path: Path

    @cached_property
    def config(self) -> Config:
        """Everything that the run depends on."""
        return read_config(self.path)

    @cached_property
    def summary(self) -> dict[str, Any] | None:
        """The summary, None while the run is not done."""
        return read_summary(self.path)

    @cached_property
    def history(self) -> History:
        """Per-class signals: split `test` (an evaluation an epoch), `replay`, and perhaps `holdout`, `test_steps`."""
        from wane.measures.history import History

        return History.read(self.path / "history.parquet")

    @cached_property
    def replay(self) -> polars.DataFrame | None:
        """A row an epoch: who could be drawn and who was, weights; None without a memory."""
        return self._frame("replay.parquet")

    @cached_property
    def samples(self) -> polars.DataFrame | None:
        """Signals of every test sample where they were recorded."""
        return self._frame("samples.parquet")

    @cached_property
    def flow(self) -> dict[str, NDArray[Any]] | None:
        """`flow` (k, C, C), mean softmax of each true class; `step` and `task` (k,): where it was recorded."""
        path = self.path / "flow.npz"
        if not path.exists():
            return None
        with _whole(path), np.load(path, allow_pickle=False) as parts:
            return {name: parts[name] for name in parts.files}

    @cached_property
    def recovery(self) -> polars.DataFrame | None:
        """How lost classes came back in a fine-tune, see `wane.training.recovery`; None where it was not recorded."""
        return self._frame("recovery.parquet")

    @cached_property
    def class_names(self) -> tuple[str, ...]:
        """Names by class index; numbers while the run is not done."""
        if self.summary is not None:
            return tuple(self.summary["class_names"])
        tasks = self.history.class_to_task
        return tuple(str(c) for c in range(0 if tasks is None else len(tasks)))

    @property
    def name(self) -> str:
        """What to call it in a list."""
        return self.path.name

    @cached_property
    def about(self) -> About:
        """Whether it has a memory, and in which settings it was evaluated."""
        from wane.learners import LEARNERS

        learner = LEARNERS.get(self.config.learner.name)
        summary = self.summary or {}
        known = {"class": summary.get("metrics"), "task": summary.get("task_incremental")}
        settings = tuple(setting for setting, values in known.items() if values) or ("class",)
        return About(self.replay is not None if learner is None else learner.draws > 0, settings)

    @property
    def split(self) -> str:
        """The split that leads: `test`, or `test_task` for a run that has only that one."""
        return "test" if "class" in self.about.settings else "test_task"

    def _frame(self, name: str) -> polars.DataFrame | None:
        import polars as pl

        path = self.path / name
        if not path.exists():
            return None
        with _whole(path):
            return pl.read_parquet(read_whole(path))


@contextmanager
def _whole(path: Path) -> Iterator[None]:
    """Inside, what goes wrong is the file's fault: Polars, NumPy and zipfile each have errors of their own for that."""
    try:
        yield
    except Exception as error:
        raise ValueError(f"{path} is damaged or of something else ({error}): restore it, or delete it") from None


def find_runs(*paths: Path | str) -> list[RunFolder]:
    """The runs at or below each path, each once; an error names a path that holds none."""
    found: dict[Path, RunFolder] = {}
    for path in map(Path, paths):
        below = list_runs(path) if path.exists() else []
        if not below:
            raise ValueError(f"no run at or below {path}: give run folders, or a folder that holds some")
        for run in below:
            found.setdefault(run.resolve(), RunFolder(run))  # counted twice, a run would pass for two seeds
    return list(found.values())


def read_summary(folder: Path) -> dict[str, Any] | None:
    """The summary of a finished run; None while it is not."""
    path = folder / "summary.json"
    if not path.exists():
        return None
    return parse_summary(path.read_bytes(), str(path))


def read_config(folder: Path) -> Config:
    """The config of a run folder."""
    path = folder / "config.toml"
    settings = read_toml(path)
    with naming(path):
        return build_config(settings)


def list_runs(root: Path) -> list[Path]:
    """All run folders below `root`, itself included, in the order of their names."""
    return sorted(path.parent for path in root.rglob("config.toml"))
