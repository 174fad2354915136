"""The task x task matrix: read from what users have, and one that remembers which signal its numbers are of."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["SignalMatrix", "entries", "square"]

Array = NDArray[np.float64]


class SignalMatrix(np.ndarray[Any, np.dtype[np.float64]]):
    """Values of one signal; `signal` is its name, kept by slices and arithmetic.

    >>> matrix = SignalMatrix([[0.5, np.nan], [0.75, 0.4]], "loss")
    >>> matrix.signal, (100 * matrix[:1, :1]).signal
    ('loss', 'loss')
    """

    signal: str | None

    def __new__(cls, values: Any, signal: str) -> SignalMatrix:
        """A view of `values` as float64."""
        matrix: SignalMatrix = np.asarray(values, dtype=np.float64).view(cls)
        matrix.signal = signal
        return matrix

    def __array_finalize__(self, source: NDArray[Any] | None) -> None:
        self.signal = getattr(source, "signal", None)

    def __reduce__(self) -> Any:
        return SignalMatrix, (np.asarray(self), self.signal)


def square(matrix: Any) -> Array:
    """A matrix, or a ragged lower triangle, as a square array; NaN where nothing was evaluated.

    >>> square([[80], [70, 82]]).tolist()
    [[80.0, nan], [70.0, 82.0]]
    """
    # A data frame iterates over its columns, an array over its rows: arrays first.
    source: Any = np.asarray(matrix, dtype=np.float64) if hasattr(matrix, "__array__") else matrix
    rows = [np.asarray(row, dtype=np.float64) for row in source]
    size = len(rows)
    if not rows:
        raise ValueError("the matrix has no row: give one row for each task learnt")
    r = np.full((size, size), np.nan)
    for k, row in enumerate(rows):
        if row.ndim != 1 or not k < row.size <= size:
            raise ValueError(
                f"row {k} of {size} rows has shape {row.shape}: rows are the tasks learnt, columns the tasks "
                f"evaluated, so give it {k + 1} values (tasks 0 to {k}) or up to {size}"
            )
        r[k, : row.size] = row
    return r


def entries(r: Array, rows: Iterable[int], columns: Iterable[int]) -> Array:
    """``r[rows, columns]``, none of which may be missing."""
    k, j = np.array([*rows], dtype=int), np.array([*columns], dtype=int)
    found: Array = r[k, j]
    if np.isnan(found).any():
        hole = np.isnan(found).argmax()
        raise ValueError(f"R[{k[hole]}, {j[hole]}] is NaN: evaluate task {j[hole]} after learning task {k[hole]}")
    return found
