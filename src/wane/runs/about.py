"""What a reader of a run needs to know that its config does not say: about.json, written when the run starts."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from wane.runs.layout import ABOUT

__all__ = ["SCHEMA", "About", "parse_about", "write_about"]

SCHEMA = 1


@dataclass(frozen=True)
class About:
    """What a run is about.

    Attributes:
        has_memory: whether the method replays from a memory.
        settings: in which it is tested: ("class", "task"), or ("task",) for a method that needs the task.
        class_names: by label.
        group_names: of the rows of the history; the classes, unless the stream has other groups.
        task_names: in the order of the stream.
        learner_title: the method's name for people.
        source: the paper that the method comes from, "" if unknown.
        schema: of this file; 0 for what was derived from the other files of an older run.
    """

    has_memory: bool
    settings: tuple[str, ...] = ("class", "task")
    class_names: tuple[str, ...] = ()
    group_names: tuple[str, ...] = ()
    task_names: tuple[str, ...] = ()
    learner_title: str = ""
    source: str = ""
    schema: int = SCHEMA

    @property
    def split(self) -> str:
        """The split that leads: class-incremental where there is that, task-incremental otherwise."""
        return "test" if "class" in self.settings else "test_task"


def write_about(folder: Path, about: About) -> None:
    """Write it into a run folder, for the process that holds the run."""
    from wane.runs.writing import write_atomically

    text = json.dumps(asdict(about), indent=2, ensure_ascii=False)
    write_atomically(folder / ABOUT, lambda file: file.write(text.encode()))


def parse_about(data: bytes, path: str) -> About:
    """Read it; a damaged file is an error that names it, and what a later wane added is passed over."""
    try:
        found: dict[str, Any] = json.loads(data)
        known: dict[str, Any] = {field.name: found[field.name] for field in fields(About) if field.name in found}
        known = {name: tuple(value) if isinstance(value, list) else value for name, value in known.items()}
        return About(**known)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path} is damaged ({error}): delete it, and it is derived from the other files") from None
