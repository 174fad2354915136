"""The history of a run: (step, task, split, class) x signals, one tidy table, Parquet on disk."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wane.checks import whole
from wane.files import read_whole, replace_file
from wane.measures.history_files import (
    KEYS,
    SAID,
    Contents,
    Evaluation,
    build_frame,
    metadata_of,
    read_frame,
    read_parquet,
)
from wane.measures.matrix import SignalMatrix
from wane.measures.measured import MOST_TASKS, measured, task_of_each
from wane.measures.pooling import pooled
from wane.measures.task_map import grown, merged, tasks_of
from wane.softmax.registry import SIGNALS

if TYPE_CHECKING:
    import pandas
    import polars
    from matplotlib.figure import Figure

    from wane.measures.group_metrics import GroupMetrics

__all__ = ["KEYS", "Evaluation", "History", "Trajectory"]

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
#: Whether the mean of a task is one over its samples, or one over the means of its classes.
Over = Literal["samples", "classes"]

#: Where the tasks that were not learnt yet, and the untrained model, were measured, by the split that they belong to.
FUTURE = {"test": "future", "test_task": "future_task"}
UNTRAINED = {"test": "untrained", "test_task": "untrained_task"}
BEFORE_TAUGHT = {*FUTURE.values(), *UNTRAINED.values()}


class Trajectory(NamedTuple):
    """One signal of some classes over time, NaN where a class was not evaluated; `values.mean(1)` is their mean."""

    step: Ints  # (S,)
    task: Ints  # (S,) the task that was being learnt
    classes: Ints  # (K,)
    values: Array  # (S, K)


class History:
    """What was measured, class by class, step by step.

    Args:
        class_to_task: the task of each class, for `matrix` and the column ``class_task`` (-1 where not given). It may
            be shorter than the head will be: a class beyond it belongs to the task in which it first has samples, so
            ``[]`` lets a head that grows tell its tasks.
        names: what the classes are called.
        kind: what a group is, if not a class: ``"domain"``, ``"kind"``, ...; the column of `frame` is called so.
        title: of the run, for pages and figures. This, like what follows, is written into the file, may be set later
            as an attribute, and is absent where it is not known.
        method: what the run's method is called, the same for all its seeds.
        seed: of the run.
        data: what the data set is called.
        costs: what each task cost, by name: lists of numbers, one for each task, such as ``model_bytes``; see
            `wane.training.costs`.

    >>> from wane import ClassMetrics
    >>> import torch
    >>> history, m = History(class_to_task=[0, 1]), ClassMetrics(num_classes=2)
    >>> m.update(torch.tensor([[2.0, 0.0], [1.0, 0.0]]), torch.tensor([0, 1]))
    >>> history.record(m, step=0, task=0, split="test")
    >>> history.frame.select("step", "class", "class_task", "n", "accuracy").rows()
    [(0, 0, 0, 1, 1.0), (0, 1, 1, 1, 0.0)]
    """

    def __init__(
        self,
        class_to_task: Sequence[int] | Any | None = None,
        *,
        names: Sequence[str] | None = None,
        kind: str = "class",
        title: str | None = None,
        method: str | None = None,
        seed: int | None = None,
        data: str | None = None,
        costs: dict[str, list[int]] | None = None,
    ) -> None:
        self.class_to_task = None if class_to_task is None else task_of_each(class_to_task)
        self._given = 0 if self.class_to_task is None else len(self.class_to_task)
        self.names = None if names is None else tuple(str(name) for name in names)
        if names is not None and self.class_to_task is not None and len(names) < len(self.class_to_task):
            raise ValueError(f"{len(names)} names for {len(self.class_to_task)} entries of class_to_task: "
                             f"give one for each {kind}")  # fmt: skip
        if not kind or kind in KEYS[:3] or kind == "n" or kind in SIGNALS:
            raise ValueError(f"kind is {kind!r}, which another column of the table has: choose another word")
        self.kind = kind
        self.title, self.method, self.seed, self.data, self.costs = title, method, seed, data, costs
        #: The names of the signals it holds, in the order of `Evaluation.values`.
        self.signals: tuple[str, ...] = tuple(SIGNALS)
        self.evaluations: list[Evaluation] = []
        self._frame: polars.DataFrame | None = None
        self._groups = 0
        self._looked_at: tuple[list[Evaluation], int] = (self.evaluations, 0)
        self._seen = np.zeros(0, dtype=bool)

    def __len__(self) -> int:
        return sum(len(e.classes) for e in self.evaluations)

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that were recorded, in the order of their first evaluation."""
        return tuple(dict.fromkeys(e.split for e in self.evaluations))

    @property
    def num_groups(self) -> int:
        """How many classes (or groups) are known, whether or not they had samples."""
        given = (0 if known is None else len(known) for known in (self.class_to_task, self.names))
        return max(self._groups, len(self._seen), *given)

    @property
    def seen(self) -> NDArray[np.bool_]:
        """(G,) which of the known groups had samples in any evaluation. Costs no more than what was added since."""
        looked_at, count = self._looked_at
        if looked_at is not self.evaluations or count > len(self.evaluations):
            self._seen, count = np.zeros(0, dtype=bool), 0
        new = [e.classes for e in self.evaluations[count:] if len(e.classes)]
        self._looked_at = (self.evaluations, len(self.evaluations))
        size = max([self.num_groups, *(int(ids[-1]) + 1 for ids in new)])
        seen = np.zeros(size, dtype=bool)
        seen[: len(self._seen)] = self._seen
        for ids in new:
            seen[ids] = True
        self._seen = seen
        return seen.copy()

    def record(self, metrics: GroupMetrics | Mapping[str, Any], *, step: int, task: int, split: str = "test") -> None:
        """Add one evaluation: a `ClassMetrics`, a `GroupMetrics`, or a mapping with ``n`` and signals by name.

        A mapping has a value for each class; a signal that is not in it is NaN. Costs O(classes), however long the
        history is. Classes without samples get no row. There may be fewer classes than `class_to_task` names, or
        more, as with a head that grows. A metric with measures that are made of bins hands over its bins, too, so that
        the history knows these measures of tasks.
        """
        step, task = whole("step", step, most=2**62), whole("task", task, most=MOST_TASKS)
        if not isinstance(split, str):
            raise ValueError(f"split is {split!r}: give a text, such as 'test'")
        n, columns, bins = measured(metrics, self.kind, self.signals)  # every check comes before any change
        self._hold(columns)
        values = np.full((len(n), len(self.signals)), np.nan)
        for i, name in enumerate(self.signals):
            if name in columns:
                values[:, i] = columns[name]
        present = np.flatnonzero(n)
        if self.class_to_task is not None and split not in BEFORE_TAUGHT:
            self.class_to_task = grown(self.class_to_task, self._given, present, task)
        self.evaluations.append(
            Evaluation(step, task, split, present, n[present], values[present],
                       None if bins is None else bins[present])
        )  # fmt: skip
        self._groups = max(self._groups, len(n))
        self._frame = None

    def column(self, evaluation: Evaluation, signal: str) -> Array:
        """(K,) one signal of the classes of an evaluation; NaN if the history does not hold it."""
        if signal in self.signals:
            values: Array = evaluation.values[:, self.signals.index(signal)]
            return values
        SIGNALS[signal]  # an unknown name is an error that lists the known ones
        return np.full(len(evaluation.classes), np.nan)

    def pooled(self, evaluation: Evaluation, signal: str, union: Ints | None = None, size: int = 1) -> Array:
        """(size,) the value of a signal for all samples of some classes together; NaN if there are none.

        Most signals are means over samples. For one that is made of bins, such as the ``ece``, the bins are put
        together; without them, as where a mapping was recorded, the value of several classes is not known.

        Args:
            evaluation: of this history.
            signal: which.
            union: (K,) which of the `size` values each class of the evaluation belongs to, -1 for none. Default: all
                classes together are one.
            size: how many values there are.
        """
        union = np.zeros(len(evaluation.classes), dtype=np.int64) if union is None else union
        return pooled(signal, self.column(evaluation, signal), evaluation.n, evaluation.bins, union, size)

    @property
    def frame(self) -> polars.DataFrame:
        """The tidy table: step, task, split, class, class_task, n and a column for each signal.

        Where measures are made of bins, these are lists in the columns of `wane.measures.history_files.BIN_COLUMNS`.
        """
        if self._frame is None:
            self._frame = build_frame(self._contents())
        return self._frame

    def to_pandas(self) -> pandas.DataFrame:
        """The tidy table as a pandas DataFrame (needs pandas)."""
        import pandas as pd

        return pd.DataFrame({name: self.frame[name].to_numpy() for name in self.frame.columns})

    def with_evaluations(self, evaluations: Sequence[Evaluation]) -> History:
        """The same history with other evaluations, such as some of these."""
        return History._of(self._contents()._replace(evaluations=list(evaluations)))

    def append(self, other: History) -> None:
        """Add all evaluations of `other` behind these."""
        if self.kind != other.kind:
            raise ValueError(f"one history is by {self.kind} and the other by {other.kind}: they do not fit together")
        self.class_to_task = merged(self.class_to_task, other.class_to_task)
        self._given = max(self._given, other._given)
        self.names = other.names if self.names is None else self.names
        self._hold(other.signals)
        self.evaluations.extend(
            e._replace(values=np.stack([other.column(e, name) if name in other.signals else
                                        np.full(len(e.classes), np.nan) for name in self.signals], axis=1))
            for e in other.evaluations
        )  # fmt: skip
        self._groups = max(self._groups, other.num_groups)
        self._frame = None

    def tail(self, count: int, *, split: str) -> list[Evaluation]:
        """The last `count` evaluations of a split, oldest first; costs no more than it returns and steps over."""
        found: list[Evaluation] = []
        for evaluation in reversed(self.evaluations):
            if len(found) == count:
                break
            if evaluation.split == split:
                found.append(evaluation)
        return found[::-1]

    def trajectory(self, signal: str, classes: Sequence[int] | None = None, *, split: str = "test") -> Trajectory:
        """One signal over time for some classes (default: all that were seen)."""
        chosen = self._of_split(split)
        columns = [self.column(e, signal) for e in chosen]
        seen = np.unique(np.concatenate([e.classes for e in chosen]))
        wanted = seen if classes is None else np.asarray(classes, dtype=np.int64)
        if missing := set(wanted.tolist()) - set(seen.tolist()):
            known = f", from {seen[0]} to {seen[-1]}" if len(seen) else ""
            raise ValueError(f"{self.kind} {min(missing)} was never evaluated on split {split!r}; "
                             f"{len(seen)} {_plural(self.kind)} were{known}")  # fmt: skip
        position = np.full(int(seen[-1]) + 1 if len(seen) else 0, -1)
        position[wanted] = np.arange(len(wanted))
        values = np.full((len(chosen), len(wanted)), np.nan)
        for row, (e, column) in enumerate(zip(chosen, columns, strict=True)):
            at = position[e.classes]
            values[row, at[at >= 0]] = column[at >= 0]
        return Trajectory(*_times(chosen), wanted, values)

    def matrix(self, signal: str = "accuracy", *, split: str = "test", over: Over = "samples") -> SignalMatrix:
        """Task x task: entry (k, j) is the mean of task j at the last evaluation of task k; NaN if there is none.

        The matrix remembers its signal, so that `wane.forgetting(history.matrix("loss"))` knows that lower is better.
        Tasks that were not learnt yet, the upper triangle, are taken from split ``future`` (``future_task`` for
        ``test_task``) where that was recorded.

        Args:
            signal: which.
            split: on which data.
            over: mean over the ``"samples"`` of a task, or over the means of its ``"classes"``. They differ where
                classes have different numbers of samples.
        """
        last = {e.task: e for e in self._of_split(split)}
        size = max(self._last_task(), *last) + 1
        matrix = np.full((size, size), np.nan)
        for k, evaluation in last.items():
            matrix[k] = self._by_task(evaluation, signal, size, over)
        for k, evaluation in {e.task: e for e in self.evaluations if e.split == FUTURE.get(split)}.items():
            if k in last:
                ahead = self._by_task(evaluation, signal, size, over)
                matrix[k] = np.where(np.isnan(matrix[k]) & (np.arange(size) > k), ahead, matrix[k])
        return SignalMatrix(matrix, signal)

    def by_task(self, signal: str = "accuracy", *, split: str = "test", over: Over = "samples") -> Trajectory:
        """One signal of every task over time: what `min_acc` and the other stability-gap summaries take.

        `values` remembers its signal, as a `matrix` does; `over` is explained there.
        """
        chosen = self._of_split(split)
        size = self._last_task() + 1
        values = np.stack([self._by_task(e, signal, size, over) for e in chosen])
        return Trajectory(*_times(chosen), np.arange(size), SignalMatrix(values, signal))

    def untrained(self, signal: str = "accuracy", *, split: str = "test", over: Over = "samples") -> Array | None:
        """(T,) the signal of every task under the untrained model, the baseline of `wane.forward_transfer`.

        From split ``untrained`` (``untrained_task`` for ``test_task``); None if that was not recorded.
        """
        measured = [e for e in self.evaluations if e.split == UNTRAINED.get(split)]
        if not measured:
            return None
        return self._by_task(measured[-1], signal, self._last_task() + 1, over)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write Parquet, atomically: the file is whole or as it was before."""
        buffer = io.BytesIO()
        self.write_parquet(buffer)
        replace_file(Path(path), buffer.getvalue())

    def write_parquet(self, file: IO[bytes]) -> None:
        """Write Parquet into an open file; what `write` puts on disk.

        >>> file = io.BytesIO()
        >>> History(class_to_task=[0, 0, 1, 1]).write_parquet(file)
        >>> file.getvalue()[:4]
        b'PAR1'
        """
        self.frame.write_parquet(file, metadata=metadata_of(self._contents()))

    def report(self, path: str | os.PathLike[str], *, title: str | None = None) -> Path:
        """Write the report of this history: one page that stands alone. As `wane.report`, which takes several, too."""
        import wane  # the front of the house may be asked for any room

        return wane.report(self, path, title=title)

    def figure(self, name: str, path: str | os.PathLike[str] | None = None, **options: Any) -> Figure:
        """Draw a figure of this history, and write it where a path is given, as `wane.figure` does."""
        import wane

        return wane.figure(name, self, path, **options)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> History:
        """Read what any version of `write` wrote, with names and tasks of classes that were not evaluated yet.

        A signal that the file does not hold is NaN; one that is not in `wane.SIGNALS` is kept as a column. A truncated
        or foreign file is one clear ValueError.
        """
        if not Path(path).exists():
            raise FileNotFoundError(f"there is no history at {path}")
        try:
            return cls.read_parquet(read_whole(Path(path)))
        except ValueError as error:
            raise ValueError(f"{path} {error}") from None

    @classmethod
    def read_parquet(cls, file: IO[bytes]) -> History:
        """Read from an open file what `write_parquet` wrote; ValueError if it is something else."""
        return cls._of(read_parquet(file))

    @classmethod
    def from_frame(cls, frame: polars.DataFrame, *, kind: str = "class") -> History:
        """A history from its tidy table, rows in the order in which they were recorded.

        Only the tasks of classes in the table are known from it; missing lower-numbered classes get -1.
        """
        return cls._of(read_frame(frame, kind))

    @classmethod
    def _of(cls, contents: Contents) -> History:
        history = cls(contents.class_to_task, kind=contents.kind, **contents.said)
        history.names = contents.names
        history._given = history._given if contents.given is None else contents.given
        history.signals, history.evaluations, history._groups = contents.signals, contents.evaluations, contents.groups
        return history

    def _contents(self) -> Contents:
        said = {name: getattr(self, name) for name in SAID}
        return Contents(self.evaluations, self.signals, self.class_to_task, self.names, self.kind, self.num_groups,
                        self._given, said)  # fmt: skip

    def _hold(self, names: Any) -> None:
        """Make room for these signals; what was recorded before has NaN there."""
        if not (new := tuple(name for name in names if name not in self.signals)):
            return
        blank = [np.full((len(e.classes), len(new)), np.nan) for e in self.evaluations]
        self.evaluations = [
            e._replace(values=np.concatenate([e.values, nan], axis=1))
            for e, nan in zip(self.evaluations, blank, strict=True)
        ]
        self.signals += new
        self._frame = None

    def _of_split(self, split: str) -> list[Evaluation]:
        chosen = [e for e in self.evaluations if e.split == split]
        if not chosen:
            raise ValueError(f"nothing was recorded for split {split!r}; there is "
                             f"{', '.join(sorted(self.splits)) or 'nothing at all'}")  # fmt: skip
        return chosen

    def _task_of(self) -> Ints:
        if self.class_to_task is None:
            raise ValueError(
                f"this history does not know the task of each {self.kind}: make it with History(class_to_task=...)"
            )
        return self.class_to_task

    def _last_task(self) -> int:
        return int(self._task_of().max(initial=0))

    def _by_task(self, e: Evaluation, signal: str, size: int, over: Over) -> Array:
        if over not in ("samples", "classes"):
            raise ValueError(f"over is {over!r}: choose samples or classes")
        tasks = tasks_of(self._task_of(), e.classes)
        if over == "samples":
            return self.pooled(e, signal, tasks, size)
        known = tasks >= 0  # not those of groups that belong to no task
        total = np.bincount(tasks[known], weights=self.column(e, signal)[known], minlength=size)
        with np.errstate(invalid="ignore"):
            mean: Array = total / np.bincount(tasks[known], minlength=size)
        return mean


def _times(evaluations: list[Evaluation]) -> tuple[Ints, Ints]:
    return np.array([e.step for e in evaluations]), np.array([e.task for e in evaluations])


def _plural(kind: str) -> str:
    return "classes" if kind == "class" else f"{kind}s"
