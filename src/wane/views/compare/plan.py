"""A plan as text: how many rows a class it takes to see a fall."""

from __future__ import annotations

import textwrap

from wane.predictions.plan import ROWS, Plan

__all__ = ["plan_text"]

#: What the numbers rest on.
ASSUMES = (
    "By accuracy: that fewer answers are right (McNemar's test).",
    "By the signals: that the mean of cm, tlr, log_tlr, rtlr, ctl and nkl fell (signed-rank test). It falls with "
    "accuracy and often before it, so that an alarm alone does not show that accuracy fell.",
    "One of many: a single class fell and the others did not, the hardest case for the correction. The more fell, the "
    "nearer it is to one class alone.",
)


def plan_text(plan: Plan, *, width: int = 100) -> str:
    """A heading, a line for each fall, and what it rests on.

    >>> from wane.predictions.plan import built_in_plan
    >>> print(plan_text(built_in_plan()).splitlines()[0])
    Rows a class to see a fall of accuracy with 80 % power, at 5 % false alarms
    """
    judged = sorted(set(plan.table["judged"].to_list()))
    lines = [["fall", "classes", "by accuracy", f"one of {judged[-1]}", "by the signals", f"one of {judged[-1]}"]]
    unseen = []
    for (_,), part in plan.table.group_by("fall", maintain_order=True):
        rows = part.sort("judged").to_dicts()
        points = f"{100 * rows[0]['fall']:.0f}"
        if not rows[0]["classes"]:
            unseen.append(points)
            continue
        cells = [_rows(row[test]) for test in ("accuracy", "signals") for row in rows]
        lines.append([f"{points} points", f"{rows[0]['classes']:,}", *cells])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    notes = [f"Measured on {plan.source}.", *ASSUMES]
    if unseen:
        points = " or ".join([", ".join(unseen[:-1])] * (len(unseen) > 1) + unseen[-1:])
        notes.insert(1, f"None fell by about {points} points; without files, `wane compare --plan` says what it took "
                        "elsewhere.")  # fmt: skip
    return "\n".join([
        f"Rows a class to see a fall of accuracy with {100 * plan.power:.0f} % power, at {100 * plan.alpha:g} % false "
        "alarms",
        "", *("  ".join(map(str.rjust, line, widths)) for line in lines),
        "", *(line for note in notes for line in textwrap.wrap(note, width)),
    ])  # fmt: skip


def _rows(rows: int | None) -> str:
    return f"> {ROWS[-1]}" if rows is None else str(rows)
