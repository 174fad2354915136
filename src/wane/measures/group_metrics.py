"""Signals to means per class: a torchmetrics.Metric, so that DDP, Lightning and MetricCollection just work."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric

from wane.softmax.signals import SIGNALS, Signals, signals

#: Every value is rounded to this grid before it is added. float64 then adds without any rounding (up to a sum of 2**21
#: a class), so the result is the same to the last bit in whatever order samples, batches and processes come. The
#: rounding, 1e-10, is far below the float32 that the values are made of.
GRID = 2.0**-32


class ClassMetrics(Metric):
    """The mean of every signal for every class, from sums and counts in float64.

    Args:
        num_classes: the size of the head, C.
        classes: the classes that compete in the softmax, as in `wane.signals`. Default: all.
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

    is_differentiable = False
    higher_is_better = None
    full_state_update = False

    sums: Tensor
    counts: Tensor
    flow_sums: Tensor

    def __init__(
        self,
        num_classes: int,
        *,
        classes: Sequence[int] | None = None,
        ignore_index: int | None = None,
        average: str | None = None,
        flow: bool = False,
        validate: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        if num_classes < 2:
            raise ValueError(f"num_classes is {num_classes}: signals compare at least 2 classes")
        if average not in (None, "macro", "micro"):
            raise ValueError(f"unknown average {average!r}: choose None, 'macro' or 'micro'")
        self.num_classes, self.classes, self.ignore_index = num_classes, classes, ignore_index
        self.average, self.flow, self.validate = average, flow, validate
        self.add_state("sums", torch.zeros(num_classes, len(SIGNALS), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("counts", torch.zeros(num_classes, dtype=torch.int64), dist_reduce_fx="sum")
        if flow:
            self.add_state(
                "flow_sums", torch.zeros(num_classes, num_classes, dtype=torch.float64), dist_reduce_fx="sum"
            )

    def update(
        self, logits: Any = None, labels: Any = None, *, probabilities: Any = None, scored: Signals | None = None
    ) -> None:
        """Add a batch of any leading shape: logits, probabilities, or what `wane.signals` has `scored` already.

        With `scored`, a training step's own signals are counted without a second look at its logits.
        """
        scores = None
        if scored is None or self.flow:
            scores = torch.as_tensor(probabilities if logits is None else logits).detach()
            if scores.shape[-1] != self.num_classes:
                raise ValueError(f"the scores {tuple(scores.shape)} end in {scores.shape[-1]} classes, but num_classes "
                                 f"is {self.num_classes}: make them agree")  # fmt: skip
        if scored is None:
            keys: dict[str, Any] = {"logits": scores} if probabilities is None else {"probabilities": scores}
            scored = signals(
                labels=labels, classes=self.classes, ignore_index=self.ignore_index, validate=self.validate, **keys
            )
        flat = torch.as_tensor(labels, device=self.sums.device).reshape(-1)
        kept = slice(None) if self.ignore_index is None else flat != self.ignore_index
        flat = flat[kept]
        rows = torch.stack([value.detach().reshape(-1)[kept] for value in scored[: len(SIGNALS)]], dim=1)
        self.sums.index_add_(0, flat, _on_grid(rows.to(self.sums)))
        self.counts += torch.bincount(flat, minlength=self.num_classes)
        if self.flow and scores is not None:
            p = scores.reshape(-1, self.num_classes)[kept].to(self.sums)
            self.flow_sums.index_add_(0, flat, _on_grid(p.softmax(1) if probabilities is None else p))

    def compute(self) -> dict[str, Tensor]:
        """The mean of each signal by name; NaN for a class without samples. With `flow`, also the mean softmax."""
        sums, counts = self.sums, self.counts
        if self.average == "micro":
            sums, counts = sums.sum(0, keepdim=True), counts.sum(0, keepdim=True)
        means = _means(sums, counts)
        if self.average is not None:
            means = {name: value.nanmean() for name, value in means.items()}
        if self.flow:
            means["flow"] = self.flow_sums / self.counts[:, None]
        return means

    def by_task(self, class_to_task: Sequence[int] | Tensor) -> dict[str, Tensor]:
        """The mean over all samples of each task's classes, (tasks,); `class_to_task[c]` is the task of class c."""
        task = torch.as_tensor(class_to_task, device=self.counts.device)
        if task.shape != (self.num_classes,) or int(task.min()) < 0:
            raise ValueError(f"class_to_task should give a task from 0 for each of the {self.num_classes} classes, "
                             f"not {class_to_task!r}")  # fmt: skip
        size = int(task.max()) + 1
        sums = self.sums.new_zeros(size, len(SIGNALS)).index_add_(0, task, self.sums)
        return _means(sums, self.counts.new_zeros(size).index_add_(0, task, self.counts))

    def plot(self, val: Any = None, ax: Any = None) -> Any:
        """One line a signal over the classes, worst first by each signal's own order; returns (figure, axes)."""
        import matplotlib.pyplot as plt

        values = self.compute() if val is None else val
        if ax is None:
            _, ax = plt.subplots(figsize=(6, 3.5), layout="constrained")
        for name, row in SIGNALS.items():
            if name == "loss":
                continue  # not on the scale of the others
            series = values[name].detach().cpu().reshape(-1)
            ax.plot(
                series[~series.isnan()].sort().values.numpy(),
                label=row.title,
                marker="." if len(series) < 30 else "",
            )
        ax.set(xlabel="class, worst first", ylabel="mean", ylim=(-0.02, 1.02))
        ax.legend(fontsize="x-small", ncols=2)
        return ax.figure, ax


def _on_grid(values: Tensor) -> Tensor:
    return (values * (1 / GRID)).round_().mul_(GRID)


def _means(sums: Tensor, counts: Tensor) -> dict[str, Tensor]:
    """0 / 0 is the NaN of a class that had no sample."""
    return dict(zip(SIGNALS, (sums / counts[:, None]).unbind(1), strict=True))
