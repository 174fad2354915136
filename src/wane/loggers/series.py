"""The names and values under which an evaluation and a summary appear in a tool."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wane.measures.history import Evaluation
from wane.measures.task_map import tasks_of
from wane.softmax.registry import SIGNALS

__all__ = ["series_of", "summary_values"]


def series_of(
    evaluation: Evaluation,
    class_to_task: NDArray[np.int64] | None,
    class_names: Sequence[str],
    signals: Sequence[str] | None = None,
) -> dict[str, float]:
    """Every value of an evaluation: the mean over its samples, that of each task, and each class.

    Tools make a section of what stands before the first slash. So `test` holds the overview, and the classes of each
    signal have a section of their own, such as `test_log_tlr`. `signals` are those of the history; default: all known.

    >>> e = Evaluation(8, 1, "test", np.array([0, 7]), np.array([10, 30]), np.linspace(0, 1.5, 16).reshape(2, 8))
    >>> tasks, names = np.array([0, 0, 0, 0, 1, 1, 1, 1]), ["apple"] * 7 + ["cattle"]
    >>> {name: round(value, 3) for name, value in series_of(e, tasks, names).items() if "cm" in name}
    {'test/cm/mean': 0.8, 'test/cm/task_1': 0.2, 'test/cm/task_2': 1.0, 'test_cm/class_000_apple': 0.2,
    'test_cm/class_007_cattle': 1.0}
    """
    task_of = tasks_of(class_to_task, evaluation.classes)
    labels = [_label(int(c), class_names) for c in evaluation.classes]
    found: dict[str, float] = {}
    for column, signal in zip(evaluation.values.T, SIGNALS if signals is None else signals, strict=True):
        overview = f"{evaluation.split}/{signal}"
        found[f"{overview}/mean"] = float(np.average(column, weights=evaluation.n))
        for task in np.unique(task_of[task_of >= 0]):
            own = task_of == task
            found[f"{overview}/task_{task + 1}"] = float(np.average(column[own], weights=evaluation.n[own]))
        for label, value in zip(labels, column, strict=True):
            found[f"{evaluation.split}_{signal}/{label}"] = float(value)
    return {name: value for name, value in found.items() if value == value}  # a class alone in its task has no signals


def summary_values(summary: dict[str, Any]) -> dict[str, float]:
    """The numbers of a summary by name; what is not defined (forgetting of a single task) is left out.

    >>> summary_values({"metrics": {"cm": {"average": 0.5, "forgetting": None}}, "steps": 24, "seconds": 1.5})
    {'summary/cm/average': 0.5, 'summary/steps': 24.0, 'summary/seconds': 1.5}
    """
    metrics = {
        f"{section}/{signal}/{name}": float(value)
        for section, key in (("summary", "metrics"), ("summary/task_incremental", "task_incremental"))
        for signal, values in (summary.get(key) or {}).items()
        for name, value in values.items()
        if value is not None
    }
    return metrics | {f"summary/{name}": float(summary[name]) for name in ("steps", "seconds") if name in summary}


def _label(index: int, names: Sequence[str]) -> str:
    """`class_007_cattle`: sorted as numbers are, and with nothing that MLflow refuses in a name."""
    number = f"class_{index:0{max(3, len(str(len(names) - 1)))}d}"
    name = re.sub(r"[^\w.-]+", "_", names[index] if index < len(names) else "").strip("_")[:100]
    return number if name in ("", str(index)) else f"{number}_{name}"
