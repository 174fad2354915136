"""Offsets for split `test_corrected`, fitted at the end of a task. The run itself is left alone."""

from __future__ import annotations

import torch
from torch import Tensor

from wane.interventions.correction import LogitCorrection
from wane.runs.config import ConfigError
from wane.streams import Task
from wane.training.rows import pass_rows, rows_of
from wane.training.session import Session

__all__ = ["check_correction", "exposure", "fitted_offsets"]


def check_correction(session: Session) -> None:
    """An error, before anything is trained, if there will be nothing to correct or to fit on."""
    settings, learner = session.config.record.correction, session.config.learner.name
    if settings is None:
        return
    if session.learner.needs_task:
        raise ConfigError(f"record.correction weighs tasks against each other, but learner {learner} is told the task: "
                          "leave it out")  # fmt: skip
    if session.memory is None and settings.source != "holdout" and settings.by != "prior":
        raise ConfigError(f"record.correction.source is {settings.source}, but learner {learner} has no memory: "
                          "set it to holdout, and data.holdout to images a class")  # fmt: skip


def fitted_offsets(session: Session, task: Task) -> Tensor:
    """(C,) offsets, as `record.correction` says; for a task, or class, of which there are no rows to fit on, 0."""
    settings, stream = session.config.record.correction, session.stream
    assert settings is not None
    tasks = stream.class_to_task.cpu()
    groups = torch.arange(len(tasks)) if settings.groups == "class" else tasks.clone()
    if settings.groups == "newest":
        groups = (tasks == task.index).long()
    if settings.by == "prior":
        counts = exposure(session, task)
        groups[(tasks > task.index) | (counts == 0)] = -1
        found = LogitCorrection("prior", groups).fit(counts=counts).offsets
    else:
        data, rows, of_row = rows_of(session, task, settings.source)
        _, logits, labels = pass_rows(session, data, rows, of_row)
        present = torch.bincount(groups[labels.cpu()], minlength=len(groups)) > 0
        groups[(tasks > task.index) | ~present[groups]] = -1
        found = LogitCorrection(settings.by, None if settings.groups == "class" else groups).fit(logits, labels).offsets
    assert found is not None
    return found.to(session.device, torch.float32)


def exposure(session: Session, task: Task) -> Tensor:
    """(C,) how many rows of each class were trained on during this task, new and replayed."""
    again = range(task.index + 1) if session.learner.rows == "seen" else (task.index,)
    rows = torch.cat([session.training_rows(session.stream[k]) for k in again])
    labels = session.dataset.train.labels[rows].cpu()
    counts = torch.bincount(labels, minlength=session.dataset.num_classes) * session.config.learner.epochs
    log = session.state.replay_log
    drawn = [drawn for (_, at), drawn in zip(log.at, log.drawn, strict=True) if at == task.index]
    return counts + (torch.stack(drawn).sum(0).long() if drawn else 0)
