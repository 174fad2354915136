"""Figures of the signals themselves: over time, from epoch to epoch, and at a fixed accuracy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from wane.runs.folder import RunFolder
from wane.softmax.registry import SIGNALS
from wane.views.figures.style import INK_COLOUR, SOFT_COLOUR, label_ends, new_figure, panels, styled
from wane.views.observations import (
    LEVELS,
    TOLERANCE,
    at_level,
    box,
    changes,
    group_kind,
    observations,
    one_method,
    recorded_signals,
    transition_width,
    unit_of_time,
)
from wane.views.palette import is_bounded, short_name, signal_colour, signal_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["conditional", "smoothness", "trajectories"]

#: Fewer observations than this are shown one by one: a density would make up a shape.
FEW = 5
#: The standard deviation of so few classes says nothing, and its band fills the axes.
FEW_CLASSES = 2


@styled
def trajectories(
    runs: Sequence[RunFolder],
    *,
    signals: Sequence[str] | None = None,
    boundary: int = 1,
    task: int | None = None,
    around: int | None = None,
    width: str = "column",
) -> Figure:
    """Mean ± std over a task's classes (and runs), centred on a boundary: 0 is the model just before the next task.

    Of one or two classes the mean stands alone.

    Args:
        runs: of one method; the classes of all runs are pooled.
        signals: which; default: accuracy, cm and tlr, as far as they were recorded. One without an upper bound, such as
            the loss, gets an axis of its own.
        boundary: 1 is that of task 1 and task 2.
        task: whose classes, counted from 1; default: the task that ends at the boundary.
        around: epochs shown on either side; default: both tasks whole.
        width: column or page.
    """
    from matplotlib.ticker import MaxNLocator

    one_method(runs)
    groups = panels(_recorded(runs, signals, default=("accuracy", "cm", "tlr")))
    seen = observations(runs)
    last, whose = int(seen["task"].max()), boundary if task is None else task  # type: ignore[arg-type]
    if not 1 <= boundary <= last:
        raise ValueError(f"there is no boundary {boundary}: the runs have come to task {last + 1}, so choose one of "
                         f"{', '.join(map(str, range(1, last + 1))) or 'none: let them go on to task 2'}")  # fmt: skip
    start = pl.col("epoch").filter(pl.col("task") == boundary).min().over("run")
    centred = seen.with_columns((pl.col("epoch") - start + 1).alias("since"))  # 0: the last evaluation before it
    reach = pl.col("since").abs() <= around if around is not None else pl.col("task").is_in([boundary - 1, boundary])
    centred = centred.filter(pl.col("class_task") == whose - 1, reach)
    if centred.is_empty():
        raise ValueError(f"the classes of task {whose} are not evaluated near boundary {boundary}: choose a task up to "
                         f"{boundary + 1}")  # fmt: skip
    count = centred.select("run", "class").n_unique()
    height = 1.9
    figure = new_figure(width, height * len(groups) ** 0.75)
    all_axes = figure.subplots(len(groups), 1, sharex=True, squeeze=False)[:, 0]
    for axes, names in zip(all_axes, groups, strict=True):
        curves = centred.group_by("since").agg(
            pl.col(names).mean(), pl.col(names).std().fill_null(0).name.suffix("_std")
        )
        curves = curves.sort("since")
        x = curves["since"].to_numpy()
        for name in names:
            mean, std = curves[name].to_numpy(), curves[f"{name}_std"].to_numpy()
            if count > FEW_CLASSES:
                axes.fill_between(x, mean - std, mean + std, color=signal_colour(name), alpha=0.15, linewidth=0)
            axes.plot(x, mean, color=signal_colour(name), label=name)
        axes.set_ylim(*((-0.02, 1.02) if is_bounded(names[0]) else (0, None)))
        axes.set_xlim(x[0], x[-1])
        axes.axvline(0, color=SOFT_COLOUR, linestyle=(0, (4, 2)), linewidth=0.9, zorder=0)
        ends = [(float(curves[name][-1]), short_name(name), signal_colour(name)) for name in names]
        label_ends(axes, ends, height=0.7 * height)
        axes.set_ylabel(
            ("mean ± std" if count > FEW_CLASSES else "mean")
            if is_bounded(names[0])
            else _in_units(short_name(names[0]).lower(), names[0])
        )
    kind = {"class": "Classes"}.get(group_kind(runs[0].history), f"{group_kind(runs[0].history).capitalize()}s")
    all_axes[0].set_title(f"{kind} of task {whose} (n = {count})", loc="left")
    all_axes[-1].xaxis.set_major_locator(MaxNLocator(integer=True, nbins=7))
    all_axes[-1].set_xlabel(f"{unit_of_time(runs)}s since task {boundary + 1} began")
    return figure


@styled
def smoothness(
    runs: Sequence[RunFolder],
    *,
    signals: Sequence[str] | None = None,
    around: int | None = None,
    classes: str = "all",
    width: str = "column",
) -> Figure:
    """Absolute change from epoch to epoch, near boundaries and away from them, as box plots without outliers.

    Args:
        runs: of one method.
        signals: which; default: all that were recorded and lie between 0 and 1. Others get an axis of their own.
        around: epochs on either side of a boundary that are its transition; default: see `transition_width`.
        classes: whose changes: "all", or the "old" ones, whose task was over.
        width: column or page.
    """
    from matplotlib.patches import Patch

    one_method(runs)
    bounded = [s for s in recorded_signals(runs) if is_bounded(s)]
    groups = panels(_recorded(runs, signals, default=bounded))
    reach = transition_width(runs) if around is None else around
    moved = changes(runs, around=reach, classes=classes)
    phases = {phase: moved.filter(pl.col("phase") == phase) for phase in ("transition", "stable")}
    figure = new_figure(width, 2.1)
    ratios = [max(len(group), 1.6) for group in groups]
    all_axes = figure.subplots(1, len(groups), squeeze=False, width_ratios=ratios)[0]
    for axes, names in zip(all_axes, groups, strict=True):
        for at, name in enumerate(names):
            for (phase, chosen), shift in zip(phases.items(), (-0.19, 0.19), strict=True):
                if len(chosen):
                    _draw_box(axes, at + shift, name, phase, chosen[name].to_numpy())
        axes.set_xticks(range(len(names)), [short_name(name) for name in names], rotation=35, ha="right",
                        rotation_mode="anchor")  # fmt: skip
        axes.set_xlim(-0.6, len(names) - 0.4)
        axes.set_ylim(0, None)
        axes.set_ylabel(f"change per {unit_of_time(runs)}" if is_bounded(names[0]) else _in_units("change", names[0]))
    said = {
        "transition": f"transition: ± {reach} epoch{'s' if reach > 1 else ''} of a boundary",
        "stable": "stable: the others" if len(phases["stable"]) else "stable: none, tasks are too short",
    }
    counts = {phase: f" (n = {len(chosen):,})" if len(chosen) else "" for phase, chosen in phases.items()}
    handles = [Patch(facecolor=SOFT_COLOUR if phase == "transition" else "white", edgecolor=SOFT_COLOUR,
                     label=said[phase] + counts[phase]) for phase in phases]  # fmt: skip
    figure.legend(handles=handles, loc="outside upper left", ncols=1 if width == "column" else 2, handlelength=1)
    return figure


@styled
def conditional(
    runs: Sequence[RunFolder],
    *,
    signals: Sequence[str] | None = None,
    levels: Sequence[float] = LEVELS,
    tolerance: float = TOLERANCE,
    width: str = "page",
) -> Figure:
    """The distribution of each signal where accuracy is the same: what accuracy cannot tell apart.

    Args:
        runs: of one method.
        signals: a panel each; default: all that were recorded, but accuracy.
        levels: of accuracy, between 0 and 1.
        tolerance: how near to a level counts as at it.
        width: column or page.
    """
    one_method(runs)
    others = [s for s in recorded_signals(runs) if s != "accuracy"]
    if not others and signals is None:
        raise ValueError("only accuracy was recorded: there is nothing to show beside it")
    names = [name for group in panels(_recorded(runs, signals, default=others)) for name in group]
    seen = observations(runs)
    chosen = [at_level(seen, level, tolerance) for level in levels]
    columns = min(len(names), 4 if width == "page" else 2)
    rows = -(-len(names) // columns)
    figure = new_figure(width, 1.8 * rows)
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, name in zip(grid, names, strict=False):
        for at, part in enumerate(chosen):
            _draw_distribution(axes, at, name, part[name].to_numpy())
        axes.set_title(short_name(name), loc="left", color=signal_colour(name))
        axes.set_xlim(-0.55, len(levels) - 0.45)
        said = [f"{100 * level:g} %\n{_numbers(part[name].to_numpy())}" for level, part in
                zip(levels, chosen, strict=True)]  # fmt: skip
        axes.set_xticks(range(len(levels)), said, fontsize=5.5)
        low, high = (0.0, 1.0) if is_bounded(name) else axes.get_ylim()
        axes.set_ylim(low - 0.02 * (high - low), high + 0.02 * (high - low))
        if is_bounded(name) and names.index(name) % columns:
            axes.tick_params(labelleft=False)  # as to the left
    for axes in grid[len(names) :]:
        axes.set_axis_off()
    apart = " " if width == "page" else "\n"
    figure.supxlabel(f"accuracy of the class (± {100 * tolerance:g} points);{apart}below it: "
                     "observations, median, interquartile range", fontsize=8)  # fmt: skip
    return figure


def _in_units(words: str, signal: str) -> str:
    """Words for an axis, with the unit of the signal if it has one.

    >>> _in_units("change", "loss"), _in_units("change", "cm")
    ('change (nats)', 'change')
    """
    return f"{words} ({signal_unit(signal)})" if signal_unit(signal) else words


def _draw_box(axes: Axes, at: float, name: str, phase: str, values: np.ndarray[Any, Any]) -> None:
    b = box(values)
    colour, filled = signal_colour(name), phase == "transition"
    stats = {"med": b.median, "q1": b.q1, "q3": b.q3, "whislo": b.whisker_low, "whishi": b.whisker_high,
             "label": f"{name}, {phase}"}  # fmt: skip
    line = {"color": colour, "linewidth": 0.9}
    axes.bxp([stats], positions=[at], widths=0.32, showfliers=False, patch_artist=True, manage_ticks=False,
             boxprops={"facecolor": colour if filled else "white", "edgecolor": colour, "linewidth": 0.9},
             medianprops={"color": "white" if filled else colour, "linewidth": 0.9}, whiskerprops=line,
             capprops=line)  # fmt: skip


def _draw_distribution(axes: Axes, at: int, name: str, values: np.ndarray[Any, Any]) -> None:
    """A violin with its quartiles and their numbers; dots for a few observations, words for none."""
    colour, b = signal_colour(name), box(values)
    if not b.n:
        axes.text(at, 0.5, "no observation", rotation=90, ha="center", va="center", fontsize=6, color=SOFT_COLOUR,
                  transform=axes.get_xaxis_transform())  # fmt: skip
        return
    if b.n < FEW:
        axes.plot(np.full(b.n, at), values, "o", color=colour, markersize=2.5, linestyle="none")
    else:
        drawn: Any = axes.violinplot([values], positions=[at], widths=0.85, showextrema=False)
        for body in drawn["bodies"]:
            body.set(facecolor=colour, alpha=0.35, edgecolor=colour, linewidth=0.5)
        axes.vlines(at, b.q1, b.q3, color=INK_COLOUR, linewidth=2)
        axes.plot([at], [b.median], "o", color="white", markeredgecolor=INK_COLOUR, markersize=3, markeredgewidth=0.7)


def _numbers(values: np.ndarray[Any, Any]) -> str:
    """What is printed below a distribution.

    >>> _numbers(np.array([1.0, 2.0, 3.0])).splitlines()
    ['n = 3', '2.0', '1.5–2.5']
    >>> _numbers(np.array([0.65])).splitlines()
    ['n = 1', '.65', '.65–.65']
    """
    b = box(values)

    def short(x: float) -> str:  # four of them have to stand side by side
        return f"{x:.2f}".lstrip("0") if x < 1 else f"{x:.1f}"

    return f"n = {b.n}\n{short(b.median)}\n{short(b.q1)}–{short(b.q3)}" if b.n else "n = 0\n\n"


def _recorded(runs: Sequence[RunFolder], signals: Sequence[str] | None, *, default: Sequence[str]) -> list[str]:
    """The signals asked for, which must be there; by default those of `default` that are."""
    there = recorded_signals(runs)
    if signals is None:
        return [name for name in default if name in there]
    if missing := [name for name in signals if SIGNALS[name] and name not in there]:
        raise ValueError(f"{', '.join(missing)} was not recorded: choose from {', '.join(there)}")
    return list(signals)
