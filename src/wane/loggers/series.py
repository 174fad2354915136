"""The names and values under which an evaluation and a summary appear in a tool."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from wane.measures.history import Evaluation, History
from wane.measures.task_map import tasks_of

__all__ = ["series_of", "summary_values"]


def series_of(history: History, evaluation: Evaluation, class_names: Sequence[str]) -> dict[str, float]:
    """Every value of an evaluation: that of all its samples, of each task, and of each class.

    Tools make a section of what stands before the first slash. So `test` holds the overview, and the classes of each
    signal have a section of their own, such as `test_log_tlr`.

    >>> import numpy as np
    >>> history = History(class_to_task=[0, 0, 0, 0, 1, 1, 1, 1])
    >>> n, cm = np.array([10, 0, 0, 0, 0, 0, 0, 30]), np.array([0.2, 0, 0, 0, 0, 0, 0, 1.0])
    >>> history.record({"n": n, "cm": cm}, step=8, task=1)
    >>> names = ["apple"] * 7 + ["cattle"]
    >>> {name: round(value, 3) for name, value in series_of(history, history.evaluations[0], names).items()}
    {'test/cm/mean': 0.8, 'test/cm/task_1': 0.2, 'test/cm/task_2': 1.0, 'test_cm/class_000_apple': 0.2,
    'test_cm/class_007_cattle': 1.0}
    """
    tasks = tasks_of(history.class_to_task, evaluation.classes)
    labels = [_label(int(c), class_names) for c in evaluation.classes]
    found: dict[str, float] = {}
    for signal in history.signals:
        overview = f"{evaluation.split}/{signal}"
        found[f"{overview}/mean"] = float(history.pooled(evaluation, signal)[0])
        for task, value in enumerate(history.pooled(evaluation, signal, tasks, int(tasks.max(initial=0)) + 1)):
            found[f"{overview}/task_{task + 1}"] = float(value)
        for label, value in zip(labels, history.column(evaluation, signal), strict=True):
            found[f"{evaluation.split}_{signal}/{label}"] = float(value)
    # what has no value: a task without samples, a class that is alone in its task
    return {name: value for name, value in found.items() if value == value}


def summary_values(summary: dict[str, Any]) -> dict[str, float]:
    """The numbers of a summary by name; what is not defined (forgetting of a single task) is left out.

    >>> summary_values({"metrics": {"cm": {"average": 0.5, "forgetting": None}}, "steps": 24, "seconds": 1.5})
    {'summary/cm/average': 0.5, 'summary/steps': 24.0, 'summary/seconds': 1.5}
    """
    metrics = {
        f"{section}/{signal}/{name}": float(value)
        for section, key in (
            ("summary", "metrics"),
            ("summary/task_incremental", "task_incremental"),
            ("summary/corrected", "corrected"),
        )
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
