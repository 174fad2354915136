"""Several processes that train one model with DDP, through Lightning Fabric. Imported only when there are several.

A step in numbers: B rows, W processes. Each process passes its own rows through the network and tells the others
their losses and logits, so that every one of them has all B and makes the same of them: signals, weights, memory. It
then goes backward from the mean over all B rows (or from the sum of the means of all parts), in which only its own rows
have a gradient. DDP averages these gradients; times W that is their sum, the gradient of that mean, however uneven the
shares are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from itertools import accumulate, pairwise

import numpy as np
import torch
from lightning_fabric import Fabric
from lightning_fabric.plugins.environments.lightning import LightningEnvironment
from lightning_fabric.strategies.ddp import DDPStrategy
from torch import Tensor, distributed, nn

from wane.learners import Batch, Learner, Observed
from wane.runs.config import Config, ConfigError
from wane.training.state import State, pick_device
from wane.training.team import Seat

__all__ = ["Several", "several", "span"]


def span(rows: int, rank: int, size: int) -> slice:
    """The share of a process: contiguous, equal to within one, the first processes having the one more.

    >>> [span(10, rank, 3) for rank in range(3)]
    [slice(0, 4, None), slice(4, 7, None), slice(7, 10, None)]
    """
    least, more = divmod(rows, size)
    start = rank * least + min(rank, more)
    return slice(start, start + least + (rank < more))


@contextmanager
def several(config: Config, seat: Seat) -> Iterator[Several]:
    """Meet the other processes; inside, this one is in its seat among them."""
    kind = pick_device(config.device).type
    if kind == "cuda" and torch.cuda.device_count() < seat.size:
        raise ConfigError(f"devices = {seat.size}, but there are {torch.cuda.device_count()} GPUs: lower it, or set "
                          "device to cpu")  # fmt: skip
    # A file, not a port: two runs that start at once cannot take it from each other.
    distributed.init_process_group(
        "nccl" if kind == "cuda" else "gloo", init_method=f"file://{seat.meeting}", rank=seat.rank, world_size=seat.size
    )
    try:
        # A method may leave parameters unused in a step (a head for each task): look for them.
        strategy = DDPStrategy(cluster_environment=Seated(seat), find_unused_parameters=True)
        fabric = Fabric(accelerator=kind, devices=seat.size, strategy=strategy)
        fabric.launch()
        yield Several(fabric, seat)
    finally:
        distributed.destroy_process_group()


class Seated(LightningEnvironment):
    """Tells Fabric which process this is; the processes are there already."""

    creates_processes_externally = True

    def __init__(self, seat: Seat) -> None:
        super().__init__()
        self.seat = seat

    def local_rank(self) -> int:
        """On this machine, which is the only one."""
        return self.seat.rank

    def node_rank(self) -> int:
        """Whatever a cluster says about its machines."""
        return 0


class Forward(nn.Module):
    """`observe` as a forward pass, which is what DDP watches, with plain tensors as its result."""

    def __init__(self, learner: Learner) -> None:
        super().__init__()
        self.learner = learner
        # DDP, asked to look for unused parameters, complains at length on stderr if it finds none
        self.unused = nn.Parameter(torch.zeros(1))

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Losses, logits and penalty of the rows of one process."""
        observed = self.learner.observe(batch)
        penalty = torch.as_tensor(observed.penalty, dtype=torch.float32, device=observed.losses.device)
        return observed.losses.float(), observed.logits, penalty


