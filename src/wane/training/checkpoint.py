"""One file, written atomically at the end of every epoch, that loads without executing anything.

The file before it is kept as `checkpoint.previous`: should the newest be damaged from outside, the run goes on from
there and, being deterministic, ends the same.
"""

from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path
from typing import Any

import torch

from wane.errors import DamagedError
from wane.runs.layout import CHECKPOINT, PREVIOUS
from wane.runs.reading import read_file
from wane.runs.writing import files_of, write_atomically

__all__ = ["load_checkpoint", "save_checkpoint"]


def save_checkpoint(folder: Path, state: dict[str, Any]) -> None:
    """Write `state`; whatever happens meanwhile, a whole checkpoint is in the folder."""
    write_atomically(folder / CHECKPOINT, lambda file: torch.save(state, file), keep_as=PREVIOUS)


def load_checkpoint(folder: Path) -> dict[str, Any] | None:
    """The newest whole checkpoint; None if the run has none yet."""
    problems = []
    for name in (CHECKPOINT, PREVIOUS):
        try:
            data = read_file(folder, name)
            if data is None:
                continue
            state = _parse(data)
        except Exception as error:
            problems.append(f"{name}: {_reason(error)}")
        else:
            if name == PREVIOUS:  # or the next save would put a damaged newest in the place of this good one
                with files_of(folder) as files:
                    files.write(CHECKPOINT, data)
            return state
    if problems:
        raise DamagedError(f"no checkpoint in {folder} can be read ({'; '.join(problems)}): restore one, or delete "
                              "them to start the run over")  # fmt: skip
    return None


def _parse(data: bytes) -> dict[str, Any]:
    """What a checkpoint holds, once its checksums are right: torch itself looks at none of them."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        damaged = archive.testzip()
    if damaged is not None:
        raise DamagedError(f"{damaged} in it is damaged")
    state: dict[str, Any] = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    if not isinstance(state, dict):
        raise DamagedError(f"it holds a {type(state).__name__}, not a run")
    return state


def _reason(error: BaseException) -> str:
    """One line; not torch's, which advises to load what may execute code."""
    if isinstance(error, DamagedError) and CHECKPOINT.partition(".")[0] in str(error):
        return "it is not as it was written"
    if isinstance(error, pickle.UnpicklingError):
        return "it holds more than tensors and plain values"
    return (str(error).splitlines() or [type(error).__name__])[0]
