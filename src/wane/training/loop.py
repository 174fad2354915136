"""The training loop: tasks, epochs, steps, top to bottom.

It knows no method: a learner says what is learnt (`wane.learners`). Every choice comes from the state's generators,
every epoch ends in a checkpoint, and so a run that was killed at any moment ends as if it never was.
"""

from __future__ import annotations

import time
from operator import itemgetter
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from wane.errors import RunError
from wane.interventions.loss_weights import LossWeights, weight_statistics
from wane.learners import Scene
from wane.measures.group_metrics import ClassMetrics
from wane.runs.config import Config
from wane.runs.layout import HISTORY, REPLAY
from wane.runs.writing import write_atomically
from wane.streams import ClassIncremental, DataError, Dataset, Task
from wane.training.batches import (
    competing_classes,
    draw_probabilities,
    make_batch,
    memory_batches,
    remember,
    score_rows,
    split_rows,
    task_batches,
    weighted_mean,
)
from wane.training.checkpoint import load_checkpoint, save_checkpoint
from wane.training.evaluation import record_epoch, record_split
from wane.training.progress import Progress
from wane.training.state import Position, State, build_state, make_optimiser, use_threads
from wane.training.team import ALONE, Team

__all__ = ["DivergedError", "train"]


class DivergedError(RunError):
    """The loss became NaN or infinite."""


def train(
    config: Config,
    dataset: Dataset,
    folder: Path,
    *,
    progress: Progress,
    model: nn.Module | None = None,
    team: Team = ALONE,
) -> State:
    """Run the whole stream, or go on with it from the folder's checkpoint; returns the final state."""
    device = team.device(config)
    stream = ClassIncremental(dataset.to(device), config.num_tasks, config.data.class_order, seed=config.seed)
    check_tests(stream)
    with torch.random.fork_rng(devices=[]), use_threads(config.threads or team.threads):
        torch.manual_seed(config.seed)
        state = build_state(config, stream, model, device)
        with team.first_goes_first():  # it may put a damaged checkpoint right
            saved = load_checkpoint(folder)
        resume(state, config, stream, saved)
        progress.start(state.position, epochs=len(stream) * config.learner.epochs, names=dataset.class_names)
        for task in list(stream)[state.position.task :]:
            if state.position.epoch == 0:
                state.learner.begin_task(make_scene(state, config, stream, task))
                state.optimiser = make_optimiser(config, state.learner)
            for epoch in range(state.position.epoch, config.learner.epochs):
                started = time.perf_counter()
                with team.own_randomness(config.seed, state.position.step):
                    replayed = train_epoch(state, config, stream, task, epoch, progress, team)
                last = epoch + 1 == config.learner.epochs
                if last:
                    state.learner.eval()
                    state.learner.end_task(make_scene(state, config, stream, task))
                record_epoch(state, config, stream, task, replayed, folder, last=last, team=team)
                if np.isnan(state.history.evaluations[-1].values).any():
                    raise diverged("the test signals became nan", config, task, epoch)
                state.position = Position(task.index + last, 0 if last else epoch + 1, state.position.step)
                state.seconds += time.perf_counter() - started
                if team.is_first:
                    write_down(state, folder)
                progress.epoch_done(task.index, epoch, state.history)
    return state


def check_tests(stream: ClassIncremental) -> None:
    """An error for a task of which nothing could be measured: better now than when it is trained."""
    for task in stream:
        if len(task.test) == 0:
            names = ", ".join(stream.dataset.class_names[c] for c in task.classes[:5])
            names += ", ..." if len(task.classes) > 5 else ""
            raise DataError(
                f"task {task.index + 1} has no test image: add some of its classes ({names}), or set data.tasks or "
                "data.class_order so that they share a task with classes that have some"
            )


def write_down(state: State, folder: Path) -> None:
    """What a run leaves of an epoch."""
    write_atomically(folder / HISTORY, state.history.write_parquet)
    if state.memory is not None:
        state.replay_log.write(folder / REPLAY)
    # The checkpoint comes last: a run killed before it does the epoch over, and rewrites the files above.
    save_checkpoint(folder, state.state_dict())


