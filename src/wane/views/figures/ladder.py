"""Where the accuracy went, in one stacked picture: kept, hidden by bias, hidden in the head, out of reach."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from wane.runs.folder import RunFolder
from wane.runs.identity import Method, method_of
from wane.views.comparable_runs import BASELINE, CONTROL, CONTROL_PAST, by_setting, distinct_titles
from wane.views.figures.style import new_figure, plain, styled
from wane.views.ladder import MEANS, PARTS, Bar, Measured, bars_of_methods, bars_of_run, ladder_sentence, with_ladders
from wane.views.palette import INK, LADDER, SOFT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_bars", "ladder"]

WIDE = 0.62
#: The methods that others are seen against, from the left.
FIRST = (Method("finetune"), BASELINE, CONTROL, CONTROL_PAST)
#: Letters of a line of the sentence, and of a label below a bar, by the width of the figure.
LETTERS = {"column": (50, 9), "page": (112, 16)}


@styled
def ladder(runs: Sequence[RunFolder], *, width: str = "page") -> Figure:
    """What is kept, what one number would bring back, what a new head would, what only all training rows would.

    Of one run, a bar for each task, for the old ones and for all; of several runs of one method, means over them, with
    95 % intervals (from three on); of several methods, a bar for each, of the old tasks above and of all tasks below. A
    part is as high as it raises the accuracy; a line marks where each remedy really stands, also where it costs a task
    accuracy. Joint training is a dashed line, where a joint run of the same setting is among the runs.

    Args:
        runs: with record.ladder, and a joint run if there is one.
        width: column or page.
    """
    found = {id(m.run): m for m in with_ladders(runs) if m.run.config.learner.name != "joint"}
    panels = []
    titles = distinct_titles(method_of(m.run.config) for m in found.values())
    order = sorted(titles, key=lambda method: (FIRST.index(method) if method in FIRST else len(FIRST), titles[method]))
    for setting in by_setting(runs):
        methods: dict[Method, list[Measured]] = {}
        for run in setting.runs:
            if id(run) in found:
                methods.setdefault(method_of(run.config), []).append(found[id(run)])
        panels += _panels(setting.title, {titles[method]: methods[method] for method in order if method in methods})
    if not panels:
        raise ValueError(f"none of {len(runs)} runs has a ladder: run with --set record.ladder=true")
    height = 2.9
    figure = new_figure(width, height * len(panels) + 0.35)
    letters, label_letters = LETTERS[width]
    grid = figure.subplots(len(panels), 1, squeeze=False).ravel()
    for axes, (title, bars) in zip(grid, panels, strict=True):
        narrow = width == "column" and len(bars) > 4
        draw_bars(axes, bars, letters=label_letters, fontsize=6 if narrow else 7)
        axes.tick_params(axis="x", labelsize=6 if narrow else 7)
        axes.set_title("\n".join(textwrap.wrap(plain(title), letters)), loc="left")
    handles, names = grid[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=2 if width == "column" else 3, handlelength=1.2,
                  fontsize=6 if width == "column" else 7)  # fmt: skip
    return figure


def _panels(setting: str, methods: dict[str, list[Measured]]) -> list[tuple[str, list[Bar]]]:
    """Title and bars of each panel of a setting."""
    if not methods:
        return []
    (first, runs), *others = methods.items()
    if not others and len(runs) == 1:
        return [(ladder_sentence(runs), bars_of_run(runs[0]))]
    groups = [*methods.items()]
    if not others:
        means = zip(MEANS, ("old", "all"), strict=True)
        bars = [replace(bar, label=label) for label, which in means for bar in bars_of_methods(groups, which)]
        return [(f"{first}, {len(runs)} seeds. {ladder_sentence(runs)}", bars)]
    found = [(which, bars_of_methods(groups, which)) for which in ("old", "all")]
    return [(f"{setting}: {which} tasks, at the end{_seeds(bars)}", [_labelled(bar, bars) for bar in bars])
            for which, bars in found if bars]  # fmt: skip


def _seeds(bars: Sequence[Bar]) -> str:
    """How many seeds all bars have; nothing if they differ, as each says it then."""
    counts = {bar.seeds for bar in bars}
    return f", n = {counts.pop()}" if len(counts) == 1 else ""


def _labelled(bar: Bar, bars: Sequence[Bar]) -> Bar:
    """With its seeds where those of others differ; that it is ER goes without saying where something else is said."""
    name = bar.label.removeprefix(f"{BASELINE.title}, ")
    return replace(bar, label=name if _seeds(bars) else f"{name}, n = {bar.seeds}")


def draw_bars(axes: Axes, bars: Sequence[Bar], *, letters: int = 16, dark: bool = False, fontsize: float = 7) -> None:
    """Draw the bars, each part with its place in the legend.

    Args:
        axes: where to.
        bars: from `wane.views.ladder`.
        letters: of a line below a bar.
        dark: for a dark ground.
        fontsize: of the numbers inside the bars, in points.
    """
    colours = {part: pair[dark] for part, pair in LADDER.items()} | {"ink": INK[dark], "soft": SOFT[dark]}
    top = 0.0
    places = _places(bars)
    for x, bar in zip(places, bars, strict=True):
        reached = 0.0
        # intervals have the right half of a bar to themselves, so that numbers stay legible
        between = any(level.low is not None for level in bar.levels.values())
        middle = x - 0.2 * WIDE if between else x
        left, right = x - WIDE / 2, x + WIDE / 2
        for part in PARTS:
            if part not in bar.levels:
                continue
            level = bar.levels[part].difference or 0.0
            if level > reached:
                axes.bar(x, level - reached, WIDE, bottom=reached, color=colours[part], linewidth=0)
                crossed = [abs((i.difference or 0.0) - (level + reached) / 2) < 2.5 for i in bar.levels.values()]
                if level - reached > 4 and not any(crossed):
                    written = f"{level:.0f}" if part == "now" else f"+{level - reached:.0f}"
                    light = part in ("now", "head") or (dark and part == "features")
                    axes.text(middle, (level + reached) / 2, written, ha="center", va="center", fontsize=fontsize,
                              color="white" if light else "black")  # fmt: skip
            reached = max(reached, level)
            axes.plot((left, right), (level, level), color="white" if level < reached else colours[part], linewidth=0.9,
                      solid_capstyle="butt")  # fmt: skip
            if level < reached:  # this remedy costs the task accuracy: its line lies inside the bar
                axes.plot((right, right + 0.06), (level, level), color=colours[part], linewidth=1.6,
                          solid_capstyle="butt")  # fmt: skip
            interval = bar.levels[part]
            if interval.low is not None and interval.high is not None:
                at = x + WIDE * (0.05 + list(PARTS).index(part) / 8)
                axes.plot((at, at), (interval.low, interval.high), color=colours["ink"], linewidth=0.8)
        if bar.oracle is not None:
            beside = left + 0.08 * WIDE if between else x
            axes.plot(beside, bar.oracle, "D", color=colours["bias"], markersize=3, markeredgecolor="white",
                      markeredgewidth=0.5)  # fmt: skip
        if bar.joint is not None:
            axes.plot((left - 0.08, right + 0.08), (bar.joint,) * 2, color=colours["ink"], linewidth=1.1,
                      linestyle=(0, (4, 2)))  # fmt: skip
        if bar.learnt is not None:
            axes.plot(right + 0.1, bar.learnt, "o", markersize=3, markerfacecolor="none", color=colours["soft"])
        top = max(top, reached, bar.joint or 0.0, bar.learnt or 0.0, bar.oracle or 0.0)
    axes.set_xticks(
        places, ["\n".join(textwrap.wrap(plain(bar.label), letters, break_long_words=False)) for bar in bars]
    )
    axes.tick_params(axis="x", length=0)
    axes.set_xlim(-0.6, places[-1] + 0.6)
    axes.set_ylim(0, min(100.0, 1.06 * top))
    axes.set_ylabel("accuracy (%)")
    _legend(axes, bars, colours)


def _places(bars: Sequence[Bar]) -> list[float]:
    """Means over tasks stand apart from the tasks."""
    apart = any(bar.label not in MEANS for bar in bars)
    return [x + (0.4 if apart and bar.label in MEANS else 0.0) for x, bar in enumerate(bars)]


def _legend(axes: Axes, bars: Sequence[Bar], colours: dict[str, str]) -> None:
    """Invisible marks that carry the names of what is there."""
    from matplotlib.patches import Rectangle

    for part, name in PARTS.items():
        if any(part in bar.levels for bar in bars):
            axes.add_patch(Rectangle((0, 0), 0, 0, color=colours[part], label=name, linewidth=0))
    if any(bar.oracle is not None for bar in bars):
        axes.plot([], [], "D", color=colours["bias"], markersize=3, label="the best number (an oracle)")
    if any(bar.joint is not None for bar in bars):
        axes.plot([], [], color=colours["ink"], linewidth=1.1, linestyle=(0, (4, 2)), label="joint training")
    if any(bar.learnt is not None for bar in bars):
        axes.plot(
            [], [], "o", markersize=3, markerfacecolor="none", color=colours["soft"], label="right after learning"
        )
