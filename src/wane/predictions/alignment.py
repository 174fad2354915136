"""The same samples of two files in the same order, with the same numbers for the same classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from wane.predictions.files import PredictionsError
from wane.predictions.predictions import Predictions
from wane.predictions.samples import Array, Columns, Samples, measure

__all__ = ["Pair", "align"]


@dataclass(frozen=True, eq=False)
class Pair:
    """Two models on the same samples; classes are numbered as in the first file, then those only in the second."""

    before: Samples
    after: Samples
    common: tuple[int, ...]
    """The classes that both models know."""
    notes: tuple[str, ...] = ()

    @property
    def same_head(self) -> bool:
        """Whether both models know the same classes."""
        return self.before.num_classes == self.after.num_classes == len(self.common)

    @property
    def restrictable(self) -> bool:
        """Whether both can be measured among the classes that both know, which takes logits or probabilities."""
        return self.before.within is not None and self.after.within is not None

    def restricted(self) -> tuple[Samples, Samples]:
        """Both measured among the classes that both know."""
        first, second = self.before.within, self.after.within
        assert first is not None
        assert second is not None
        return replace(self.before, values=first(self.common, None)), replace(
            self.after, values=second(self.common, None)
        )


def align(before: Predictions | Samples, after: Predictions | Samples, *, common: bool = False) -> Pair:
    """Both as measured samples in the order of the first.

    Samples are matched by their ids where both have them; otherwise they are taken to be in the same order already,
    which the labels must bear out. Classes are matched by name where both files name them all differently, and
    otherwise by number. A model may know more classes than the other.

    Args:
        before: what the first model said.
        after: what the second said.
        common: leave out samples that only one file has, instead of refusing them.

    >>> import torch
    >>> logits, labels = torch.tensor([[2.0, 1.0], [0.0, 3.0]]), torch.tensor([0, 1])
    >>> before = Predictions(labels=labels, logits=logits, ids=("a", "b"))
    >>> after = Predictions(labels=labels.flip(0), logits=logits.flip(0) * 2, ids=("b", "a"))
    >>> align(before, after).after.values["loss"].round(3)
    array([0.127, 0.002], dtype=float32)
    """
    first, second = measure(before), measure(after)
    for samples in (first, second):
        if "accuracy" not in samples.values:
            there = ", ".join(samples.values) or "nothing"
            raise PredictionsError(
                f"{samples.path} does not say which answers are right (it has {there}): save accuracy"
            )
    try:
        second, shared = _same_classes(first, second)
        first = replace(first, class_names=second.class_names)
        first, second, notes = _same_rows(first, second, common)
        _check_labels(first, second)
    except PredictionsError as error:
        raise PredictionsError(f"{first.path} and {second.path} {error}") from None
    return Pair(first, second, shared, notes)


def _same_classes(first: Samples, second: Samples) -> tuple[Samples, tuple[int, ...]]:
    """The second with the class numbers of the first, and the numbers of the classes that both know."""
    a, b = first.class_names, second.class_names
    sizes = first.num_classes, second.num_classes
    if a is None or b is None or a == b[: len(a)] or b == a[: len(b)]:
        names = max(a or (), b or (), key=len)
        whole = (*names, *map(str, range(len(names), max(sizes)))) if names else None
        return replace(second, class_names=whole), tuple(range(min(sizes)))
    if len(set(a)) < len(a) or len(set(b)) < len(b):
        i = next(i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y)
        raise PredictionsError(
            f"call class {i} {a[i]!r} and {b[i]!r}, and some names stand for several classes: save the classes in the "
            "same order, or under names of their own"
        )
    union = {name: i for i, name in enumerate(dict.fromkeys((*a, *b)))}
    number = np.array([union[name] for name in b])
    place = {int(n): i for i, n in enumerate(number)}
    shared = tuple(i for i in range(len(a)) if i in place)
    if not shared:
        raise PredictionsError(f"have no class in common, as {a[0]!r} and {b[0]!r}: compare models of the same classes")
    within = second.within
    moved = replace(
        second,
        labels=number[second.labels],
        values=_renumbered(second.values, number),
        class_names=tuple(union),
        within=None
        if within is None
        else lambda classes, rows: _renumbered(within([place[i] for i in classes], rows), number),
    )
    return moved, shared


def _same_rows(first: Samples, second: Samples, common: bool) -> tuple[Samples, Samples, tuple[str, ...]]:
    a, b = first.keys, second.keys
    if a is None or b is None:
        if common:
            raise PredictionsError("cannot be matched, as not both have ids: save ids, or leave out --common")
        if len(first) != len(second):
            rows = f"{len(first)} and {len(second)} rows"
            raise PredictionsError(f"have {rows}: save the same samples, or ids to match them by")
        return first, second, ()
    if [*a] != [*b]:
        raise PredictionsError(f"tell samples apart by {' and '.join(a)} and by {' and '.join(b)}: "
                               "save the same ids in both")  # fmt: skip
    if len(first) == len(second) and all(_equal(a[name], b[name]) for name in a):
        if [*a] == ["id"]:
            _check_unique(_table(a))
        return first, second, ()
    mine, other = _table(a), _table(b)
    if kinds := [name for name in mine.columns if mine[name].dtype.is_numeric() != other[name].dtype.is_numeric()]:
        raise PredictionsError(f"cannot be matched, as {kinds[0]} is a number in one and text in the other: save the "
                               "same ids in both")  # fmt: skip
    for keys in (mine, other):
        _check_unique(keys)
    joined = mine.with_row_index("first").join(
        other.with_row_index("second"),
        on=mine.columns,
        how="full",
        nulls_equal=True,
        coalesce=True,
        maintain_order="left",
    )
    missing, extra = joined.filter(pl.col("second").is_null()), joined.filter(pl.col("first").is_null())
    if len(missing) or len(extra):
        if not common or len(missing) + len(extra) == len(joined):
            example = (missing if len(missing) else extra).select(mine.columns).row(0)
            raise PredictionsError(
                f"are not of the same samples, as {len(missing):,} ids are only in the first and {len(extra):,} only "
                f"in the second (such as {_id(example)}): save the same samples in both"
                + ("" if common else ", or compare those that both have with --common (common=True)")
            )
        joined = joined.drop_nulls(["first", "second"])
        notes: tuple[str, ...] = (
            f"{len(joined):,} samples are in both files; {len(missing):,} only in the first and {len(extra):,} only in "
            "the second are left out.",
        )
        first = first.take(joined["first"].to_numpy().astype(np.int64))
    else:
        notes = ()
    return first, second.take(joined["second"].to_numpy().astype(np.int64)), notes


def _renumbered(values: Mapping[str, Array], number: Array) -> Mapping[str, Array]:
    """The values with other numbers for the classes of the answers."""
    return Columns(tuple(values), lambda name: number[values[name]] if name == "answer" else values[name])


def _equal(a: pl.Series, b: pl.Series, step: int = 1 << 20) -> bool:
    """Whether two columns are the same, a part at a time: as text, long ones would take much memory."""
    if a.dtype.is_numeric() != b.dtype.is_numeric():
        return False
    kind = pl.Int64 if a.dtype.is_integer() and b.dtype.is_integer() else pl.String
    parts = ((a[i : i + step].cast(kind), b[i : i + step].cast(kind)) for i in range(0, len(a), step))
    return all(x.equals(y, null_equal=True) for x, y in parts)


def _table(keys: Mapping[str, pl.Series]) -> pl.DataFrame:
    columns = {name: keys[name] for name in keys}
    return pl.DataFrame({
        name: column.cast(pl.Int64 if column.dtype.is_integer() else pl.String) for name, column in columns.items()
    })  # fmt: skip


def _check_unique(keys: pl.DataFrame) -> None:
    if (twice := keys.is_duplicated()).any():
        example = _id(keys.row(int(twice.arg_max() or 0)))
        raise PredictionsError(f"cannot be matched, as id {example} occurs more than once: make the ids unique")


def _id(parts: Sequence[object]) -> str:
    return ", ".join(map(repr, parts))


def _check_labels(first: Samples, second: Samples) -> None:
    differ = first.labels != second.labels
    if differ.any():
        row = int(differ.argmax())
        by_id = first.keys is not None and second.keys is not None
        keys = first.keys if by_id else None
        sample = f"row {row}" if keys is None else f"id {_id([keys[name][row] for name in keys])}"
        raise PredictionsError(
            f"are not of the same samples, as {sample} has label {_name(first, row)} in one and {_name(second, row)} "
            "in the other: save both in one order, or with ids to match them by"
        )


def _name(samples: Samples, row: int) -> str:
    label = int(samples.labels[row])
    return str(label) if samples.class_names is None else f"{samples.class_names[label]!r}"