class Several:
    """One of the processes of a run on several devices; see `wane.training.team.Team`."""

    def __init__(self, fabric: Fabric, seat: Seat) -> None:
        self.fabric, self.rank, self.size = fabric, seat.rank, seat.size
        self.is_first, self.threads = seat.rank == 0, seat.threads

    def device(self, config: Config) -> torch.device:
        """The one of this seat."""
        return self.fabric.device

    def first_goes_first(self) -> AbstractContextManager[None]:
        """Barriers around the first process."""
        return self.fabric.rank_zero_first()

    @contextmanager
    def own_randomness(self, seed: int, step: int) -> Iterator[None]:
        """A function of seed, step and process, so that a run which resumes here has the same."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(np.random.SeedSequence([seed, step, self.rank]).generate_state(1)[0]))
            yield

    def observer(self, learner: Learner) -> Callable[[Batch], Observed]:
        """`observe` for a batch of all rows.

        To be made anew for each epoch: the order in which DDP adds gradients is then the same in a run that resumes.
        """
        module = self.fabric.setup_module(Forward(learner))

        def observe(batch: Batch) -> Observed:
            mine = self._rows_of(batch)
            at = torch.cat([torch.arange(s.start, s.stop) for part in mine for s in part]).to(batch.labels.device)
            # without rows a network may break: then it sees the first one, and nothing is made of that
            losses, logits, penalty = module(_picked(batch, mine if len(at) else [[slice(0, 1)]]))
            losses, logits = losses[: len(at)], logits[: len(at)]
            if losses.requires_grad:
                losses.register_hook(lambda gradient: gradient * self.size)

            everyone = losses.new_zeros(len(batch.labels), 1 + logits.shape[1])
            everyone[at] = torch.cat([losses.detach()[:, None], logits.detach().float()], dim=1)
            mean_penalty = penalty.detach() / self.size
            self.add_up(everyone, mean_penalty)
            return Observed(
                losses=everyone[:, 0].index_copy(0, at, losses),
                logits=everyone[:, 1:],
                penalty=mean_penalty + (penalty - penalty.detach()),
            )

        return observe

    def align(self, state: State) -> None:
        """Broadcast the buffers; compare weights and memory by their sums."""
        for buffer in state.learner.buffers():
            distributed.broadcast(buffer, src=0)
        sums = [parameter.detach().double().sum().nan_to_num() for parameter in state.learner.parameters()]
        if state.memory is not None:
            slots = torch.arange(state.memory.capacity, device=state.memory.device)
            sums += [(slots * column).sum().double() for column in (state.memory.labels, state.memory.steps)]
        own = torch.stack(sums)
        greatest = torch.cat([own, -own])
        distributed.all_reduce(greatest, op=distributed.ReduceOp.MAX)
        most, least = greatest.chunk(2)
        if not torch.equal(most, -least):
            raise RuntimeError(
                f"the {self.size} processes of this run no longer agree on weights or memory: "
                f"{type(state.learner).__name__} changes them by something that differs between processes (random "
                "numbers, or what it kept of its own rows in observe); run it with devices = 1"
            )

    def share(self, rows: Tensor) -> Tensor:
        """The span of this process."""
        return rows[span(len(rows), self.rank, self.size)]

    def whole(self, mine: Tensor, rows: int) -> Tensor:
        """Everyone fills in its span, the sum is the whole: zeros add without rounding."""
        everyone = mine.new_zeros(rows, *mine.shape[1:])
        everyone[span(rows, self.rank, self.size)] = mine
        self.add_up(everyone)
        return everyone

    def add_up(self, *sums: Tensor) -> None:
        """All-reduce, in place."""
        for tensor in sums:
            distributed.all_reduce(tensor)

    def _rows_of(self, batch: Batch) -> list[list[slice]]:
        """Where in the batch the rows of this process are, part by part: a share of each draw within each part."""
        return [[self._share(draw) for draw in _draws_within(batch, part)] for part in batch.parts]

    def _share(self, rows: slice) -> slice:
        mine = span(rows.stop - rows.start, self.rank, self.size)
        return slice(rows.start + mine.start, rows.start + mine.stop)


def _draws_within(batch: Batch, part: slice) -> list[slice]:
    """The rows of a part as one slice for the new rows and one for each draw."""
    counts = torch.unique_consecutive(batch.draw[part], return_counts=True)[1].tolist()
    return [slice(start, stop) for start, stop in pairwise(accumulate([part.start, *counts]))]


def _picked(batch: Batch, parts: list[list[slice]]) -> Batch:
    """These rows of a batch, with the same parts. By slices, which keep the memory format of images."""
    spans = [rows for part in parts for rows in part]
    lengths = [sum(rows.stop - rows.start for rows in part) for part in parts]

    def pick(column: Tensor) -> Tensor:
        return torch.cat([column[rows] for rows in spans])

    return replace(
        batch,
        images=pick(batch.images),
        labels=pick(batch.labels),
        tasks=pick(batch.tasks),
        draw=pick(batch.draw),
        slots=pick(batch.slots),
        new=sum(max(0, min(rows.stop, batch.new) - rows.start) for rows in spans),
        extras={name: pick(column) for name, column in batch.extras.items()},
        parts=tuple(slice(start, stop) for start, stop in pairwise(accumulate([0, *lengths]))),
        views=None if batch.views is None else pick(batch.views),
        shared=batch,
    )
