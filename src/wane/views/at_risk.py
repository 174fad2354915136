"""Which classes the next task is likely to cost most, and how often such a list came true: for terminal and pages."""

from __future__ import annotations

from typing import Any

from wane.escaping import visible
from wane.measures.at_risk import at_risk, check_at_risk
from wane.measures.history import History
from wane.runs.folder import RunFolder
from wane.views.compare.tables import percent
from wane.views.observations import group_names, has_history

__all__ = ["at_risk_rows", "at_risk_text", "risk_record"]


def at_risk_rows(history: History, split: str) -> tuple[list[dict[str, Any]], str]:
    """The list, and where it is empty the reason."""
    try:
        return at_risk(history, split=split).to_dicts(), ""
    except ValueError as reason:
        why = str(reason)
        return [], f"{why[0].upper()}{why[1:]}."


def risk_record(history: History, split: str) -> str:
    """How often such lists came true in this very history, in a sentence; nothing where there is none to check."""
    if history.class_to_task is None:
        return ""
    found, plain = (check_at_risk(history, by=by, split=split) for by in ("ctl", "accuracy"))
    if not found.listed:
        return "Whether such a list comes true cannot be checked in this run yet: that takes two tasks."
    which = "such list" if found.tasks == 1 else f"{found.tasks} such lists"
    return (
        f"Of the {found.listed} classes on the {which} of this run, {percent(found.precision)} kept half of their "
        f"accuracy or less through the next task; ranked by accuracy, {percent(plain.precision)}; of all classes "
        f"{percent(found.chance)} did. A list of where to look, not an alarm."
    )


def at_risk_text(run: RunFolder) -> str:
    """A run's list as text: a heading, a line a class under a header and the record, or why there is none."""
    head = visible(run.name)
    if not has_history(run):
        return f"{head}: its history was not kept"
    rows, why = at_risk_rows(run.history, run.split)
    if not rows:
        return f"{head}: {visible(why)}"
    names = group_names(run)
    lines = [[run.history.kind, "accuracy", "ctl"]]
    for row in rows:
        named = names[row["class"]] if row["class"] < len(names) else str(row["class"])
        lines.append([visible(named), percent(row["accuracy"]), f"{row['ctl']:.3f}"])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    table = ["  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]) for line in lines]
    title = f"{head}: of the latest task, the next one is likely to cost these most"
    return "\n".join([title, *table, risk_record(run.history, run.split)])
