"""The summaries of a run, by signal and name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from wane.measures.history import History
from wane.measures.transfer import average, forgetting, plasticity, retention
from wane.softmax.signals import SIGNALS

__all__ = ["summarise"]


def summarise(history: History, split: str = "test") -> dict[str, dict[str, float | None]]:
    """Every summary of every signal; None where it is not defined."""
    found: dict[str, dict[str, float | None]] = {}
    for signal in SIGNALS:
        matrix = history.matrix(signal, split=split)
        of = {
            "average": lambda r, s=signal: average(r, signal=s),
            "forgetting": lambda r, s=signal: forgetting(r, "peak", signal=s),
            "retention": lambda r, s=signal: retention(r, signal=s),
            "plasticity": lambda r, s=signal: plasticity(r, signal=s),
        }
        found[signal] = {name: _value(function, matrix) for name, function in of.items()}
    return found


def _value(function: Callable[[Any], float], matrix: Any) -> float | None:
    try:
        value = float(function(matrix))
    except ValueError:  # a task whose signals are not defined
        return None
    return value if value == value else None
