"""What a reader of a run needs to know that its config does not say: about.json, written when the run starts."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wane.files import parse_json
from wane.runs.layout import ABOUT, HISTORY, REPLAY

if TYPE_CHECKING:
    from wane.runs.folder import RunFolder

__all__ = ["SCHEMA", "About", "derived_about", "parse_about", "write_about"]

SCHEMA = 1


@dataclass(frozen=True)
class About:
    """What a run is about.

    Attributes:
        has_memory: whether the method replays from a memory; None if nobody said.
        settings: in which it is tested: ("class", "task"), or ("task",) for a method that needs the task.
        class_names: by label.
        group_names: of the rows of the history; the classes, unless the stream has other groups.
        task_names: in the order of the stream.
        learner_title: the method's name for people.
        source: the paper that the method comes from, "" if unknown.
        leading: the split that leads, where it is neither "test" nor "test_task".
        ladder_notes: what the ladder cannot have and why, a sentence each; none where it was not asked for.
        schema: of this file; 0 for what was derived from the other files of an older run.
    """

    has_memory: bool | None
    settings: tuple[str, ...] = ("class", "task")
    class_names: tuple[str, ...] = ()
    group_names: tuple[str, ...] = ()
    task_names: tuple[str, ...] = ()
    learner_title: str = ""
    source: str = ""
    leading: str = ""
    ladder_notes: tuple[str, ...] = ()
    schema: int = SCHEMA

    @property
    def split(self) -> str:
        """The split that leads: class-incremental where there is that, task-incremental otherwise."""
        return self.leading or ("test" if "class" in self.settings else "test_task")


def write_about(folder: Path, about: About) -> None:
    """Write it into a run folder, for the process that holds the run."""
    from wane.runs.writing import write_atomically

    text = json.dumps(asdict(about), indent=2, ensure_ascii=False)
    write_atomically(folder / ABOUT, lambda file: file.write(text.encode()))


def parse_about(data: bytes, path: str) -> About:
    """Read it; a damaged file is an error that names it, and what a later wane added is passed over."""
    try:
        found: dict[str, Any] = parse_json(data)
        known: dict[str, Any] = {field.name: found[field.name] for field in fields(About) if field.name in found}
        known = {name: tuple(value) if isinstance(value, list) else value for name, value in known.items()}
        return About(**known)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path} is damaged ({error}): delete it, and it is derived from the other files") from None


def derived_about(run: RunFolder) -> About:
    """What the files of a run tell that has no about.json: only class-incremental tests were written down then."""
    names = tuple((run.summary or {}).get("class_names", ()))
    return About(
        has_memory=run.has(REPLAY) or _has_memory(run.config.learner.name),
        settings=_settings(run),
        class_names=names,
        group_names=names,
        task_names=tuple(f"task {k + 1}" for k in range(run.config.num_tasks)),
        learner_title=run.config.learner.name,
        schema=0,
    )


def _settings(run: RunFolder) -> tuple[str, ...]:
    if run.summary is not None:
        tested = {"class": run.summary.get("metrics"), "task": run.summary.get("task_incremental")}
        return tuple(name for name, values in tested.items() if values) or ("class",)
    splits = {evaluation.split for evaluation in run.history.evaluations} if run.has(HISTORY) else set()
    return ("task",) if "test_task" in splits and "test" not in splits else ("class",)


def _has_memory(learner: str) -> bool:
    """Whether a method has a memory, as its class says; False if it is not installed here."""
    try:
        from wane.learners import LEARNERS

        return LEARNERS.find(learner).has_memory()
    except (ImportError, ValueError):
        return False
