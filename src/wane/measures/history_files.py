"""A history as a tidy table and as a Parquet file, and back; files of every earlier version stay readable.

A file names its schema version, its signals, its groups and what they are in the metadata of Parquet. What is not there
is taken from the columns, as files of schema 1 have it: every column that is no key is a signal.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wane.measures.task_map import tasks_of

if TYPE_CHECKING:
    import polars

__all__ = [
    "BIN_COLUMNS", "KEYS", "SAID", "SCHEMA", "Contents", "Evaluation", "build_frame", "key_columns", "metadata_of",
    "read_frame",
]  # fmt: skip

#: 1: the eight signals of the paper, one column each. 2: the file says which signals and groups it holds.
SCHEMA = 2
KEYS = ("step", "task", "split", "class", "class_task", "n")
#: Lists with what fell into each bin of confidence: samples, their confidences added up, right answers. Where no
#: measure is made of bins, a file has no such columns; a reader who does not know them passes them over.
BIN_COLUMNS = ("bin_n", "bin_confidence", "bin_correct")

# Names in the metadata of a file. The task of every group is there because rows tell only of those evaluated.
_SCHEMA, _SIGNALS, _NAMES, _KIND = "wane.schema", "wane.signals", "wane.names", "wane.kind"
_CLASS_TO_TASK, _GROUPS, _GIVEN = "wane.class_to_task", "wane.num_groups", "wane.tasks_given"
# Rows at which an evaluation begins that no column tells from the one before; absent where there is none.
_STARTS = "wane.starts"
#: What a history may say of the run that it is of; each is a name in the metadata, absent where it is not known.
SAID = ("title", "method", "seed", "data", "costs")

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


class Evaluation(NamedTuple):
    """One call of `History.record`: the groups that had samples, and their means."""

    step: int
    task: int
    split: str
    classes: Ints  # (K,) ids of the groups, ascending
    n: Ints  # (K,)
    values: Array  # (K, signals), in the order of History.signals
    bins: Array | None = None  # (K, bins, 3): what fell into each bin of confidence, see BIN_COLUMNS


class Contents(NamedTuple):
    """What a file holds."""

    evaluations: list[Evaluation]
    signals: tuple[str, ...]
    class_to_task: Ints | None
    names: tuple[str, ...] | None
    kind: str
    groups: int
    given: int | None = None  # how many entries of class_to_task were given; None for all
    said: dict[str, Any] = {}  # noqa: RUF012 (never changed): SAID, as far as it is known


def key_columns(kind: str) -> tuple[str, ...]:
    """The columns of a table that are no signals.

    >>> key_columns("domain")
    ('step', 'task', 'split', 'domain', 'domain_task', 'n')
    """
    return (*KEYS[:3], kind, f"{kind}_task", KEYS[5])


def build_frame(contents: Contents) -> polars.DataFrame:
    """The tidy table: a row for each group of each evaluation."""
    import polars as pl

    evaluations, signals = contents.evaluations, contents.signals
    lengths = [len(e.classes) for e in evaluations]
    ids = np.concatenate([e.classes for e in evaluations] or [np.empty(0, np.int64)])
    n = np.concatenate([e.n for e in evaluations] or [np.empty(0, np.int64)])
    values = np.concatenate([e.values for e in evaluations] or [np.empty((0, len(signals)))])
    task_of = contents.class_to_task
    columns = (
        np.repeat(np.array([e.step for e in evaluations], np.int64), lengths),
        np.repeat(np.array([e.task for e in evaluations], np.int64), lengths),
        pl.Series([e.split for e in evaluations], dtype=pl.String).gather(np.repeat(np.arange(len(lengths)), lengths)),
        ids,
        np.concatenate([tasks_of(task_of, e.classes) for e in evaluations] or [np.empty(0, np.int64)]),
        n,
        *values.T,
    )
    frame = pl.DataFrame(dict(zip((*key_columns(contents.kind), *signals), columns, strict=True)))
    if all(e.bins is None for e in evaluations):
        return frame
    nothing = pl.Series([None], dtype=pl.List(pl.Float64))
    lists = []
    for i, name in enumerate(BIN_COLUMNS):
        parts = [
            nothing.extend_constant(None, len(e.classes) - 1) if e.bins is None
            else pl.Series(e.bins[..., i].tolist(), dtype=pl.List(pl.Float64))
            for e in evaluations
            if len(e.classes)
        ]  # fmt: skip
        lists.append(pl.concat(parts).alias(name))
    return frame.with_columns(lists)


def metadata_of(contents: Contents) -> dict[str, str]:
    """What a file says of itself."""
    known: dict[str, Any] = {
        _SCHEMA: SCHEMA, _SIGNALS: list(contents.signals), _KIND: contents.kind, _GROUPS: contents.groups,
    }  # fmt: skip
    if contents.names is not None:
        known[_NAMES] = list(contents.names)
    if contents.class_to_task is not None:
        known[_CLASS_TO_TASK] = contents.class_to_task.tolist()
        if contents.given is not None and contents.given < len(contents.class_to_task):
            known[_GIVEN] = contents.given
    if starts := _hidden_starts(contents.evaluations):
        known[_STARTS] = starts
    known |= {f"wane.{name}": value for name, value in contents.said.items() if value is not None}
    return {name: json.dumps(value) for name, value in known.items()}


def _hidden_starts(evaluations: list[Evaluation]) -> list[int]:
    """The first rows of evaluations that `read_frame` would take for more classes of the one before."""
    rows = [e for e in evaluations if len(e.classes)]
    firsts = np.cumsum([len(e.classes) for e in rows]).tolist()
    return [
        first
        for first, (a, b) in zip(firsts, pairwise(rows), strict=False)
        if a[:3] == b[:3] and a.classes[-1] < b.classes[0]
    ]


def read_parquet(file: IO[bytes]) -> Contents:
    """What is in a Parquet file; ValueError if it is none, or no history."""
    import polars as pl

    try:
        frame, metadata = pl.read_parquet(file), pl.read_parquet_metadata(file)
        said = {name: json.loads(text) for name, text in metadata.items() if name.startswith("wane.")}
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of polars is no Exception
        raise ValueError(f"is not a whole Parquet file ({error}): write it again with History.write") from None
    kind = said.get(_KIND, "class")
    if missing := [name for name in key_columns(kind) if name not in frame.columns]:
        raise ValueError(f"is not a history of wane: it has no column {missing[0]!r}, only {', '.join(frame.columns)}")
    found = read_frame(frame, kind, starts=said.get(_STARTS, ()))
    task_of = said.get(_CLASS_TO_TASK)
    names = said.get(_NAMES)
    return found._replace(
        class_to_task=found.class_to_task if task_of is None else np.array(task_of, dtype=np.int64),
        names=None if names is None else tuple(names),
        groups=max(found.groups, said.get(_GROUPS, 0)),
        given=said.get(_GIVEN),
        said={name: said[f"wane.{name}"] for name in SAID if f"wane.{name}" in said},
    )


def read_frame(frame: polars.DataFrame, kind: str = "class", *, starts: Sequence[int] = ()) -> Contents:
    """What is in a tidy table, its rows in the order in which they were recorded.

    `starts` are rows at which an evaluation begins although step, task and split are those of the row before, and the
    group's id is higher.

    Only the tasks of groups in the table are known from it; groups with lower ids that are missing get -1.
    """
    import polars as pl

    keys = key_columns(kind)
    ids, group_task = (frame[name].to_numpy().astype(np.int64) for name in keys[3:5])
    task_of = None
    if len(frame) and group_task.max() >= 0:
        task_of = np.full(int(ids.max()) + 1, -1)
        task_of[ids] = group_task
    signals = tuple(name for name, kind_of in frame.schema.items() if name not in keys and kind_of.is_numeric())
    keyed = frame.select(pl.struct("step", "task", "split").rle_id())[:, 0].to_numpy()
    # Ids ascend within an evaluation: where they do not, another one of the same step begins.
    new = (np.diff(keyed) != 0) | (np.diff(ids) <= 0) if len(frame) else np.empty(0, bool)
    new[[start - 1 for start in starts if 0 < start < len(frame)]] = True
    bounds = [0, *(np.flatnonzero(new) + 1).tolist(), len(frame)]
    step, task, n = (frame[name].to_numpy().astype(np.int64) for name in ("step", "task", "n"))
    splits = frame["split"].to_list()
    values = frame.select(pl.col(name).cast(pl.Float64) for name in signals).fill_null(np.nan).to_numpy()
    values = values.reshape(len(frame), len(signals))
    bins = [frame[name] for name in BIN_COLUMNS] if set(BIN_COLUMNS) <= set(frame.columns) else []
    evaluations = [
        Evaluation(int(step[i]), int(task[i]), splits[i], ids[i:j], n[i:j], values[i:j], _bins(bins, i, j))
        for i, j in pairwise(bounds)
        if j > i
    ]
    return Contents(evaluations, signals, task_of, None, kind, int(ids.max()) + 1 if len(ids) else 0)


def _bins(lists: list[polars.Series], start: int, stop: int) -> Array | None:
    """(K, bins, 3) of some rows; None where they have none."""
    if not lists or lists[0].slice(start, 1).null_count():
        return None
    return np.stack([np.array(part.slice(start, stop - start).to_list(), dtype=np.float64) for part in lists], axis=-1)
