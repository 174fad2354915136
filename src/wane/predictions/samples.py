"""Measured samples: what files of logits, of probabilities and of signals all become before they are compared."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray

from wane.predictions.files import PredictionsError
from wane.predictions.predictions import Predictions
from wane.softmax.registry import SIGNALS
from wane.softmax.signals import signals

__all__ = ["Columns", "Samples", "measure"]

Array: TypeAlias = NDArray[Any]
Ints: TypeAlias = NDArray[np.int64]
Column = TypeVar("Column")
Within: TypeAlias = Callable[[Sequence[int], Ints | None], Mapping[str, Array]]

#: Numbers of logits that are looked at together.
CHUNK = 1 << 22


class Columns(Mapping[str, Column], Generic[Column]):
    """Columns by name, each read when it is asked for and not kept: a long file is never whole in memory.

    >>> squares = Columns(("a", "b"), lambda name: np.array([ord(name) ** 2, 1]))
    >>> squares["b"], list(squares), squares.map(lambda column: column[::-1])["a"]
    (array([9604,    1]), ['a', 'b'], array([   1, 9409]))
    """

    def __init__(self, names: Sequence[str], read: Callable[[str], Column]) -> None:
        self._names, self._read = tuple(names), read

    def __getitem__(self, name: str) -> Column:
        if name not in self._names:
            raise KeyError(f"no column {name!r} here; there are: {', '.join(self._names)}")
        return self._read(name)

    def __contains__(self, name: object) -> bool:
        return name in self._names  # Mapping would read the column to find out

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def map(self, function: Callable[[Column], Column]) -> Columns[Column]:
        """The same names, with `function` of each column once it is read."""
        return Columns(self._names, lambda name: function(self[name]))


@dataclass(frozen=True, eq=False)
class Samples:
    """N samples, and how well a model knew the label of each.

    >>> from wane.predictions.predictions import read_predictions
    >>> samples = measure(read_predictions("example:digits_before"))
    >>> len(samples), samples.num_classes, list(samples.values)[:3]
    (899, 10, ['accuracy', 'loss', 'cm'])
    """

    labels: Ints
    """(N,), numbers of classes."""
    values: Mapping[str, Array]
    """(N,) each: signals by name, ``rank``, ``gap`` (how many nats the label lacks to be the answer), and ``answer``,
    the class that each was taken for."""
    num_classes: int
    """How many classes competed; 0 where that differs from sample to sample."""
    class_names: tuple[str, ...] | None = None
    """(C,), where known; names may repeat, as those of tokens do."""
    keys: Mapping[str, pl.Series] | None = None
    """What samples of two files are matched by: a column of ids, or several columns that are unique together."""
    columns: Mapping[str, pl.Series] = field(default_factory=dict)
    """(N,) each: what samples can be grouped by. Intervals are clustered by the one called ``document``."""
    within: Within | None = field(default=None, repr=False)
    """The values among some of the classes only, and of some rows; None where logits were not kept."""
    by: tuple[str, ...] = ("class",)
    """What they are grouped by unless something else is asked for."""
    path: Path = Path("<memory>")
    notes: tuple[str, ...] = ()
    """What a reader should know of these numbers."""

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, rows: Ints) -> Samples:
        """These rows only, in this order."""
        within = self.within
        return replace(
            self,
            labels=self.labels[rows],
            values=_map(self.values, lambda column: column[rows]),
            keys=None if self.keys is None else _map(self.keys, lambda column: column[rows]),
            columns=_map(self.columns, lambda column: column[rows]),
            within=None
            if within is None
            else lambda classes, some: within(classes, rows if some is None else rows[some]),
        )


def measure(predictions: Predictions | Samples) -> Samples:
    """Every signal of every sample, a few rows at a time; samples that are measured already stay as they are.

    >>> p = Predictions(labels=torch.tensor([0, 2]), logits=torch.tensor([[2.0, 0, 0], [0, 4, 3]]))
    >>> samples = measure(p)
    >>> samples.values["gap"], samples.values["rank"], samples.values["answer"]
    (array([0., 1.]), array([1, 2]), array([0, 1]))
    """
    if isinstance(predictions, Samples):
        return predictions
    p = predictions
    if p.logits is None and p.probabilities is None:
        raise PredictionsError(f"{p.path} has neither logits nor probabilities: give one of them")
    return Samples(
        labels=p.labels.numpy(),
        values=_values(p),
        num_classes=p.num_classes,
        class_names=p.class_names,
        keys=None if p.ids is None else {"id": _id_column(p.ids)},
        columns=dict(p.columns),
        within=lambda classes, rows: _values(p, classes, rows),
        path=p.path,
    )


def _values(p: Predictions, classes: Sequence[int] | None = None, only: Ints | None = None) -> dict[str, Array]:
    scores = p.probabilities if p.logits is None else p.logits
    assert scores is not None
    kind = "probabilities" if p.logits is None else "logits"
    chosen = None if classes is None else torch.as_tensor(list(classes))
    step = max(1, CHUNK // scores.shape[1])
    parts: list[dict[str, Array]] = []
    for start in range(0, len(scores) if only is None else len(only), step):
        some = slice(start, start + step) if only is None else torch.from_numpy(only[start : start + step])
        rows, labels = scores[some], p.labels[some]
        try:
            # Not compiled: for a single pass, compiling would take longer than running.
            scored = signals(
                rows if kind == "logits" else None,
                labels,
                probabilities=rows if kind != "logits" else None,
                classes=classes,
                compiled=False,
            )
        except ValueError as error:
            said = re.sub(r"\brow (\d+)", partial(_later, by=start), str(error))
            raise PredictionsError(f"{p.path} cannot be scored, as {said}") from None
        own = rows.gather(1, labels[:, None])[:, 0].double()
        best, answer = (rows if chosen is None else rows[:, chosen]).max(1)
        top = best.double()
        gap = top - own if kind == "logits" else top.log() - own.log()
        answer = torch.where(scored.accuracy == 1, labels, answer if chosen is None else chosen[answer])
        measured = {**scored._asdict(), "gap": gap, "answer": answer}
        parts.append({name: value.numpy() for name, value in measured.items()})
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _later(found: re.Match[str], by: int) -> str:
    return f"row {int(found[1]) + by}"


def complete(values: Mapping[str, Array]) -> Mapping[str, Array]:
    """With the gap, from the signals that tell it, where only those were saved."""
    if "gap" in values or not {"accuracy", "loss", "cm", "ctl"} <= {*values}:
        return values

    def read(name: str) -> Array:
        if name != "gap":
            return values[name]
        gap, own, cm = np.array(values["loss"]), values["ctl"], values["cm"]
        right = values["accuracy"] == 1
        for start in range(0, len(gap), CHUNK):  # ln p_max - ln p_y, and p_max = 1 + p_y - cm
            rows = slice(start, start + CHUNK)
            with np.errstate(divide="ignore", invalid="ignore"):
                lacks = np.log(1 - cm[rows].astype(np.float64) + own[rows]) + gap[rows]
            gap[rows] = np.where(right[rows], 0, np.maximum(lacks, 0))
        return gap

    return Columns((*values, "gap"), read)


def known_signals(values: Mapping[str, Array]) -> list[str]:
    """The signals among the values, in the order of the registry."""
    return [name for name in SIGNALS if name in values]


def _map(columns: Mapping[str, Column], function: Callable[[Column], Column]) -> Mapping[str, Column]:
    return Columns(tuple(columns), columns.__getitem__).map(function)


def _id_column(ids: Sequence[Any]) -> pl.Series:
    """Ids as a column; what is no plain column of numbers or text is told apart by how it is written."""
    kinds = {type(name) for name in ids}
    plain = kinds <= {int, np.int64} or kinds <= {str, np.str_}
    return pl.Series("id", list(ids) if plain else [repr(name) for name in ids])
