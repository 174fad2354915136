"""The replay memory: rows of tensors on the device, a policy that says what to keep, and two ways to draw."""

from collections.abc import Callable, Mapping

import numpy as np
import torch
from torch import Tensor

from wane.memory.draw import draw_by_class, draw_uniform
from wane.memory.groups import Integers
from wane.memory.herding import herding_ranks
from wane.memory.keep import balanced_slots, random_integers, reservoir_slots, shares
from wane.registry import Registry

__all__ = ["POLICIES", "Memory"]


class Memory:
    """At most `capacity` rows as they came, with label, task, step of arrival and any extras.

    What to keep (`offer`, `select`) and what to draw (`draw`) know nothing of each other. Columns are plain
    tensors, read and written by slot; slots 0 to `len(memory)` - 1 are filled. Images are read fastest with
    `memory.images.index_select(0, slots)`: 9 microseconds for 64 of 3 kB on a CPU, where `[slots]` takes 140.

    Args:
        capacity: Slots. The memory takes capacity x row bytes from the start, and never more.
        row_shape: Of one row: channels, height and width of an image, (d,) of a table's row.
        num_classes: Classes of the whole stream.
        policy: `"reservoir"`: a uniform sample of all rows ever offered, so classes as frequent as they came.
            `"class_balanced"`: equal shares for the classes seen so far, a uniform sample within each.
            `"herding"`: equal shares, filled by `select` at the end of a task; `offer` only counts.
        extras: Further float32 columns by name, with the shape of one row: `{"logits": (num_classes,)}`.
        device: Where everything is stored. Generators are on the CPU: slots do not depend on the device.
        dtype: Of the rows: uint8 for images as they are in a file, float32 for tables.

    Attributes:
        images: (capacity, *row_shape) of `dtype`: the rows.
        labels: (capacity,) int64, -1 where a slot is empty, as are `tasks` and `steps`.
        tasks: (capacity,) int64.
        steps: (capacity,) int64, the step at which the row was written.
        extras: (capacity, ...) float32 tensors by name; methods may rewrite them later, in place.
        seen: Rows offered so far.

    >>> memory = Memory(capacity=50, row_shape=(1, 8, 8), num_classes=10)
    >>> generator = torch.Generator().manual_seed(0)
    >>> images, labels = torch.zeros(64, 1, 8, 8, dtype=torch.uint8), torch.arange(64) % 10
    >>> slots = memory.offer(images, labels, task=0, step=1, generator=generator)
    >>> memory
    Memory(reservoir, 50 of 50 slots filled, 64 rows seen)
    >>> memory.labels[memory.draw(3, generator=generator, class_probabilities=torch.eye(10)[7])]
    tensor([7, 7, 7])
    """

    def __init__(
        self,
        capacity: int,
        row_shape: tuple[int, ...],
        num_classes: int,
        *,
        policy: str = "reservoir",
        extras: Mapping[str, tuple[int, ...]] | None = None,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.uint8,
    ) -> None:
        if capacity < 1 or num_classes < 1:
            raise ValueError(f"capacity={capacity}, num_classes={num_classes}: both must be at least 1")
        self._keep = POLICIES[policy]
        self.capacity, self.num_classes, self.policy = capacity, num_classes, policy
        self.device = torch.device(device)
        # zeros, not empty: the checkpoint of a memory that is not yet full has the same bytes every time
        try:
            self.images = torch.zeros((capacity, *row_shape), dtype=dtype, device=device)
        except (RuntimeError, TypeError) as error:  # TypeError: beyond 64 bits
            raise ValueError(
                f"capacity={capacity} rows of {tuple(row_shape)} do not fit into memory: lower it"
            ) from error
        self.labels = torch.full((capacity,), -1, dtype=torch.int64, device=device)
        self.tasks, self.steps = self.labels.clone(), self.labels.clone()
        self.extras = {k: torch.zeros((capacity, *shape), device=device) for k, shape in (extras or {}).items()}
        self.priority = torch.full(
            (capacity,), -1, dtype=torch.int64
        )  # a class gives up its rows of highest priority first
        self.seen = 0
        self._filled = 0

    def __len__(self) -> int:
        return self._filled

    def __repr__(self) -> str:
        return f"Memory({self.policy}, {len(self)} of {self.capacity} slots filled, {self.seen} rows seen)"

    def class_counts(self) -> Tensor:
        """(num_classes,) stored rows of each class."""
        return torch.bincount(self.labels[: len(self)], minlength=self.num_classes)

    def offer(
        self,
        images: Tensor,
        labels: Tensor,
        *,
        task: int,
        step: int,
        generator: torch.Generator,
        extras: Mapping[str, Tensor] | None = None,
    ) -> Tensor:
        """Offer a batch of the stream; the policy decides what is kept.

        Returns:
            (n,) the slot each row was written to, -1 for those not kept; the slots of kept rows are distinct.
        """
        extras = extras or {}
        self._check(images, labels, extras)
        slots, priority = self._keep(self, labels, generator)
        self.seen += len(labels)
        rows = (slots >= 0).nonzero()[0]
        self._write(slots[rows], rows, images, labels, task, step, priority, extras)
        return torch.from_numpy(slots).to(self.device)

    def select(
        self,
        images: Tensor,
        labels: Tensor,
        features: Tensor,
        *,
        task: int,
        step: int,
        extras: Mapping[str, Tensor] | None = None,
    ) -> None:
        """Choose exemplars of the classes in `labels` by herding on `features`; trim the other classes.

        Exemplars that these classes had before are replaced; other classes drop those that were chosen last.
        The quotas are `shares`: equal to within one, and the memory full. Slots are numbered anew.
        """
        if self.policy != "herding":
            raise ValueError(f'select works with policy="herding", this memory has {self.policy!r}: use offer')
        extras = extras or {}
        self._check(images, labels, extras)
        if features.ndim != 2 or len(features) != len(labels):
            raise ValueError(f"features are {tuple(features.shape)}: give ({len(labels)}, d), a row an image")
        if not features.isfinite().all():
            raise ValueError(f"{int((~features.isfinite()).any(1).sum())} rows of features hold NaN or infinity")
        offered = torch.bincount(labels.cpu(), minlength=self.num_classes)
        others = torch.where(offered > 0, 0, self.class_counts().cpu())
        share = torch.from_numpy(shares((others + offered).numpy(), self.capacity))
        ranks = herding_ranks(features.detach(), labels.to(features.device), share.to(features.device)).cpu()

        held = self.labels[: len(self)].cpu()
        self._compact((offered[held] == 0) & (self.priority[: len(self)] < share[held]))
        rows = (ranks >= 0).nonzero().squeeze(1).numpy()
        slots = np.arange(len(self), len(self) + len(rows))
        self._write(slots, rows, images, labels, task, step, ranks.numpy(), extras)

    def rewrite(self, slots: Tensor, extras: Mapping[str, Tensor]) -> None:
        """Renew what is stored with some rows; of a slot that is named twice the first counts.

        >>> memory = Memory(capacity=2, row_shape=(1,), num_classes=2, dtype=torch.float32, extras={"seen": ()})
        >>> memory.rewrite(torch.tensor([1, 1]), {"seen": torch.tensor([5.0, 6.0])})
        >>> memory.extras["seen"]
        tensor([0., 5.])
        """
        found, first = np.unique(slots.cpu().numpy(), return_index=True)
        for name, values in extras.items():
            target = self.extras[name]
            chosen = values.detach().index_select(0, torch.from_numpy(first).to(values.device))
            _put(target, found, chosen.to(self.device, target.dtype))

    def draw(
        self,
        n: int,
        *,
        generator: torch.Generator,
        class_probabilities: Tensor | None = None,
        groups: Tensor | None = None,
        among: Tensor | None = None,
    ) -> Tensor:
        """Slots to replay, on the memory's device; several draws in one step are independent.

        Without `class_probabilities`: uniform over filled slots, without replacement; all of them, in random
        order, if there are fewer than `n`. With: `n` slots by `draw_by_class`. An empty memory gives none.

        Args:
            n: Rows to draw.
            generator: Source of all randomness, on the CPU.
            class_probabilities: One for each class, or for each group if there are `groups`.
            groups: (filled,) what the probabilities refer to, a number for each filled slot; by default the labels.
            among: (filled,) bool, the slots that may be drawn; by default all that are filled.

        >>> memory = Memory(capacity=4, row_shape=(2,), num_classes=3, dtype=torch.float32)
        >>> generator = torch.Generator().manual_seed(0)
        >>> _ = memory.offer(torch.zeros(4, 2), torch.tensor([0, 1, 1, 2]), task=0, step=1, generator=generator)
        >>> memory.draw(9, generator=generator, among=memory.labels == 1).sort().values
        tensor([1, 2])
        """
        filled = len(self)
        if class_probabilities is not None and groups is None and class_probabilities.shape != (self.num_classes,):
            raise ValueError(
                f"class_probabilities have shape {tuple(class_probabilities.shape)}: "
                f"give ({self.num_classes},), one for each class of the stream"
            )
        for name, column in (("groups", groups), ("among", among)):
            if column is not None and column.shape != (filled,):
                raise ValueError(f"{name} has shape {tuple(column.shape)}: give ({filled},), one for each filled slot")
        slots = None if among is None else among.cpu().nonzero().squeeze(1)
        if class_probabilities is None:
            drawn = draw_uniform(filled if slots is None else len(slots), n, generator)
        else:
            groups = self.labels[:filled] if groups is None else groups
            held = groups if slots is None else groups[slots.to(groups.device)]
            drawn = draw_by_class(held, n, class_probabilities, generator)
        return (drawn if slots is None else slots[drawn]).to(self.device)

    def state_dict(self) -> dict[str, Tensor]:
        """Everything, the counter included, as tensors: references, as in `nn.Module.state_dict`."""
        return {**self._columns(), "seen": torch.tensor(self.seen)}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Become the memory that `state` was taken from; it must have been built with the same arguments."""
        mine, given = ({k: tuple(v.shape) for k, v in sorted(d.items())} for d in (self.state_dict(), state))
        if mine != given:
            raise ValueError(f"the state holds {given}, this memory {mine}: build it with the arguments of that one")
        if state["images"].dtype != self.images.dtype:
            raise ValueError(f"the state holds {state['images'].dtype} rows, this memory {self.images.dtype}: build it "
                             "with the arguments of that one")  # fmt: skip
        for name, column in self._columns().items():
            column.copy_(state[name])
        self.seen = int(state["seen"])
        self._filled = int((self.labels >= 0).sum())

    def _columns(self) -> dict[str, Tensor]:
        own = {name: getattr(self, name) for name in ("images", "labels", "tasks", "steps", "priority")}
        return own | {f"extras.{name}": column for name, column in self.extras.items()}

    def _check(self, images: Tensor, labels: Tensor, extras: Mapping[str, Tensor]) -> None:
        if images.dtype != self.images.dtype or images.shape[1:] != self.images.shape[1:]:
            raise ValueError(
                f"images are {images.dtype} of shape {tuple(images.shape)}: give {self.images.dtype}, not augmented, "
                f"of shape (n, {', '.join(map(str, self.images.shape[1:]))})"
            )
        if labels.dtype != torch.int64 or labels.shape != images.shape[:1]:
            raise ValueError(
                f"labels are {labels.dtype} of shape {tuple(labels.shape)}: give torch.int64 of shape ({len(images)},)"
            )
        # elsewhere than on the CPU a look at the values would wait for all queued work
        if len(labels) > 0 and labels.device.type == "cpu":
            low, high = (int(bound) for bound in labels.aminmax())
            if low < 0 or high >= self.num_classes:
                raise ValueError(f"labels run from {low} to {high}: num_classes allows 0 to {self.num_classes - 1}")
        if extras or self.extras:
            wanted = {name: (len(labels), *column.shape[1:]) for name, column in self.extras.items()}
            given = {name: tuple(column.shape) for name, column in extras.items()}
            if wanted != given:
                raise ValueError(f"extras have shapes {given}: this memory was built for {wanted}")

    def _write(
        self,
        slots: Integers,
        rows: Integers,
        images: Tensor,
        labels: Tensor,
        task: int,
        step: int,
        priority: Integers | None,
        extras: Mapping[str, Tensor],
    ) -> None:
        if len(rows) == 0:
            return
        columns = {"images": images, "labels": labels} | {f"extras.{name}": extra for name, extra in extras.items()}
        targets = self._columns()
        for name, column in columns.items():
            chosen = column.detach().index_select(0, torch.from_numpy(rows).to(column.device))
            _put(targets[name], slots, chosen.to(self.device, targets[name].dtype))
        _put(self.tasks, slots, task)
        _put(self.steps, slots, step)
        if priority is not None:
            self.priority.numpy()[slots] = priority[rows]
        self._filled = max(self._filled, int(slots.max()) + 1)

    def _compact(self, kept: Tensor) -> None:
        """Move the filled rows where `kept` is true to the front, and empty the slots behind them."""
        slots = kept.nonzero().squeeze(1)
        for name, column in self._columns().items():
            column[: len(slots)] = column[slots.to(column.device)]
            column[len(slots) :] = 0 if name == "images" or name.startswith("extras.") else -1
        self._filled = len(slots)


def _put(target: Tensor, slots: Integers, values: Tensor | int) -> None:
    """`target[slots] = values`, for distinct slots."""
    if target.device.type == "cpu":
        # NumPy copies whole rows, 7 microseconds for 64 images of 3 kB; torch goes byte by byte and takes 235.
        target.numpy()[slots] = values.numpy() if isinstance(values, Tensor) else values
    else:
        target[torch.from_numpy(slots).to(target.device)] = values


def _reservoir(memory: Memory, labels: Tensor, generator: torch.Generator) -> tuple[Integers, None]:
    # 63 random bits modulo t: no slot is off its probability by more than a factor of 1 + t / 2^63
    draws = random_integers(len(labels), generator) % np.arange(memory.seen + 1, memory.seen + len(labels) + 1)
    return reservoir_slots(draws, memory.seen, memory.capacity), None


def _class_balanced(memory: Memory, labels: Tensor, generator: torch.Generator) -> tuple[Integers, Integers]:
    priority = random_integers(len(labels), generator)
    held, held_priority = (column[: len(memory)].cpu().numpy() for column in (memory.labels, memory.priority))
    offered = labels.cpu().numpy()
    slots = balanced_slots(offered, priority, held, held_priority, memory.capacity, memory.num_classes)
    return slots, priority


def _herding(memory: Memory, labels: Tensor, generator: torch.Generator) -> tuple[Integers, None]:
    return np.full(len(labels), -1), None


POLICIES: Registry[Callable[[Memory, Tensor, torch.Generator], tuple[Integers, Integers | None]]] = Registry(
    "policy", {"reservoir": _reservoir, "class_balanced": _class_balanced, "herding": _herding}
)
