"""about.json: what a run is, for whoever reads its folder. Written when the run starts."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from wane.runs.writing import write_atomically

__all__ = ["About", "write_about"]


@dataclass(frozen=True)
class About:
    """What cannot be told from the config alone."""

    has_memory: bool
    settings: tuple[str, ...]  # ("class", "task") or ("task",)
    class_names: tuple[str, ...]
    group_names: tuple[str, ...]
    task_names: tuple[str, ...]
    learner_title: str
    source: str
    schema: int = 1


def write_about(folder: Path, about: About) -> None:
    """Write about.json, atomically."""
    text = json.dumps(asdict(about), indent=2, ensure_ascii=False)
    write_atomically(folder / "about.json", lambda file: file.write(text.encode()))
