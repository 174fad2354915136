"""The training loop: tasks, epochs, steps, top to bottom.

It knows no method: a learner says what is learnt (`wane.learners`). Every choice comes from the state's generators,
every epoch ends in a checkpoint, and so a run that was killed at any moment ends exactly like an uninterrupted one.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from functools import partial, reduce
from operator import add
from pathlib import Path

import numpy as np
import torch
from torch import nn

from wane.errors import RunError
from wane.interventions.loss_weights import weight_statistics
from wane.learners.describe import settings_of, title_of
from wane.measures.group_metrics import GroupMetrics
from wane.runs.about import About, write_about
from wane.runs.config import Config
from wane.runs.layout import HISTORY, LADDER, REPLAY
from wane.runs.writing import add_rows, remove, write_atomically
from wane.streams import DataError, Dataset, Stream, Task
from wane.training.batches import epoch_rows, make_batch, make_scene, remember, split_rows
from wane.training.checkpoint import load_checkpoint, save_checkpoint
from wane.training.correction import check_correction
from wane.training.costs import EpochCosts, add_epoch, add_sizes
from wane.training.draws import draw_shares, make_draw, trend_probabilities
from wane.training.evaluation import record_epoch, record_split
from wane.training.events import Events
from wane.training.ladder import left_out, record_ladder
from wane.training.losses import ReplayedSignals, part_means, score_rows, weigh_parts
from wane.training.resuming import ADDED_TO, belongs_to, resume
from wane.training.session import Session, open_session
from wane.training.state import Position, make_optimiser, use_threads
from wane.training.team import ALONE, Team

__all__ = ["DivergedError", "train"]


class DivergedError(RunError):
    """The loss became NaN or infinite."""


def train(
    config: Config,
    dataset: Dataset,
    folder: Path,
    *,
    model: nn.Module | None = None,
    team: Team = ALONE,
    events: Events | None = None,
) -> Session:
    """Run the whole stream, or go on with it from the folder's checkpoint; returns the session at its end."""
    with torch.random.fork_rng(devices=[]), use_threads(config.threads or team.threads):
        torch.manual_seed(config.seed)
        session = open_session(config, dataset, folder, model=model, team=team, events=events or Events())
        state, learner = session.state, session.learner
        check_tests(session.stream)
        check_correction(session)
        if team.is_first:
            write_about(folder, describe(session))
        with team.first_goes_first():  # it may put a damaged checkpoint right
            saved = load_checkpoint(folder)
        if saved is None and team.is_first:  # what a killed attempt, or one with other settings, left
            remove(*(folder / name for name in ADDED_TO))
        resume(session, saved)
        if saved is not None and team.is_first:  # damaged ones are put right, also if no epoch is left to be done
            write_tables(session)
        session.events.run_started(session)
        for task in list(session.stream)[state.position.task :]:
            if state.position.epoch == 0:
                learner.begin_task(make_scene(session, task))
                state.optimiser = make_optimiser(config, learner)
                if task.index == 0 and learner.answers_ahead:
                    record_split(session, task, "untrained")
            for epoch in range(state.position.epoch, config.learner.epochs):
                started = time.perf_counter()
                with team.own_randomness(config.seed, state.position.step):
                    replayed = train_epoch(session, task, epoch)
                last = epoch + 1 == config.learner.epochs
                if last:
                    learner.eval()
                    learner.end_task(make_scene(session, task))
                evaluated = record_epoch(session, task, replayed, last=last)
                add_sizes(session, task)
                check_finite(session, task, epoch)
                if last and config.record.ladder is not None and team.is_first:
                    add_rows(folder / LADDER, record_ladder(session, task, evaluated.passed), step=state.position.step)
                state.position = Position(task.index + last, 0 if last else epoch + 1, state.position.step)
                state.seconds += time.perf_counter() - started
                if team.is_first:
                    write_down(session)
                session.events.epoch_done(session, task.index, epoch)
    return session


