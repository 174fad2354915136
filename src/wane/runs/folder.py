"""A run folder, here or at a URL, as views read it. Nothing here trains, or writes."""

from __future__ import annotations

import io
import os
import tomllib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from wane.runs.about import About, derived_about, parse_about
from wane.runs.config import Config, ConfigError, build_config, to_toml
from wane.runs.identity import Method, method_of
from wane.runs.layout import ABOUT, CONFIG, FLOW, HISTORY, LADDER, OWN_LOOP, RECOVERY, REPLAY, SAMPLES, SUMMARY, SUMS
from wane.runs.own_loop import OwnLoop, parse_own_loop, run_files
from wane.runs.place import is_url, open_place, place_of
from wane.runs.reading import has_lost_its_config, read_file
from wane.runs.settings import merge, naming
from wane.runs.status import Status, statuses
from wane.runs.summary import parse_summary

if TYPE_CHECKING:
    import polars

    from wane.measures.history import History
    from wane.measures.ladder import Ladder

__all__ = ["RunFolder", "find_runs", "history_run", "list_runs", "read_config", "read_summary"]


class RunFolder:
    """One run; each part is read when it is first asked for.

    Args:
        place: its folder, or the URL of one.
        name: what to call it in a list; default: the name of the folder.
        files: what is in the folder, by name, where it is in memory and `place` is but a name, see `history_run`.
    """

    def __init__(
        self, place: str | os.PathLike[str], name: str = "", *, files: Mapping[str, bytes] | None = None
    ) -> None:
        self.place = place_of(place)
        self.name = name or Path(self.place).name
        self.files = files

    def __repr__(self) -> str:
        return f"RunFolder({self.place!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RunFolder) and self.place == other.place

    def __hash__(self) -> int:
        return hash(self.place)

    @property
    def path(self) -> Path:
        """The folder; of a run at a URL, only a name."""
        return Path(self.place)

    @cached_property
    def own(self) -> OwnLoop | None:
        """What is known of a run that wane did not train; None for one of the lab's, which has a config."""
        data = self.read(OWN_LOOP)
        return None if data is None else parse_own_loop(data, f"{self.place}/{OWN_LOOP}")

    @cached_property
    def config(self) -> Config:
        """Everything that the run depends on; an error for a run that wane did not train."""
        data, path = self.read(CONFIG), f"{self.place}/{CONFIG}"
        if data is None and self.own is not None:
            raise ConfigError(f"{self.place} was not trained by wane, so it has no config: give runs of the lab")
        if data is None:
            raise ConfigError(f"there is no config at {path}")
        try:
            settings = tomllib.loads(data.decode())
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
            raise ConfigError(f"{path} is not TOML: {error}") from None
        with naming(path):
            return build_config(settings)

    @cached_property
    def method(self) -> Method:
        """How it learns and what it replays; of a run that wane did not train, what its owner calls that."""
        return method_of(self.config) if self.own is None else Method(self.own.method, own=True)

    @property
    def seed(self) -> int | None:
        """Its seed; None if that is not known."""
        return self.config.seed if self.own is None else self.own.seed

    @property
    def data(self) -> str:
        """What its data set is called; "" if that is not known."""
        return Path(self.config.data.name).name if self.own is None else self.own.data

    @property
    def recipe(self) -> str:
        """The recipe that it came from; "" for a run that wane did not train."""
        return self.config.recipe if self.own is None else ""

    @property
    def num_tasks(self) -> int | None:
        """How many tasks it has, or is to have; None if that is not known."""
        return self.config.num_tasks if self.own is None else self.own.tasks

    @property
    def total_epochs(self) -> int:
        """How many epochs it takes; 0 for a run that wane did not train."""
        return self.config.total_epochs if self.own is None else 0

    @property
    def settings(self) -> dict[str, Any]:
        """Everything that was set, nested, as JSON has it; of a run that wane did not train, what its owner said."""
        if self.own is None:
            return self.config.model_dump(mode="json")
        said = {"seed": self.own.seed, "data": {"name": self.own.data or None}, "learner": {"name": self.own.method}}
        return merge(said, self.own.settings)

    @property
    def settings_text(self) -> str:
        """The same as TOML: for a run of the lab, ready to be run again."""
        return to_toml(self.config) if self.own is None else self.own.text

    @cached_property
    def status(self) -> Status:
        """How far it is; unreadable if its config or its summary is."""
        nothing = Status("unreadable", note=f"there is no run at {self.place}")
        if self.files is not None:
            return Status("done")
        try:
            return self._checked(statuses(self.place).get("", nothing))
        except OSError as error:
            return Status("unreadable", note=str(error))

    def know(self, status: Status) -> None:
        """Take the status from a caller who asked for many at once."""
        self.__dict__["status"] = self._checked(status)

    def _checked(self, status: Status) -> Status:
        try:
            self.settings  # noqa: B018 (reading it is the check)
            if status.state == "done" and self.summary is None:
                raise FileNotFoundError(f"{self.place}/{SUMMARY} was moved away")
        except (ValueError, OSError) as error:  # or it was moved away a moment ago
            return Status("unreadable", note=str(error))
        return status

    @cached_property
    def summary(self) -> dict[str, Any] | None:
        """The summary, None while the run is not done."""
        data = self.read(SUMMARY)
        return None if data is None else parse_summary(data, f"{self.place}/{SUMMARY}")

    @cached_property
    def about(self) -> About:
        """What the config does not say; of a run without about.json, as far as its other files tell."""
        data = self.read(ABOUT)
        return parse_about(data, f"{self.place}/{ABOUT}") if data is not None else derived_about(self)

    @property
    def split(self) -> str:
        """The split of the history that leads: "test", or "test_task" where there is only that."""
        return self.about.split

    @cached_property
    def history(self) -> History:
        """Per-class signals: split `test` (an evaluation after each epoch), `replay`, and others that were recorded."""
        from wane.measures.history import History

        data, path = self.read(HISTORY), f"{self.place}/{HISTORY}"
        if data is None:
            raise FileNotFoundError(f"there is no history at {path}")
        try:
            return History.read_parquet(io.BytesIO(data))
        except ValueError as error:
            raise ValueError(f"{path} {error}") from None

    @cached_property
    def replay(self) -> polars.DataFrame | None:
        """A row for each epoch: what could be drawn and what was, weights; None without a memory."""
        return self._frame(REPLAY)

    @cached_property
    def samples(self) -> polars.DataFrame | None:
        """Signals of every test sample where they were recorded."""
        return self._frame(SAMPLES)

    @cached_property
    def flow(self) -> dict[str, NDArray[Any]] | None:
        """`flow` (k, C, C), mean softmax of each true class; `step` and `task` (k,): where it was recorded."""
        data = self.read(FLOW)
        if data is None:
            return None
        with _blaming(f"{self.place}/{FLOW}"), np.load(io.BytesIO(data), allow_pickle=False) as parts:
            return {name: parts[name] for name in parts.files}

    @cached_property
    def recovery(self) -> polars.DataFrame | None:
        """How lost classes came back in a fine-tune, see `wane.training.recovery`; None where it was not recorded."""
        return self._frame(RECOVERY)

    @cached_property
    def ladder(self) -> Ladder | None:
        """What a correction of the bias and a new head would bring back; None where it was not recorded."""
        from wane.measures.ladder import Ladder

        frame = self._frame(LADDER)
        return None if frame is None else Ladder(frame)

    @cached_property
    def class_names(self) -> tuple[str, ...]:
        """Names by class index; numbers while nothing tells them."""
        if self.about.class_names:
            return self.about.class_names
        tasks = self.history.class_to_task
        return tuple(str(c) for c in range(0 if tasks is None else len(tasks)))

    def has(self, name: str) -> bool:
        """Whether it has a file, named as in `wane.runs.layout`; one that should be there and is not is an error."""
        if self.files is not None:
            return name in self.files
        if is_url(self.place):
            fs, base = open_place(self.place)
            fs.invalidate_cache()
            there = bool(fs.exists(f"{base}/{name}"))
        else:
            there = (self.path / name).exists()
        return there or self.read(name) is not None

    def read(self, name: str) -> bytes | None:
        """A file as it is at this moment, whole and checked; None if there is none."""
        if self.files is not None:
            return self.files.get(name)
        return read_file(self.place, name)

    def _frame(self, name: str) -> polars.DataFrame | None:
        import polars as pl

        data = self.read(name)
        if data is None:
            return None
        with _blaming(f"{self.place}/{name}"):
            return pl.read_parquet(io.BytesIO(data))


