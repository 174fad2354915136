"""Which classes are at risk, and why none is where none is: for the terminal, and for pages."""

from __future__ import annotations

from typing import Any

import numpy as np

from wane.measures.early_warning import at_risk
from wane.measures.history import History
from wane.runs.folder import RunFolder
from wane.views.compare.tables import printable
from wane.views.observations import group_names, has_history

__all__ = ["at_risk_text", "why_none"]


def why_none(history: History, split: str, *, window: int = 5) -> str:
    """Why no class is at risk, where none is, in a sentence."""
    seen = history.tail(window, split=split)
    if len(seen) < window:
        count = f"{len(seen)} evaluation{'s' if len(seen) != 1 else ''}"
        return f"There is no trend to judge by yet: {count} of split {split!r}, and a trend takes {window}."
    if missing := [name for name in ("ctl", "nkl") if not np.isfinite(history.column(seen[-1], name)).any()]:
        return f"No trend can be judged: {' and '.join(missing)} were not recorded."
    return f"No {history.kind} declines steadily while its accuracy holds."


def at_risk_text(run: RunFolder) -> str:
    """A run's list as text: a heading, then a line a class under a header, or why there is none."""
    head = printable(run.name)
    if not has_history(run):
        return f"{head}: its history was not kept"
    found, names = at_risk(run.history, split=run.split), group_names(run)
    if found.is_empty():
        return f"{head}: {why_none(run.history, run.split)}"
    lines = [[_heading(name) for name in found.columns if name != "class_task"]]
    for row in found.to_dicts():
        named = names[row["class"]] if row["class"] < len(names) else str(row["class"])
        rest = [_shown(value) for name, value in row.items() if name not in ("class", "class_task")]
        lines.append([printable(named), *rest])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join([head, *("  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])])
                              for line in lines)])  # fmt: skip


def _heading(column: str) -> str:
    return column.replace("_", " ")


def _shown(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
