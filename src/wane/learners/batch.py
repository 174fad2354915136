"""What passes between the loop and a learner: the rows of a step, what a learner makes of them, and where it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from wane.memory import Memory
from wane.streams import Task

__all__ = ["Batch", "Observed", "Scene"]


@dataclass(frozen=True)
class Batch:
    """The rows of one step: the new ones of the stream first, then the replayed ones.

    Attributes:
        images: (B, C, H, W) float, augmented and normalised.
        labels: (B,) classes.
        tasks: (B,) the task that each row belongs to.
        draw: (B,) 0 for a new row, k for a row of the k-th draw from the memory.
        slots: (B,) where in the memory a row came from, -1 for a new row.
        new: how many rows are new; the first `new` are.
        extras: what was stored with a row, by name; zeros for a new row.
        progress: how much of the task's training is done, from 0 to 1.
        epoch_progress: how much of the epoch is done, from 0 to 1; the first step of an epoch has 0.
        parts: contiguous slices that cover the rows, each with a mean loss of its own (see `Learner.means`). The first
            one holds the new rows. Without replayed rows there is only that one.
        views: (B, V, C, H, W) further, strongly augmented versions of each row; None unless the method asks for them
            (`Learner.views`).
        shared: on several devices, where `observe` sees a share of the rows, all rows of the step; see `whole`.
    """

    images: Tensor
    labels: Tensor
    tasks: Tensor
    draw: Tensor
    slots: Tensor
    new: int
    extras: dict[str, Tensor] = field(default_factory=dict)
    progress: float = 0.0
    epoch_progress: float = 0.0
    parts: tuple[slice, ...] = ()
    views: Tensor | None = None
    shared: Batch | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not self.parts:
            object.__setattr__(self, "parts", (slice(0, len(self.labels)),))

    @property
    def replayed(self) -> Tensor:
        """The mask that tells replayed rows from new ones."""
        return self.draw > 0

    @property
    def whole(self) -> Batch:
        """All rows of the step: on one device this batch itself, on several those of all processes."""
        return self if self.shared is None else self.shared

    def passes(self) -> list[slice]:
        """The rows of separate forward passes: those of each part.

        Only a part of a single row, of which there is no variance, joins the pass of the part before it.

        >>> y = torch.zeros(5, dtype=torch.int64)
        >>> Batch(y, y, y, y, y, new=2, parts=(slice(0, 2), slice(2, 4), slice(4, 5))).passes()
        [slice(0, 2, None), slice(2, 5, None)]
        """
        passes: list[slice] = []
        for rows in self.parts:
            if rows.stop - rows.start == 1 and passes:
                passes[-1] = slice(passes[-1].start, rows.stop)
            elif rows.stop > rows.start:  # on several devices a process may have no row of a part
                passes.append(rows)
        return passes

    def part(self, k: int) -> Batch:
        """The rows of the k-th part, as a batch with a single part.

        >>> import torch
        >>> y = torch.tensor([3, 4, 0, 1])
        >>> batch = Batch(y[:, None].float(), y, y // 3, torch.tensor([0, 0, 1, 1]), y - 3, new=2,
        ...               parts=(slice(0, 2), slice(2, 4)))
        >>> batch.part(1).labels, batch.part(1).new
        (tensor([0, 1]), 0)
        """
        return self.rows(self.parts[k])

    def rows(self, chosen: slice) -> Batch:
        """Some rows in a row, as a batch with a single part."""
        start, stop, _ = chosen.indices(len(self.labels))
        return replace(
            self,
            images=self.images[chosen],
            labels=self.labels[chosen],
            tasks=self.tasks[chosen],
            draw=self.draw[chosen],
            slots=self.slots[chosen],
            new=max(0, min(stop, self.new) - start),
            extras={name: column[chosen] for name, column in self.extras.items()},
            parts=(),
            views=None if self.views is None else self.views[chosen],
        )


@dataclass(frozen=True)
class Observed:
    """What a learner makes of a step. Losses stay per row until the loop has weighted them.

    The loop minimises the sum over the batch's parts of `(weights * losses)[part].mean()`, plus the penalty. All
    weights are 1 unless an intervention sets them.
    """

    losses: Tensor  # (B,)
    logits: Tensor  # (B, classes), of the very forward pass that trains
    penalty: Tensor | float = 0.0


@dataclass(frozen=True)
class Scene:
    """Where in the stream a learner is when a task begins or ends.

    Attributes:
        task: the task.
        step: how many steps of the optimiser were done before.
        seen: all classes up to and including this task's.
        memory: the replay memory, None for a learner without one.
        batches: a pass over the task's own training rows, each once, in order and not augmented (for importance or
            features at the end of a task). Each item is a `Batch` and the rows' raw images.
        remembered: a pass over the rows in the memory at the time of the call, slot after slot and not augmented (for
            class means, or to rewrite what is stored with a row).
        classes: the classes of every task of the stream, also of those to come.
        generator: for random choices of the method's own; on several devices all processes draw the same from it.
    """

    task: Task
    step: int
    seen: tuple[int, ...]
    memory: Memory | None
    batches: Callable[[], Iterator[tuple[Batch, Tensor]]]
    remembered: Callable[[], Iterator[Batch]]
    classes: tuple[tuple[int, ...], ...] = ()
    generator: torch.Generator = field(default_factory=torch.Generator)
