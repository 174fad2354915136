"""Tables for the terminal: the summaries of one run, and a list of runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from wane.escaping import visible
from wane.measures.summaries import SUMMARIES
from wane.runs.folder import RunFolder
from wane.softmax.signals import SIGNALS
from wane.views.summaries import NOTES, SETTINGS, accuracy_columns, recorded_summaries

__all__ = ["runs_table", "summary_table"]

#: The columns of a list of runs, by summary.
LISTED = ("average", "forgetting", "retention", "plasticity")
#: The families of summaries that a terminal has room for; the ladder has a sentence of its own.
SHOWN = ("", "transfer and stability")


def summary_table(summary: dict[str, Any]) -> Table:
    """What became of every signal that was recorded: how good at the end, how much was forgotten, kept, and learnt.

    A run that was evaluated in both settings, or with corrected logits, has a row for each.
    """
    recorded = {setting: found for setting in SETTINGS if (found := recorded_summaries(summary, setting))}
    names = [
        name
        for name, row in SUMMARIES.items()
        if row.family in SHOWN
        and any(values.get(name) is not None for found in recorded.values() for values in found.values())
    ]
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("signal")
    for name in names:
        table.add_column(SUMMARIES[name].title.lower(), justify="right")
    for setting, found in recorded.items():
        for signal, values in found.items():
            title = SIGNALS[signal].title if signal in SIGNALS else signal
            shown = ("" if values.get(name) is None else f"{values[name]:.3f}" for name in names)
            table.add_row(title + NOTES[setting], *shown)
    return table


def runs_table(runs: Sequence[RunFolder]) -> Table:
    """A row a run: state, accuracy, forgetting, retention, plasticity, duration.

    The numbers are class-incremental; those of a run that has only task-incremental ones say so.
    """
    columns = [column for column in accuracy_columns().values() if column.setting == "class"]
    titles = [next(c.title for c in columns if c.summary == name) for name in LISTED]
    table = Table(box=None, padding=(0, 2, 0, 0))
    for name in ("run", "recipe", "seed", "state", *titles, "seconds"):
        words = name in ("run", "recipe", "state")
        table.add_column(name, justify="left" if words else "right", overflow="fold", no_wrap=not words)
    for run in runs:
        if run.status.state == "unreadable":
            table.add_row(visible(run.name), "", "", visible(run.status.words(0)))
            continue
        summary = run.summary
        setting = next((s for s in SETTINGS if recorded_summaries(summary, s)), "class")
        accuracy = recorded_summaries(summary, setting).get("accuracy", {})
        note = NOTES[setting]
        numbers = ["" if (v := accuracy.get(name)) is None else f"{100 * v:.1f} %{note}" for name in LISTED]
        seconds = f"{summary['seconds']:.0f}" if summary and "seconds" in summary else ""
        state, seed = run.status.words(run.total_epochs), "" if run.seed is None else str(run.seed)
        table.add_row(visible(run.name), visible(run.recipe) or "(own loop)", seed, visible(state), *numbers, seconds)
    return table
