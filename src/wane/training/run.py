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
from wane.runs.about import about_run, write_about
from wane.runs.config import Config, ConfigError, differences, to_toml
from wane.runs.folder import read_config, read_summary
from wane.runs.identity import fingerprint
from wane.runs.layout import CONFIG, EVENTS, FAILED, FLOW, LOCK, LOG, LOGGED, PREVIOUS, RECOVERY, SAMPLES, SUMMARY
from wane.runs.writing import write_atomically

if TYPE_CHECKING:
    from torch import nn

    from wane.streams import Dataset
    from wane.training.progress import Progress
    from wane.training.state import State

__all__ = ["OccupiedError", "run", "run_held"]


class OccupiedError(ConfigError):
    """The folder is not for this run: it holds another one, or something else."""


def run(
    config: Config,
    folder: Path | str,
    *,
    dataset: Dataset | None = None,
    model: nn.Module | None = None,
    progress: Progress | None = None,
    loggers: Sequence[str] = (),
) -> dict[str, Any]:
    """Run `config` in `folder`, or go on with it; returns the summary. An error if another process is at it.

    Args:
        config: from `load_recipe`, or `build_config`.
        folder: the run folder itself; made if it is not there.
        dataset: your own data, instead of `config.data.name`; `data.per_class` and the like hold.
        model: your own network, instead of `config.model`; it must be built the same way when the run goes on.
        progress: what is shown meanwhile; default: nothing.
        loggers: tools that show the run as it goes, of `wane.loggers.LOGGERS`. No part of the config: that is what
            the result depends on, and it is the same whoever looks on.
    """
    from wane.loggers import load_logger
    from wane.runs.complete import complete
    from wane.runs.lock import held

    for name in loggers:
        load_logger(name)  # before anything is begun
    config = complete(config)
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is not a folder: give a new or empty folder as --out")
    if (folder / SUMMARY).exists() and not loggers:  # it is only read
        return run_held(config, folder)
    with held(folder):
        return run_held(config, folder, dataset=dataset, model=model, progress=progress, loggers=loggers)


def run_held(
    config: Config,
    folder: Path,
    *,
    dataset: Dataset | None = None,
    model: nn.Module | None = None,
    progress: Progress | None = None,
    loggers: Sequence[str] = (),
) -> dict[str, Any]:
    """What `run` does, for a caller who holds the lock of the folder."""
    from wane.loggers.follow import followed, send_run
    from wane.training.loop import train
    from wane.training.progress import Progress as Shown
    from wane.training.team import team_for

    config = _claim(folder, config)
    done = read_summary(folder)
    if done is not None:
        for name in loggers:
            send_run(folder, name)
        return done
    (folder / FAILED).unlink(missing_ok=True)  # of an attempt before
    dataset = load_data(config) if dataset is None else reduced(dataset, config)
    shown = progress or Shown(config.recipe, epochs_per_task=config.learner.epochs, quiet=True)
    write_about(folder, about_run(config, dataset.class_names))
    with followed(folder, loggers, dataset.class_names, shown):
        with shown, team_for(config, folder, dataset, model) as team:
            state = train(config, dataset, folder, progress=shown, model=model, team=team)
        summary = summarise(config, state, dataset)
        text = json.dumps(summary, indent=2, allow_nan=False)
        write_atomically(folder / SUMMARY, lambda file: file.write(text.encode()))
        (folder / PREVIOUS).unlink(missing_ok=True)  # half of what a finished run takes on the disk
    return summary


def load_data(config: Config) -> Dataset:
    """The data set that the config names."""
    from wane.streams import load_dataset

    data = config.data
    return load_dataset(data.name, root=data.root, per_class=data.per_class, resolution=data.resolution,
                        holdout=data.holdout, seed=config.seed)  # fmt: skip


def reduced(dataset: Dataset, config: Config) -> Dataset:
    """A user's own data with fewer images a class, a holdout, and at a lower resolution, as far as the config says."""
    from wane import streams

    data = config.data
    return streams.reduced(
        dataset, per_class=data.per_class, holdout=data.holdout, resolution=data.resolution, seed=config.seed
    )


def summarise(config: Config, state: State, dataset: Dataset) -> dict[str, Any]:
    """What a table needs, and what someone needs who wants to know where it came from."""
    import torch

    from wane.measures.transfer import average, forgetting, plasticity, retention
    from wane.softmax.signals import SIGNALS

    metrics: dict[str, dict[str, float | None]] = {}
    for signal in SIGNALS:
        matrix = state.history.matrix(signal)
        values = {
            "average": average(matrix, signal=signal),
            "forgetting": forgetting(matrix, "peak", signal=signal),
            "retention": retention(matrix, signal=signal),
            "plasticity": plasticity(matrix, signal=signal),
        }
        metrics[signal] = {name: float(v) if v == v else None for name, v in values.items()}
    return {
        "recipe": config.recipe,
        "seed": config.seed,
        "metrics": metrics,
        "forgetting_definition": "peak",
        "accuracy_matrix": [[None if x != x else x for x in row] for row in state.history.matrix("accuracy").tolist()],
        "class_names": list(dataset.class_names),
        "steps": state.position.step,
        "seconds": round(state.seconds, 3),
        "versions": {"wane": wane.__version__, "torch": torch.__version__, "python": platform.python_version()},
        "machine": {
            "platform": platform.platform(),
            "device": str(next(state.learner.parameters()).device),
            "devices": config.devices or 1,
            "threads": config.threads or max(1, torch.get_num_threads() // (config.devices or 1)),
        },
    }


def _claim(folder: Path, config: Config) -> Config:
    """Write the config, or check that the folder holds this run; clear away what a killed attempt left half-written.

    Returns what to run: a run that was begun goes on with its own settings, on the device and the data of now.
    """
    path = folder / CONFIG
    if not (folder / SUMMARY).exists():  # a run that is done is only read, by whoever likes, and may be logged
        for scratch in folder.glob(".*.tmp" if path.exists() else f".{CONFIG}.*.tmp"):
            scratch.unlink(missing_ok=True)  # or of another sweep, that has it in its place by now
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
        left = (SAMPLES, FLOW, RECOVERY, LOGGED, EVENTS)
        for unfinished in [file for pattern in left for file in folder.glob(pattern)]:
            unfinished.unlink()
    elif any(not item.name.startswith((LOCK, f".{LOCK}", LOG)) for item in folder.iterdir()):
        raise OccupiedError(f"{folder} is not empty and holds no run: give a new or empty folder as --out")
    write_atomically(path, lambda file: file.write(to_toml(config).encode()))
    return config


def _is_same(begun_with: Config, config: Config) -> bool:
    """Whether it is the run that was begun; of one begun before data had a fingerprint, the folder's name must do."""
    if begun_with.data.fingerprint is None and Path(begun_with.data.name).name == Path(config.data.name).name:
        older = config.data.model_copy(update={"fingerprint": None, "name": begun_with.data.name})
        config = config.model_copy(update={"data": older})
    return fingerprint(begun_with) == fingerprint(config)
