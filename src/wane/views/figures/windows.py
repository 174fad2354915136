"""Final accuracy against the trend window."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from wane.runs.config import Config, build_config
from wane.runs.folder import RunFolder
from wane.runs.identity import Method, method_of
from wane.softmax.signals import SIGNALS
from wane.views.comparable_runs import BASELINE, CONTROL, CONTROL_PAST, Setting, by_setting
from wane.views.figures.style import label_ends, new_figure, plain, room_for_labels, styled
from wane.views.palette import short_name, signal_colour
from wane.views.statistics import mean_std
from wane.views.summaries import accuracy_columns, accuracy_measures

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["windows"]

CONTROLS = {BASELINE: "ER", CONTROL: "class-uniform", CONTROL_PAST: "class-uniform past"}
#: Lines of one signal under different settings, and the controls, which have no signal.
DASHES: tuple[Any, ...] = ("-", (0, (4, 1.5)), (0, (1, 1)), (0, (5, 1, 1, 1)))
SHADES = ("#333333", "#777777", "#aaaaaa", "#555555")


@styled
def windows(
    runs: Sequence[RunFolder],
    *,
    signals: Sequence[str] = (),
    measure: str = "accuracy",
    forgetting: str = "peak",
    width: str = "column",
) -> Figure:
    """A summary at the end of the run against the window of the trend: a line a signal, controls as horizontal bands.

    Bands are ± 1 std over seeds. Runs at different settings (data set, scale) get a panel each, if several windows were
    run there.

    Args:
        runs: with a trend, at several windows, and without one: the controls. Others are left out.
        signals: which; default: all that there are.
        measure: accuracy, forgetting, retention, plasticity, or any other column of a table, such as task_accuracy.
        forgetting: its definition: peak, past_peak or first.
        width: column or page.
    """
    if measure not in accuracy_columns():
        raise ValueError(f"unknown measure {measure!r}: choose one of {', '.join(accuracy_columns())}")
    wanted = [SIGNALS[name].name for name in signals]
    found = []
    for setting in by_setting(runs):
        lines, controls = _summaries(setting, wanted, measure, forgetting)
        if lines:
            found.append((setting, lines, controls))
    compared = [entry for entry in found if len({w for by_window in entry[1].values() for w in by_window}) > 1]
    found = compared or found  # a setting with one window has nothing to compare, unless nothing else is there
    if not found:
        of = f" of {', '.join(wanted)}" if wanted else ""
        raise ValueError(f"none of {len(runs)} runs is done and has a trend{of}: run some with "
                         "--set learner.trend.signal=log_tlr --set learner.trend.window=3")  # fmt: skip
    height = max(2.3, *(room_for_labels(len(lines) + len(controls)) for _, lines, controls in found))
    across = 1 if width == "column" else min(len(found), 2)
    down = -(-len(found) // across)
    figure = new_figure(width, height * down)
    grid = figure.subplots(down, across, squeeze=False).ravel()
    for axes, (setting, lines, controls) in zip(grid, found, strict=False):
        _draw_panel(axes, lines, controls, height)
        counts = {len(seeds) for by_window in lines.values() for seeds in by_window.values()}
        seeds = f"n = {'–'.join(map(str, sorted({min(counts), max(counts)})))}"
        said = [plain(setting.title), *filter(None, [_shared(lines)]), seeds]
        axes.set_title(", ".join(said), loc="left", wrap=True)
        axes.set_xlabel("trend window (epochs)")
        axes.set_ylabel(f"{'final ' * (measure == 'accuracy')}{accuracy_columns()[measure].title} (%)")
    for axes in grid[len(found) :]:
        axes.set_axis_off()
    return figure


class Line(NamedTuple):
    """What the points of a line have in common: all of the method but the window."""

    signal: str
    words: str  # what else is set, for people
    method: Method  # with the default window


def _summaries(
    setting: Setting, wanted: Sequence[str], measure: str, forgetting: str
) -> tuple[dict[Line, dict[int, dict[int, float]]], dict[Method, dict[int, float]]]:
    """Line to window to seed to value, and for the controls: method to seed to value."""
    lines: dict[Line, dict[int, dict[int, float]]] = {}
    controls: dict[Method, dict[int, float]] = {}
    for run in setting.runs:
        if run.own is not None:
            continue  # it has no trend that wane knows of, nor is it a control
        values, learner, seed = accuracy_measures(run, forgetting), run.config.learner, run.config.seed
        if values is None or measure not in values or learner.weights is not None:
            continue
        if learner.trend is None:
            controls.setdefault(method_of(run.config), {})[seed] = values[measure]
        elif not wanted or learner.trend.signal in wanted:
            by_window = lines.setdefault(_line(run.config), {})
            by_window.setdefault(learner.trend.window, {})[seed] = values[measure]
    return lines, controls


def _line(config: Config) -> Line:
    """The line that a run's point is on."""
    dumped = config.model_dump(mode="json", exclude_none=True)
    usual = build_config({"learner": {"trend": {}}}).model_dump(mode="json")["learner"]["trend"]
    trend = dumped["learner"]["trend"]
    method = method_of(build_config(dumped, {"learner": {"trend": {"window": usual["window"]}}}))
    said = {k: v for k, v in trend.items() if k not in ("signal", "window") and v != usual[k]}
    words = [method.learner] * (method.learner != BASELINE.learner)
    words += [k if v is True else v if isinstance(v, str) else f"{k} {v:g}" for k, v in said.items()]
    return Line(trend["signal"], ", ".join(words), method)


