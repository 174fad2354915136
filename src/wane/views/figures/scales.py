"""What a draw does to accuracy and forgetting, against the scale of the runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log10
from typing import TYPE_CHECKING, Any, NamedTuple

from wane.interventions.trend_sampler import TrendSampler
from wane.runs.folder import RunFolder
from wane.runs.identity import Method
from wane.runs.recipes import scales as known_scales
from wane.softmax.signals import SIGNALS
from wane.views.comparable_runs import BASELINE, CONTROL, CONTROL_PAST, Setting, by_setting
from wane.views.figures.style import SOFT_COLOUR, new_figure, plain, styled
from wane.views.palette import TASKS, short_name, signal_colour
from wane.views.statistics import FEWEST_SEEDS, Interval, paired
from wane.views.summaries import accuracy_measures
from wane.views.tables.run_tables import PrintedResults

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["replays_a_slot", "scales"]

MEASURES = {"accuracy": "accuracy less ER's (points)", "forgetting": "forgetting less ER's (points)"}
#: The draws without a signal: name and colour.
DRAWS: dict[Method, tuple[str, str]] = {
    CONTROL: ("class-uniform", TASKS[2]),
    CONTROL_PAST: ("class-uniform, past", TASKS[1]),
    Method(draw="uniform", scope="past"): ("uniform, past", TASKS[7]),
}
APART = 0.025  # of the axis, between two draws at the same place


class Place(NamedTuple):
    """One scale of a data set: where it is on the axis, what it is called, and the effect of each draw there."""

    replays: float
    name: str
    effects: dict[Method, dict[str, Interval]]


@styled
def scales(
    runs: Sequence[RunFolder],
    *,
    signals: Sequence[str] = ("log_tlr",),
    printed: PrintedResults | None = None,
    width: str = "page",
) -> Figure:
    """How far each draw is from ER in accuracy and forgetting, at every scale that was run, with 95 % intervals.

    Scales are told apart by how often a slot of the memory is replayed while a task is learnt. Differences are paired
    by seed; with fewer than three seeds there is no interval, and the mark is open. Each data set has a row.

    Args:
        runs: of ER and of draws without a signal (class-uniform, of past classes only, uniform over past slots), or by
            the trend of a signal as printed; others are left out.
        signals: whose trends.
        printed: published results, drawn as stars where their own scale is.
        width: column or page.
    """
    trends = {
        Method(trend=TrendSampler(SIGNALS[s].name)): (f"{short_name(s)} trend", signal_colour(s)) for s in signals
    }
    draws = DRAWS | trends
    found: dict[str, list[Place]] = {}
    for setting in by_setting([run for run in runs if run.own is None]):
        place = _place(setting, draws)
        if place is not None:
            found.setdefault(setting.data, []).append(place)
    if not found:
        raise ValueError(f"of {len(runs)} runs, none of a draw is done beside ER with the same seed and settings: run "
                         "`wane sweep regime`, at one scale or several")  # fmt: skip
    panels = [(data, measure) for data in found for measure in MEASURES]
    across = 1 if width == "column" else len(MEASURES)
    figure = new_figure(width, 2.5 * len(panels) / across + 0.5)
    grid = figure.subplots(len(panels) // across, across, squeeze=False)
    for axes, (data, measure) in zip(grid.ravel(), panels, strict=True):
        places = sorted(found[data], key=lambda place: place.replays)
        _draw_panel(axes, places, draws, measure, _published(printed, data, draws, measure), printed)
        axes.set_title(plain(data), loc="left")
    handles: dict[str, Any] = {}
    for axes in grid.ravel():
        handles |= {name: handle for handle, name in zip(*axes.get_legend_handles_labels(), strict=True)}
    figure.legend([*handles.values()], [*handles], loc="outside lower center", ncols=2 if width == "column" else 3)
    return figure


def replays_a_slot(run: RunFolder) -> float | None:
    """How often a slot of the memory is replayed while a task is learnt, on average; None if the run does not say."""
    steps = (run.summary or {}).get("steps")
    if not steps or run.own is not None or not run.about.has_memory:
        return None
    config = run.config
    return float(steps) / config.num_tasks * config.learner.replay_size / config.memory.capacity


def _place(setting: Setting, draws: Mapping[Method, Any]) -> Place | None:
    """The effects of the draws at one setting; None if no draw has a seed in common with ER."""
    values: dict[Method, dict[int, dict[str, float]]] = {}
    replays, names = None, set()
    for run in setting.runs:
        measured = accuracy_measures(run) if run.method == BASELINE or run.method in draws else None
        often = replays_a_slot(run)
        if measured and often is not None and all(measure in measured for measure in MEASURES):
            replays = often
            names.add(run.recipe.rpartition("-")[2])
            values.setdefault(run.method, {}).setdefault(run.config.seed, measured)
    reference = values.pop(BASELINE, {})
    effects: dict[Method, dict[str, Interval]] = {}
    for method, by_seed in values.items():
        if by_seed.keys() & reference.keys():
            effects[method] = {m: paired({s: v[m] for s, v in by_seed.items()}, {s: v[m] for s, v in reference.items()})
                               for m in MEASURES}  # fmt: skip
    if replays is None or not effects:
        return None
    known = names & set(known_scales())
    return Place(replays, known.pop() if len(known) == 1 else "", effects)


def _published(
    printed: PrintedResults | None, data: str, draws: Mapping[Method, Any], measure: str
) -> dict[Method, Interval]:
    """The published effects of the draws, their errors those of means of different runs."""
    from scipy.stats import t

    found: dict[Method, Interval] = {}
    if printed is None or printed.replays is None or printed.seeds is None:
        return found
    plain_er = printed.find(data, BASELINE, measure)
    for method in draws:
        number = printed.find(data, method, measure)
        if number is None or plain_er is None:
            continue
        difference, half = number.mean - plain_er.mean, None
        if number.std is not None and plain_er.std is not None:
            error = ((number.std**2 + plain_er.std**2) / printed.seeds) ** 0.5
            half = float(t.ppf(0.975, 2 * printed.seeds - 2)) * error
        low, high = (None, None) if half is None else (difference - half, difference + half)
        found[method] = Interval(printed.seeds, difference, low, high)
    return found


def _draw_panel(
    axes: Axes,
    places: Sequence[Place],
    draws: Mapping[Method, tuple[str, str]],
    measure: str,
    published: Mapping[Method, Interval],
    printed: PrintedResults | None,
) -> None:
    axes.axhline(0, color=SOFT_COLOUR, linewidth=0.6, zorder=0)
    ticks = {log10(place.replays): f"{place.replays:.0f}\n{_named(place, measure)}" for place in places}
    own, beside = 0.0, False
    if published and printed is not None and printed.replays is not None:
        own, seeds = log10(printed.replays), {effect.n for effect in published.values()}
        words = f"the paper, n = {'–'.join(map(str, sorted(seeds)))}"
        near = next((x for x in ticks if abs(x - own) < 0.01), None)
        beside = near is not None
        ticks[own if near is None else near] = (
            f"{printed.replays:.0f}\n{words}" if near is None else f"{ticks[near]}\n{words}"
        )
    span = max(ticks) - min(ticks) or 1.0
    there = [method for method in draws if any(method in place.effects for place in places)]
    for number, method in enumerate(there):
        name, colour = draws[method]
        line = []
        for place in places:
            if method in place.effects:
                effect = place.effects[method][measure]
                x = log10(place.replays) + APART * span * (number - (len(there) - 1) / 2)
                line.append((x, effect.difference))
                _mark(axes, x, effect, colour, "o")
        axes.plot(*zip(*line, strict=True), color=colour, linewidth=1, zorder=1)
        axes.plot([], [], "o-", color=colour, linewidth=1, markersize=4, label=name)
    for method, effect in published.items():
        x = own + APART * span * beside * (len(there) + 1) / 2
        _mark(axes, x, effect, draws[method][1], "*")
        axes.plot([], [], "*", color=draws[method][1], markersize=7, label=f"{draws[method][0]}, the paper")
    if any(effect[measure].n < FEWEST_SEEDS for place in places for effect in place.effects.values()):
        axes.plot([], [], "o", color=SOFT_COLOUR, markerfacecolor="white", markersize=4,
                  label=f"fewer than {FEWEST_SEEDS} seeds: no interval")  # fmt: skip
    axes.set_xticks([*ticks], [*ticks.values()])
    axes.set_xlim(min(ticks) - 0.15 * span, max(ticks) + 0.15 * span)
    axes.set_xlabel("times a slot of the memory is replayed in a task")
    axes.set_ylabel(MEASURES[measure])


def _named(place: Place, measure: str) -> str:
    """The name of a scale, if it has one, and the seeds of its draws: the fewest, and the most."""
    counts = [effect[measure].n for effect in place.effects.values()]
    seeds = "–".join(map(str, sorted({min(counts), max(counts)})))
    return ", ".join(filter(None, (place.name, f"n = {seeds}")))


def _mark(axes: Axes, x: float, effect: Interval, colour: str, marker: str) -> None:
    """A mark with its interval; an open one without, where there are too few seeds for it."""
    if effect.low is not None and effect.high is not None:
        axes.plot((x, x), (effect.low, effect.high), color=colour, linewidth=1.1, solid_capstyle="butt")
    assert effect.difference is not None
    face = "white" if effect.low is None else colour
    axes.plot(x, effect.difference, marker, color=colour, markerfacecolor=face, zorder=3,
              markersize=7 if marker == "*" else 4)  # fmt: skip
