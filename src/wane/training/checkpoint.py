"""One file, written atomically at the end of every epoch, that loads without executing anything.

The file before it is kept as `checkpoint.previous`: should the newest be damaged from outside, the run goes on from
there and, being deterministic, ends the same.
"""

from __future__ import annotations

import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import torch

from wane.errors import CheckpointError
from wane.runs.layout import CHECKPOINT, PREVIOUS
from wane.runs.writing import write_atomically

__all__ = ["load_checkpoint", "save_checkpoint"]


def save_checkpoint(folder: Path, state: dict[str, Any]) -> None:
    """Write `state`; whatever happens meanwhile, a whole checkpoint is in the folder."""
    newest, previous = folder / CHECKPOINT, folder / PREVIOUS

    def keep_previous() -> None:
        if newest.exists():
            os.replace(newest, previous)

    write_atomically(newest, lambda file: torch.save(state, file), before_replace=keep_previous)


def load_checkpoint(folder: Path) -> dict[str, Any] | None:
    """The newest whole checkpoint; None if the run has none yet."""
    candidates = [path for path in (folder / CHECKPOINT, folder / PREVIOUS) if path.exists()]
    problems = []
    for path in candidates:
        try:
            state = _read(path)
        except Exception as error:
            problems.append(f"{path.name}: {_reason(error)}")
        else:
            if path.name == PREVIOUS:  # or the next save would put a damaged newest in the place of this good one
                os.replace(path, folder / CHECKPOINT)
            return state
    if problems:
        raise CheckpointError(f"no checkpoint in {folder} can be read ({'; '.join(problems)}): restore one, or delete "
                              "them to start the run over")  # fmt: skip
    return None


def _read(path: Path) -> dict[str, Any]:
    """What a checkpoint holds, once its checksums are right: torch itself looks at none of them."""
    with zipfile.ZipFile(path) as archive:
        damaged = archive.testzip()
    if damaged is not None:
        raise CheckpointError(f"{damaged} in it is damaged")
    state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    if not isinstance(state, dict):
        raise CheckpointError(f"it holds a {type(state).__name__}, not a run")
    return state


def _reason(error: BaseException) -> str:
    """One line; not torch's, which advises to load what may execute code."""
    if isinstance(error, pickle.UnpicklingError):
        return "it holds more than tensors and plain values"
    return (str(error).splitlines() or [type(error).__name__])[0]
