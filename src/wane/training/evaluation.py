"""One pass over test rows: means per class in both settings, and, where asked, every sample and the flow."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from wane.measures.group_metrics import GroupMetrics
from wane.runs.layout import FLOW, RECOVERY, SAMPLES
from wane.runs.reading import read_file
from wane.runs.writing import add_rows, write_atomically
from wane.softmax.signals import signals
from wane.streams import Split, Task
from wane.training.batches import make_scene
from wane.training.correction import fitted_offsets
from wane.training.groups import count, new_metrics, score_within
from wane.training.ladder import wants_test_rows
from wane.training.recovery import record_recovery
from wane.training.rows import BATCH, Passed, pass_rows, rows_of
from wane.training.session import Session

__all__ = ["Evaluated", "evaluate", "record_epoch", "record_split", "write_flow", "write_samples"]

#: Batches whose logits are scored together: the signals are many small operations, dear on 128 rows and free on 2,048.
TOGETHER = 16
#: Splits that are recorded in both settings; the task-incremental one has `_task` behind its name.
IN_BOTH_SETTINGS = ("test", "holdout", "future", "untrained")


@dataclass
class Evaluated:
    """What one pass gave."""

    metrics: GroupMetrics | None  # class-incremental; None for a learner that must be told the task
    within: GroupMetrics | None  # task-incremental: each row among the classes of its own task; None if not asked for
    samples: dict[str, np.ndarray[Any, Any]] | None
    passed: Passed | None  # every row's features and logits; None if not asked for

    @property
    def leading(self) -> GroupMetrics:
        """Those of the setting that the learner works in."""
        leading = self.within if self.metrics is None else self.metrics
        assert leading is not None
        return leading


def record_epoch(session: Session, task: Task, replayed: GroupMetrics, *, last: bool) -> Evaluated:
    """At the end of an epoch: evaluate all seen classes, and write down what was asked for.

    Returns the evaluation of the test rows, with every row's features and logits where the ladder will want them.
    """
    config, state, folder, first = session.config, session.state, session.folder, session.team.is_first
    step, wanted = state.position.step, config.record.samples
    number = task.index * config.learner.epochs + state.position.epoch + 1
    samples = last if wanted == "tasks" else wanted != "never" and number in wanted
    if replayed.update_called:
        state.history.record(replayed, step=step, task=task.index, split="replay")
    if session.dataset.holdout is not None:
        record_split(session, task, "holdout")
    if config.memory.holdout is not None and session.memory is not None:
        record_split(session, task, "memory_holdout")
    flow = last and config.record.flow
    passed = last and wants_test_rows(session, task)
    evaluated = record_split(session, task, "test", samples=samples, flow=flow, passed=passed)
    if last and session.learner.answers_ahead and task.index + 1 < len(session.stream):
        record_split(session, task, "future")
    if last and config.record.correction is not None:
        record_split(session, task, "test_corrected", offsets=fitted_offsets(session, task))
    if evaluated.samples is not None and first:
        path = folder / SAMPLES
        write_samples(path, evaluated.samples, step=step, task=task.index, split=session.split)
    if flow and first:
        write_flow(folder / FLOW, evaluated.leading.compute()["flow"], step=step, task=task.index)
    if last and config.record.recovery is not None and first:
        add_rows(folder / RECOVERY, record_recovery(session, task), step=step)
    return evaluated


def record_split(
    session: Session, task: Task, split: str, *, samples: bool = False, flow: bool = False,
    offsets: Tensor | None = None, passed: bool = False,
) -> Evaluated:  # fmt: skip
    """One evaluation into the history.

    Args:
        session: the run.
        task: the task that is being learnt.
        split: ``"test"``, ``"test_steps"``, ``"test_corrected"``, ``"holdout"`` and ``"memory_holdout"`` are of all
            tasks so far, ``"future"`` is of the test rows of the others, ``"untrained"`` of all test rows.
        samples: keep every row's signals.
        flow: keep the mean softmax of every class.
        offsets: (C,) added to the logits.
        passed: keep every row's features and logits.
    """
    was_training = session.learner.training
    session.learner.eval()
    session.learner.before_evaluation(make_scene(session, task))
    session.learner.train(was_training)
    ahead, both = split in ("future", "untrained"), split in IN_BOTH_SETTINGS
    data, rows, tasks = rows_of(session, task, split)
    evaluated = evaluate(
        session, data, rows, tasks, classes=None if ahead else session.competing_classes(task), within=both,
        samples=samples, flow=flow, offsets=offsets, passed=passed,
    )  # fmt: skip
    at: Any = {"step": session.state.position.step, "task": task.index}
    if evaluated.metrics is not None:
        session.state.history.record(evaluated.metrics, **at, split=split)
    if evaluated.within is not None:
        session.state.history.record(evaluated.within, **at, split=f"{split}_task" if both else split)
    return evaluated


def evaluate(
    session: Session, data: Split, rows: Tensor, tasks: Tensor, *, classes: range | list[int] | None = None,
    within: bool = False, samples: bool = False, flow: bool = False, offsets: Tensor | None = None,
    passed: bool = False,
) -> Evaluated:  # fmt: skip
    """Score `rows` of a split in eval mode; the learner is back in its mode afterwards, no generator is touched.

    `tasks` holds the task of every row of the split; `within` also scores each row among the classes of its own task,
    from the same logits. For a learner that must be told the task that is the only score there is.
    """
    learner, stream, team = session.learner, session.stream, session.team
    needs_task, also = learner.needs_task, session.config.further_signals
    metrics = None if needs_task else new_metrics(stream, also=also, flow=flow)
    own = new_metrics(stream, also=also, flow=flow and needs_task) if within or needs_task else None
    kept: list[Tensor] = []
    blocks: list[Passed] = []
    with torch.inference_mode():
        for block in torch.split(team.share(rows), TOGETHER * BATCH.get(session.device.type, 1024)):
            through = pass_rows(session, data, block, tasks, features=passed)
            blocks += [through] * passed
            _, logits, labels = through
            logits = logits if offsets is None else logits + offsets
            groups = stream.groups(labels, tasks[block])
            if metrics is not None:
                scored = signals(logits, labels, classes=classes, also=also, validate=False)
                count(metrics, groups, scored, logits if flow else None)
            if own is not None:
                scored_within = score_within(stream, logits, labels, also=also)
                count(own, groups, scored_within, logits if flow and needs_task else None)
            if samples:
                of_samples = scored_within if needs_task else scored
                kept.append(torch.stack([block, labels, *of_samples], dim=1))
    for sums in (metrics, own):
        if sums is not None:  # sums lie on a grid: put together they are the same to the bit as in one pass
            team.add_up(*(getattr(sums, name) for name in sums._defaults))
    table = _columns(team.whole(torch.cat(kept), len(rows)).cpu(), of_samples.names) if kept else None
    return Evaluated(metrics, own, table, _together(session, blocks, len(rows)) if passed else None)


def _together(session: Session, blocks: list[Passed], rows: int) -> Passed:
    """The blocks of all processes as one."""
    features, logits, labels = zip(*blocks, strict=True)
    whole = session.team.whole
    kept = None if features[0] is None else whole(torch.cat(features), rows)
    return Passed(kept, whole(torch.cat(logits), rows), whole(torch.cat(labels), rows))


def _columns(table: Tensor, signals: tuple[str, ...]) -> dict[str, np.ndarray[Any, Any]]:
    names = ("sample", "class", *signals)
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


def write_flow(path: Path, flow: Tensor, *, step: int, task: int) -> None:
    """Add to flow.npz: `flow` (k, C, C), row = true class, column = where its probability is; `step`, `task` (k,)."""
    parts = {"flow": flow.float().cpu().numpy()[None], "step": np.array([step]), "task": np.array([task])}
    kept = read_file(path.parent, path.name)
    if kept is not None:
        with np.load(io.BytesIO(kept)) as old:
            before = old["step"] < step
            parts = {name: np.concatenate([old[name][before], value]) for name, value in parts.items()}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **parts)
    write_atomically(path, lambda file: file.write(buffer.getvalue()))
