"""The history of a run: (step, task, split, class) x signals, one tidy table, Parquet on disk."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wane.files import read_whole, replace_file
from wane.softmax.signals import SIGNALS

if TYPE_CHECKING:
    import pandas
    import polars

    from wane.measures.group_metrics import ClassMetrics

Array = NDArray[np.float64]
KEYS = ("step", "task", "split", "class", "class_task", "n")
#: Where a Parquet file keeps the task of every class: its rows tell only of classes that were evaluated.
CLASS_TO_TASK = "wane.class_to_task"


class Trajectory(NamedTuple):
    """One signal of some classes over time, NaN where a class was not evaluated; `values.mean(1)` is their mean."""

    step: NDArray[np.int64]  # (S,)
    task: NDArray[np.int64]  # (S,) the task that was being learnt
    classes: NDArray[np.int64]  # (K,)
    values: Array  # (S, K)


class Evaluation(NamedTuple):
    """One call of `record`: the classes that had samples, and their means."""

    step: int
    task: int
    split: str
    classes: NDArray[np.int64]  # (K,)
    n: NDArray[np.int64]  # (K,)
    values: Array  # (K, signals), in the order of SIGNALS


class History:
    """What was measured, class by class, step by step.

    Args:
        class_to_task: the task of each class, for `matrix` and the column ``class_task`` (-1 where not given).

    >>> from wane import ClassMetrics
    >>> import torch
    >>> history, m = History(class_to_task=[0, 1]), ClassMetrics(num_classes=2)
    >>> m.update(torch.tensor([[2.0, 0.0], [1.0, 0.0]]), torch.tensor([0, 1]))
    >>> history.record(m, step=0, task=0, split="test")
    >>> history.frame.select("step", "class", "class_task", "n", "accuracy").rows()
    [(0, 0, 0, 1, 1.0), (0, 1, 1, 1, 0.0)]
    """

    def __init__(self, class_to_task: Sequence[int] | Any | None = None) -> None:
        self.class_to_task = None if class_to_task is None else np.asarray(class_to_task, dtype=np.int64)
        self.evaluations: list[Evaluation] = []
        self._frame: polars.DataFrame | None = None

    def __len__(self) -> int:
        return sum(len(e.classes) for e in self.evaluations)

    def record(self, metrics: ClassMetrics | Mapping[str, Any], *, step: int, task: int, split: str = "test") -> None:
        """Add one evaluation: a `ClassMetrics`, or a mapping with ``n`` and the signals, a value per class each.

        Costs O(classes), however long the history is. Classes without samples get no row.
        """
        if isinstance(metrics, Mapping):
            n = np.asarray(metrics["n"], dtype=np.int64)
            values = np.stack([np.asarray(metrics[name], dtype=np.float64) for name in SIGNALS], axis=1)
        else:
            if metrics.average is not None:
                raise ValueError(f"the history needs a value per class, not average={metrics.average!r}: "
                                 "record a ClassMetrics with average=None")  # fmt: skip
            means = metrics.compute()
            n = metrics.counts.cpu().numpy().copy()
            values = np.stack([means[name].cpu().numpy() for name in SIGNALS], axis=1)
        if self.class_to_task is not None and len(n) != len(self.class_to_task):
            raise ValueError(f"{len(n)} classes were recorded, but class_to_task names {len(self.class_to_task)}")
        present = np.flatnonzero(n)
        self.evaluations.append(Evaluation(int(step), int(task), split, present, n[present], values[present]))
        self._frame = None

    @property
    def frame(self) -> polars.DataFrame:
        """The tidy table: step, task, split, class, class_task, n and the eight signals."""
        if self._frame is None:
            self._frame = self._build_frame()
        return self._frame

    def to_pandas(self) -> pandas.DataFrame:
        """The tidy table as a pandas DataFrame (needs pandas)."""
        import pandas as pd

        return pd.DataFrame({name: self.frame[name].to_numpy() for name in self.frame.columns})

    def append(self, other: History) -> None:
        """Add all evaluations of `other` behind these."""
        if self.class_to_task is None:
            self.class_to_task = other.class_to_task
        elif other.class_to_task is not None and not np.array_equal(self.class_to_task, other.class_to_task):
            raise ValueError("the two histories divide the classes into tasks differently: "
                             f"{self.class_to_task.tolist()} and {other.class_to_task.tolist()}")  # fmt: skip
        self.evaluations.extend(other.evaluations)
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
        column = list(SIGNALS).index(SIGNALS[signal].name)
        chosen = self._of_split(split)
        seen = np.unique(np.concatenate([e.classes for e in chosen]))
        wanted = seen if classes is None else np.asarray(classes, dtype=np.int64)
        if missing := set(wanted.tolist()) - set(seen.tolist()):
            raise ValueError(f"class {min(missing)} was never evaluated on split {split!r}; "
                             f"{len(seen)} classes were, from {seen[0]} to {seen[-1]}")  # fmt: skip
        position = np.full(int(seen[-1]) + 1, -1)
        position[wanted] = np.arange(len(wanted))
        values = np.full((len(chosen), len(wanted)), np.nan)
        for row, e in enumerate(chosen):
            at = position[e.classes]
            values[row, at[at >= 0]] = e.values[at >= 0, column]
        steps, tasks = np.array([e.step for e in chosen]), np.array([e.task for e in chosen])
        return Trajectory(steps, tasks, wanted, values)

    def matrix(self, signal: str = "accuracy", *, split: str = "test") -> Array:
        """Task x task: entry (k, j) is the mean over task j's samples at the last evaluation of task k; NaN if none."""
        chosen, task_of = self._of_split(split), self._task_of()
        last = {e.task: e for e in chosen}
        size = max(int(task_of.max()), *last) + 1
        matrix = np.full((size, size), np.nan)
        for k, evaluation in last.items():
            matrix[k] = self._by_task(evaluation, signal, size)
        return matrix

    def by_task(self, signal: str = "accuracy", *, split: str = "test") -> Trajectory:
        """One signal of every task over time: what `min_acc` and the other stability-gap summaries take."""
        chosen = self._of_split(split)
        size = int(self._task_of().max()) + 1
        values = np.stack([self._by_task(e, signal, size) for e in chosen])
        return Trajectory(
            np.array([e.step for e in chosen]), np.array([e.task for e in chosen]), np.arange(size), values
        )

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
        tasks = None if self.class_to_task is None else {CLASS_TO_TASK: json.dumps(self.class_to_task.tolist())}
        self.frame.write_parquet(file, metadata=tasks)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> History:
        """Read what `write` wrote, also the tasks of classes that were not evaluated yet.

        A truncated or foreign file is one clear ValueError.
        """
        import polars as pl

        if not Path(path).exists():
            raise FileNotFoundError(f"there is no history at {path}")
        try:
            file = read_whole(Path(path))
            frame, metadata = pl.read_parquet(file), pl.read_parquet_metadata(file)
        except Exception as error:
            raise ValueError(
                f"{path} is not a whole Parquet file ({error}): write it again with History.write"
            ) from None
        if missing := [name for name in (*KEYS, *SIGNALS) if name not in frame.columns]:
            raise ValueError(f"{path} is not a history of wane: it has no column {missing[0]!r}, only "
                             f"{', '.join(frame.columns)}")  # fmt: skip
        history = cls.from_frame(frame)
        if CLASS_TO_TASK in metadata:
            history.class_to_task = np.array(json.loads(metadata[CLASS_TO_TASK]), dtype=np.int64)
        return history

    @classmethod
    def from_frame(cls, frame: polars.DataFrame) -> History:
        """A history from its tidy table, rows in the order in which they were recorded.

        It knows the tasks of the classes in the table alone; -1 stands for that of one with a lower number.
        """
        import polars as pl

        class_task = frame["class_task"].to_numpy()
        history = cls()
        if len(frame) and class_task.max() >= 0:
            task_of = np.full(int(frame["class"].to_numpy().max()) + 1, -1)
            task_of[frame["class"].to_numpy()] = class_task
            history.class_to_task = task_of
        starts = frame.select(pl.struct("step", "task", "split").rle_id())[:, 0].to_numpy()
        bounds = [0, *(np.flatnonzero(np.diff(starts)) + 1).tolist(), len(frame)]
        columns = {name: frame[name].to_numpy() for name in ("step", "task", "class", "n")}
        splits = frame["split"].to_list()
        values = frame.select(*SIGNALS).to_numpy()
        for i, j in pairwise(bounds):
            if j > i:
                history.evaluations.append(
                    Evaluation(int(columns["step"][i]), int(columns["task"][i]), splits[i],
                               columns["class"][i:j].astype(np.int64), columns["n"][i:j].astype(np.int64), values[i:j])
                )  # fmt: skip
        return history

    def _build_frame(self) -> polars.DataFrame:
        import polars as pl

        lengths = [len(e.classes) for e in self.evaluations]
        stack = [e.classes for e in self.evaluations] or [np.empty(0, np.int64)]
        classes = np.concatenate(stack)
        n = np.concatenate([e.n for e in self.evaluations] or stack)
        values = np.concatenate([e.values for e in self.evaluations] or [np.empty((0, len(SIGNALS)))])
        class_task = np.full(len(classes), -1) if self.class_to_task is None else self.class_to_task[classes]
        return pl.DataFrame(
            {
                "step": np.repeat(np.array([e.step for e in self.evaluations], np.int64), lengths),
                "task": np.repeat(np.array([e.task for e in self.evaluations], np.int64), lengths),
                "split": pl.Series([e.split for e in self.evaluations], dtype=pl.String).gather(
                    np.repeat(np.arange(len(lengths)), lengths)
                ),
                "class": classes,
                "class_task": class_task,
                "n": n,
                **{name: values[:, i] for i, name in enumerate(SIGNALS)},
            }
        )

    def _of_split(self, split: str) -> list[Evaluation]:
        chosen = [e for e in self.evaluations if e.split == split]
        if not chosen:
            known = sorted({e.split for e in self.evaluations})
            raise ValueError(
                f"nothing was recorded for split {split!r}; there is {', '.join(known) or 'nothing at all'}"
            )
        return chosen

    def _task_of(self) -> NDArray[np.int64]:
        if self.class_to_task is None:
            raise ValueError(
                "this history does not know the task of each class: make it with History(class_to_task=...)"
            )
        return self.class_to_task

    def _by_task(self, e: Evaluation, signal: str, size: int) -> Array:
        column = list(SIGNALS).index(SIGNALS[signal].name)
        tasks = self._task_of()[e.classes]
        samples = np.bincount(tasks, weights=e.n, minlength=size)
        total = np.bincount(tasks, weights=e.n * e.values[:, column], minlength=size)
        with np.errstate(invalid="ignore"):
            mean: Array = total / samples
        return mean
