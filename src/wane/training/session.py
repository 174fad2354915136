"""One sitting of a run: all that its parts share, in one place."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from wane.learners import Learner, find_learner
from wane.learners.describe import title_of
from wane.memory import Memory, rows_set_aside
from wane.runs.config import Config, ConfigError
from wane.streams import Dataset, Stream, Task, dataset_fingerprint
from wane.training.events import Events
from wane.training.groups import open_stream
from wane.training.state import State, build_state, clean_slots
from wane.training.team import Team

__all__ = ["Session", "answers", "open_session"]


@dataclass(frozen=True)
class Session:
    """A run while it is trained.

    Attributes:
        config: everything that the result depends on.
        stream: the tasks and their rows, on the device.
        state: everything that changes, and that a checkpoint holds.
        team: the processes that train together.
        folder: the run folder.
        events: whoever is told how the run goes.
    """

    config: Config
    stream: Stream
    state: State
    team: Team
    folder: Path
    events: Events

    @property
    def learner(self) -> Learner:
        """The method."""
        return self.state.learner

    @property
    def memory(self) -> Memory | None:
        """The replay memory."""
        return self.state.memory

    @property
    def dataset(self) -> Dataset:
        """The data, on the device."""
        return self.stream.dataset

    @property
    def device(self) -> torch.device:
        """Where this process computes."""
        return self.dataset.train.labels.device

    @property
    def split(self) -> str:
        """The split that leads: task-incremental for a learner that must be told the task."""
        return "test_task" if self.learner.needs_task else "test"

    @cached_property
    def data_sum(self) -> str:
        """The fingerprint of the rows as they are trained and tested on."""
        return dataset_fingerprint(self.dataset)

    @cached_property
    def set_aside(self) -> tuple[Tensor, ...]:
        """The training rows in the slots that are never replayed, while each task is learnt; empty without such slots.

        A function of seed and data alone, so that a checkpoint need not hold it.
        """
        slots = 0 if self.memory is None else clean_slots(self.config)
        if slots == 0:
            return tuple(task.train.new_empty(0) for task in self.stream)
        tasks = self.stream.tasks_of("train")
        groups = self.stream.groups(self.dataset.train.labels, tasks)
        seed = int(np.random.SeedSequence([self.config.seed, slots]).generate_state(1)[0])
        generator = torch.Generator().manual_seed(seed)
        found = rows_set_aside(groups.cpu().numpy(), tasks.cpu().numpy(), slots, generator)
        return tuple(torch.from_numpy(rows).to(self.device) for rows in found)

    def training_rows(self, task: Task) -> Tensor:
        """The rows of a task that are trained on."""
        aside = self.set_aside[task.index]
        return task.train if len(aside) == 0 else task.train[~torch.isin(task.train, aside)]

    def competing_classes(self, task: Task) -> range | list[int] | None:
        """The classes in the softmax of the signals; None for the whole head. A range is read in place."""
        if self.config.record.classes == "all":
            return None
        seen = sorted(self.stream.seen(task.index))
        return range(len(seen)) if seen == list(range(len(seen))) else seen


def open_session(
    config: Config, dataset: Dataset, folder: Path, *, model: nn.Module | None, team: Team, events: Events
) -> Session:
    """A run that has not begun."""
    device = team.device(config)
    stream = open_stream(config, dataset.to(device))
    check_classes(config, stream)
    return Session(config, stream, build_state(config, stream, model, device), team, folder, events)


def check_classes(config: Config, stream: Stream) -> None:
    """An error for a method that cannot learn domains, where the classes of a task are those of the one before."""
    method, seen = find_learner(config.learner.name), set[int]()
    for task in stream:
        if method.needs_new_classes and not seen.isdisjoint(task.classes):
            raise ConfigError(
                f"{title_of(method)} needs new classes in every task, and {task.name} has some that were there before: "
                "use a stream of classes, or another method"
            )
        seen.update(task.classes)


def answers(learner: Learner, images: Tensor, tasks: Tensor) -> Tensor:
    """The logits of a learner, which is told the task of each row if it must be."""
    return learner.predict(images, tasks) if learner.needs_task else learner.predict(images)
