"""The reliability diagram: how often answers of a given confidence are right, for old classes and for new ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from wane.measures.pooling import pooled_value
from wane.measures.task_map import tasks_of
from wane.runs.folder import RunFolder
from wane.softmax.registry import Bins
from wane.views.figures.style import SOFT_COLOUR, new_figure, styled
from wane.views.observations import one_method
from wane.views.palette import signal_colour

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["reliability"]


@styled
def reliability(runs: Sequence[RunFolder], *, task: int | None = None, width: str = "page") -> Figure:
    """Accuracy in each bin of confidence, over the share of answers in it, at the end of a task.

    Args:
        runs: of one method; their samples are put together. They must have been run with `record.signals` holding
            ``ece`` or another measure that is made of bins.
        task: at the end of which task, from 1; default: the last.
        width: column or page.
    """
    one_method(runs)
    found = _bins(runs, task)
    shown = {name: Bins(*np.moveaxis(bins, -1, 0)) for name, bins in found.items() if bins[:, 0].sum()}
    stacked = width == "column"
    figure = new_figure(width, 2.9 * len(shown) if stacked else 2.9)
    shape = (2 * len(shown), 1) if stacked else (2, len(shown))
    heights = [3.2, 1] * len(shown) if stacked else [3.2, 1]
    grid: Any = figure.subplots(*shape, squeeze=False, gridspec_kw={"height_ratios": heights})
    for k, (name, bins) in enumerate(shown.items()):
        top, below = (grid[2 * k, 0], grid[2 * k + 1, 0]) if stacked else (grid[0, k], grid[1, k])
        _draw(top, below, name, bins, first=stacked or k == 0)
    return figure


def _bins(runs: Sequence[RunFolder], task: int | None) -> dict[str, NDArray[np.float64]]:
    """(bins, 3) of all classes, those of earlier tasks, and those of the task itself, all runs together."""
    total: dict[str, NDArray[np.float64]] = {}
    for run in runs:
        tested = [e for e in run.history.evaluations if e.split == run.split and (task is None or e.task == task - 1)]
        if not tested:
            raise ValueError(f"{run.name} was not evaluated in task {task}: give one from 1 to {run.config.num_tasks}")
        last = tested[-1]
        if last.bins is None:
            raise ValueError(
                f"{run.name} did not record bins of confidence: run it with --set record.signals='[\"ece\"]'"
            )
        own = tasks_of(run.history.class_to_task, last.classes)
        new = own == last.task
        groups = {"all classes": np.ones_like(new), "earlier tasks": ~new, f"task {last.task + 1}": new}
        for name, chosen in groups.items():
            part = last.bins[chosen].sum(0)
            total[name] = total[name] + part if name in total else part
    return total


def _draw(top: Axes, below: Axes, name: str, bins: Bins, *, first: bool) -> None:
    count = len(bins.n)
    left, filled = np.arange(count) / count, bins.n > 0
    with np.errstate(invalid="ignore"):
        accuracy, confidence = bins.correct / bins.n, bins.confidence / bins.n
    colour = signal_colour("ece")
    top.plot([0, 1], [0, 1], color=SOFT_COLOUR, linewidth=0.7, linestyle="--")
    top.bar(
        left[filled], accuracy[filled], 1 / count, align="edge", color=signal_colour("ctl"), alpha=0.55, linewidth=0
    )
    low, high = np.minimum(accuracy, confidence)[filled], np.maximum(accuracy, confidence)[filled]
    top.bar(left[filled], high - low, 1 / count, low, align="edge", fill=False, hatch="////", edgecolor=colour,
            linewidth=0.4, alpha=0.7)  # fmt: skip
    top.plot(confidence[filled], accuracy[filled], ".", color=colour, markersize=4)
    top.set(xlim=(0, 1), ylim=(0, 1), title=name, aspect="auto")
    sure, right = bins.confidence.sum() / bins.n.sum(), float(bins.accuracy[0])
    error = float(pooled_value("ece", bins))
    said = f"ECE {100 * error:.1f} %\nconfidence {100 * sure:.0f} %\naccuracy {100 * right:.0f} %"
    top.text(0.04, 0.96, said, transform=top.transAxes, va="top", fontsize=7)
    top.set_xticklabels([])
    below.bar(left, bins.n / bins.n.sum(), 1 / count, align="edge", color=SOFT_COLOUR, linewidth=0)
    below.set(xlim=(0, 1), xlabel="confidence")
    if first:
        top.set_ylabel("accuracy")
        below.set_ylabel("share")