def train_epoch(session: Session, task: Task, epoch: int) -> GroupMetrics:
    """One pass over the task's rows; returns the signals of the replayed rows, from the passes that trained on them."""
    config, state, learner = session.config, session.state, session.learner
    observe = session.team.observer(learner)
    optimiser = with_learning_rate(session, epoch)
    trend = trend_probabilities(session, task)
    draw = make_draw(session, task, trend)
    steps = split_rows(session, task, epoch_rows(session, task, draw))
    replayed = ReplayedSignals(session, task)
    weigh = config.learner.weights
    everything = weigh is not None and weigh.rows == "all"
    weight_log = []
    precision = (
        partial(torch.autocast, session.device.type, torch.bfloat16) if config.precision == "bf16" else nullcontext
    )
    costs = EpochCosts(first=epoch == 0)
    losses = torch.empty(len(steps), device=session.device)
    learner.train()
    for i, rows in enumerate(steps):
        draw = make_draw(session, task, trend)
        done = i / len(steps)
        progress = (epoch + done) / config.learner.epochs
        batch, images = make_batch(session, task, rows, draw, progress=progress, epoch_progress=done)
        with costs.counting(), precision():
            observed = observe(batch)
        weights = None
        if weigh is not None:
            start = 0 if everything else batch.new
            scored = score_rows(session, task, observed.logits[start:], batch.labels[start:])
            weights = weigh_parts(weigh, scored, batch.parts, start=start)
        parts = part_means(observed.losses.float(), weights, batch.parts)
        optimiser.zero_grad()
        with costs.counting():
            learner.backward(parts, observed.penalty, batch)
        learner.after_backward(batch)
        optimiser.step()
        learner.after_step(batch)
        costs.add(len(batch.labels))
        state.position.step += 1
        with torch.no_grad():
            losses[i] = reduce(add, parts) + observed.penalty
        remember(session, task, batch, images, observed)
        if batch.new < len(batch.labels):
            replayed.add(batch, observed.logits)
            if weights is not None:
                weight_log.append(weight_statistics(weights))
        if config.record.eval_every and state.position.step % config.record.eval_every == 0:
            session.team.align(state)
            record_split(session, task, "test_steps")
        session.events.step_done(session, len(batch.labels))
    session.team.align(state)
    if not bool(losses.isfinite().all()):
        at = int((~losses.isfinite()).nonzero()[0, 0])
        raise diverged(f"the loss became {float(losses[at])} at step {at + 1} of {len(steps)}", config, task, epoch)
    add_epoch(session, task, costs)
    if state.memory is not None:
        state.replay_log.add(
            step=state.position.step,
            task=task.index,
            probabilities=draw_shares(session, task, draw),
            drawn=replayed.total().counts.cpu(),
            current=session.stream.group_to_task.cpu() == task.index,
            weights=weight_log,
        )
    return replayed.total()


def check_tests(stream: Stream) -> None:
    """An error for a task of which nothing could be measured: better now than when it is trained."""
    for task in stream:
        if len(task.test) == 0:
            names = ", ".join(stream.dataset.class_names[c] for c in task.classes[:5])
            names += ", ..." if len(task.classes) > 5 else ""
            raise DataError(
                f"task {task.index + 1} has no test image: add some of its classes ({names}), or set data.tasks or "
                "data.class_order so that they share a task with classes that have some"
            )


def check_finite(session: Session, task: Task, epoch: int) -> None:
    """An error if the last evaluation has no numbers."""
    (last,) = session.state.history.tail(1, split=session.split)
    values = last.values
    if session.learner.needs_task:  # a class that is alone in its task has no signals
        tasks = session.stream.group_to_task.cpu().numpy()
        values = values[np.bincount(tasks)[tasks[last.classes]] > 1]
    if np.isnan(values).any():
        raise diverged("the test signals became nan", session.config, task, epoch)


def describe(session: Session) -> About:
    """What a run is, for whoever reads its folder."""
    kind = type(session.learner)
    return About(
        has_memory=kind.has_memory(),
        settings=settings_of(kind),
        class_names=session.dataset.class_names,
        group_names=session.stream.group_names,
        task_names=tuple(task.name for task in session.stream),
        learner_title=title_of(kind),
        source=kind.source,
        ladder_notes=tuple(dict.fromkeys(left_out(session).values())) if session.config.record.ladder else (),
    )


def write_down(session: Session) -> None:
    """What a run leaves of an epoch."""
    write_tables(session)
    # The checkpoint comes last: a run killed before it does the epoch over, and rewrites the files above.
    save_checkpoint(session.folder, {**session.state.state_dict(), **belongs_to(session)})


def write_tables(session: Session) -> None:
    """The files whose whole content is in the state."""
    state, folder = session.state, session.folder
    write_atomically(folder / HISTORY, state.history.write_parquet)
    if state.memory is not None:
        state.replay_log.write(folder / REPLAY)


def diverged(what: str, config: Config, task: Task, epoch: int) -> DivergedError:
    """The error that says where it happened, and what to do."""
    return DivergedError(
        f"{what} in task {task.index + 1}, epoch {epoch + 1}: lower learner.lr (it is {config.learner.lr}); the "
        "checkpoint of the epoch before is kept"
    )


def with_learning_rate(session: Session, epoch: int) -> torch.optim.Optimizer:
    """The optimiser at the rate of this epoch: a function of the epoch, so there is no scheduler to save."""
    optimiser, settings = session.state.optimiser, session.config.learner
    if optimiser is None:
        raise RuntimeError("a task must begin before it is trained")
    passed = sum(milestone <= epoch for milestone in settings.milestones)
    for parameters in optimiser.param_groups:
        parameters["lr"] = settings.lr * settings.decay**passed
    return optimiser
