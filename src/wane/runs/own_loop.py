"""Runs that wane did not train: a history from someone's own loop, as a run folder that every view accepts.

In place of config.toml such a folder has own_loop.toml, which says what its owner said of the run, and no more: no
setting of the lab is made up. No torch here.
"""

from __future__ import annotations

import io
import json
import os
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import wane
from wane.files import replace_file
from wane.runs.about import About
from wane.runs.layout import ABOUT, CONFIG, EVENTS, HISTORY, LOGGED, OWN_LOOP, SUMMARY
from wane.runs.place import is_url
from wane.runs.settings import ConfigError, flat

if TYPE_CHECKING:
    from wane.measures.history import History

__all__ = ["OwnLoop", "check_folder", "parse_own_loop", "run_files", "save_run"]

SETTINGS = {"class": "test", "task": "test_task"}
HEAD = "# Not trained by wane: this run was recorded in a loop of its owner's, and saved by wane.save_run.\n"


@dataclass(frozen=True)
class OwnLoop:
    """What is known of a run that wane did not train; None or empty for what is not.

    Attributes:
        method: what its method is called.
        seed: its seed.
        data: what its data set is called.
        title: of the run, for people.
        tasks: how many tasks it has.
        settings: anything else that its owner wrote down, by name.
    """

    method: str
    seed: int | None = None
    data: str = ""
    title: str = ""
    tasks: int | None = None
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """As TOML; what is not known is not there."""
        import tomli_w

        return HEAD + tomli_w.dumps({key: value for key, value in asdict(self).items() if value not in (None, "", {})})


