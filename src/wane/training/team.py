"""One run on one device, or on several: what the loop asks of the processes that train together.

Every process holds the whole data set, the whole memory and the same generators, and so makes the same choices. Only
the pass that trains, row by row, and the evaluation are divided; their results are put together again on every process.
The process that was asked for the run is the first of them: it alone writes files, and it starts the others
(`wane.training.launch`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from wane.errors import RunError
from wane.learners import Batch, Learner, Observed
from wane.runs.config import Config
from wane.training.state import State, pick_device

__all__ = ["ALONE", "Alone", "Seat", "Team", "TeamError"]


class TeamError(RunError):
    """Another process of the run failed; says which, and of what."""


class Team(Protocol):
    """The processes of a run, as one of them sees them; `Alone`, or `wane.training.ddp.Several`."""

    @property
    def is_first(self) -> bool:
        """Whether this process writes the files."""
        ...

    @property
    def threads(self) -> int | None:
        """Of this process, where the config does not say; None for torch's own number."""
        ...

    def device(self, config: Config) -> torch.device:
        """Where this process computes."""
        ...

    def first_goes_first(self) -> AbstractContextManager[None]:
        """What is inside, the first process does before the others."""
        ...

    def own_randomness(self, seed: int, step: int) -> AbstractContextManager[None]:
        """Inside, global random numbers (dropout) are a process's own; afterwards they are as before."""
        ...

    def observer(self, learner: Learner) -> Callable[[Batch], Observed]:
        """The learner's `observe` for a batch that all share: each takes its rows, all get the losses of all rows.

        `backward` on their mean then gives every process the gradient of that mean.
        """
        ...

    def align(self, state: State) -> None:
        """Buffers that follow the rows (batch norm) become the first process's; all else must be equal already."""
        ...

    def share(self, rows: Tensor) -> Tensor:
        """The rows that this process evaluates."""
        ...

    def whole(self, mine: Tensor, rows: int) -> Tensor:
        """Put together what each process made of its share of `rows` rows, in their order."""
        ...

    def add_up(self, *sums: Tensor) -> None:
        """Add over all processes, in place."""
        ...


class Alone:
    """A team of one: nothing to divide, nobody to wait for."""

    is_first, threads = True, None

    def device(self, config: Config) -> torch.device:
        """The one that the config names."""
        return pick_device(config.device)

    def first_goes_first(self) -> AbstractContextManager[None]:
        """No-op: there are no other processes."""
        return nullcontext()

    def own_randomness(self, seed: int, step: int) -> AbstractContextManager[None]:
        """No-op: the global random numbers are its own."""
        return nullcontext()

    def observer(self, learner: Learner) -> Callable[[Batch], Observed]:
        """The learner's own `observe`."""
        return learner.observe

    def align(self, state: State) -> None:
        """No-op: there are no other processes."""

    def share(self, rows: Tensor) -> Tensor:
        """All of them."""
        return rows

    def whole(self, mine: Tensor, rows: int) -> Tensor:
        """Its share is the whole already."""
        return mine

    def add_up(self, *sums: Tensor) -> None:
        """No-op: its sums are the totals."""


ALONE = Alone()


class Seat(NamedTuple):
    """The place of a process among `size`: 0 is the first. They meet at the file `meeting`."""

    rank: int
    size: int
    meeting: str
    threads: int
