"""A run and its folder: config.toml, history.parquet, summary.json, checkpoint.pt (and samples.parquet, ...).

The folder is the run: the same call on it goes on where it was, or, if it is done, just reads the summary.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import wane
from wane.runs.complete import complete
from wane.runs.config import Config, ConfigError, differences, to_toml
from wane.runs.folder import RunFolder, read_config, read_summary
from wane.runs.identity import fingerprint
from wane.runs.layout import (
    CONFIG,
    EVENTS,
    FAILED,
    FLOW,
    LADDER,
    LOCK,
    LOG,
    LOGGED,
    OWN_LOOP,
    PREVIOUS,
    RECOVERY,
    SAMPLES,
    STAGING,
    SUMMARY,
    SUMS,
)
from wane.runs.machine import processor
from wane.runs.reading import read_file
from wane.runs.writing import remove, write_atomically
from wane.training.events import Events, Listener

if TYPE_CHECKING:
    from torch import nn

    from wane.streams import Dataset
    from wane.training.session import Session

__all__ = ["OccupiedError", "run", "run_held"]


#: Of summary.json; 2 has `task_incremental`.
SCHEMA = 2


class OccupiedError(ConfigError):
    """The folder is not for this run: it holds another one, or something else."""


def run(
    config: Config,
    folder: Path | str,
    *,
    dataset: Dataset | None = None,
    model: nn.Module | None = None,
    listeners: Sequence[Listener] = (),
) -> dict[str, Any]:
    """Run `config` in `folder`, or go on with it; returns the summary. An error if another process is running it.

    Args:
        config: from `load_recipe`, or `build_config`.
        folder: the run folder itself; made if it is not there.
        dataset: your own data, instead of `config.data.name`; `data.per_class` and the like hold.
        model: your own network, instead of `config.model`; it must be built the same way when the run goes on.
        listeners: told how the run goes: a display (`wane.training.progress.Progress`), loggers
            (`wane.cli.listeners`), your own. They are no part of the config: the result is the same with any of them.
    """
    from wane.runs.lock import held, tidy

    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is not a folder: give a new or empty folder as --out")
    if (folder / SUMMARY).exists():
        tidy(folder)
        if not any(listener.hears_of_done_runs for listener in listeners):
            return run_held(config, folder)  # it is only read
    elif not (folder / CONFIG).exists():  # an unknown name is said before a folder is made
        _check_names(config, data=dataset is None, model=model is None)
    with held(folder):
        return run_held(config, folder, dataset=dataset, model=model, listeners=listeners)


def run_held(
    config: Config,
    folder: Path,
    *,
    dataset: Dataset | None = None,
    model: nn.Module | None = None,
    listeners: Sequence[Listener] = (),
) -> dict[str, Any]:
    """What `run` does, for a caller who holds the lock of the folder."""
    from wane.training.launch import team_for
    from wane.training.loop import train

    config = _claim(folder, complete(config))
    done = read_summary(folder)
    if done is not None:
        Events(listener for listener in listeners if listener.hears_of_done_runs).run_ended(folder, done)
        return done
    remove(folder / FAILED)  # left by an earlier attempt
    dataset = load_data(config) if dataset is None else reduced(dataset, config)
    events, summary = Events(listeners), None
    try:
        with team_for(config, folder, dataset, model) as team:
            session = train(config, dataset, folder, model=model, team=team, events=events)
        found = summarise_run(session)
        text = json.dumps(found, indent=2, allow_nan=False)
        write_atomically(folder / SUMMARY, lambda file: file.write(text.encode()))
        remove(folder / PREVIOUS)  # it would double the disk space of a finished run
        summary = found
    finally:
        events.run_ended(folder, summary)
    return summary


def _check_names(config: Config, *, data: bool, model: bool) -> None:
    from wane.models import find_model
    from wane.streams import find_dataset

    if data:
        find_dataset(config.data.name)
    if model:
        find_model(config.model.name)


def load_data(config: Config) -> Dataset:
    """The data set that the config names."""
    from wane.streams import load_dataset

    data = config.data
    return load_dataset(data.name, root=data.root, per_class=data.per_class, resolution=data.resolution,
                        holdout=data.holdout, seed=config.seed, domains=data.stream == "domains")  # fmt: skip


def reduced(dataset: Dataset, config: Config) -> Dataset:
    """A user's own data with fewer images a class, a holdout, and at a lower resolution, as far as the config says."""
    from wane import streams

    data = config.data
    return streams.reduced(
        dataset, per_class=data.per_class, holdout=data.holdout, resolution=data.resolution, seed=config.seed
    )


