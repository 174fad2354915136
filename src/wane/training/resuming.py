"""Going on with a run: its checkpoint is checked against its config and its data before anything is loaded from it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from wane.errors import DamagedError
from wane.runs.identity import fingerprint
from wane.runs.layout import FLOW, LADDER, RECOVERY, SAMPLES
from wane.runs.reading import read_file
from wane.streams import DataError
from wane.training.batches import make_scene
from wane.training.session import Session
from wane.training.state import VERSION, Position, make_optimiser, unpack

__all__ = ["ADDED_TO", "belongs_to", "resume"]

#: Files that grow while a run goes on: what is in them is nowhere else.
ADDED_TO = (SAMPLES, FLOW, RECOVERY, LADDER)


def resume(session: Session, saved: dict[str, Any] | None) -> None:
    """Take up where a checkpoint was written; nothing to do without one."""
    if saved is None:
        return
    position = read_position(saved, session.folder, tasks=len(session.stream), epochs=session.config.learner.epochs)
    check_belongs(session, saved)
    begun = position.task + (position.epoch > 0)
    for task in list(session.stream)[:begun]:
        session.learner.begin_task(make_scene(session, task))
    if position.epoch > 0:
        session.state.optimiser = make_optimiser(session.config, session.learner)
    try:
        wrong = next(misfits(session, saved, position), "")
        if not wrong:
            session.state.load_state_dict(saved)
    except (KeyError, ValueError, TypeError, AttributeError, IndexError, RuntimeError) as error:
        wrong = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    if wrong:
        raise DamagedError(f"the checkpoint in {session.folder} does not fit its config ({wrong}): delete the "
                           "checkpoints there to start the run over")  # fmt: skip


def read_position(saved: dict[str, Any], folder: Path, *, tasks: int, epochs: int) -> Position:
    """Where a checkpoint was written; one of another version of wane, or of something else, is an error."""
    version = saved.get("version", 1) if isinstance(saved, dict) and "position" in saved else None
    advice = "delete the checkpoints there to start the run over"
    if version is None:
        raise DamagedError(f"the checkpoint in {folder} is not that of a run of wane: {advice}")
    if version != VERSION:
        raise DamagedError(
            f"the checkpoint in {folder} was written by another version of wane (its format is {version}, here it is "
            f"{VERSION}): finish the run with that version, or {advice}"
        )
    try:
        position = Position(**saved["position"])
        whole = all(type(number) is int for number in vars(position).values())
    except TypeError:
        whole = False
    if not whole:
        raise DamagedError(f"the checkpoint in {folder} is at {saved['position']!r}, no place in a run: {advice}")
    if not (0 <= position.task <= tasks and 0 <= position.epoch < epochs and position.step >= 0):
        raise DamagedError(f"the checkpoint in {folder} is at {position}, but the run has {tasks} tasks of {epochs} "
                              f"epochs: {advice}")  # fmt: skip
    return position


def misfits(session: Session, saved: dict[str, Any], position: Position) -> Iterator[str]:
    """What in a checkpoint cannot be of this run at this position."""
    mine, epochs = session.state.state_dict(), position.task * session.config.learner.epochs + position.epoch
    yield from (f"it has no {name}" for name in mine if name not in saved)
    yield from other_tensors(mine["learner"], saved["learner"], "learner.")
    if mine["memory"] is not None:
        yield from other_tensors(mine["memory"], saved["memory"], "memory.")
        labels, seen = saved["memory"]["labels"], int(saved["memory"]["seen"])
        if int(labels.min()) < -1 or int(labels.max()) >= session.dataset.num_classes:
            yield f"memory.labels are from {int(labels.min())} to {int(labels.max())}"
        if seen < int((labels >= 0).sum()):
            yield f"memory.seen is {seen}"
        if len(saved["replay_log"]["at"]) != epochs:
            yield f"replay_log is of {len(saved['replay_log']['at'])} epochs, not {epochs}"
    # earlier versions had no choices of methods
    missing = [name for name in mine["generators"] if name not in saved["generators"] and name != "method"]
    yield from (f"generators has no {name}" for name in missing)
    yield from other_tensors(mine["generators"], saved["generators"], "generators.")
    yield from other_tensors(mine, {"global_generator": saved["global_generator"]}, "")
    if not (isinstance(saved["seconds"], float) and math.isfinite(saved["seconds"]) and saved["seconds"] >= 0):
        yield f"seconds is {saved['seconds']!r}"
    evaluations, _ = unpack(saved["history"])
    steps = [evaluation.step for evaluation in evaluations]
    tests = [evaluation.step for evaluation in evaluations if evaluation.split == session.split]
    if steps != sorted(steps) or len(tests) != epochs or tests[-1:] != [position.step][:epochs]:
        yield f"history has {len(tests)} epochs up to step {max(steps, default=0)}, not {epochs} up to {position.step}"


def other_tensors(mine: Mapping[str, Any], given: Mapping[str, Any], of: str) -> Iterator[str]:
    """The tensors that are of another type or shape: loaded, they would be converted without a word."""
    for name, value in given.items():
        known = mine.get(name)
        if isinstance(known, Tensor):
            if not isinstance(value, Tensor):
                yield f"{of}{name} is {value!r}"
            elif (value.dtype, value.shape) != (known.dtype, known.shape):
                yield f"{of}{name} is {_kind(value)}, not {_kind(known)}"


def _kind(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} of shape {tuple(tensor.shape)}"


def belongs_to(session: Session) -> dict[str, str]:
    """What a checkpoint says of the run that it is of: its settings, and the very data that it is trained on."""
    return {"run": fingerprint(session.config), "data": session.data_sum}


def check_belongs(session: Session, saved: dict[str, Any]) -> None:
    """An error if a checkpoint is of other settings or other data, or a file that is added to is not as it was written.

    Checkpoints of earlier versions do not say what they belong to.
    """
    if not session.team.is_first:
        return
    mine, folder = belongs_to(session), session.folder
    if saved.get("run", mine["run"]) != mine["run"]:
        raise DamagedError(f"the checkpoint in {folder} is of another run: restore the one that was there, or delete "
                           "the checkpoints there to start the run over")  # fmt: skip
    if saved.get("data", mine["data"]) != mine["data"]:
        raise DataError(f"the data is not what the run in {folder} was trained on until now (fingerprint "
                        f"{mine['data']}, not {saved['data']}): restore it, or give another --out")  # fmt: skip
    for name in ADDED_TO:
        read_file(folder, name)
