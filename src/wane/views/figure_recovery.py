"""How lost classes come back, and which signal told it before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from wane.lab.folder import RunFolder
from wane.sample_signals import SIGNALS
from wane.views.figure_style import COLOURS, SHORT, SOFT_COLOUR, new_figure, styled
from wane.views.palette import SEQUENTIAL
from wane.views.recovery import WITHIN, correlate, curves, speeds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["recovery"]

THIRDS = ("low", "middle", "high")
#: Without rows beside, and with.
LINES: tuple[Any, ...] = ("-", (0, (3, 1.5)), (0, (1, 1)))


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
    modes = sorted(seen["beside"].unique().to_list())
    stacked = width == "column"
    figure = new_figure(width, 4.6 if stacked else 2.6)
    left, right = figure.subplots(2, 1) if stacked else figure.subplots(1, 2)
    _draw_curves(left, _in_thirds(curves(runs), name), measure, modes, name)
    for at, beside in enumerate(modes):
        part = seen.filter(pl.col("beside") == beside)
        _draw_rhos(right, part, measure, WITHIN[within], shift=0.16 * (2 * at - len(modes) + 1), first=at == 0,
                   label=f"{_mode(beside)} (n = {len(part):,})")  # fmt: skip
    right.axvline(0, color=SOFT_COLOUR, linewidth=0.6, zorder=0)
    shown = [s for s in SIGNALS if s != "accuracy"]
    right.set_yticks(range(len(shown)), [SHORT[s] for s in shown])
    right.set_ylim(len(shown) - 0.4, -0.6)
    right.set_xlabel(f"Spearman's ρ with {'speed' if measure == 'speed' else 'net speed'}"
                     + (f", within {within}" if WITHIN[within] else ""))  # fmt: skip
    right.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=1, handlelength=1.2)
    return figure


def _mode(beside: int) -> str:
    return f"with {beside} other rows" if beside else "alone"


def _in_thirds(frame: pl.DataFrame, signal: str) -> pl.DataFrame:
    """With the third of each class among those of its run, task and `beside`, as 0, 1 or 2; higher is better."""
    among = ["run", "task", "beside"]
    value = pl.col(signal) * (1 if SIGNALS[signal].higher_is_better else -1)
    first = frame.filter(pl.col("k") == 0)
    place = (value.rank("average").over(among) - 0.5) / pl.len().over(among)
    thirds = first.select(*among, "class", (place * 3).floor().cast(pl.Int64).clip(0, 2).alias("third"))
    return frame.join(thirds, on=[*among, "class"])


def _draw_curves(axes: Axes, frame: pl.DataFrame, measure: str, modes: Sequence[int], signal: str) -> None:
    from matplotlib import colormaps
    from matplotlib.lines import Line2D

    colours = [colormaps[SEQUENTIAL](share) for share in (0.0, 0.45, 0.82)]
    value = pl.col("recovered") - (pl.col("taken") if measure == "net" else 0)
    means = frame.group_by("beside", "third", "k").agg(value.mean().alias("y")).sort("k")
    for beside, style in zip(modes, LINES * len(modes), strict=False):
        for third, colour in enumerate(colours):
            line = means.filter(pl.col("beside") == beside, pl.col("third") == third)
            axes.plot(line["k"].to_numpy(), 100 * line["y"].to_numpy(), color=colour, linestyle=style,
                      label=f"{THIRDS[third]}, {_mode(beside)}")  # fmt: skip
    handles = [Line2D([], [], color=c, label=f"{t} {SHORT[signal]}") for t, c in zip(THIRDS, colours, strict=True)]
    if len(modes) > 1:
        handles += [Line2D([], [], color=SOFT_COLOUR, linestyle=style, label=_mode(beside))
                    for beside, style in zip(modes, LINES * len(modes), strict=False)]  # fmt: skip
    axes.legend(handles=handles, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, handlelength=1.6)
    axes.set_xlim(0, None)
    axes.set_ylim(0, None)
    axes.set_xlabel("steps of the fine-tune")
    axes.set_ylabel("accuracy of the class (%)" if measure == "speed" else "accuracy, less answers taken (%)")


def _draw_rhos(
    axes: Axes, part: pl.DataFrame, measure: str, within: Sequence[str], *, shift: float, first: bool, label: str
) -> None:
    found = correlate(part, measure, within=within)
    shown = [s for s in SIGNALS if s != "accuracy"]  # all lost classes have the same
    for at, name in enumerate(shown):
        c, colour = found[name], COLOURS[name]
        if c.rho is None:
            continue
        if c.low is not None and c.high is not None:
            axes.plot([c.low, c.high], [at + shift] * 2, color=colour, linewidth=1.1)
        axes.plot([c.rho], [at + shift], "o", color=colour, markerfacecolor=colour if first else "white", markersize=4)
    axes.plot([np.nan], [np.nan], "o", color=SOFT_COLOUR, markerfacecolor=SOFT_COLOUR if first else "white",
              markersize=4, label=label)  # fmt: skip
