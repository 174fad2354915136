"""The ladder at the end of a task: what a constant added to logits, and a new linear head, would bring back.

Nothing here trains the network, draws a random number, or leaves a trace in the run. The test rows come as the
evaluation passed them; memory, held-out and training rows pass once, in eval mode, and convex problems are solved.

The rungs are those of `wane.measures.ladder`. Classes that are not seen yet take no part in any but the first, which is
the accuracy as it was recorded.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wane.interventions.correction import LogitCorrection
from wane.interventions.linear_head import LinearHead, fit_head
from wane.models.blocks import has_features, head_of
from wane.runs.sections import LadderSettings
from wane.streams import Task
from wane.training.rows import Passed, answers_its_own_way, pass_rows, rows_of
from wane.training.session import Session

if TYPE_CHECKING:
    import polars

__all__ = ["left_out", "record_ladder", "wants_test_rows"]

#: Of each class at most so many training rows choose the penalty of the head that is then fitted on all of them.
ROWS_FOR_CHOICE = 20


class Answers(NamedTuple):
    """A rung before it is counted: logits of the test rows, and what was fitted."""

    rung: str
    logits: Tensor
    offsets: Tensor | None = None  # (C,)
    strength: float | None = None


def wants_test_rows(session: Session, task: Task) -> bool:
    """Whether there is more to measure at the end of a task than the accuracy now."""
    settings = session.config.record.ladder
    if settings is None or session.learner.needs_task:
        return False
    return settings.at is None or task.index + 1 == len(session.stream)


def record_ladder(session: Session, task: Task, tested: Passed | None) -> polars.DataFrame:
    """Every rung that can be measured, a row for each class: the columns are `wane.measures.ladder.COLUMNS`.

    `tested` are the test rows so far; None for the first rung alone.
    """
    import polars as pl

    settings, stream = session.config.record.ladder, session.stream
    assert settings is not None
    (now,) = session.state.history.tail(1, split=session.split)
    accuracy = session.state.history.column(now, "accuracy")
    frames = [_frame(session, task, "now", now.classes, now.n, accuracy)]
    if tested is not None:
        _, rows, tasks = rows_of(session, task, "test")
        groups = stream.groups(tested.labels, tasks[rows])
        frames += [_count(session, task, tested, groups, found) for found in _rungs(session, settings, task, tested)]
    return pl.concat(frames)


def left_out(session: Session) -> dict[str, str]:
    """The rungs that a run cannot have, each with the reason, in a sentence."""
    learner, config = session.learner, session.config
    title = type(learner).title or type(learner).__name__
    if learner.needs_task:
        why = (f"{title} is told the task of every row, so no task can take another's answers: of the ladder, only the "
               "accuracy now was measured.")  # fmt: skip
        return dict.fromkeys(("bias_memory", "bias_holdout", "bias_oracle", "head_memory", "head_all"), why)
    found: dict[str, str] = {}
    if session.memory is None:
        why = f"{title} has no memory to fit a correction or a head on."
        found |= dict.fromkeys(("bias_memory", "head_memory"), why)
    if _held_out(session) is None:
        found["bias_holdout"] = "No training rows were held out (data.holdout and memory.holdout are not set)."
    if not has_features(learner.model):
        why = (f"{type(learner.model).__name__} has no linear layer `head` after a method `features`, so that no new "
               "head can be fitted.")  # fmt: skip
        found |= dict.fromkeys(("head_memory", "head_all"), why)
    if config.data.stream == "domains":
        found["offsets"] = "The tasks have the same classes, so the correction is one number for each class."
    return found


def _rungs(session: Session, settings: LadderSettings, task: Task, tested: Passed) -> Iterator[Answers]:
    """All but the first."""
    stream, memory, model = session.stream, session.memory, session.learner.model
    seen = torch.tensor(sorted(stream.seen(task.index)), device=session.device)
    if len(seen) < 2:
        return
    groups = _groups(session, settings, task)
    by = settings.by or ("accuracy" if answers_its_own_way(session.learner) else "nkl")
    if memory is not None and len(memory):
        stored = pass_rows(session, *rows_of(session, task, "memory"), features=True)
        yield from _corrected("bias_memory", by, groups, stored, tested)
        present = torch.unique(stored.labels).tolist()
        if stored.features is not None and len(present) > 1:
            head = head_of(model)
            bias = torch.zeros(head.out_features) if head.bias is None else head.bias
            fitted = fit_head(stored.features, stored.labels, classes=present, strength=settings.strengths,
                              folds=settings.folds, toward=(head.weight.detach(), bias.detach()))  # fmt: skip
            yield _answers("head_memory", fitted, tested)
    if (split := _held_out(session)) is not None:
        held = pass_rows(session, *rows_of(session, task, split))
        yield from _corrected("bias_holdout", by, groups, held, tested)
    yield from _corrected("bias_oracle", "accuracy", groups, tested, tested)
    if tested.features is not None:
        tasks = stream.tasks_of("train")
        rows = (tasks <= task.index).nonzero()[:, 0]
        learnt = pass_rows(session, session.dataset.train, rows, tasks, features=True, logits=False)
        assert learnt.features is not None
        present = torch.unique(learnt.labels).tolist()
        if len(present) > 1:
            fitted = fit_head(learnt.features, learnt.labels, classes=present, strength=settings.strengths,
                              folds=settings.folds, rows_for_choice=ROWS_FOR_CHOICE)  # fmt: skip
            yield _answers("head_all", fitted, tested)


def _held_out(session: Session) -> str | None:
    """The split of training rows that were never trained on, if there is one."""
    if session.dataset.holdout is not None:
        return "holdout"
    memory = session.config.memory
    clean = session.memory is not None and memory.holdout is not None and not memory.holdout_replayed
    return "memory_holdout" if clean else None


def _groups(session: Session, settings: LadderSettings, task: Task) -> Tensor | None:
    """(C,) which classes share an offset, -1 for those not seen yet; None for one offset a class."""
    stream = session.stream
    if stream.kind == "domains" or settings.groups == "class":
        return None
    tasks = stream.class_to_task.cpu()
    groups = tasks if settings.groups == "task" else (tasks == task.index).long()
    return torch.where(tasks <= task.index, groups, -1)


def _corrected(rung: str, by: str, groups: Tensor | None, rows: Passed, tested: Passed) -> Iterator[Answers]:
    """The test logits corrected as `rows` tell; nothing if these have no two groups to tell apart."""
    present = torch.unique(rows.labels.cpu())
    if groups is not None:
        with_rows = torch.unique(groups[present])
        groups = torch.where(torch.isin(groups, with_rows), groups, -1)  # a group without rows is left alone
        wanted = len(torch.unique(groups[groups >= 0]))
    else:
        wanted = len(present)
    if wanted == 0 or (groups is None and wanted < 2):
        return
    correction = LogitCorrection(by=by, groups=groups).fit(rows.logits, rows.labels)
    yield Answers(rung, correction.apply(tested.logits), correction.offsets)


def _answers(rung: str, head: LinearHead, tested: Passed) -> Answers:
    assert tested.features is not None
    logits = head(tested.features)
    missing = tested.logits.shape[1] - logits.shape[1]
    if missing > 0:  # classes that are not seen yet
        logits = torch.cat([logits, logits.new_full((len(logits), missing), -torch.inf)], 1)
    return Answers(rung, logits, strength=head.strength)


def _count(session: Session, task: Task, tested: Passed, groups: Tensor, found: Answers) -> polars.DataFrame:
    """The rows of one rung."""
    stream = session.stream
    seen = torch.tensor(sorted(stream.seen(task.index)), device=found.logits.device)
    said = seen[found.logits[:, seen].argmax(1)]
    n = torch.bincount(groups, minlength=stream.num_groups).cpu().numpy()
    right = torch.bincount(groups[said == tested.labels], minlength=stream.num_groups).cpu().numpy()
    there = np.flatnonzero(n)
    offsets = None if found.offsets is None else found.offsets.numpy()[there % session.dataset.num_classes]
    return _frame(session, task, found.rung, there, n[there], right[there] / n[there], offsets, found.strength)


def _frame(
    session: Session, task: Task, rung: str, classes: NDArray[np.int64], n: NDArray[np.int64],
    accuracy: NDArray[np.float64], offsets: NDArray[np.float64] | None = None, strength: float | None = None,
) -> polars.DataFrame:  # fmt: skip
    import polars as pl

    count = len(classes)
    columns = {
        "step": np.full(count, session.state.position.step), "task": np.full(count, task.index), "class": classes,
        "class_task": session.stream.group_to_task.cpu().numpy()[classes], "n": n, "rung": [rung] * count,
        "accuracy": accuracy, "offset": [None] * count if offsets is None else offsets, "strength": [strength] * count,
    }  # fmt: skip
    return pl.DataFrame(columns, schema_overrides={"offset": pl.Float64, "strength": pl.Float64})