def summarise_run(session: Session) -> dict[str, Any]:
    """What a table needs, and what is needed to know where it came from.

    `metrics` are class-incremental; a learner that must be told the task has only `task_incremental` ones.
    """
    import torch

    from wane.measures.summaries import summarise
    from wane.training.kept import kept_bytes

    config, state, history = session.config, session.state, session.state.history
    ladder = RunFolder(session.folder).ladder
    metrics = {} if session.learner.needs_task else {"metrics": summarise(history, split="test", ladder=ladder)}
    matrix = history.matrix("accuracy", split=session.split)
    return {
        "schema": SCHEMA,
        "recipe": config.recipe,
        "seed": config.seed,
        **metrics,
        "task_incremental": summarise(history, split="test_task"),
        **({"corrected": summarise(history, split="test_corrected")} if config.record.correction else {}),
        "forgetting_definition": "peak",
        "accuracy_matrix": [[None if x != x else x for x in row] for row in matrix.tolist()],
        "class_names": list(session.dataset.class_names),
        "steps": state.position.step,
        "kept": kept_bytes(session),
        "seconds": round(state.seconds, 3),
        "versions": {"wane": wane.__version__, "torch": torch.__version__, "python": platform.python_version()},
        "machine": {
            "platform": platform.platform(),
            "processor": processor(),
            "device": str(next(state.learner.parameters()).device),
            "devices": config.devices or 1,
            "threads": config.threads or max(1, torch.get_num_threads() // (config.devices or 1)),
        },
    }


def _claim(folder: Path, config: Config) -> Config:
    """Write the config, or check that the folder holds this run; clear away what a killed attempt left half-written.

    Returns what to run: a run that was begun keeps its settings, and takes the device and the data folder given now.
    """
    path = folder / CONFIG
    if not (folder / SUMMARY).exists():  # a finished run is only read
        for scratch in folder.glob(".*.tmp" if path.exists() else f".{CONFIG}.*.tmp"):
            scratch.unlink(missing_ok=True)  # another sweep may have moved it into place meanwhile
    if path.exists():
        begun_with = read_config(folder)
        same = _is_same(begun_with, config)
        if same:
            data = begun_with.data.model_copy(update={"root": config.data.root, "name": config.data.name})
            config = begun_with.model_copy(update={"device": config.device, "data": data})
        # before its first checkpoint a run has nothing to lose, and may be corrected; not so a config written by hand
        kept = [*folder.glob("checkpoint*.pt"), *folder.glob(SUMMARY)]
        fixed = kept or path.read_text(encoding="utf-8") != to_toml(begun_with)
        if same and (fixed or config == begun_with):
            return config
        if fixed:
            changed = "; ".join(differences(begun_with, config))
            raise OccupiedError(f"{folder} holds another run ({changed}): give another --out, or the settings that it "
                                "was begun with")  # fmt: skip
        left = (SAMPLES, FLOW, RECOVERY, LADDER, LOGGED, EVENTS)
        for unfinished in [file for pattern in left for file in folder.glob(pattern)]:
            remove(unfinished)
    elif (folder / OWN_LOOP).exists():
        raise OccupiedError(f"{folder} holds a run that wane did not train, and cannot go on with: give another --out")
    elif read_file(folder, CONFIG) is None and any(
        not item.name.startswith((LOCK, f".{LOCK}", LOG, STAGING, SUMS)) for item in folder.iterdir()
    ):
        raise OccupiedError(f"{folder} is not empty and holds no run: give a new or empty folder as --out")
    write_atomically(path, lambda file: file.write(to_toml(config).encode()))
    return config


def _is_same(begun_with: Config, config: Config) -> bool:
    """Whether it is the run that was begun; of one begun before data had a fingerprint, the folder's name must do."""
    if begun_with.data.fingerprint is None and Path(begun_with.data.name).name == Path(config.data.name).name:
        older = config.data.model_copy(update={"fingerprint": None, "name": begun_with.data.name})
        config = config.model_copy(update={"data": older})
    return fingerprint(begun_with) == fingerprint(config)
