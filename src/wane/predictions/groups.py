"""Statistics by group, of samples that may come in clusters: the tokens of a document are not independent."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from wane.predictions.files import PredictionsError
from wane.predictions.samples import Samples

__all__ = ["Groups", "grouped"]

Array: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[Any]

#: Samples that are looked at together.
PART = 1 << 20


@dataclass(frozen=True, eq=False)
class Groups:
    """Which group, and which cluster, each of N samples is in.

    >>> groups = Groups(np.array([0, 0, 0, 1]), 2)
    >>> mean, error, units = groups.spread(np.array([1.0, 2.0, 3.0, np.inf]))
    >>> mean, error.round(3), units
    (array([ 2., nan]), array([0.577,   nan]), array([3, 0]))
    """

    of: Ints
    """(N,) from 0 to size - 1."""
    size: int
    clusters: Ints | None = None
    """(N,) numbers of documents, or None where every sample stands for itself."""

    def count(self, where: NDArray[np.bool_] | None = None) -> Ints:
        """How many samples each group has, of those where something holds."""
        n = np.zeros(self.size, dtype=np.int64)
        for rows in _parts(len(self.of)):
            of = self.of[rows] if where is None else self.of[rows][where[rows]]
            n += np.bincount(of, minlength=self.size)
        return n

    def mean(self, x: NDArray[np.floating]) -> Array:
        """The mean of the finite values of each group; NaN where there are none."""
        n, total = self._sums(x)
        with np.errstate(invalid="ignore"):
            return total / n

    def spread(self, x: NDArray[np.floating]) -> tuple[Array, Array, Ints]:
        """Mean of the finite values of each group, its standard error, and how many independent units it rests on.

        With clusters, the error is that of the ratio of the clusters' sums to their sizes, and the units are clusters.
        """
        n, mean = self._sums(x)
        with np.errstate(divide="ignore", invalid="ignore"):
            mean /= n
            if self.clusters is None:
                _, squares = self._sums(x, lambda part, of: np.square(part - mean[of]))
                units = n
            else:
                there, sums = self._sums(x, lambda part, of: part - mean[of], by_pair=True)
                squares = np.bincount(self.group_of_pair, np.square(sums), self.size).astype(np.float64)
                units = np.bincount(self.group_of_pair[there > 0], minlength=self.size)
                squares *= units / n  # below, it is divided by n and units - 1: that gives units / (units - 1) / n^2
            return mean, np.where(units > 1, np.sqrt(squares / np.maximum(units - 1, 1) / n), np.nan), units

    def _sums(
        self, x: NDArray[np.floating], function: Callable[[Array, Ints], Array] | None = None, *, by_pair: bool = False
    ) -> tuple[Ints, Array]:
        """How many finite values each group has, or each pair of group and cluster, and the sum of a function of them.

        A part at a time, so that nothing as long as the samples is made on the way.
        """
        size = len(self.group_of_pair) if by_pair else self.size
        n, total = np.zeros(size, dtype=np.int64), np.zeros(size)
        for rows in _parts(len(x)):
            part, of = x[rows].astype(np.float64), self.of[rows]
            where = self._pairs[rows] if by_pair else of
            if not (kept := np.isfinite(part)).all():
                part, of, where = part[kept], of[kept], where[kept]
            n += np.bincount(where, minlength=size)
            total += np.bincount(where, part if function is None else function(part, of), size)
        return n, total

    def units(self, x: NDArray[np.floating], *, total: bool = False) -> tuple[Array, Groups]:
        """What can be taken as independent, and its groups: the values, or of each cluster the mean (or the total)."""
        kept = np.isfinite(x)
        if not kept.all():
            return Groups(self.of[kept], self.size, None if self.clusters is None else self.clusters[kept]).units(
                x[kept], total=total
            )
        if self.clusters is None:
            return x.astype(np.float64, copy=False), self
        n, sums = self._sums(x, by_pair=True)
        return sums if total else sums / n, Groups(self.group_of_pair, self.size)

    def split(self, x: NDArray[np.floating]) -> list[NDArray[np.floating]]:
        """The values of each group."""
        return np.split(x[self._order], np.cumsum(self.count())[:-1])

    def medians(self, x: NDArray[Any]) -> Array:
        """The median of each group."""
        if x.dtype.kind in "iu" and x.min() >= 0 and (int(x.max()) + 1) * self.size <= max(len(x), PART):
            return self._medians_of_counts(x)
        return np.array([np.nanmedian(part) if np.isfinite(part).any() else np.nan for part in self.split(x)])

    def _medians_of_counts(self, x: Ints) -> Array:
        """The same of whole numbers such as ranks, without sorting: how often each occurs is enough."""
        most = int(x.max()) + 1
        counts = np.zeros(self.size * most, dtype=np.int64)
        for rows in _parts(len(x)):
            counts += np.bincount(self.of[rows].astype(np.int64) * most + x[rows], minlength=len(counts))
        below = np.cumsum(counts.reshape(self.size, most), axis=1)
        n = below[:, -1]
        # the values in the middle: two where their number is even
        low, high = ((below <= place[:, None]).sum(1) for place in ((n - 1) // 2, n // 2))
        return np.where(n > 0, (low + high) / 2, np.nan)

    @cached_property
    def _order(self) -> Ints:
        return np.argsort(self.of, kind="stable")

    @cached_property
    def _numbered(self) -> tuple[Ints, Ints]:
        assert self.clusters is not None
        if not len(self.of):
            return self.of, self.of
        if self.size == 1:
            return self.clusters, np.zeros(int(self.clusters.max()) + 1, dtype=np.int64)
        numbers, pairs = _dense(self.clusters.astype(np.int64) * self.size + self.of)
        return numbers, pairs % self.size

    @property
    def _pairs(self) -> Ints:
        """(N,) the number of each sample's group and cluster, taken together."""
        return self._numbered[0]

    @property
    def group_of_pair(self) -> Ints:
        """The group of every pair of a group and a cluster that has samples."""
        return self._numbered[1]


