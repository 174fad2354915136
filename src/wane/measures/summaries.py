"""The summaries of a run, by signal and name."""

from __future__ import annotations

from wane.measures.history import History
from wane.measures.transfer import average, forgetting, plasticity, retention
from wane.softmax.signals import SIGNALS

__all__ = ["summarise"]


def summarise(history: History, split: str = "test") -> dict[str, dict[str, float | None]]:
    """Every summary of every signal; None where it is not defined."""
    found: dict[str, dict[str, float | None]] = {}
    for signal in SIGNALS:
        matrix = history.matrix(signal, split=split)
        values = {
            "average": average(matrix, signal=signal),
            "forgetting": forgetting(matrix, "peak", signal=signal),
            "retention": retention(matrix, signal=signal),
            "plasticity": plasticity(matrix, signal=signal),
        }
        found[signal] = {name: float(v) if v == v else None for name, v in values.items()}
    return found