def parse_own_loop(data: bytes, path: str) -> OwnLoop:
    """Read own_loop.toml; what is wrong with it is an error that names the file."""
    try:
        said = tomllib.loads(data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from None
    known = {key: value for key, value in said.items() if key in OwnLoop.__dataclass_fields__}
    try:
        return _checked(**known)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{path} is not of a run that wane.save_run wrote: {error}") from None


def save_run(
    history: History,
    folder: str | os.PathLike[str],
    *,
    method: str | None = None,
    seed: int | None = None,
    data: str | None = None,
    title: str | None = None,
    has_memory: bool | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Path:
    """Make a run folder from the history of your own loop: for every table, figure, page and logger, and the archive.

    It stands beside the lab's runs: those of the same data and number of tasks share a table with it, and seeds are
    paired by their number. It says that wane did not train it, and `wane run` does not touch it. A folder that holds
    such a run already is written over.

    Args:
        history: of a run that is done. In the folder it is in `normal_form`.
        folder: made if it is not there.
        method: what the method is called, the same for all its seeds; default: the history's own, as for the next
            three, else its title, else "own loop".
        seed: of the run; a run without is not paired with others.
        data: what the data set is called; the lab's names are digits, cifar100, ...
        title: of the run, for people.
        has_memory: whether the method replays from a memory; None if you do not say.
        settings: hyper-parameters and anything else worth keeping, by name: numbers, texts, lists, or sections of
            these. Those with a name of the lab's, such as ``{"memory.capacity": 200}``, must agree with its runs to
            share a table.

    >>> import tempfile
    >>> from wane import History, load_runs
    >>> history = History(class_to_task=[0, 1], names=["cat", "dog"])
    >>> for task, accuracy in enumerate([(0.75, 0.25), (0.5, 0.75)]):
    ...     history.record({"accuracy": accuracy, "n": [10, 10]}, step=task, task=task)
    >>> root = tempfile.mkdtemp()
    >>> folder = save_run(history, f"{root}/mine-0", method="mine", seed=0, data="pets", settings={"lr": 0.1})
    >>> load_runs(root).select("name", "state", "title", "lr", "accuracy.average", "accuracy.forgetting").rows()
    [('mine-0', 'done', 'mine', 0.1, 0.625, 0.25)]
    """
    target = check_folder(folder)
    files = run_files(
        history, method=method, seed=seed, data=data, title=title, has_memory=has_memory, settings=settings
    )
    target.mkdir(parents=True, exist_ok=True)
    # what was said of an earlier run in this folder is not said of this one; the summary goes first, and comes last
    for old in [target / SUMMARY, *(file for pattern in (LOGGED, EVENTS) for file in target.glob(pattern))]:
        old.unlink(missing_ok=True)
    for name, content in files.items():
        replace_file(target / name, content)
    return target


def check_folder(folder: str | os.PathLike[str]) -> Path:
    """Where `save_run` may write: a new or an empty folder, or one that holds such a run; anything else is an error."""
    if is_url(folder):
        raise ValueError(f"{os.fspath(folder)} is a URL: save the run to a folder, and copy that")
    target = Path(folder)
    if (target / CONFIG).exists():
        raise ValueError(f"{target} holds a run of the lab: give a new folder")
    others = [item.name for item in target.iterdir()] if target.is_dir() else []
    if others and OWN_LOOP not in others:
        raise ValueError(f"{target} is not empty and holds no run ({others[0]}): give a new folder")
    return target


def run_files(
    history: History,
    *,
    method: str | None = None,
    seed: int | None = None,
    data: str | None = None,
    title: str | None = None,
    has_memory: bool | None = None,
    settings: Mapping[str, Any] | None = None,
) -> dict[str, bytes]:
    """The files of the run folder that `save_run` makes, by name, in the order in which they are to be written."""
    from wane.measures.normal_form import normal_form
    from wane.measures.summaries import summarise

    if not history.evaluations:
        raise ValueError("the history is empty: record an evaluation first")
    shown = normal_form(history)
    shown = shown.with_evaluations(shown.evaluations)  # a copy, to be told what is said here
    splits = shown.splits
    leading = next(split for split in ("test", "test_task", *splits) if split in splits)
    title = history.title if title is None else title
    own = _checked(
        method=method or history.method or title or "own loop",
        seed=_plain(history.seed if seed is None else seed),
        data=data or history.data or "",
        title=title or "",
        tasks=_num_tasks(shown),
        settings=_plain(settings or {}),
    )
    shown.method, shown.seed, shown.data, shown.title = own.method, own.seed, own.data or None, own.title or None
    names = history.names or ()
    about = About(
        has_memory=has_memory,
        settings=tuple(name for name, split in SETTINGS.items() if split in splits) or ("class",),
        class_names=names if history.kind == "class" else (),
        group_names=names,
        task_names=tuple(f"task {k + 1}" for k in range(own.tasks or 0)),
        learner_title=own.method,
        leading=leading,
    )  # fmt: skip
    summary: dict[str, Any] = {"schema": 1, "seed": own.seed}
    if about.settings != ("task",):
        summary["metrics"] = summarise(shown, leading)
    if "test_task" in splits:
        summary["task_incremental"] = summarise(shown, "test_task")
    if shown.class_to_task is not None:
        matrix = shown.matrix("accuracy", split=leading)
        summary["accuracy_matrix"] = [[None if np.isnan(x) else x for x in row] for row in matrix.tolist()]
    summary |= {
        "forgetting_definition": "peak", "class_names": list(about.class_names),
        "steps": max(e.step for e in shown.evaluations), "versions": {"wane": wane.__version__},
    }  # fmt: skip
    parquet = io.BytesIO()
    shown.write_parquet(parquet)
    return {
        OWN_LOOP: own.text.encode(),
        ABOUT: json.dumps(asdict(about), indent=2, ensure_ascii=False).encode(),
        HISTORY: parquet.getvalue(),
        SUMMARY: json.dumps(summary, indent=2, allow_nan=False).encode(),
    }


def _num_tasks(history: History) -> int | None:
    return None if history.class_to_task is None else int(history.class_to_task.max(initial=0)) + 1


def _checked(**said: Any) -> OwnLoop:
    """What is said of a run, if it can be written down."""
    own = OwnLoop(**said)
    for name in ("method", "data", "title"):
        if not isinstance(getattr(own, name), str):
            raise ValueError(f"{name} is {getattr(own, name)!r}: give a text")
    for name in ("seed", "tasks"):
        value = getattr(own, name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
            raise ValueError(f"{name} is {value!r}: give a whole number of at least 0")
    for name, value in flat(own.settings).items():
        if not _is_plain(value):
            raise ValueError(f"setting {name} is {value!r}: give a number, a text, true, false, or a list of these")
    return own


def _plain(value: Any) -> Any:
    """Scalars and arrays of NumPy or torch as TOML has them; None, which it does not have, is left out."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items() if item is not None}
    return value.tolist() if hasattr(value, "tolist") else value


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return isinstance(value, str | int) or (isinstance(value, float) and np.isfinite(value))