def _shared(lines: dict[Line, Any]) -> str:
    """What all lines have in common, such as standardised slopes: said once, above them."""
    rests = {line.words for line in lines}
    return rests.pop() if len(rests) == 1 else ""


def _draw_panel(
    axes: Axes, lines: dict[Line, dict[int, dict[int, float]]], controls: dict[Method, dict[int, float]], height: float
) -> None:
    ends = []
    for method, shade in zip(sorted(controls, key=lambda m: m.title), SHADES * len(controls), strict=False):
        mean, std = mean_std(controls[method].values())
        if mean is not None:
            axes.axhspan(mean - (std or 0), mean + (std or 0), color=shade, alpha=0.12, linewidth=0)
            axes.axhline(mean, color=shade, linewidth=0.9, linestyle=(0, (2, 2)), label=method.title)
            ends.append((mean, CONTROLS.get(method, method.title), shade))
    rests = sorted({line.words for line in lines})
    for line in sorted(lines, key=lambda line: line[:2]):
        (signal, rest, _), by_window = line, lines[line]
        x = sorted(by_window)
        summaries = [mean_std(by_window[w].values()) for w in x]
        mean_line = np.array([np.nan if mean is None else mean for mean, _ in summaries])
        spread = np.array([np.nan if std is None else std for _, std in summaries])  # of one seed: no band
        colour = signal_colour(signal)
        if len(x) == 1:  # too narrow for a band
            axes.errorbar(x, mean_line, yerr=spread, fmt="none", ecolor=colour, alpha=0.5, elinewidth=0.8, capsize=2)
        axes.fill_between(x, mean_line - spread, mean_line + spread, color=colour, alpha=0.15, linewidth=0)
        axes.plot(x, mean_line, color=colour, marker="o", markersize=2.5, linestyle=DASHES[rests.index(rest) % 4],
                  label=f"{signal} {rest}".strip())  # fmt: skip
        ends.append((float(mean_line[-1]), ", ".join([short_name(signal)] + [rest] * (rest != _shared(lines))), colour))
    axes.set_xticks(sorted({w for by_window in lines.values() for w in by_window}))
    axes.margins(x=0.04)
    label_ends(axes, ends, height=0.7 * height)
