"""The numbers that the paper quotes of the signals, for any runs, beside its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from wane.paper.values import STATEMENTS
from wane.runs.folder import RunFolder
from wane.softmax.signals import SIGNALS
from wane.views.observations import (
    AROUND,
    LEVELS,
    TOLERANCE,
    Box,
    at_level,
    box,
    changes,
    level_name,
    observations,
    one_method,
    transition_width,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["Diagnostics", "diagnose", "diagnostics_table"]

PHASES = ("transition", "stable")


@dataclass(frozen=True)
class Diagnostics:
    """The numbers: a row of `frame` for each part and signal, with the fields of `Box` and what the paper says."""

    runs: tuple[str, ...]
    method: str
    around: int
    tolerance: float
    classes: str
    frame: pl.DataFrame
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain values, ready for `json.dumps`: what is not a number is None."""
        conventions = {
            "observation": "one class at one epoch, its means over the test images",
            "level": f"accuracy within {100 * self.tolerance:g} points",
            "transition": f"the {self.around} changes before and the {self.around} after a boundary",
            "change": f"absolute, from epoch to epoch, of {self.classes} classes",
            "whiskers": "the last observation within 1.5 IQR of the box",
            "quartiles": "linear interpolation",
        }
        rows = self.frame.to_dicts()
        measured = {(row["part"], row["signal"]): row for row in rows}
        paper = [
            {**asdict(s), "measured": {name: measured[s.part, s.signal][name] for name in s.values}}
            for s in STATEMENTS
            if (s.part, s.signal) in measured
        ]
        return {"runs": list(self.runs), "method": self.method, "conventions": conventions, "rows": rows,
                "paper": paper, "notes": list(self.notes)}  # fmt: skip


def diagnose(
    runs: Sequence[RunFolder],
    *,
    levels: Sequence[float] = LEVELS,
    tolerance: float = TOLERANCE,
    around: int | None = None,
    classes: str = "all",
) -> Diagnostics:
    """Every signal at fixed levels of accuracy, its change per phase, and its range, over runs of one method.

    Args:
        runs: of one method; what differs may be the seed.
        levels: of accuracy, between 0 and 1.
        tolerance: how near to a level counts as at it.
        around: epochs on either side of a boundary that are its transition; default: see `transition_width`.
        classes: whose changes: "all", or the "old" ones, whose task was over.
    """
    one_method(runs)
    seen = observations(runs)
    width = transition_width(runs) if around is None else around
    moved = changes(runs, around=width, classes=classes)
    parts = {level_name(level): at_level(seen, level, tolerance) for level in levels}
    parts |= {f"change, {phase}": moved.filter(pl.col("phase") == phase) for phase in PHASES}
    parts["range"] = seen
    images = int(np.median(seen["n"].to_numpy()))
    notes = [f"{part}: no observation; {why}." for part, why in _empty(parts, images).items()]
    if around is None and width < AROUND:
        notes.append(f"Tasks are short: a transition is {_epochs(width)} on either side of a boundary, not {AROUND}.")
    rows = [
        {"part": part, "signal": signal, **box(chosen[signal].to_numpy())._asdict(), **_paper(part, signal)}
        for part, chosen in parts.items()
        for signal in SIGNALS
    ]
    frame = pl.DataFrame(rows, infer_schema_length=None).with_columns(pl.col(pl.Float64).fill_nan(None))
    names, method = tuple(run.name for run in runs), runs[0].method.title
    return Diagnostics(names, method, width, tolerance, classes, frame, tuple(notes))


def diagnostics_table(found: Diagnostics) -> RenderableType:
    """The numbers as one table for the terminal."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("", "n", "min", "whisker", "q1", "median", "q3", "whisker", "max", "the paper"):
        table.add_column(name, justify="left" if name in ("", "the paper") else "right", no_wrap=name != "the paper")
    for part in found.frame["part"].unique(maintain_order=True):
        rows = found.frame.filter(pl.col("part") == part, pl.col("n") > 0).to_dicts()
        table.add_row(Text(part if rows else f"{part}: none", style="bold"))
        for row in rows:
            numbers = (f"{row[name]:.3f}" for name in Box._fields[1:])
            table.add_row(f"  {row['signal']}", f"{row['n']}", *numbers, row["paper"] or "")
    runs = f"{len(found.runs)} run{'s' if len(found.runs) > 1 else ''} of {found.method!r}"
    legend = [
        f"{runs}. An observation is one class at one epoch. Levels: ± {100 * found.tolerance:g} points of accuracy.",
        f"Change: absolute, from epoch to epoch; transition: {_epochs(found.around)} on either side of a boundary.",
        "Whiskers: the last observation within 1.5 IQR of the box. The paper: ER on Sequential CIFAR-100.",
    ]
    return Group(table, "", *(Text(line) for line in (*legend, *found.notes)))


def _empty(parts: dict[str, pl.DataFrame], images: int) -> dict[str, str]:
    """The parts without observation, each with the likely reason."""
    levels = f"with {images} test images a class accuracy moves in steps of {100 / images:.3g} points"
    return {
        part: levels if part.startswith("accuracy") else "the runs are too short"
        for part, chosen in parts.items()
        if chosen.is_empty()
    }


def _epochs(count: int) -> str:
    return f"{count} epoch{'s' if count != 1 else ''}"


def _paper(part: str, signal: str) -> dict[str, Any]:
    said = [s for s in STATEMENTS if (s.part, s.signal) == (part, signal)]
    return {"paper": ", ".join(s.text for s in said) or None}
