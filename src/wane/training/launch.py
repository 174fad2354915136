"""Start the processes of a run on several devices, and end them with it."""

from __future__ import annotations

import contextlib
import importlib.util
import multiprocessing.connection
import os
import pickle
import signal
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from wane.learners import LEARNERS, Learner
from wane.runs.config import Config, ConfigError
from wane.streams import Dataset
from wane.training.processes import end_with_parent, obituary, start, start_context, use_environment
from wane.training.team import ALONE, Seat, Team, TeamError

__all__ = ["team_for"]

#: Seconds to wait for word of what a process died of, when the first has lost touch with it.
PATIENCE = 2.0


class Failure(NamedTuple):
    """Why a process failed."""

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
        """Why it failed; None if it is still running, or ended well."""
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
    if LEARNERS.find(config.learner.name).backward is not Learner.backward:
        raise ConfigError(f"devices = {size}, but learner {config.learner.name} takes several gradients in a step: "
                          "set devices to 1")  # fmt: skip
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
            from wane.training.ddp import several  # while the others import it, too

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
    """If the first process loses touch with another one, raise what that one failed of; its own errors stay its own."""
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
    learner = LEARNERS.find(config.learner.name)  # it may be the user's own; it is sent by its name
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
        start(process)
        sender.close()
        helpers.append(Helper(process, receiver))
    return helpers


def _help(seat: Seat, environment: dict[str, str], packed: bytes, said: Any) -> None:
    """The work of a process that the first one started."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the first, which then ends the others
    use_environment(environment)
    end_with_parent()
    from wane.training.ddp import several
    from wane.training.loop import DivergedError, train

    try:
        config, folder, dataset, model, learner = pickle.loads(packed)
        LEARNERS[config.learner.name] = learner
        said.send("ready")
        with several(config, seat) as team:
            train(config, dataset, folder, model=model, team=team)
    except DivergedError:
        pass  # all of them find it at the same step, and the first says so
    except BaseException as error:
        with contextlib.suppress(OSError):
            said.send(Failure(_sentence(error), traceback.format_exc()))
        os._exit(1)


def _sentence(error: BaseException) -> str:
    return f"failed: {type(error).__name__}: {error}"
