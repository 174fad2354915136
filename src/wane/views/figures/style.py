"""One style for all figures: the widths of a two-column paper, 8 points, a signal always in the same colour.

Figures are plain objects: no pyplot, no window, and the settings of matplotlib are as before when a figure is done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec

from wane.escaping import visible
from wane.registry import Registry
from wane.softmax.signals import SIGNALS
from wane.views.figures.fonts import usual_families
from wane.views.palette import INK, SOFT, is_bounded

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["WIDTHS", "in_style", "label_ends", "new_figure", "panels", "plain", "room_for_labels", "styled"]

P = ParamSpec("P")

INK_COLOUR, SOFT_COLOUR = INK[0], SOFT[0]
#: What is not there, in heat maps and in lists of the rest.
ABSENT = "#e4e4e4"
#: Of the columns of a paper, in inches.
WIDTHS = Registry("width", {"column": 3.4, "page": 7.0})
STYLE: dict[str, Any] = {
    "font.family": "sans-serif", "font.size": 8, "axes.titlesize": 8,
    "axes.labelsize": 8, "xtick.labelsize": 7, "ytick.labelsize": 7, "legend.fontsize": 7, "legend.frameon": False,
    "axes.spines.top": False, "axes.spines.right": False, "axes.linewidth": 0.6, "lines.linewidth": 1.3,
    "xtick.major.width": 0.6, "ytick.major.width": 0.6, "xtick.major.size": 2.5, "ytick.major.size": 2.5,
    "axes.edgecolor": INK_COLOUR, "axes.labelcolor": INK_COLOUR, "text.color": INK_COLOUR, "xtick.color": INK_COLOUR,
    "ytick.color": INK_COLOUR, "figure.facecolor": "white", "axes.facecolor": "white", "savefig.dpi": 300,
    "svg.hashsalt": "wane", "pdf.fonttype": 42,  # TrueType, so that the letters in a PDF stay letters
}  # fmt: skip


def styled(draw: Callable[P, Figure]) -> Callable[P, Figure]:
    """Draw in the style, whatever the user's own settings are, and leave those as they were."""

    @wraps(draw)
    def inside(*arguments: P.args, **options: P.kwargs) -> Figure:
        with in_style():
            return draw(*arguments, **options)

    return inside


def in_style(families: Sequence[str] = ()) -> AbstractContextManager[None]:
    """The settings of matplotlib are its own defaults and this style, until the end of the `with`.

    `families` are the fonts, the first one first; default: the usual ones.
    """
    from matplotlib import rc_context, rcParamsDefault

    settings: Any = {k: v for k, v in rcParamsDefault.items() if not k.startswith(("backend", "interactive"))}
    return rc_context(settings | STYLE | {"font.sans-serif": list(families or usual_families())})


def new_figure(width: str, height: float) -> Figure:
    """An empty figure of a column's or a page's width, `height` in inches."""
    from matplotlib.figure import Figure as Made

    return Made(figsize=(WIDTHS[width], height), layout="constrained")


def panels(signals: Sequence[str]) -> list[list[str]]:
    """The signals by the axis that they share: those between 0 and 1; then each other one, in units of its own.

    >>> panels(["loss", "cm", "tlr"])
    [['cm', 'tlr'], ['loss']]
    """
    names = [SIGNALS[name].name for name in signals]  # an unknown one lists the known
    if not names:
        raise ValueError("no signal was given: choose at least one of " + ", ".join(SIGNALS))
    shared = [name for name in names if is_bounded(name)]
    return [*([shared] if shared else []), *([name] for name in names if not is_bounded(name))]


def room_for_labels(count: int) -> float:
    """How high a panel must be, in inches, for so many labels beside it.

    >>> room_for_labels(10), room_for_labels(50)
    (2.25, 8.25)
    """
    return 0.75 + 0.15 * count


def label_ends(axes: Axes, ends: Sequence[tuple[float, str, str]], *, height: float) -> None:
    """Write (y, text, colour) to the right of the axes, moved apart where they would touch, each tied to its place.

    `height` is that of the axes, in inches.
    """
    from matplotlib.patches import ConnectionPatch
    from matplotlib.transforms import offset_copy

    low, high = axes.get_ylim()
    gap = (high - low) * (8.5 / 72) / height
    order = sorted(ends, key=lambda end: end[0])
    places: list[float] = []
    for y, _, _ in order:
        places.append(max(y, places[-1] + gap) if places else y)
    over = places[-1] - high if places else 0.0
    if over > 0:  # too many at the top: push them down again
        places[-1] -= over
        for i in range(len(places) - 2, -1, -1):
            places[i] = min(places[i], places[i + 1] - gap)
    edge = axes.get_yaxis_transform()
    before, beside = (offset_copy(edge, axes.figure.figure, x=x, units="points") for x in (10, 12))
    for place, (y, text, colour) in zip(places, order, strict=True):
        axes.text(1, place, plain(text), transform=beside, fontsize=7, color=colour, va="center")
        axes.add_artist(ConnectionPatch((1, y), (1, place), edge, before, color=colour, linewidth=0.5, alpha=0.5,
                                        clip_on=False))  # fmt: skip


def plain(text: str) -> str:
    r"""Text from a file as matplotlib should write it: no control characters, and a dollar is a dollar, not formulas.

    >>> plain("$a$")
    '\\$a\\$'
    """
    return visible(text).replace("$", r"\$")
