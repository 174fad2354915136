"""What was kept against what was learnt: lower forgetting can come from either."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from wane.runs.folder import RunFolder
from wane.runs.identity import Method
from wane.views.comparable_runs import BASELINE, Setting, by_setting
from wane.views.figures.style import INK_COLOUR, SOFT_COLOUR, label_ends, new_figure, plain, room_for_labels, styled
from wane.views.palette import TASKS, signal_colour
from wane.views.summaries import accuracy_measures

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["tradeoff"]

SPACING = 5.0  # points of forgetting between two diagonals
Point = tuple[float, float]
#: Methods that share a colour differ in the shape of their mark.
MARKERS = ("o", "s", "D", "^", "v", "P", "X", "h", "<", ">")


@styled
def tradeoff(runs: Sequence[RunFolder], *, width: str = "page") -> Figure:
    """Retention against plasticity: an open mark for each method's mean, a dot for each seed; up and right is better.

    Along a dotted diagonal forgetting is the same: a method that moves along it towards the lower left forgets no more,
    but knows less. (Forgetting is taken as plasticity minus retention, which leaves out that the last task has had no
    time to be forgotten.) Runs at different settings get a panel each.

    Args:
        runs: of several methods, with a memory; those without one are left out.
        width: column or page.
    """
    found = []
    # of the class-incremental setting, unless no run has it: the two are not compared with each other
    prefix = "" if any("class" in run.about.settings for run in runs) else "task_"
    for setting in by_setting(runs):
        points = _points(setting, prefix)
        if len(points) > 1:
            found.append((setting, points))
    if not found:
        raise ValueError(
            f"of {len(runs)} runs, no two methods with a memory are done at the same setting: nothing to compare"
        )
    heights = [max(3.2, room_for_labels(len(points))) for _, points in found]
    figure = new_figure(width, sum(heights))
    grid = figure.subplots(len(found), 1, squeeze=False, height_ratios=heights).ravel()
    for axes, (setting, points), height in zip(grid, found, heights, strict=True):
        _draw_panel(axes, points, height)
        counts = sorted({len(p) for p in points.values()})
        seeds = "–".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
        axes.set_title(f"{plain(setting.title)}, n = {seeds}", loc="left")
        axes.set_xlabel("plasticity: accuracy of a task right after it was learnt (%)")
        axes.set_ylabel("retention: old tasks at the end (%)")
    return figure


def _points(setting: Setting, prefix: str) -> dict[Method, dict[int, Point]]:
    """Method to (plasticity, retention) of each seed."""
    points: dict[Method, dict[int, Point]] = {}
    x, y = f"{prefix}plasticity", f"{prefix}retention"
    for run in setting.runs:
        values = accuracy_measures(run) or {}
        if x in values and y in values and run.about.has_memory is not False:  # of someone's own loop it may be unsaid
            of_method = points.setdefault(run.method, {})
            of_method[-1 - len(of_method) if run.seed is None else run.seed] = values[x], values[y]
    return points


def _draw_panel(axes: Axes, points: dict[Method, dict[int, Point]], height: float) -> None:
    ends = []
    colours = _colours(points)
    drawn: dict[str, int] = {}
    for method, of_seeds in points.items():
        colour = colours[method]
        marker = MARKERS[drawn.setdefault(colour, 0) % len(MARKERS)]
        drawn[colour] += 1
        x, y = np.array([*of_seeds.values()]).T
        axes.scatter(x, y, s=5, color=colour, alpha=0.5, linewidths=0)
        axes.scatter(x.mean(), y.mean(), s=30, facecolors="none", edgecolors=colour, linewidths=1.2, marker=marker,
                     label=method.title)  # fmt: skip
        ends.append((float(x.mean()), float(y.mean()), _label(method), colour))
    axes.margins(0.08)
    # Points of plasticity and of retention get about the same length, so that small differences look small.
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    (left, right), (low, high) = _at_least(left, right, high - low), _at_least(low, high, 0.6 * (right - left))
    (left, right), (low, high) = _in_percent(left, right), _in_percent(low, high)
    spacing = SPACING * np.ceil((right - left) / 50)
    first = np.ceil((left - high) / spacing) * spacing
    for forgetting in np.arange(first, right - low, spacing):
        axes.plot((left, right), (left - forgetting, right - forgetting), color=SOFT_COLOUR, linewidth=0.5, alpha=0.6,
                  linestyle=(0, (1, 3)), zorder=0)  # fmt: skip
    axes.set_xlim(left, right)
    axes.set_ylim(low, high)
    label_ends(axes, [(y, text, colour) for _, y, text, colour in ends], height=0.75 * height)
    for x, y, _, colour in ends:  # from the ring towards its name
        axes.plot((x, right), (y, y), color=colour, linewidth=0.4, alpha=0.35, zorder=0)


def _at_least(low: float, high: float, span: float) -> tuple[float, float]:
    """The range, widened about its middle if it is narrower.

    >>> _at_least(1.0, 2.0, 3.0), _at_least(1.0, 2.0, 0.5)
    ((0.0, 3.0), (1.0, 2.0))
    """
    more = max(0.0, span - (high - low)) / 2
    return low - more, high + more


def _in_percent(low: float, high: float) -> tuple[float, float]:
    """The range without what no accuracy can be, but for some room around a mark at the edge.

    >>> _in_percent(-30.0, 40.0), _in_percent(90.0, 140.0)
    ((-3.0, 40.0), (90.0, 103.0))
    """
    return max(low, -3.0), min(high, 103.0)


def _label(method: Method) -> str:
    """What is written beside a mark; that it is ER goes without saying where something else is said.

    >>> _label(Method()), _label(Method(draw="class_uniform")), _label(Method("joint"))
    ('ER', 'class_uniform', 'joint')
    """
    if method == BASELINE:
        return "ER"
    return method.title.removeprefix(f"{BASELINE.title}, ") if method.learner == BASELINE.learner else method.title


def _colours(methods: Iterable[Method]) -> dict[Method, str]:
    """A trend or a weighting has the colour of its signal, ER that of ink, and every other method one of its own."""
    found, others = {BASELINE: INK_COLOUR}, 0
    for method in methods:
        intervention = method.trend or method.weights
        if intervention is not None:
            found[method] = signal_colour(intervention.signal)
        elif method not in found:
            found[method] = TASKS[(1, 2, 0, 7, 6, 4)[others % 6]]
            others += 1
    return found
