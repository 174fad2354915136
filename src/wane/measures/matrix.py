"""An array that remembers which signal its numbers are of, so that summaries know whether higher is better."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["SignalMatrix"]


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
