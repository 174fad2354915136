"""The views as functions of anything that holds runs: histories of one's own loop, their files, run folders, stores."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from wane.measures.history import History
from wane.runs.folder import RunFolder, find_runs

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Runs", "as_runs", "figure", "report", "table"]

One: TypeAlias = History | RunFolder | str | os.PathLike[str]
#: A history, the path of its file, a run folder, a folder or URL that holds some; or several of these.
Runs: TypeAlias = One | Sequence[One]


def as_runs(runs: Runs) -> list[RunFolder]:
    """What the views read."""
    return find_runs(*([runs] if isinstance(runs, History | RunFolder | str | os.PathLike) else runs))


def report(runs: Runs, path: str | os.PathLike[str], *, title: str | None = None) -> Path:
    """Write one page that stands alone and shows what accuracy hid. Returns where it is.

    Args:
        runs: a `wane.History`, the path of its file, a run folder, a folder or URL that holds some; or several.
        path: of the page, such as ``page.html``.
        title: of the page; default: from the runs.
    """
    from wane.views.report.page import write_report

    return write_report(as_runs(runs), path, title=title)


def figure(name: str, runs: Runs, path: str | os.PathLike[str] | None = None, **options: Any) -> Figure:
    """Draw a figure, ready for a paper; and write it, where a path is given.

    Args:
        name: trajectories, smoothness, conditional, windows, heatmap, draw, flow, tradeoff or recovery.
        runs: as in `wane.report`.
        path: of the file; its ending, .png, .pdf or .svg, says which format.
        options: of the figure, such as ``signals=["cm"]`` or ``width="page"``.
    """
    from wane.views.figures import draw_figure, save_figure

    made = draw_figure(name, as_runs(runs), **options)
    if path is not None:
        save_figure(made, path)
    return made


def table(runs: Runs, name: str = "auto", *, format: str = "text", **options: Any) -> str:
    """A table of methods as text: mean ± std over seeds, and paired differences.

    Args:
        runs: as in `wane.report`.
        name: of a recipe whose rows it shall have, or ``"auto"`` for whatever methods the runs are of.
        format: text, markdown, latex or csv.
        options: of `wane.views.tables.run_tables.run_table`, such as ``baseline="my method"``.
    """
    from wane.views.tables.formats import FORMATS
    from wane.views.tables.run_tables import run_table

    render = FORMATS[format]  # before the work: an unknown one lists the known
    return render(run_table(name, as_runs(runs), **options))
