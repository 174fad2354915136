"""The ladders of runs as the report page embeds them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from wane.runs.folder import RunFolder
from wane.views.ladder import PARTS, Bar, bars_of_methods, bars_of_run, ladder_sentences, with_ladders

__all__ = ["ladder_data", "run_ladder"]


def run_ladder(run: RunFolder, beside: Sequence[RunFolder]) -> dict[str, Any] | None:
    """The bars of one run, its sentences, and what could not be measured; None without a ladder of several tasks."""
    measured = with_ladders([run, *(other for other in beside if other != run)])
    if not measured or measured[0].run != run or measured[0].ladder.end < 1:
        return None
    bars = [_plain(bar) for bar in bars_of_run(measured[0])]
    return {"sentences": ladder_sentences(measured[:1]), "bars": bars, "notes": list(run.about.ladder_notes)}


def ladder_data(groups: Sequence[tuple[str, Sequence[RunFolder]]]) -> dict[str, Any] | None:
    """What all ladders share: the parts, and the methods side by side if there are several; None without any."""
    every = [run for _, runs in groups for run in runs]
    known = {measured.run: measured for measured in with_ladders(every) if measured.ladder.end > 0}
    if not known:
        return None
    methods = [(title, found) for title, runs in groups if (found := [known[run] for run in runs if run in known])]
    several = len(methods) > 1 or any(len(found) > 1 for _, found in methods)
    sides = {
        which: [_plain(bar) for bar in bars_of_methods(methods, which)] if several else [] for which in ("old", "all")
    }
    return {"parts": [{"name": part, "title": title} for part, title in PARTS.items()], **sides}


def _plain(bar: Bar) -> dict[str, Any]:
    levels = {part: {"mean": i.difference, "low": i.low, "high": i.high} for part, i in bar.levels.items()}
    return {"label": bar.label, "levels": levels, "oracle": bar.oracle, "joint": bar.joint, "learnt": bar.learnt}
