"""The summaries of a run's accuracy in percent: class-incremental, task-incremental, and with corrected logits.

Names, titles and directions are those of `wane.measures.summaries.SUMMARIES`; here they become the columns of tables.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from wane.measures.summaries import SUMMARIES
from wane.measures.transfer import average, forgetting, plasticity, retention
from wane.runs.folder import RunFolder
from wane.views.observations import has_history

__all__ = ["NOTES", "SETTINGS", "Column", "accuracy_columns", "accuracy_measures", "recorded_summaries"]

#: The settings, and where summary.json and the history keep each.
SETTINGS = {
    "class": ("metrics", "test"),
    "task": ("task_incremental", "test_task"),
    "corrected": ("corrected", "test_corrected"),
}
#: What stands behind the title of a number, so that it is not taken for the class-incremental one.
NOTES = {"class": "", "task": " (task)", "corrected": " (corrected)"}


class Column(NamedTuple):
    """A column of a table: one summary of accuracy in one setting."""

    name: str  # in files and options
    title: str
    summary: str
    setting: str
    higher_is_better: bool


def accuracy_columns() -> dict[str, Column]:
    """Every column that there can be, by name; those of other settings have `task_` or `corrected_` before it.

    >>> columns = accuracy_columns()
    >>> list(columns)[:4], columns["task_accuracy"].title, columns["forgetting"].higher_is_better
    (['accuracy', 'forgetting', 'retention', 'plasticity'], 'accuracy (task)', False)
    """
    found = {}
    for setting in SETTINGS:
        prefix, suffix = "" if setting == "class" else f"{setting}_", NOTES[setting]
        for name, row in SUMMARIES.items():
            # the average of accuracy is what everyone calls accuracy
            key, title = ("accuracy", "accuracy") if name == "average" else (name, _lower(row.title))
            found[prefix + key] = Column(prefix + key, title + suffix, name, setting, row.higher_is_better("accuracy"))
    return found


def _lower(title: str) -> str:
    """In lower case, but for abbreviations.

    >>> _lower("Worst case"), _lower("CL-BWT")
    ('worst case', 'CL-BWT')
    """
    return " ".join(word if word[1:] != word[1:].lower() else word.lower() for word in title.split())


def recorded_summaries(summary: dict[str, Any] | None, setting: str) -> dict[str, dict[str, float | None]]:
    """What summary.json holds for a setting: signal to summary to value; empty if it has nothing."""
    return (summary or {}).get(SETTINGS[setting][0]) or {}


def accuracy_measures(run: RunFolder, definition: str = "peak") -> dict[str, float] | None:
    """The summaries of a run's accuracy in percent, by column, as far as they were recorded; None while it is not done.

    Args:
        run: whose.
        definition: of forgetting: peak, past_peak or first. But for the class-incremental one, any but peak needs the
            run's history, and is left out where that is not kept.
    """
    if run.summary is None:
        return None
    found = {}
    for column in accuracy_columns().values():
        value = recorded_summaries(run.summary, column.setting).get("accuracy", {}).get(column.summary)
        if value is not None:
            found[column.name] = 100 * float(value)
    rows = run.summary.get("accuracy_matrix")
    if rows and "class" in run.about.settings:  # else the matrix is that of the other setting
        matrix = np.array([[np.nan if x is None else x for x in row] for row in rows])
        values = average(matrix), forgetting(matrix, definition), retention(matrix), plasticity(matrix)
        names = ("accuracy", "forgetting", "retention", "plasticity")
        found |= {name: 100 * float(value) for name, value in zip(names, values, strict=True)}
    for setting in ("task", "corrected") if definition != "peak" else ():
        if found.pop(f"{setting}_forgetting", None) is not None and has_history(run):
            matrix = run.history.matrix("accuracy", split=SETTINGS[setting][1])
            found[f"{setting}_forgetting"] = 100 * float(forgetting(matrix, definition))
    return {name: found[name] for name in accuracy_columns() if name in found}