def grouped(samples: Samples, by: Sequence[str]) -> tuple[Groups, pl.DataFrame]:
    """The groups of the samples, and a table of what they are: the columns of `by`, and ``name``.

    >>> light = pl.Series(["day", "day", "night"])
    >>> samples = Samples(np.array([0, 1, 1]), {}, 2, ("cat", "dog"), columns={"light": light})
    >>> groups, what = grouped(samples, ("class", "light"))
    >>> groups.of, what["name"].to_list()
    (array([0, 1, 2], dtype=int32), ['cat · day', 'dog · day', 'dog · night'])
    """
    if not by:
        raise PredictionsError("by is empty: name the column to group by, such as class")
    of, size = np.zeros(len(samples), dtype=np.int32), 1
    values: dict[str, pl.Series] = {}
    for name in by:
        if name != "class" and name not in samples.columns:
            there = ", ".join(["class", *samples.columns])
            raise PredictionsError(f"{samples.path} has no column {name!r} to group by: choose from {there}")
        numbers, found = _numbered(pl.Series(samples.labels) if name == "class" else samples.columns[name])
        of, present = _dense(of.astype(np.int64) * len(found) + numbers)
        size = len(present)
        values = {earlier: column.gather(present // len(found)) for earlier, column in values.items()}
        values[name] = found.gather(present % len(found))
    what = pl.DataFrame(values).with_row_index("wane.number").sort(by, nulls_last=True)
    place = np.empty(size, dtype=np.int32)
    place[what["wane.number"].to_numpy()] = np.arange(size)
    of, what = place[of], what.drop("wane.number")
    texts = [_texts(samples, name, what[name]) for name in by]
    names = pl.Series("name", [" · ".join(parts) for parts in zip(*texts, strict=True)])
    clusters = None
    if "document" in samples.columns and "document" not in by:
        clusters, found = _numbered(samples.columns["document"])
        if len(found) == len(samples):
            clusters = None  # each sample is a document of its own
    return Groups(of, size, clusters), what.drop([name for name in by if name == "name"]).with_columns(names)


def _numbered(column: pl.Series) -> tuple[Ints, pl.Series]:
    """A number from 0 for every value of a column, and the values by number; what is missing is a value like others."""
    if column.dtype == pl.String:
        column = column.cast(pl.Categorical)
    if column.dtype != pl.Categorical:
        kinds = column.unique().sort()
        of = column.replace_strict(kinds, pl.Series(range(len(kinds)), dtype=pl.Int32)).to_numpy()
        return of, kinds
    names = column.unique()
    codes = column.to_physical().cast(pl.Int64).fill_null(-1).to_numpy() + 1
    of, present = _dense(codes)
    by_code = dict(zip(names.to_physical().cast(pl.Int64).fill_null(-1) + 1, names.cast(pl.String), strict=True))
    return of, pl.Series([by_code[int(code)] for code in present], dtype=pl.String)


def _dense(numbers: Ints) -> tuple[Ints, Ints]:
    """The same without gaps, from 0, and which number each was. For numbers from 0."""
    most = int(numbers.max()) + 1
    if most > 4 * len(numbers) + PART:
        present, dense = np.unique(numbers, return_inverse=True)
        return dense.astype(np.int32), present
    there = np.zeros(most, dtype=bool)  # as above, without sorting
    there[numbers] = True
    return (np.cumsum(there, dtype=np.int32) - 1)[numbers], np.flatnonzero(there)


def _parts(n: int) -> Iterator[slice]:
    """The rows from 0 to n, so many at a time that what is made of them is small."""
    return (slice(start, start + PART) for start in range(0, n, PART))


def _texts(samples: Samples, name: str, values: pl.Series) -> list[str]:
    if name != "class":
        return ["–" if value is None else str(value) for value in values]
    names = samples.class_names
    if names is None:
        return [str(number) for number in values]
    repeated = {text for text, count in zip(*np.unique(names, return_counts=True), strict=True) if count > 1}
    return [f"{names[i]} ({i})" if names[i] in repeated else names[i] for i in values]