@contextmanager
def _blaming(path: str) -> Iterator[None]:
    """What goes wrong inside is the file's fault: Polars, NumPy and zipfile each have errors of their own for that."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of polars is no Exception
        raise ValueError(f"{path} is damaged or of something else ({error}): restore it, or delete it") from None


def history_run(history: History, name: str | os.PathLike[str] = "") -> RunFolder:
    """A history as a run, in memory: what `wane.save_run` would write, without a folder.

    Args:
        history: from someone's own loop.
        name: of the run, or the path of the file that it was read from; the method is called so if the history does
            not say how.
    """
    path = Path(name)
    # of many files that are called history.parquet, the folder says more
    stem = path.parent.name if path.name == HISTORY and path.parent.name else path.stem
    method = None if history.method or history.title else stem
    called = name or history.title or history.method or "history"
    return RunFolder(called, stem, files=run_files(history, method=method))


def find_runs(*places: str | os.PathLike[str] | History | RunFolder) -> list[RunFolder]:
    """The runs at or below each folder or URL, each once; an error names a place that holds none.

    A history stands for a run, too: the path of its file (``.parquet``), or the `History` itself.
    """
    found: dict[Any, RunFolder] = {}
    for source in places:
        if isinstance(source, RunFolder):
            found.setdefault(source.place, source)
            continue
        if not isinstance(source, str | os.PathLike):
            if id(source) not in found:
                found[id(source)] = _numbered(history_run(source), found.values())
            continue
        place = place_of(source)
        is_file = place.endswith(".parquet") and not is_url(place)
        below = [_run_of_file(Path(place))] if is_file else _runs_at(place)
        if not below:
            raise ValueError(f"no run at or below {place}: give run folders, a folder that holds some, or a history")
        for run in below:
            key = run.place if is_url(run.place) else str(run.path.resolve())
            found.setdefault(key, run)  # counted twice, a run would pass for two seeds
    return list(found.values())


def _numbered(run: RunFolder, others: Collection[RunFolder]) -> RunFolder:
    """The run under a place of its own: histories in memory have none, and seeds of a method have one name."""
    alike = sum(other.files is not None and other.name == run.name for other in others)
    return RunFolder(f"{run.place} ({alike + 1})", run.name, files=run.files) if alike else run


def _run_of_file(path: Path) -> RunFolder:
    """A history file; that of a run folder stands for the run."""
    from wane.measures.history import History

    if path.name == HISTORY and ((path.parent / CONFIG).exists() or (path.parent / OWN_LOOP).exists()):
        return RunFolder(path.parent)
    return history_run(History.read(path), path)


def _runs_at(place: str) -> list[RunFolder]:
    if not is_url(place):
        return [RunFolder(path) for path in list_runs(Path(place))]
    names = sorted(statuses(place))
    return [RunFolder(f"{place.rstrip('/')}/{name}".rstrip("/")) for name in names]


def read_summary(folder: Path) -> dict[str, Any] | None:
    """The summary of a finished run; None while it is not."""
    return RunFolder(folder).summary


def read_config(folder: Path) -> Config:
    """The config of a run folder."""
    return RunFolder(folder).config


def list_runs(root: Path) -> list[Path]:
    """All run folders below `root`, itself included, in the order of their names."""
    found = {path.parent for name in (CONFIG, OWN_LOOP) for path in root.rglob(name)}
    others = {path.parent for path in root.rglob(SUMS)} - found
    return sorted(found | {folder for folder in others if has_lost_its_config(folder)})
