"""Statistics by group, of samples that may come in clusters: the tokens of a document are not independent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from wane.predictions.files import PredictionsError
from wane.predictions.samples import Samples

__all__ = ["Groups", "grouped"]

Array: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]

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
        return np.bincount(self.of if where is None else self.of[where], minlength=self.size)

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
        for start in range(0, len(x), PART):
            rows = slice(start, start + PART)
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
        sums: Array = np.bincount(self._pairs, x).astype(np.float64)
        return sums if total else sums / np.bincount(self._pairs), Groups(self.group_of_pair, self.size)

    def split(self, x: NDArray[np.floating]) -> list[NDArray[np.floating]]:
        """The values of each group."""
        return np.split(x[self._order], np.cumsum(self.count())[:-1])

    def medians(self, x: NDArray[np.floating]) -> Array:
        """The median of each group."""
        return np.array([np.nanmedian(part) if np.isfinite(part).any() else np.nan for part in self.split(x)])

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
        pair = self.clusters * np.int64(self.size) + self.of
        if (most := (int(self.clusters.max()) + 1) * self.size) > 4 * len(pair):
            pairs, number = np.unique(pair, return_inverse=True)
            return number, pairs % self.size
        there = np.zeros(most, dtype=bool)  # as above, without sorting
        there[pair] = True
        np.take(np.cumsum(there) - 1, pair, out=pair)
        return pair, np.flatnonzero(there) % self.size

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
    (array([0, 1, 2]), ['cat · day', 'dog · day', 'dog · night'])
    """
    if not by:
        raise PredictionsError("by is empty: name the column to group by, such as class")
    columns = {}
    for name in by:
        if name != "class" and name not in samples.columns:
            there = ", ".join(["class", *samples.columns])
            raise PredictionsError(f"{samples.path} has no column {name!r} to group by: choose from {there}")
        columns[name] = pl.Series(name, samples.labels) if name == "class" else samples.columns[name].alias(name)
    frame = pl.DataFrame(columns)
    what = frame.unique()
    order = what.select(pl.col(by)).with_columns(pl.col(pl.Categorical).cast(pl.String)).with_row_index("wane.row")
    what = what[order.sort(by, nulls_last=True)["wane.row"]]
    numbered = what.with_row_index("wane.number")
    of = frame.join(numbered, on=list(by), how="left", nulls_equal=True, maintain_order="left")["wane.number"]
    texts = [_texts(samples, name, what[name]) for name in by]
    names = pl.Series("name", [" · ".join(parts) for parts in zip(*texts, strict=True)])
    clusters = None
    if "document" in samples.columns and tuple(by) != ("document",):
        clusters = _numbers(samples.columns["document"])
        if clusters.max() + 1 == len(samples):
            clusters = None  # each sample is a document of its own
    what = what.with_columns(pl.col(pl.Categorical).cast(pl.String)).drop([name for name in by if name == "name"])
    return Groups(of.to_numpy().astype(np.int64), len(what), clusters), what.with_columns(names)


def _numbers(column: pl.Series) -> Ints:
    """A number from 0 for every value, in no order."""
    if column.dtype == pl.Categorical:
        column = column.to_physical()
    return column.rank("dense").to_numpy().astype(np.int64) - 1


def _texts(samples: Samples, name: str, values: pl.Series) -> list[str]:
    if name != "class":
        return ["–" if value is None else str(value) for value in values]
    names = samples.class_names
    if names is None:
        return [str(number) for number in values]
    repeated = {text for text, count in zip(*np.unique(names, return_counts=True), strict=True) if count > 1}
    return [f"{names[i]} ({i})" if names[i] in repeated else names[i] for i in values]
