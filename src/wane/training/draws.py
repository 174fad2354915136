"""What is replayed in a step: slots of the memory, uniformly, by class, or by the trend of a signal."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from wane.memory import Memory, class_uniform
from wane.streams import Task
from wane.training.session import Session

__all__ = ["Draw", "draw_shares", "make_draw", "trend_probabilities"]


@dataclass(frozen=True)
class Draw:
    """How slots are drawn at one moment.

    Attributes:
        size: rows of a draw; None for the whole memory.
        probabilities: (G,) of each group; None draws uniformly over slots.
        groups: (filled,) the group of each slot; None where that is its label.
        among: (filled,) a mask of the slots that may be drawn; None for all of them.
    """

    size: int | None
    probabilities: Tensor | None = None
    groups: Tensor | None = None
    among: Tensor | None = None

    def slots(self, memory: Memory, generator: torch.Generator) -> Tensor:
        """The slots of one draw; of the whole memory each slot once, or as many drawn by class probabilities."""
        if self.size is None:
            return self.exemplars(memory, generator)
        return self._drawn(memory, self.size, generator)

    def exemplars(self, memory: Memory, generator: torch.Generator) -> Tensor:
        """The slots of an epoch over task and memory: each once, or as many drawn by class probabilities."""
        if self.probabilities is None:
            return self._whole(memory)
        return self._drawn(memory, len(memory), generator)

    def _whole(self, memory: Memory) -> Tensor:
        if self.among is not None:
            return self.among.nonzero()[:, 0]
        return torch.arange(len(memory), device=memory.device)

    def _drawn(self, memory: Memory, n: int, generator: torch.Generator) -> Tensor:
        return memory.draw(
            n, generator=generator, class_probabilities=self.probabilities, groups=self.groups, among=self.among
        )


def make_draw(session: Session, task: Task, trend: Tensor | None) -> Draw:
    """How slots are drawn now: by the trend where there is one, else as `memory.draw` and `memory.scope` say."""
    config, stream, memory = session.config, session.stream, session.memory
    size = None if session.learner.replay == "whole" else config.learner.replay_size
    if memory is None:
        return Draw(size)
    settings = config.learner.trend
    classwise = config.memory.draw == "class_uniform" or settings is not None
    scope = config.memory.scope if settings is None else settings.scope
    if len(memory) == 0:
        return Draw(size)
    filled = len(memory)
    ids = None if stream.kind == "classes" else stream.groups(memory.labels[:filled], memory.tasks[:filled])
    if not classwise:
        return Draw(size, among=_past_slots(memory, task) if scope == "past" else None)
    if trend is not None and bool(trend[(memory.labels[: len(memory)] if ids is None else ids).cpu()].any()):
        return Draw(size, trend, ids)
    wanted = class_uniform(group_counts(session, None)).cpu()
    past = torch.where(stream.group_to_task.cpu() == task.index, 0, wanted)
    # where there is no past, in the first task or in a memory that has lost it, all classes compete
    return Draw(size, past if scope == "past" and past.any() else wanted, ids)


def group_counts(session: Session, among: Tensor | None) -> Tensor:
    """(G,) how many slots of each group may be drawn."""
    memory, stream = session.memory, session.stream
    assert memory is not None
    filled = len(memory)
    ids = stream.groups(memory.labels[:filled], memory.tasks[:filled])
    return torch.bincount(ids if among is None else ids[among], minlength=stream.num_groups)


def draw_shares(session: Session, task: Task, draw: Draw) -> Tensor:
    """(G,) the probability of each group that the next replayed row is of it; NaN from an empty memory."""
    assert session.memory is not None
    among = None if draw.among is None else _past_slots(session.memory, task)  # there may be more slots by now
    counts = group_counts(session, among).cpu().double()
    p = counts if draw.probabilities is None else draw.probabilities.double() * (counts > 0)
    return p / p.sum()


def _past_slots(memory: Memory, task: Task) -> Tensor | None:
    """The slots of earlier tasks; None, for all, where there is none."""
    past = memory.tasks[: len(memory)] < task.index
    return past if bool(past.any()) else None


def trend_probabilities(session: Session, task: Task) -> Tensor | None:
    """The class probabilities of this epoch's draws by the trend so far; None without one.

    There is none before the first epoch that measured its source: a first epoch of a single step replays nothing.
    """
    trend = session.config.learner.trend
    if trend is None or not session.state.history.tail(1, split=trend.source):
        return None
    return trend.probabilities(session.state.history, task=task.index)
