"""What each task cost: sizes, rows, steps, and multiply-accumulate operations, counted once for each task.

A cost is a list of whole numbers in `History.costs`, one for each task that was begun, so it is in the file of the
history and the same whenever the run is done again:

* ``parameters``: trained or not, of the model and of what the method adds to it;
* ``model_bytes``: everything that a checkpoint keeps of the learner: the model, and what grows beside it, such as the
  Fisher information of EWC or the teacher of LwF;
* ``memory_rows``, ``memory_bytes``: what is stored of the data at the end of the task: the rows of the memory with
  their extras; for a method that trains on all seen tasks, all their rows;
* ``data_rows``, ``data_bytes``: the training rows of the task;
* ``steps``, ``rows``: of the optimiser, and rows that were passed through the network in them;
* ``operations``: of all training steps. Those of the first step of the task are counted, and multiplied by rows: steps
  of a task are alike. What a method does between steps (the Fisher information, herding, class means) is not counted;
* ``one_pass``: of one forward and backward pass of the model over the training rows of the task.

Operations are those of matrix products and convolutions, which is nearly all there is.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from wane.streams import Task, eval_batch
from wane.training.session import Session, answers

__all__ = ["COSTS", "EpochCosts", "Operations", "add_epoch", "add_sizes"]

COSTS = (
    "parameters", "model_bytes", "memory_rows", "memory_bytes", "data_rows", "data_bytes", "steps", "rows",
    "operations", "one_pass",
)  # fmt: skip


class Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the multiply-accumulate operations of what is computed inside, gradients included.

    >>> with Operations() as counted:
    ...     _ = torch.ones(2, 3) @ torch.ones(3, 5)
    >>> counted.total
    30
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._twice = 0

    @property
    def total(self) -> int:
        """So far."""
        return self._twice // 2

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Compute as usual, and count a multiplication and an addition for each product."""
        kwargs = kwargs or {}
        result = function(*args, **kwargs)
        count = flop_registry.get(function._overloadpacket)
        if count is not None:
            self._twice += count(*args, **kwargs, out_val=result)
        return result


class EpochCosts:
    """What the steps of an epoch cost: their rows, and, in the first epoch of a task, the first step's operations."""

    def __init__(self, *, first: bool) -> None:
        self.operations = Operations() if first else None
        self.rows = self.first_rows = 0

    def counting(self) -> AbstractContextManager[Any]:
        """Around what is to be counted."""
        return nullcontext() if self.operations is None or self.rows else self.operations

    def add(self, rows: int) -> None:
        """After each step."""
        self.first_rows = self.first_rows or rows
        self.rows += rows


def add_epoch(session: Session, task: Task, epoch: EpochCosts) -> None:
    """After the last step of an epoch: rows and operations, into the history."""
    history = session.state.history
    costs = history.costs or {name: [] for name in COSTS}
    if epoch.operations is not None and len(costs["rows"]) == task.index:
        counted = torch.tensor([epoch.operations.total], device=session.device)
        session.team.add_up(counted)  # each process counts its own rows
        history.costs = {name: [*values, 0] for name, values in costs.items()}
        history.costs["operations"][-1] = int(counted) * epoch.rows // epoch.first_rows
    elif _knows(session, task):
        costs["operations"][-1] += costs["operations"][-1] * epoch.rows // costs["rows"][-1]
    else:
        return  # the run was begun by a version that did not count
    assert history.costs is not None
    history.costs["rows"][-1] += epoch.rows


def add_sizes(session: Session, task: Task) -> None:
    """After the evaluation of an epoch: how large everything is now."""
    costs, learner, memory = session.state.history.costs, session.learner, session.memory
    if costs is None or not _knows(session, task):
        return
    images = session.dataset.train.images
    row_bytes = images[0].numel() * images.element_size()
    rows = len(task.train)
    kept = [value for value in learner.state_dict().values() if isinstance(value, torch.Tensor)]
    stored, extras = 0, 0
    if memory is not None:
        stored, extras = len(memory), sum(x[0].numel() * x.element_size() for x in memory.extras.values())
    elif learner.rows == "seen":
        stored = sum(costs["data_rows"][:-1]) + rows
    now = {
        "parameters": sum(parameter.numel() for parameter in learner.parameters()),
        "model_bytes": sum(value.numel() * value.element_size() for value in kept),
        "memory_rows": stored, "memory_bytes": stored * (row_bytes + extras),
        "data_rows": rows, "data_bytes": rows * row_bytes,
        "steps": session.state.position.step - sum(costs["steps"][:-1]),
        "one_pass": costs["one_pass"][-1] or rows * _one_row(session, task),
    }  # fmt: skip
    for name, value in now.items():
        costs[name][-1] = value


def _knows(session: Session, task: Task) -> bool:
    costs = session.state.history.costs
    return costs is not None and len(costs["rows"]) == task.index + 1


def _one_row(session: Session, task: Task) -> int:
    """Operations of a forward and a backward pass of one row, from a pass of two; nothing is changed by it."""
    learner, dataset, rows = session.learner, session.dataset, task.train[:2]
    images = eval_batch(
        dataset.train.images, rows, dataset.mean, dataset.std, channels_last=session.state.channels_last
    )
    tasks = torch.full_like(rows, task.index)
    was_training = learner.training
    learner.eval()
    try:
        counted = Operations()
        with counted, torch.enable_grad():
            logits = answers(learner, images, tasks)
            parameters = [parameter for parameter in learner.parameters() if parameter.requires_grad]
            torch.autograd.grad(logits.sum(), parameters, allow_unused=True)
        total = counted.total
    except RuntimeError:  # what it answers has no way back: twice the way there stands for it
        counted = Operations()
        with counted, torch.inference_mode():
            answers(learner, images, tasks)
        total = 3 * counted.total
    learner.train(was_training)
    return total // len(rows)
