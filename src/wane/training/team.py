"""One run on one device, or on several: what the loop asks of those who train together.

Every process holds the whole data set, the whole memory and the same generators, and so makes the same choices. Divided
are only the pass that trains, row by row, and the evaluation; what they give is put together again on every process.
The process that was asked for the run is the first of them: it alone writes files, and it starts the others.
"""

from __future__ import annotations

import contextlib
import importlib.util
import multiprocessing.connection
import os
import pickle
import signal
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

from wane.errors import RunError
from wane.learners import LEARNERS, Batch, Learner, Observed
from wane.runs.config import Config, ConfigError
from wane.streams import Dataset
from wane.training.processes import end_with_parent, obituary, start_context, use_environment
from wane.training.state import State, pick_device

__all__ = ["ALONE", "Team", "TeamError", "team_for"]

#: Seconds to wait for word of what a process died of, when the first has lost touch with it.
PATIENCE = 2.0


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
        """Put together what each process made of its share of so many rows, in their order."""
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
        """Nobody follows."""
        return nullcontext()

    def own_randomness(self, seed: int, step: int) -> AbstractContextManager[None]:
        """All are its own."""
        return nullcontext()

    def observer(self, learner: Learner) -> Callable[[Batch], Observed]:
        """The learner's own `observe`."""
        return learner.observe

    def align(self, state: State) -> None:
        """With whom?"""

    def share(self, rows: Tensor) -> Tensor:
        """All of them."""
        return rows

    def whole(self, mine: Tensor, rows: int) -> Tensor:
        """It is."""
        return mine

    def add_up(self, *sums: Tensor) -> None:
        """They are."""


ALONE = Alone()


class Seat(NamedTuple):
    """The place of a process among `size`: 0 is the first. They meet at the file `meeting`."""

    rank: int
    size: int
    meeting: str
    threads: int


class Failure(NamedTuple):
    """What a process failed of."""

    sentence: str
    stack: str = ""

    def of(self, name: str) -> TeamError:
        """The error to raise in the first process."""
        error = TeamError(f"{name} {self.sentence}")
        if self.stack:
            error.add_note(f"there:\n{self.stack}")
        return error


@dataclass
class Helper:
    """A process that the first one started."""

    process: Any
    said: Any  # the connection on which it says that it is ready, and what it failed of

    def wait_until_ready(self) -> None:
        """Return once it has all that it needs; raise if it fails before."""
        try:
            word = self.said.recv()
        except EOFError:
            self.process.join()
            word = Failure(f"{obituary(self.process.exitcode)} before it began; what it said is above. A script that "
                           "runs on several devices must do so below `if __name__ == '__main__':`")  # fmt: skip
        if isinstance(word, Failure):
            raise word.of(self.process.name)

    def failure(self) -> Failure | None:
        """What it ended of; None if it goes on, or ended well."""
        with contextlib.suppress(EOFError, OSError):
            if self.said.poll():
                found: Failure = self.said.recv()
                return found
        return Failure(obituary(self.process.exitcode)) if self.process.exitcode else None


@contextmanager
def team_for(config: Config, folder: Path, dataset: Dataset, model: nn.Module | None) -> Iterator[Team]:
    """The team that trains `config`: the processes beside this one live as long as the context."""
    size = config.devices or 1
    if size == 1:
        yield ALONE
        return
    if importlib.util.find_spec("lightning_fabric") is None:
        raise ConfigError(f"devices = {size} needs the package lightning-fabric: pip install 'wane[ddp]'")
    if torch.distributed.is_initialized():
        raise ConfigError(f"devices = {size}, but this process is already one of a group (torch.distributed is "
                          "initialised): run wane outside it, it starts its own processes")  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="wane-") as scratch:
        threads = max(1, torch.get_num_threads() // size)
        seats = [Seat(rank, size, str(Path(scratch) / "meeting"), threads) for rank in range(size)]
        helpers = _start(seats[1:], _packed(config, folder, dataset, model))
        try:
            from wane.training.ddp import several  # while the others are at it, too

            for helper in helpers:
                helper.wait_until_ready()
            with several(config, seats[0]) as team, _blame_on(helpers):
                yield team
            for helper in helpers:
                helper.process.join(PATIENCE)
        finally:
            for helper in helpers:
                helper.process.kill()  # they own nothing
                helper.process.join()
                helper.said.close()


@contextmanager
def _blame_on(helpers: list[Helper]) -> Iterator[None]:
    """A first process that lost touch with another fails of what the other failed of; its own errors stay its own."""
    try:
        yield
    except RuntimeError as error:
        multiprocessing.connection.wait([helper.process.sentinel for helper in helpers], PATIENCE)
        for helper in helpers:
            failure = helper.failure()
            if failure is not None and failure.sentence != _sentence(error):
                raise failure.of(helper.process.name) from error
        raise


def _packed(config: Config, folder: Path, dataset: Dataset, model: nn.Module | None) -> bytes:
    """All that another process needs, by value: tensors in shared memory would be limited by /dev/shm."""
    learner = LEARNERS[config.learner.name]  # it may be the user's own
    try:
        return pickle.dumps((config, folder, dataset.to("cpu"), model, learner))
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ConfigError(f"devices = {config.devices}, but the run cannot be sent to other processes ({error}): "
                          "define learner and network in a module, not inside a function") from error  # fmt: skip


def _start(seats: list[Seat], packed: bytes) -> list[Helper]:
    context = start_context("wane.training.ddp")
    helpers = []
    for seat in seats:
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=_help, args=(seat, dict(os.environ), packed, sender), daemon=True)
        process.name = f"process {seat.rank + 1} of {seat.size}"
        process.start()
        sender.close()
        helpers.append(Helper(process, receiver))
    return helpers


def _help(seat: Seat, environment: dict[str, str], packed: bytes, said: Any) -> None:
    """What a process does that was started to train along."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the first, which then ends the others
    use_environment(environment)
    end_with_parent()
    from wane.training.ddp import several
    from wane.training.loop import DivergedError, train
    from wane.training.progress import Progress

    try:
        config, folder, dataset, model, learner = pickle.loads(packed)
        LEARNERS[config.learner.name] = learner
        said.send("ready")
        quiet = Progress("", epochs_per_task=config.learner.epochs, quiet=True)
        with several(config, seat) as team:
            train(config, dataset, folder, progress=quiet, model=model, team=team)
    except DivergedError:
        pass  # all of them find it at the same step, and the first says so
    except BaseException as error:
        with contextlib.suppress(OSError):
            said.send(Failure(_sentence(error), traceback.format_exc()))
        os._exit(1)


def _sentence(error: BaseException) -> str:
    return f"failed: {type(error).__name__}: {error}"
