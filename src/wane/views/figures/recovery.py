"""How lost classes come back, and which signal told it before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import polars as pl

from wane.runs.folder import RunFolder
from wane.softmax.signals import SIGNALS
from wane.views.figures.style import SOFT_COLOUR, new_figure, plain, styled
from wane.views.palette import SEQUENTIAL, short_name, signal_colour
from wane.views.recovery import WITHIN, correlate, curves, speeds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["recovery"]

THIRDS = ("low", "middle", "high")
#: For a method and the rows beside: its lines on the left, its dots on the right (hollow where there are rows beside).
LINES: tuple[Any, ...] = ("-", (0, (4, 1.5)), (0, (1, 1)), (0, (5, 1, 1, 1)))
MARKERS = ("o", "s", "D", "^")
Kind: TypeAlias = tuple[str, int]  # method, rows beside


@styled
def recovery(
    runs: Sequence[RunFolder],
    *,
    signal: str = "log_tlr",
    measure: str = "speed",
    within: str = "run and task",
    width: str = "page",
) -> Figure:
    """Left, the mean recovery curve of lost classes by thirds of a signal before; right, each signal's rho with speed.

    Each method is on its own, and so is each number of rows beside.
    The thirds are taken among the lost classes of the same run and task, so that they differ in the signal and not in
    the model. Intervals are 95 %, by a bootstrap over runs and classes.

    Args:
        runs: with record.recovery, of one data set; of one method or of several.
        signal: that the curves are parted by.
        measure: speed, or net of the answers taken from others.
        within: all; run and task; or run, task and age: what ranks are taken within, on the right.
        width: column or page.
    """
    if measure not in ("speed", "net"):
        raise ValueError(f"unknown measure {measure!r}: choose speed or net")
    if within not in WITHIN:
        raise ValueError(f"unknown within {within!r}: choose one of {'; '.join(WITHIN)}")
    name = SIGNALS[signal].name
    seen = speeds(runs)
    kinds: list[Kind] = sorted(seen.select("method", "beside").unique().rows(), key=lambda kind: (kind[1] > 0, *kind))
    stacked = width == "column"
    figure = new_figure(width, 5.2 if stacked else 3.0)
    left, right = figure.subplots(2, 1) if stacked else figure.subplots(1, 2)
    _draw_curves(left, _in_thirds(curves(runs), name), measure, kinds, name)
    _draw_rhos(right, seen, measure, WITHIN[within], kinds)
    right.set_xlabel(f"Spearman's ρ with {'speed' if measure == 'speed' else 'net speed'}"
                     + (f", within {within}" if WITHIN[within] else ""))  # fmt: skip
    return figure


def _title(kind: Kind) -> str:
    method, beside = kind
    return plain(method) + (f", {beside} others beside" if beside else ", alone")


def _in_thirds(frame: pl.DataFrame, signal: str) -> pl.DataFrame:
    """With the third of each class among those of its run, task and `beside`, as 0, 1 or 2; higher is better."""
    among = ["method", "run", "task", "beside"]
    value = pl.col(signal) * (1 if SIGNALS[signal].higher_is_better else -1)
    first = frame.filter(pl.col("k") == 0)
    place = (value.rank("average").over(among) - 0.5) / pl.len().over(among)
    thirds = first.select(*among, "class", (place * 3).floor().cast(pl.Int64).clip(0, 2).alias("third"))
    return frame.join(thirds, on=[*among, "class"])


def _draw_curves(axes: Axes, frame: pl.DataFrame, measure: str, kinds: Sequence[Kind], signal: str) -> None:
    from matplotlib import colormaps
    from matplotlib.lines import Line2D
    from matplotlib.ticker import MaxNLocator

    colours = [colormaps[SEQUENTIAL](share) for share in (0.0, 0.45, 0.82)]
    value = pl.col("recovered") - (pl.col("taken") if measure == "net" else 0)
    means = frame.group_by("method", "beside", "third", "k").agg(value.mean().alias("y")).sort("k")
    for (method, beside), style in zip(kinds, LINES * len(kinds), strict=False):
        for third, colour in enumerate(colours):
            line = means.filter(pl.col("method") == method, pl.col("beside") == beside, pl.col("third") == third)
            axes.plot(line["k"].to_numpy(), 100 * line["y"].to_numpy(), color=colour, linestyle=style,
                      label=f"{THIRDS[third]}, {_title((method, beside))}")  # fmt: skip
    handles = [Line2D([], [], color=c, label=f"{t} {short_name(signal)}") for t, c in zip(THIRDS, colours, strict=True)]
    handles += [Line2D([], [], color=SOFT_COLOUR, linestyle=style, label=_title(kind))
                for kind, style in zip(kinds, LINES * len(kinds), strict=False)]  # fmt: skip
    axes.legend(handles=handles, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, handlelength=2)
    axes.set_xlim(0, None)
    axes.set_ylim(0, None)
    axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
    axes.set_xlabel("steps of the fine-tune")
    axes.set_ylabel("accuracy of the class (%)" if measure == "speed" else "accuracy, less answers taken (%)")


def _draw_rhos(axes: Axes, seen: pl.DataFrame, measure: str, within: Sequence[str], kinds: Sequence[Kind]) -> None:
    shown = [s for s in SIGNALS if s != "accuracy" and s in seen.columns]  # accuracy at 0 % is the same for all
    for place, (kind, marker) in enumerate(zip(kinds, MARKERS * len(kinds), strict=False)):
        part = seen.filter(pl.col("method") == kind[0], pl.col("beside") == kind[1])
        found = correlate(part, measure, within=within)
        shift = 0.22 * (place - (len(kinds) - 1) / 2)
        for at, name in enumerate(shown):
            c, colour = found[name], signal_colour(name)
            if c.rho is None:
                continue
            if c.low is not None and c.high is not None:
                axes.plot([c.low, c.high], [at + shift] * 2, color=colour, linewidth=1.0)
            axes.plot([c.rho], [at + shift], marker, color=colour, markersize=3.5,
                      markerfacecolor="white" if kind[1] else colour)  # fmt: skip
        inside = "white" if kind[1] else SOFT_COLOUR
        axes.plot([np.nan], [np.nan], marker, color=SOFT_COLOUR, markersize=3.5, markerfacecolor=inside,
                  label=f"{_title(kind)} (n = {len(part):,})")  # fmt: skip
    axes.axvline(0, color=SOFT_COLOUR, linewidth=0.6, zorder=0)
    axes.set_yticks(range(len(shown)), [short_name(s) for s in shown])
    axes.set_ylim(len(shown) - 0.4, -0.6)
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=1, handlelength=1.2)
