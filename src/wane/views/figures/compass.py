"""The CLEVA-Compass as a figure: what methods assume, inside, and what is reported of them, around it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from wane.runs.folder import RunFolder
from wane.views.compass import INNER, OUTER, compass_entries
from wane.views.figures.style import SOFT_COLOUR, new_figure, plain, styled

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.projections.polar import PolarAxes

__all__ = ["compass"]

#: Where each level of the inner compass is drawn, from the middle of the figure; 0 is none.
LEVELS = (0.10, 0.30, 0.50)
#: The ring of what is reported, from and to.
RING = (0.86, 1.02)
#: As matplotlib calls the colours of the compass, darkened as the authors' template does.
DRAWN = {
    "magenta": "#d6008f", "blue": "#2233b3", "orange": "#e67700", "green": "#117733", "cyan": "#1199cc",
    "brown": "#a0522d", "purple": "#7b2d8b", "teal": "#008080", "lime": "#7fb800", "pink": "#f08fa8",
    "lightgray": "#9a9a9a",
}  # fmt: skip


@styled
def compass(runs: Sequence[RunFolder], *, width: str = "column") -> Figure:
    """One star inside and one share of each field around it for each method.

    Args:
        runs: of one or several methods.
        width: column or page.
    """
    from matplotlib.lines import Line2D

    entries = compass_entries(runs)
    figure = new_figure(width, 4.1 if width == "column" else 6.6)
    axes: Any = figure.add_subplot(projection="polar")
    axes.set_axis_off()
    axes.set_ylim(0, 1.42)
    size = 1.0 if width == "column" else 1.5  # of the letters
    _draw_ring(axes, entries, size)
    _draw_star(axes, entries, size)
    handles = [
        Line2D([], [], color=DRAWN[e["color"]], linewidth=4, alpha=0.6, label=plain(e["label"])) for e in entries
    ]
    title = "Star: not at all in the middle, supervised at the dots,\nunsupervised at the edge. Ring: what is reported."
    figure.legend(handles=handles, loc="outside lower center", ncols=min(len(entries), 3), title=title,
                  title_fontsize=6)  # fmt: skip
    return figure


def _draw_ring(axes: PolarAxes, entries: Sequence[dict[str, Any]], size: float) -> None:
    step, count = 2 * np.pi / len(OUTER), len(entries)
    low, high = RING
    for k, name in enumerate(OUTER):
        for i, entry in enumerate(entries):
            if entry["outer_level"][name]:
                axes.bar((k + (i + 0.5) / count) * step, high - low, step / count, low, color=DRAWN[entry["color"]],
                         alpha=0.55, linewidth=0)  # fmt: skip
        axes.bar((k + 0.5) * step, high - low, step, low, fill=False, edgecolor=SOFT_COLOUR, linewidth=0.6)
        _write(axes, (k + 0.5) * step, high + 0.03, name, 5.6 * size)


def _draw_star(axes: PolarAxes, entries: Sequence[dict[str, Any]], size: float) -> None:
    angles = 2 * np.pi * np.arange(len(INNER)) / len(INNER)
    around = np.append(angles, angles[0])
    for level, style in zip(LEVELS, ("-", ":", "-"), strict=True):
        axes.plot(around, [level] * len(around), style, color=SOFT_COLOUR, linewidth=0.5)
    for angle, name in zip(angles, INNER, strict=True):
        axes.plot([angle, angle], [LEVELS[0], LEVELS[-1]], color=SOFT_COLOUR, linewidth=0.4)
        _write(axes, angle, LEVELS[-1] + 0.02, name, 4.6 * size)
    for entry in entries:
        radius = [LEVELS[entry["inner_level"][name]] for name in (*INNER, INNER[0])]
        axes.plot(around, radius, color=DRAWN[entry["color"]], linewidth=1.3, alpha=0.8)
        axes.fill(around, radius, color=DRAWN[entry["color"]], alpha=0.12)


def _write(axes: PolarAxes, angle: float, radius: float, name: str, size: float) -> None:
    """Along the spoke, never upside down, the last word below the others."""
    text = "\n".join(name.replace("mac_", "MAC_").rsplit("_", 1)).replace("_", " ")
    degrees = np.degrees(angle) % 360
    left = 90 < degrees < 270
    axes.text(angle, radius, text, fontsize=size, rotation=degrees + 180 if left else degrees, rotation_mode="anchor",
              va="center", ha="right" if left else "left", linespacing=1.0)  # fmt: skip