def train_epoch(
    state: State,
    config: Config,
    stream: ClassIncremental,
    task: Task,
    epoch: int,
    progress: Progress,
    team: Team = ALONE,
) -> ClassMetrics:
    """One pass over the task's rows; returns the signals of the replayed rows, from the passes that trained on them."""
    learner, settings = state.learner, config.learner
    observe = team.observer(learner)
    device = stream.dataset.train.images.device
    optimiser = with_learning_rate(state, config, epoch)
    rows = task.train if learner.rows == "task" else torch.cat([stream[k].train for k in range(task.index + 1)])
    order = rows[torch.randperm(len(rows), generator=state.generators["order"]).to(device)]
    parts = split_rows(state, order, settings.batch_size)
    replayed = ClassMetrics(stream.dataset.num_classes, validate=False, sync_on_compute=False).to(device)
    classes = competing_classes(config, stream, task)
    weigh, everything = loss_weights(config)
    trend = trend_probabilities(state, config, task)
    probabilities, weight_log = None, []
    losses = torch.empty(len(parts), device=device)
    learner.train()
    for i, part in enumerate(parts):
        probabilities = draw_probabilities(state.memory, config, task, trend)
        done = (epoch + i / len(parts)) / settings.epochs
        batch, images = make_batch(state, config, stream, part, probabilities, done)
        with torch.autocast(device.type, torch.bfloat16, enabled=config.precision == "bf16"):
            observed = observe(batch)
        scored = score_rows(batch, observed, classes, start=0 if everything else batch.new)
        weights = None if weigh is None else weigh(scored)
        loss = weighted_mean(observed.losses.float(), weights) + observed.penalty
        optimiser.zero_grad()
        torch.autograd.backward(loss)
        learner.after_backward(batch)
        optimiser.step()
        learner.after_step(batch)
        state.position.step += 1
        losses[i] = loss.detach()
        remember(state, task, batch, images, observed)
        if batch.new < len(batch.labels):
            replays = slice(batch.new if everything else 0, None)
            replayed.update(scored=scored.map(itemgetter(replays)), labels=batch.labels[batch.new :])
            if weights is not None:
                weight_log.append(weight_statistics(weights))
        if config.record.eval_every and state.position.step % config.record.eval_every == 0:
            team.align(state)
            record_split(state, config, stream, task, "test_steps", team=team)
        progress.step_done(len(batch.labels))
    team.align(state)
    if not bool(losses.isfinite().all()):
        at = int((~losses.isfinite()).nonzero()[0, 0])
        raise diverged(f"the loss became {float(losses[at])} at step {at + 1} of {len(parts)}", config, task, epoch)
    if state.memory is not None:
        state.replay_log.add(
            step=state.position.step,
            task=task.index,
            memory=state.memory,
            probabilities=probabilities,
            replayed=replayed,
            current=task.classes,
            weights=weight_log,
        )
    return replayed


def diverged(what: str, config: Config, task: Task, epoch: int) -> DivergedError:
    """The error that says where it happened, and what to do."""
    return DivergedError(
        f"{what} in task {task.index + 1}, epoch {epoch + 1}: lower learner.lr (it is {config.learner.lr}); the "
        "checkpoint of the epoch before is kept"
    )


def loss_weights(config: Config) -> tuple[LossWeights | None, bool]:
    """The weighting that the config asks for, and whether it is of all rows, not of the replayed alone."""
    weights = config.learner.weights
    return weights, weights is not None and weights.rows == "all"


def trend_probabilities(state: State, config: Config, task: Task) -> Tensor | None:
    """The class probabilities of this epoch's draws by the trend so far; None without one.

    There is none before the first epoch that measured its source: a first epoch of a single step replays nothing.
    """
    trend = config.learner.trend
    if trend is None or not state.history.tail(1, split=trend.source):
        return None
    return trend.probabilities(state.history, task=task.index)


def resume(state: State, config: Config, stream: ClassIncremental, saved: dict[str, object] | None) -> None:
    """Take up where a checkpoint was written; nothing to do without one."""
    if saved is None:
        return
    position = Position(**saved["position"])  # type: ignore[arg-type]
    begun = position.task + (position.epoch > 0)
    for task in list(stream)[:begun]:
        state.learner.begin_task(make_scene(state, config, stream, task))
    if position.epoch > 0:
        state.optimiser = make_optimiser(config, state.learner)
    state.load_state_dict(saved)


def make_scene(state: State, config: Config, stream: ClassIncremental, task: Task) -> Scene:
    """What a learner is told when a task begins or ends."""
    return Scene(
        task=task,
        step=state.position.step,
        seen=stream.seen(task.index),
        memory=state.memory,
        batches=lambda: task_batches(state, config, stream, task),
        remembered=lambda: memory_batches(state, config, stream),
    )


def with_learning_rate(state: State, config: Config, epoch: int) -> torch.optim.Optimizer:
    """The optimiser at the rate of this epoch: a function of the epoch, so there is no scheduler to save."""
    if state.optimiser is None:
        raise RuntimeError("a task must begin before it is trained")
    passed = sum(milestone <= epoch for milestone in config.learner.milestones)
    for parameters in state.optimiser.param_groups:
        parameters["lr"] = config.learner.lr * config.learner.decay**passed
    return state.optimiser
