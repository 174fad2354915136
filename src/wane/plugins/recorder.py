"""`Recorder`: batches of an evaluation in, an evaluation of the history out. Every plugin has one inside."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from wane.measures.group_metrics import ClassMetrics, GroupMetrics
from wane.measures.history import History
from wane.runs.own_loop import check_folder, save_run
from wane.softmax.container import Signals

__all__ = ["Recorder", "new_history"]


class Recorder:
    """One evaluation after the other into a history.

    A step of the history is an evaluation: with one at the end of every epoch, steps are epochs, as in the lab. Set
    `task` when another task begins. The number of classes is read from the logits, evaluation by evaluation, so a head
    may grow.

    Args:
        history: where to record. One of a `kind` that is not ``"class"`` is by data set: its names are those of the
            data sets, and a batch tells which of them it is of.
        ignore_index: the label of padding.
        folder: if given, it becomes a run folder, as of `wane.save_run`, up to date after every evaluation.

    >>> recorder = Recorder(History(class_to_task=[0, 0, 1]))
    >>> recorder.update(torch.tensor([[2.0, 0.0, 0.0], [0.0, 1.0, 3.0]]), torch.tensor([0, 1]))
    >>> recorder.finish()["accuracy"]  # the mean over samples; the history has every class
    0.5
    >>> recorder.history.frame.select("step", "class", "n", "accuracy").rows()
    [(0, 0, 1, 1.0), (0, 1, 1, 0.0)]
    """

    def __init__(
        self, history: History, *, ignore_index: int | None = -100, folder: str | os.PathLike[str] | None = None
    ) -> None:
        if history.kind != "class" and not history.names:
            raise ValueError(f"the history is by {history.kind} and has no names: make it with "
                             f"History(names=[...], kind={history.kind!r}), a name for each data set")  # fmt: skip
        self.history, self.ignore_index = history, ignore_index
        self.folder = None if folder is None else check_folder(folder)
        #: The task that is being learnt.
        self.task = 0
        self._metrics: GroupMetrics | None = None

    @property
    def by_class(self) -> bool:
        """Whether groups are classes; else they are data sets."""
        return self.history.kind == "class"

    def group_of(self, name: str) -> int:
        """The number of a data set by its name."""
        names = self.history.names or ()
        if name not in names:
            raise ValueError(f"the history has no {self.history.kind} {name!r}, only {', '.join(names)}: "
                             "name every data set that is evaluated")  # fmt: skip
        return names.index(name)

    def update(
        self, logits: Any = None, labels: Any = None, *, group: int = 0, scored: Signals | None = None, classes: int = 0
    ) -> None:
        """Add a batch.

        Args:
            logits: any leading shape, classes last.
            labels: integers in the leading shape.
            group: where groups are data sets, which of them the batch is of.
            scored: instead of logits, what `wane.signals` has given already.
            classes: with `scored` and a history by class, how many there are.
        """
        rows = torch.as_tensor(logits)[..., 0] if scored is None else scored.rank
        if self._metrics is None:
            width = torch.as_tensor(logits).shape[-1] if scored is None else classes
            self._metrics = self._new_metrics(width).to(rows.device if rows.device.type == "cuda" else "cpu")
        if isinstance(self._metrics, ClassMetrics):
            self._metrics.update(logits, labels, scored=scored)
        else:
            self._metrics.update(logits, labels, groups=torch.full(rows.shape, group), scored=scored)

    def finish(self, *, split: str = "test", step: int | None = None) -> dict[str, float]:
        """End the evaluation: record it, and return the means over its samples; empty if there was no batch.

        With several processes, each of them ends it, and the history of each gets the samples of all.

        Args:
            split: on which data.
            step: when; default: the number of evaluations of this split so far.
        """
        metrics, self._metrics = self._metrics, None
        return {} if metrics is None else self.record(metrics, split=split, step=step)

    def record(
        self, metrics: GroupMetrics | Mapping[str, Any], *, split: str = "test", step: int | None = None
    ) -> dict[str, float]:
        """Record what was measured elsewhere, as `History.record` takes it; otherwise as `finish`."""
        if step is None:
            step = 1 + max((e.step for e in self.history.evaluations if e.split == split), default=-1)
        self.history.record(metrics, step=step, task=self.task, split=split)
        if self.folder is not None and _is_first_process():
            save_run(self.history, self.folder)
        last = self.history.evaluations[-1]
        if not len(last.n):
            return {}
        return dict(zip(self.history.signals, np.average(last.values, axis=0, weights=last.n).tolist(), strict=True))

    def report(self) -> None:
        """Write `report.html` into the folder, if there is one and something to show."""
        if self.folder is not None and self.history.evaluations and _is_first_process():
            self.history.report(self.folder / "report.html")

    @property
    def classes(self) -> list[int]:
        """The groups that have samples in the evaluation that has not ended."""
        return [] if self._metrics is None else self._metrics.counts.nonzero()[:, 0].tolist()

    def drop(self) -> None:
        """Forget the batches since the last evaluation ended."""
        self._metrics = None

    def state_dict(self) -> dict[str, Any]:
        """The history and the task, for a checkpoint of the framework."""
        file = io.BytesIO()
        self.history.write_parquet(file)
        return {"history": torch.frombuffer(bytearray(file.getvalue()), dtype=torch.uint8), "task": self.task}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on with what `state_dict` gave."""
        saved: Tensor = state["history"]
        # in place: the history that a user gave is the one that goes on
        vars(self.history).update(vars(History.read_parquet(io.BytesIO(saved.cpu().numpy().tobytes()))))
        self.task = int(state["task"])
        self.drop()

    def _new_metrics(self, classes: int) -> GroupMetrics:
        if self.by_class:
            return ClassMetrics(classes, ignore_index=self.ignore_index)
        return GroupMetrics(len(self.history.names or ()), ignore_index=self.ignore_index)


def new_history(given: History | None) -> History:
    """What was given; else a history by class, in which a class belongs to the task that first showed it."""
    return History(class_to_task=[]) if given is None else given


def _is_first_process() -> bool:
    return not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0
