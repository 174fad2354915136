"""How the signals behave in a set of runs: the numbers that the paper quotes, for any runs, beside its own.

An observation is one class at one epoch: its means over the test images, at an evaluation of split `test`. Classes that
were not yet learnt are not evaluated, and so are no observations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import ArrayLike

from wane.paper.values import STATEMENTS
from wane.runs.config import Config, differences
from wane.runs.folder import RunFolder
from wane.runs.identity import method_title
from wane.softmax.signals import SIGNALS

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = [
    "AROUND", "LEVELS", "TOLERANCE", "Box", "Diagnostics", "at_level", "box", "changes", "choose", "diagnose",
    "diagnostics_table", "level_name", "observations", "one_method", "transition_width",
]  # fmt: skip

#: The paper's levels of accuracy, how near to one counts as at it, and its epochs on either side of a boundary.
LEVELS = (0.0, 0.25, 0.5, 0.75)
TOLERANCE = 0.005
AROUND = 5
PHASES = ("transition", "stable")


class Box(NamedTuple):
    """A distribution as a box plot shows it; whiskers end at the last observation within 1.5 IQR of the box."""

    n: int
    min: float
    whisker_low: float
    q1: float
    median: float
    q3: float
    whisker_high: float
    max: float


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
    return Diagnostics(tuple(run.name for run in runs), method_title(runs[0].config), width, tolerance, classes, frame,
                       tuple(notes))  # fmt: skip


def observations(runs: Sequence[RunFolder]) -> pl.DataFrame:
    """A row for each run, epoch (from 0) and class evaluated on split `test`, with task, class_task and the signals."""
    frames = []
    for run in runs:
        frame = run.history.frame.filter(pl.col("split") == "test")
        if frame.is_empty():
            raise ValueError(f"{run.path} has no evaluation on split 'test' yet: let the run come to its first epoch")
        frames.append(
            frame.select(
                pl.lit(str(run.path)).alias("run"),
                pl.struct("step", "task").rle_id().cast(pl.Int64).alias("epoch"),
                "task", "class", "class_task", "n", *SIGNALS,
            )
        )  # fmt: skip
    return pl.concat(frames)


def at_level(seen: pl.DataFrame, level: float, tolerance: float = TOLERANCE) -> pl.DataFrame:
    """The observations whose accuracy is at a level, give or take the tolerance.

    >>> at_level(pl.DataFrame({"accuracy": [0.0, 0.005, 0.01]}), 0.0)["accuracy"].to_list()
    [0.0, 0.005]
    """
    if not 0 <= level <= 1:
        raise ValueError(f"a level of accuracy is between 0 and 1, not {level:g}: write 25 % as 0.25")
    return seen.filter((pl.col("accuracy") - level).abs() <= tolerance + 1e-9)  # 1e-9: 0.255 - 0.25 is over 0.005


def changes(runs: Sequence[RunFolder], *, around: int, classes: str = "all") -> pl.DataFrame:
    """The absolute change of every signal of a class from an epoch to the next, with its phase.

    The last `around` changes before a boundary and the first `around` after it are in `transition`, the rest `stable`.
    With `classes="old"`, only classes whose task was over at the later of the two epochs.
    """
    if around < 1:
        raise ValueError(f"around is {around}: a transition takes at least 1 epoch on either side of a boundary")
    if classes not in ("all", "old"):
        raise ValueError(f"classes is {classes!r}: choose all or old")
    seen = observations(runs)
    starts = seen.group_by("run", "task").agg(pl.col("epoch").min().alias("start")).filter(pl.col("task") > 0)
    epochs = seen.select("run", "epoch").unique().join(starts.select("run", "start"), on="run", how="left")
    since = pl.col("epoch") - pl.col("start")  # 0 for the change that crosses the boundary
    phases = epochs.group_by("run", "epoch").agg(
        pl.when(((since >= -around) & (since < around)).any()).then(pl.lit("transition")).otherwise(pl.lit("stable"))
        .alias("phase")
    )  # fmt: skip
    moved = seen.sort("run", "class", "epoch").with_columns(
        pl.col("epoch").diff().over("run", "class").alias("gap"),
        *(pl.col(name).diff().abs().over("run", "class") for name in SIGNALS),
    )
    moved = moved.filter(pl.col("gap") == 1).drop("gap")
    if classes == "old":
        moved = moved.filter(pl.col("class_task") < pl.col("task"))
    return moved.join(phases, on=["run", "epoch"], how="left", maintain_order="left")


def transition_width(runs: Sequence[RunFolder]) -> int:
    """The paper's 5 epochs, or a quarter of the shortest task where that is less: else no epoch would be stable."""
    counts = observations(runs).group_by("run", "task").agg(pl.col("epoch").n_unique())
    shortest = int(counts["epoch"].min())  # type: ignore[arg-type]
    return max(1, min(AROUND, shortest // 4))


def box(values: ArrayLike) -> Box:
    """What a box plot shows of some values.

    >>> box([1, 2, 3, 4, 100])
    Box(n=5, min=1.0, whisker_low=1.0, q1=2.0, median=3.0, q3=4.0, whisker_high=4.0, max=100.0)
    >>> box([]).n, box([]).median
    (0, nan)
    """
    v = np.sort(np.asarray(values, dtype=np.float64))  # NaN comes last
    v = v[~np.isnan(v)]
    if not v.size:
        return Box(0, *[float("nan")] * 7)
    q1, median, q3 = (float(q) for q in np.quantile(v, (0.25, 0.5, 0.75)))
    reach = 1.5 * (q3 - q1)
    # An interpolated quartile may lie beyond every observation within reach: the whisker then has no length.
    low, high = v[v >= q1 - reach], v[v <= q3 + reach]
    return Box(v.size, float(v[0]), min(float(low[0]), q1), q1, median, q3, max(float(high[-1]), q3), float(v[-1]))


def one_method(runs: Sequence[RunFolder]) -> None:
    """An error if the runs differ in more than the seed: their numbers should not be thrown together."""
    if not runs:
        raise ValueError("no run was given")
    first = runs[0]
    for run in runs[1:]:
        if changed := differences(_without_seed(first.config), _without_seed(run.config)):
            methods = "; ".join(sorted({f"{method_title(r.config)!r}" for r in runs}))
            raise ValueError(
                f"{first.name} and {run.name} differ in more than the seed ({changed[0]}): give runs of one method, "
                f"or choose one with --method, among {methods}"
            )


def choose(runs: Sequence[RunFolder], method: str | None) -> list[RunFolder]:
    """The runs of a method, by its title; all of them for None."""
    if method is None:
        return list(runs)
    chosen = [run for run in runs if method_title(run.config) == method]
    if not chosen:
        known = "; ".join(sorted({repr(method_title(run.config)) for run in runs}))
        raise ValueError(f"no run is of method {method!r}: there are {known}")
    return chosen


def level_name(level: float) -> str:
    """What a level is called in the frame.

    >>> level_name(0.25)
    'accuracy 25 %'
    """
    return f"accuracy {100 * level:g} %"


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


def _without_seed(config: Config) -> Config:
    settings = {"seed": 0, "device": "auto", "data": config.data.model_copy(update={"root": None})}
    return config.model_copy(update={**settings, "record": type(config.record)(classes=config.record.classes)})
