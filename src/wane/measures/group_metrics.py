"""Signals to means by group: torchmetrics.Metric objects, so that DDP, Lightning and MetricCollection just work."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from wane.checks import whole
from wane.measures.bins import BINS, add_to_bins, as_bins
from wane.measures.exact import ExactMetric
from wane.measures.pooling import pooled_value
from wane.measures.sums import on_grid
from wane.softmax.inputs import as_tensor, read_integers
from wane.softmax.registry import SIGNALS, Bins
from wane.softmax.signals import Signals, signals

__all__ = ["ClassMetrics", "GroupMetrics"]

#: Groups, classes and bins that a state may have: more than any model, and less than would fill a machine's memory.
MOST = 10**8


class GroupMetrics(ExactMetric):
    """The mean of every signal for every group, from sums and counts in float64.

    A group is whatever an id beside the label says: a domain, a kind of token, a slice of the data.

    Args:
        num_groups: how many there are; ids run from 0.
        classes: the classes that compete in the softmax, as in `wane.signals`. Default: all.
        also: further measures: ``"mrr"``, ``"top5"``, ``"brier"``, ``"ece"`` and others of `wane.SIGNALS.further`.
            Those of calibration are made of sums in `bins` of confidence, right-closed and of equal width.
        bins: how many.
        ignore_index: the label of padding, which never counts, whatever its group.
        average: None for a value per group, ``"macro"`` for the mean over the groups that had samples, ``"micro"`` for
            the mean over samples: scalars, as a logger wants them.
        validate: check the input, as in `wane.signals`.

    >>> m = GroupMetrics(num_groups=2, ignore_index=-100)  # say 0: words, 1: digits
    >>> logits = torch.tensor([[[2.0, 0.0, 0.0], [0.0, 1.0, 3.0], [0.0, 0.0, 0.0]]])  # one text of three tokens
    >>> m.update(logits, torch.tensor([[0, 1, -100]]), groups=torch.tensor([[0, 1, 1]]))
    >>> m.compute()["accuracy"], m.counts
    (tensor([1., 0.], dtype=torch.float64), tensor([1, 1]))
    """

    is_differentiable = False
    higher_is_better = None
    full_state_update = False

    sums: Tensor
    counts: Tensor
    bin_sums: Tensor
    bin_counts: Tensor

    def __init__(
        self,
        num_groups: int,
        *,
        classes: Sequence[int] | None = None,
        also: Sequence[str] = (),
        bins: int = BINS,
        ignore_index: int | None = None,
        average: str | None = None,
        validate: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        num_groups, bins = whole("num_groups", num_groups, least=1, most=MOST), whole("bins", bins, least=1, most=MOST)
        if average not in (None, "macro", "micro"):
            raise ValueError(f"unknown average {average!r}: choose None, 'macro' or 'micro'")
        self.num_groups, self.classes, self.ignore_index = num_groups, classes, ignore_index
        self.average, self.validate = average, validate
        self.also = (also,) if isinstance(also, str) else tuple(also)
        #: The signals that are summed: those that were known when the metric was made, and those asked for.
        self.signals = tuple(row.name for row in SIGNALS.of_samples(self.also))
        #: The measures that are made of bins.
        self.pooled = tuple(row.name for row in SIGNALS.pooled(self.also))
        self.add_state("sums", torch.zeros(num_groups, len(self.signals), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("counts", torch.zeros(num_groups, dtype=torch.int64), dist_reduce_fx="sum")
        if self.pooled:
            self.add_state("bin_counts", torch.zeros(num_groups, bins, dtype=torch.int64), dist_reduce_fx="sum")
            sums = torch.zeros(num_groups, bins, 2, dtype=torch.float64)
            self.add_state("bin_sums", sums, dist_reduce_fx="sum")

    def update(
        self,
        logits: Any = None,
        labels: Any = None,
        *,
        groups: Any,
        probabilities: Any = None,
        scored: Signals | None = None,
    ) -> None:
        """Add a batch of any leading shape. An update that fails leaves the metric as it was.

        Args:
            logits: as in `wane.signals`.
            labels: as in `wane.signals`; with `scored` only needed to find padding.
            groups: ids in the shape of the labels; those of padding are not looked at.
            probabilities: instead of logits.
            scored: instead of logits, what `wane.signals` has given already. Without labels and with an
                `ignore_index`, rows of rank 0, which is what padding has there, do not count.
        """
        if scored is None:
            scored = self._score(logits, labels, probabilities)
        ids = self._integers(groups, "groups")
        if ids.shape != scored.rank.shape:
            raise ValueError(f"groups have shape {tuple(ids.shape)}, but the samples {tuple(scored.rank.shape)}: "
                             "give one id for each")  # fmt: skip
        kept: Any = slice(None)
        if self.ignore_index is not None:
            blank = scored.rank == 0 if labels is None else self._integers(labels, "labels") == self.ignore_index
            kept = ~blank.to(self.sums.device).reshape(-1)
        if self.validate and bool((empty := scored.rank.reshape(-1)[kept] == 0).any()):
            row = int(torch.arange(ids.numel())[kept][empty.cpu()][0])
            raise ValueError(f"row {row}, of group {int(ids.reshape(-1)[row])}, has no signals: if it is padding, give "
                             "its label as ignore_index, and if its logits were NaN, leave it out")  # fmt: skip
        self._add(scored, ids, kept, what="group", hint="correct it, or make the metric with more groups")

    def compute(self) -> dict[str, Tensor]:
        """The mean of each signal by name; NaN for a group without samples."""
        means = self._means(torch.zeros_like(self.counts), 1) if self.average == "micro" else self._means()
        return means if self.average is None else {name: value.nanmean() for name, value in means.items()}

    def _score(self, logits: Any, labels: Any, probabilities: Any) -> Signals:
        if logits is not None:
            logits = as_tensor(logits, "logits").detach()
        return signals(
            logits, labels, probabilities=probabilities, classes=self.classes, also=self.also,
            ignore_index=self.ignore_index, validate=self.validate,
        )  # fmt: skip

    def _add(self, scored: Signals, ids: Tensor, kept: Any, *, what: str, hint: str) -> Tensor:
        """Add what is kept of a batch to the groups `ids`, which are returned flat; all checks come first."""
        flat = ids.reshape(-1)[kept]
        rows = torch.stack([scored[name].detach().reshape(-1)[kept] for name in self.signals], dim=1)
        if len(rows) != len(flat):
            raise ValueError(f"{len(flat)} {what} ids for {len(rows)} samples: give one for each")
        low, high = flat.aminmax() if len(flat) else (0, 0)
        if low < 0 or high >= self.num_groups:
            wrong = (flat < 0) | (flat >= self.num_groups)
            row = int(torch.arange(ids.numel())[kept][wrong.cpu()][0])
            raise ValueError(f"{what} {int(ids.reshape(-1)[row])} at row {row} is not a {what} from 0 to "
                             f"{self.num_groups - 1}: {hint}")  # fmt: skip
        added = on_grid(rows.to(self.sums))
        self.sums.index_add_(0, flat, added)
        self.counts += torch.bincount(flat, minlength=self.num_groups)
        if self.pooled:
            confidence, correct = (
                rows[:, self.signals.index(name)].contiguous() for name in ("confidence", "accuracy")
            )
            add_to_bins(self.bin_counts, self.bin_sums, flat, confidence, correct)
        return flat

    def bins_of(self, union: Tensor | None = None, size: int = 0) -> Bins | None:
        """What fell into each bin of confidence, (groups, bins); None if no measure is made of bins.

        Args:
            union: (groups,) put the groups together by these numbers.
            size: how many numbers there are.
        """
        if not self.pooled:
            return None
        return as_bins(*(_united(state, union, size) for state in (self.bin_counts, self.bin_sums)))

    def _means(self, union: Tensor | None = None, size: int = 0) -> dict[str, Tensor]:
        """The value of each group, or of each union of groups. 0 / 0 is the NaN of one that had no sample."""
        sums, counts = (_united(state, union, size) for state in (self.sums, self.counts))
        means = dict(zip(self.signals, (sums / counts[:, None]).unbind(1), strict=True))
        if (bins := self.bins_of(union, size)) is not None:
            means |= {name: torch.from_numpy(pooled_value(name, bins)).to(sums.device) for name in self.pooled}
        return means

    def _integers(self, values: Any, what: str) -> Tensor:
        """Labels or ids as int64, on the device of the state."""
        if values is None:
            raise TypeError(f"{what} are missing: give one integer for each sample")
        return read_integers(values, what, self.sums.device)


class ClassMetrics(GroupMetrics):
    """The mean of every signal for every class: a `GroupMetrics` in which the group is the label.

    Args:
        num_classes: the size of the head, C.
        classes: the classes that compete in the softmax, as in `wane.signals`. Default: all.
        also: further measures, as in `GroupMetrics`.
        bins: as in `GroupMetrics`.
        ignore_index: the label of padding, which is not counted.
        average: None for a value per class, ``"macro"`` for the mean over the classes that had samples, ``"micro"`` for
            the mean over samples: scalars, as a logger wants them.
        flow: also keep the mean softmax of every true class, (C, C), under ``"flow"``.
        validate: check the input, as in `wane.signals`.

    >>> m = ClassMetrics(num_classes=3)
    >>> m.update(torch.tensor([[2.0, 0.0, 0.0], [0.0, 1.0, 3.0]]), torch.tensor([0, 1]))
    >>> m.compute()["accuracy"]
    tensor([1., 0., nan], dtype=torch.float64)
    >>> m.by_task([0, 0, 1])["accuracy"]
    tensor([0.5000,    nan], dtype=torch.float64)
    """

    flow_sums: Tensor

    def __init__(
        self,
        num_classes: int,
        *,
        classes: Sequence[int] | None = None,
        also: Sequence[str] = (),
        bins: int = BINS,
        ignore_index: int | None = None,
        average: str | None = None,
        flow: bool = False,
        validate: bool = True,
        **options: Any,
    ) -> None:
        num_classes = whole("num_classes", num_classes, least=2, most=MOST)
        super().__init__(
            num_classes, classes=classes, also=also, bins=bins, ignore_index=ignore_index, average=average,
            validate=validate, **options,
        )  # fmt: skip
        self.num_classes, self.flow = num_classes, flow
        if flow:
            self.add_state(
                "flow_sums", torch.zeros(num_classes, num_classes, dtype=torch.float64), dist_reduce_fx="sum"
            )

    def update(  # type: ignore[override]  # the group is the label
        self, logits: Any = None, labels: Any = None, *, probabilities: Any = None, scored: Signals | None = None
    ) -> None:
        """Add a batch of any leading shape: logits, probabilities, or what `wane.signals` has `scored` already.

        With `scored`, a training step's own signals are counted without a second look at its logits. An update that
        fails leaves the metric as it was.
        """
        scores = None
        if scored is None or self.flow:
            scores = as_tensor(probabilities if logits is None else logits, "scores").detach()
            if not scores.ndim or scores.shape[-1] != self.num_classes:
                raise ValueError(f"the scores have shape {tuple(scores.shape)}, but num_classes is {self.num_classes}: "
                                 "make their last dimension agree")  # fmt: skip
        if scored is None:
            scored = self._score(logits, labels, probabilities)
        ids = self._integers(labels, "labels")
        kept: Any = slice(None) if self.ignore_index is None else (ids != self.ignore_index).reshape(-1)
        share = None
        if self.flow and scores is not None:
            p = scores.reshape(-1, self.num_classes)[kept].to(self.sums)
            share = on_grid(p.softmax(1) if probabilities is None else p)
        hint = "correct it, or name it as ignore_index if it marks padding"
        flat = self._add(scored, ids, kept, what="label", hint=hint)
        if share is not None:
            self.flow_sums.index_add_(0, flat, share)

    def compute(self) -> dict[str, Tensor]:
        """The mean of each signal by name; NaN for a class without samples. With `flow`, also the mean softmax."""
        means = super().compute()
        if self.flow:
            means["flow"] = self.flow_sums / self.counts[:, None]
        return means

    def by_task(self, class_to_task: Sequence[int] | Tensor) -> dict[str, Tensor]:
        """The mean over all samples of each task's classes, (tasks,); `class_to_task[c]` is the task of class c."""
        task = read_integers(class_to_task, "class_to_task", self.counts.device)
        if task.shape != (self.num_classes,) or int(task.min()) < 0:
            raise ValueError(f"class_to_task should give a task from 0 for each of the {self.num_classes} classes, "
                             f"not {class_to_task!r}")  # fmt: skip
        return self._means(task, int(task.max()) + 1)

    def plot(self, val: Any = None, ax: Any = None) -> Any:
        """One line a bounded signal over the classes, worst first by its own order; returns (figure, axes)."""
        import matplotlib.pyplot as plt

        values = self.compute() if val is None else val
        if ax is None:
            _, ax = plt.subplots(figsize=(6, 3.5), layout="constrained")
        for name in (*self.signals, *self.pooled):
            row = SIGNALS[name]
            if not row.bounded:
                continue  # not on the scale of the others
            series = values[name].detach().cpu().reshape(-1)
            ax.plot(
                series[~series.isnan()].sort(descending=not row.higher_is_better).values.numpy(),
                label=row.title,
                marker="." if len(series) < 30 else "",
            )
        ax.set(xlabel="class, worst first", ylabel="mean", ylim=(-0.02, 1.02))
        ax.legend(fontsize="x-small", ncols=2)
        return ax.figure, ax


def _united(state: Tensor, union: Tensor | None, size: int) -> Tensor:
    """Sums of groups as sums of unions of groups."""
    if union is None:
        return state
    return state.new_zeros(size, *state.shape[1:]).index_add_(0, union, state)
