"""The figures: functions of run folders, by name, and how to write one to a file.

>>> list(FIGURES)
['trajectories', 'smoothness', 'conditional', 'windows', 'heatmap', 'draw', 'flow', 'tradeoff', 'recovery',
 'ladder', 'reliability', 'compass', 'power', 'scales']
"""

from __future__ import annotations

import inspect
import io
import os
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wane.files import write_page
from wane.registry import Registry
from wane.runs.folder import RunFolder
from wane.views.figures.classes import draw, flow, heatmap
from wane.views.figures.compass import compass
from wane.views.figures.fonts import families_for, letters_of, what_to_install
from wane.views.figures.ladder import ladder
from wane.views.figures.power import power
from wane.views.figures.recovery import recovery
from wane.views.figures.reliability import reliability
from wane.views.figures.scales import scales
from wane.views.figures.signals import conditional, smoothness, trajectories
from wane.views.figures.style import in_style
from wane.views.figures.tradeoff import tradeoff
from wane.views.figures.windows import windows
from wane.views.tables.run_tables import PrintedResults

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "FIGURES", "compass", "conditional", "draw", "draw_figure", "flow", "heatmap", "ladder", "power", "recovery",
    "reliability", "save_figure", "scales", "smoothness", "tradeoff", "trajectories", "windows",
]  # fmt: skip

FIGURES: Registry[Callable[..., Any]] = Registry(
    "figure",
    {
        f.__name__: f
        for f in (trajectories, smoothness, conditional, windows, heatmap, draw, flow, tradeoff, recovery, ladder,
                  reliability, compass, power, scales)
    },
)  # fmt: skip
SUFFIXES = (".png", ".pdf", ".svg")


def draw_figure(
    name: str, runs: Sequence[RunFolder], *, printed: PrintedResults | None = None, **options: Any
) -> Figure:
    """The figure of a name; options that are None are left to it, one that it does not know is an error.

    `printed` are published results, for the figures that have a place for them.
    """
    make = FIGURES[name]
    known = [key for key in inspect.signature(make).parameters if key != "runs"]
    given = {key: value for key, value in options.items() if value is not None}
    if printed is not None and "printed" in known:
        given["printed"] = printed
    if "signal" in known and "signals" in given:  # a figure of one signal, asked for as others are
        chosen = given.pop("signals")
        if len(chosen) != 1:
            raise ValueError(f"figure {name} shows one signal, but {len(chosen)} were given ({', '.join(chosen)})")
        given["signal"] = chosen[0]
    if unknown := [key for key in given if key not in known]:
        ours = ", ".join(key for key in known if key != "printed")
        raise ValueError(f"figure {name} has no option {unknown[0]}; it has {ours}")
    figure: Figure = make(runs, **given)
    return figure


def save_figure(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Write PNG, PDF or SVG, by the name's ending, atomically: a failure leaves an older file intact.

    Letters that our font lacks are drawn with any installed font that has them; a warning names what no font has.
    """
    target = Path(path)
    if target.suffix.lower() not in SUFFIXES:
        raise ValueError(f"{target} does not end in {', '.join(SUFFIXES)}: the ending says which format to write")
    kind = target.suffix.lower()[1:]
    # Without the date the same runs give the same bytes.
    metadata: dict[str, Any] = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}.get(kind, {})
    buffer = io.BytesIO()
    families, missing = families_for(letters_of(figure))
    if missing:
        warnings.warn(what_to_install(missing), stacklevel=2)
    with in_style(families), warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph .* missing from")  # one sentence is enough
        figure.savefig(buffer, format=kind, metadata=metadata)
    write_page(target, buffer.getvalue())
