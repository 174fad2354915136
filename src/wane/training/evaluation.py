"""One pass over the test rows of all seen classes: means per class, and, where asked, every sample and the flow."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from wane.learners import Learner
from wane.measures.group_metrics import ClassMetrics
from wane.runs.config import Config
from wane.runs.layout import FLOW, RECOVERY, SAMPLES
from wane.runs.writing import add_rows, write_atomically
from wane.softmax.signals import SIGNALS, signals
from wane.streams import ClassIncremental, Dataset, Split, Task, eval_batch
from wane.training.batches import competing_classes
from wane.training.recovery import record_recovery
from wane.training.state import State
from wane.training.team import ALONE, Team

__all__ = ["Evaluated", "evaluate", "record_epoch", "record_split", "write_flow", "write_samples"]

#: The fastest batch of a forward pass on a CPU, where larger ones outgrow the caches; an accelerator wants more.
BATCH = {"cpu": 128}
#: Batches whose logits are scored together: the signals are many small operations, dear on 128 rows and free on 2,048.
TOGETHER = 16


@dataclass
class Evaluated:
    """What one pass gave."""

    metrics: ClassMetrics
    samples: dict[str, np.ndarray[Any, Any]] | None


def record_epoch(
    state: State,
    config: Config,
    stream: ClassIncremental,
    task: Task,
    replayed: ClassMetrics,
    folder: Path,
    *,
    last: bool,
    team: Team = ALONE,
) -> None:
    """At the end of an epoch: evaluate all seen classes, and write down what was asked for."""
    step, wanted = state.position.step, config.record.samples
    number = task.index * config.learner.epochs + state.position.epoch + 1
    samples = last if wanted == "tasks" else wanted != "never" and number in wanted
    if replayed.update_called:
        state.history.record(replayed, step=step, task=task.index, split="replay")
    if stream.dataset.holdout is not None:
        record_split(state, config, stream, task, "holdout", team=team)
    flow = last and config.record.flow
    evaluated = record_split(state, config, stream, task, "test", samples=samples, flow=flow, team=team)
    if evaluated.samples is not None and team.is_first:
        write_samples(folder / SAMPLES, evaluated.samples, step=step, task=task.index)
    if flow and team.is_first:
        write_flow(folder / FLOW, evaluated.metrics.compute()["flow"], step=step, task=task.index)
    if last and config.record.recovery is not None and team.is_first:
        add_rows(folder / RECOVERY, record_recovery(state, config, stream, task), step=step)


def record_split(
    state: State, config: Config, stream: ClassIncremental, task: Task, split: str, *, samples: bool = False,
    flow: bool = False, team: Team = ALONE,
) -> Evaluated:  # fmt: skip
    """One evaluation of all seen classes on a split, into the history."""
    data = stream.dataset.holdout if split == "holdout" else stream.dataset.test
    assert data is not None
    rows = (stream.class_to_task[data.labels] <= task.index).nonzero()[:, 0]
    evaluated = evaluate(
        state.learner, stream.dataset, data, rows, classes=competing_classes(config, stream, task),
        channels_last=state.channels_last, flow=flow, samples=samples, precision=config.precision,
        team=team,
    )  # fmt: skip
    state.history.record(evaluated.metrics, step=state.position.step, task=task.index, split=split)
    return evaluated


def evaluate(
    learner: Learner, dataset: Dataset, split: Split, rows: torch.Tensor, *, classes: range | list[int] | None = None,
    channels_last: bool = False, flow: bool = False, samples: bool = False, precision: str = "32",
    team: Team = ALONE,
) -> Evaluated:  # fmt: skip
    """Score `rows` of a split in eval mode; the learner is back in its mode afterwards, no generator is touched."""
    device = split.images.device
    metrics = ClassMetrics(dataset.num_classes, flow=flow, validate=False, sync_on_compute=False).to(device)
    kept: list[torch.Tensor] = []
    was_training = learner.training
    learner.eval()
    with torch.inference_mode(), torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16"):
        size = BATCH.get(device.type, 1024)
        for block in torch.split(team.share(rows), TOGETHER * size):
            parts = [
                learner.predict(
                    eval_batch(split.images, part, dataset.mean, dataset.std, channels_last=channels_last)
                ).float()
                for part in torch.split(block, size)
            ]
            labels, logits = split.labels[block], torch.cat(parts)
            scored = signals(logits, labels, classes=classes, validate=False)
            metrics.update(logits if flow else None, labels, scored=scored)
            if samples:
                kept.append(torch.stack([block, labels, *scored], dim=1))
    learner.train(was_training)
    # sums lie on a grid: put together they are the same to the bit as in one pass
    team.add_up(metrics.sums, metrics.counts, *([metrics.flow_sums] if flow else []))
    return Evaluated(metrics, _columns(team.whole(torch.cat(kept), len(rows)).cpu()) if kept else None)


def _columns(table: torch.Tensor) -> dict[str, np.ndarray[Any, Any]]:
    names = ("sample", "class", *SIGNALS, "rank")
    whole = {"sample", "class", "rank"}
    return {
        name: table[:, i].to(torch.int64 if name in whole else torch.float32).numpy() for i, name in enumerate(names)
    }


def write_samples(path: Path, samples: dict[str, Any], *, step: int, task: int, split: str = "test") -> None:
    """Add to samples.parquet."""
    import polars as pl

    n = len(samples["sample"])
    new = pl.DataFrame({"step": np.full(n, step), "task": np.full(n, task), "split": [split] * n, **samples})
    add_rows(path, new, step=step)


def write_flow(path: Path, flow: torch.Tensor, *, step: int, task: int) -> None:
    """Add to flow.npz: `flow` (k, C, C), row = true class, column = where its probability is; `step`, `task` (k,)."""
    parts = {"flow": flow.float().cpu().numpy()[None], "step": np.array([step]), "task": np.array([task])}
    if path.exists():
        with np.load(path) as old:
            before = old["step"] < step
            parts = {name: np.concatenate([old[name][before], value]) for name, value in parts.items()}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **parts)
    write_atomically(path, lambda file: file.write(buffer.getvalue()))
