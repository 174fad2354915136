"""How few rows are enough: the power of each signal's test against the rows a class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import polars as pl

from wane.runs.folder import RunFolder
from wane.softmax.registry import SIGNALS
from wane.views.figures.style import SOFT_COLOUR, new_figure, styled
from wane.views.palette import short_name, signal_colour
from wane.views.power import FALLS, power_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_power", "power"]

PANELS = {
    "found": "each test at 5 %",
    "equal_seeds": "equal alarms, 5 %, where two\nseeds are equally accurate",
    "equal_held": "equal alarms, 5 %, where accuracy\nheld from one task to the next",
}


def power(runs: Sequence[RunFolder], *, fall: int = 10, draws: int = 200, width: str = "page") -> Figure:
    """The share of falls of accuracy that the test of each signal finds, against the number of rows a class.

    Left, as the tests are used. In the middle, each at the threshold at which it alarms in 5 % of the classes that two
    runs with different seeds get right equally often; on the right, in 5 % of those whose accuracy held from one end of
    a task to another: there the signals fell too, and are not better than accuracy at telling that accuracy did.

    Args:
        runs: of one method and data set with record.samples, at least two seeds.
        fall: of accuracy, in points: 5, 10 or 20.
        draws: how often rows are drawn for each point.
        width: column or page.
    """
    if fall not in FALLS:
        raise ValueError(f"fall is {fall}: choose one of {', '.join(map(str, FALLS))} points")
    settings = {(run.data, run.method.title) for run in runs}
    if len(settings) > 1:
        titles = "; ".join(sorted(f"{method} on {data}" for data, method in settings))
        raise ValueError(f"these runs are of several methods or data sets ({titles}): give those of one")
    return draw_power(power_table(runs, draws=draws), fall=fall, width=width)


@styled
def draw_power(table: pl.DataFrame, *, fall: int = 10, width: str = "page") -> Figure:
    """The figure of a table that `power_table` made."""
    stacked = width == "column"
    figure = new_figure(width, 6.4 if stacked else 2.9)
    axes = figure.subplots(3, 1, sharex=True, sharey=True) if stacked else figure.subplots(1, 3, sharey=True)
    for panel, (column, title) in zip(axes, PANELS.items(), strict=True):
        _draw(panel, table.filter(pl.col("fall") == fall), column)
        panel.set_title(title)
    axes[0].set_ylabel(f"falls of {fall} points found (%)")
    for panel in axes[-1:] if stacked else axes:
        panel.set_xlabel("rows a class")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5 if stacked else 9, handlelength=1.4)
    return figure


def _draw(axes: Axes, table: pl.DataFrame, column: str) -> None:
    for name in (*(name for name in SIGNALS if name != "accuracy"), "drift", "accuracy"):
        line = table.filter(pl.col("signal") == name).sort("rows")
        mean, width = name == "drift", 2.0 if name in ("accuracy", "drift") else 1.0
        look: dict[str, Any] = {"color": signal_colour(name), "label": short_name(name)} if not mean else \
            {"color": SOFT_COLOUR, "label": "mean of six", "linestyle": (0, (4, 1.2))}  # fmt: skip
        axes.plot(line["rows"].to_numpy(), 100 * line[column].to_numpy(), linewidth=width, **look)
    axes.axhline(80, color=SOFT_COLOUR, linewidth=0.5, zorder=0)
    axes.set_xscale("log")
    ticks = sorted(set(table["rows"].to_list()))
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.minorticks_off()
    axes.set_ylim(0, 100)
