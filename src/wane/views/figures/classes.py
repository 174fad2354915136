"""Figures class by class: a signal over time, who was replayed, and where the probability of a lost class went."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from wane.measures.task_map import tasks_of
from wane.runs.folder import RunFolder
from wane.softmax.signals import SIGNALS
from wane.views.figures.style import ABSENT, INK_COLOUR, SOFT_COLOUR, new_figure, plain, styled
from wane.views.observations import group_names, one_method, unit_of_time
from wane.views.palette import SEQUENTIAL, is_bounded, signal_colour, task_colour

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw", "flow", "heatmap"]

Array: TypeAlias = NDArray[np.float64]
#: More classes than this are not named one by one beside a heat map of a column's height.
NAMED = 30


@styled
def heatmap(runs: Sequence[RunFolder], *, signal: str = "log_tlr", width: str = "column") -> Figure:
    """Every class at every epoch: a signal as colour (mean over runs), tasks marked; grey is not learnt yet.

    Args:
        runs: of one method, with the same classes in each task.
        signal: which.
        width: column or page.
    """
    row = SIGNALS[signal]
    tasks = _same_tasks(runs)
    order = np.lexsort((np.arange(len(tasks)), tasks))
    values = _mean_over(runs, lambda run: _over_epochs(run, row.name, len(tasks)))[:, order]
    learning = runs[0].history.trajectory(row.name, split=runs[0].split).task
    figure = new_figure(width, 2.6)
    axes = figure.subplots()
    limits = {"vmin": 0.0, "vmax": 1.0} if is_bounded(row.name) else {}
    image = _image(axes, values.T, cmap=f"{SEQUENTIAL}{'' if row.higher_is_better else '_r'}", **limits)
    _mark_tasks(axes, learning, tasks[order], _names(runs[0], order), time=unit_of_time(runs))
    figure.colorbar(image, ax=axes, label=row.title, pad=0.02, aspect=30)
    return figure


@styled
def draw(runs: Sequence[RunFolder], *, width: str = "column") -> Figure:
    """Who was replayed when: how often, as a multiple of an even share over the seen classes (mean over runs).

    Above it, how many classes the draw is effectively over, and the share of rows from the current task.

    Args:
        runs: of one method, with a memory, and the same classes in each task.
        width: column or page.
    """
    from matplotlib.colors import LogNorm

    tasks = _same_tasks(runs)
    logs = [run.replay for run in runs]
    if missing := [run.name for run, log in zip(runs, logs, strict=True) if log is None or not len(log)]:
        why = "wane did not train it" if runs[0].own else "it has no memory, or no epoch is done yet"
        raise ValueError(f"{missing[0]} has no replay.parquet: {why}")
    order = np.lexsort((np.arange(len(tasks)), tasks))
    learning = logs[0]["task"].to_numpy()  # type: ignore[index]
    times = _mean_over(runs, lambda run: _even_shares(run, tasks))[:, order]
    figure = new_figure(width, 3.3)
    above, axes = figure.subplots(2, 1, sharex=True, height_ratios=(1, 2.6))
    scalars = _mean_over(runs, lambda run: run.replay.select("effective_classes", "current_share").to_numpy())  # type: ignore[union-attr]
    epochs = np.arange(1, len(learning) + 1)
    seen = np.array([(tasks <= task).sum() for task in learning])
    above.plot(epochs, 100 * scalars[:, 0] / seen, color=signal_colour("log_tlr"),
               label="effective classes of those seen")  # fmt: skip
    above.plot(epochs, 100 * scalars[:, 1], color=signal_colour("cm"), label="rows of the current task")
    above.set_ylim(0, 104)
    above.set_ylabel("%")
    figure.legend(loc="outside upper left", ncols=1 if width == "column" else 2, handlelength=1.2)
    # No row at all is under the scale, not off it: grey is for classes that are yet to come.
    image = _image(axes, np.where(times == 0, 1e-9, times).T, cmap="PuOr_r", norm=LogNorm(0.25, 4))
    _mark_tasks(axes, learning, tasks[order], _names(runs[0], order), line=INK_COLOUR)
    bar = figure.colorbar(image, ax=axes, label="times an even share", pad=0.02, aspect=20, extend="both")
    bar.set_ticks([0.25, 0.5, 1, 2, 4], labels=["¼", "½", "1", "2", "4"])
    bar.minorticks_off()
    return figure


@styled
def flow(runs: Sequence[RunFolder], *, top: int = 8, takers: int = 3, width: str = "page") -> Figure:
    """Where the probability of forgotten classes went by the end (mean over runs): task by task, and who took most.

    Left: a row for the classes of each task, how much of their probability lies on the label itself and on (other)
    classes of every task. Right: the classes whose label lost most since its task was learnt, with their top takers.

    Args:
        runs: of one method, with the same classes in each task, and record.flow on.
        top: how many forgotten classes.
        takers: how many takers of each.
        width: column or page.
    """
    from matplotlib.patches import Patch

    tasks = _same_tasks(runs)
    if missing := [run.name for run in runs if run.flow is None]:
        why = "wane did not train it" if runs[0].own else "run it with --set record.flow=true"
        raise ValueError(f"{missing[0]} has no flow.npz: {why}")
    recorded: Any = runs[0].flow
    if recorded["flow"].shape[-1] != len(tasks):
        classes = recorded["flow"].shape[-1]
        raise ValueError(f"{runs[0].name} was evaluated in {len(tasks)} groups of {classes} classes: where probability "
                         "went is drawn for streams of classes only")  # fmt: skip
    flows = _mean_over(runs, lambda run: run.flow["flow"])  # type: ignore[index]
    last, names = flows[-1], runs[0].class_names
    seen = np.flatnonzero(~np.isnan(last[:, 0]))
    own = last.diagonal()
    # Right after a class was learnt: the record at the end of its task.
    at = {int(task): i for i, task in enumerate(recorded["task"])}
    then = np.array([flows[at[t], c, c] if (t := int(tasks[c])) in at else np.nan for c in range(len(tasks))])
    lost = np.nan_to_num(then - own, nan=-np.inf)
    forgotten = [c for c in np.argsort(-lost, kind="stable")[:top].tolist() if lost[c] > 0]
    learnt = np.unique(tasks[seen])
    stacked = width == "column"
    if stacked:
        figure = new_figure(width, 1.9 + 0.17 * (len(learnt) + top))
        left, right = figure.subplots(2, 1, height_ratios=(max(len(learnt), 2), max(top, 2)))
    else:
        figure = new_figure(width, max(2.5, 0.32 * max(top, len(learnt))))
        left, right = figure.subplots(1, 2, width_ratios=(1, 1.35))
    _draw_flow_by_task(left, last, tasks, learnt)
    _draw_takers(right, last, tasks, names, forgotten, takers, room=0.4 if stacked else 0.55)
    handles = [Patch(color=task_colour(int(t)), label=f"task {t + 1}") for t in learnt]
    figure.legend(handles=[Patch(color=INK_COLOUR, label="label"), *handles, Patch(color=ABSENT, label="rest")],
                  loc="outside lower right", ncols=4 if stacked else 7, handlelength=0.8,
                  columnspacing=1.0)  # fmt: skip
    return figure


def _draw_flow_by_task(axes: Axes, last: Array, tasks: NDArray[np.int64], learnt: NDArray[np.int64]) -> None:
    own = last.diagonal()
    others = last - np.diag(own)
    # a class without a test image is NaN
    table = np.array([
        [np.nanmean(own[tasks == row]), *(np.nanmean(others[tasks == row][:, tasks == t].sum(1)) for t in learnt)]
        for row in learnt
    ])  # fmt: skip
    image = _image(axes, 100 * table, cmap=SEQUENTIAL, vmin=0, vmax=100)
    image.set_extent((-0.5, len(learnt) + 0.5, len(learnt) - 0.5, -0.5))
    for (row, column), share in np.ndenumerate(100 * table):
        axes.text(column, row, f"{share:.0f}", ha="center", va="center", fontsize=7,
                  color="white" if share < 55 else INK_COLOUR)  # fmt: skip
    axes.set_xticks(range(len(learnt) + 1), ["label", *(f"{t + 1}" for t in learnt)])
    axes.set_yticks(range(len(learnt)), [f"{t + 1}" for t in learnt])
    axes.set(xlabel="on the label, or on other classes of task", ylabel="classes of task")
    axes.set_title("Where probability lies at the end (%)", loc="left")
    axes.tick_params(length=0)


def _draw_takers(
    axes: Axes, last: Array, tasks: NDArray[np.int64], names: Sequence[str], forgotten: Sequence[int], takers: int,
    room: float,
) -> None:  # fmt: skip
    """A bar for each forgotten class; `room` is how many letters fit in a percent of it."""
    axes.set_title("The most forgotten, and who took their place", loc="left")
    if not forgotten:
        axes.text(0.5, 0.5, "no class lost probability", ha="center", transform=axes.transAxes, color=SOFT_COLOUR)
        axes.set_axis_off()
        return
    for y, c in enumerate(forgotten):
        ranked = [int(other) for other in np.argsort(-last[c], kind="stable") if other != c][:takers]
        start = 0.0
        for place, other in enumerate([c, *ranked]):
            share = 100 * float(last[c, other])
            colour = INK_COLOUR if place == 0 else task_colour(int(tasks[other]))
            axes.barh(y, share, left=start, height=0.78, color=colour, edgecolor="white", linewidth=0.5)
            if written := _fit(names[other], int(room * share)):
                axes.text(start + share / 2, y, plain(written), ha="center", va="center", fontsize=6.5,
                          color=_readable(colour))  # fmt: skip
            start += share
        axes.barh(y, 100 - start, left=start, height=0.78, color=ABSENT, edgecolor="white", linewidth=0.5)
    axes.set_yticks(range(len(forgotten)), [plain(_fit(names[c], 14)) for c in forgotten])
    axes.set_ylim(len(forgotten) - 0.5, -0.5)
    axes.set_xlim(0, 100)
    axes.set_xlabel("probability (%): the label, its takers, the rest")


def _fit(name: str, letters: int) -> str:
    """As much of a name as fits; nothing, rather than a single letter of many.

    >>> _fit("cat", 3), _fit("golden retriever", 7), _fit("golden retriever", 2)
    ('cat', 'golden…', '')
    """
    return name if len(name) <= letters else f"{name[: letters - 1]}…" if letters > 2 else ""


def _readable(colour: str) -> str:
    """White on dark, ink on light."""
    from matplotlib.colors import to_rgb

    red, green, blue = to_rgb(colour)
    return "white" if 0.3 * red + 0.59 * green + 0.11 * blue < 0.55 else INK_COLOUR


def _names(run: RunFolder, order: NDArray[np.int64]) -> list[str]:
    names = group_names(run)
    return [names[c] if c < len(names) else str(c) for c in order.tolist()]


def _same_tasks(runs: Sequence[RunFolder]) -> NDArray[np.int64]:
    """The task of each class, which must be the same in all runs."""
    one_method(runs)
    known = [(run.history.class_to_task, np.arange(run.history.num_groups)) for run in runs]
    maps = [np.maximum(0, tasks_of(*of)) for of in known]  # what belongs to no task was there from the start
    for run, tasks in zip(runs, maps, strict=True):
        if not np.array_equal(tasks, maps[0]):
            raise ValueError(f"{runs[0].name} and {run.name} do not have the same classes in each task: draw them "
                             "one by one")  # fmt: skip
    return maps[0]


def _mean_over(runs: Sequence[RunFolder], read: Callable[[RunFolder], Any]) -> Array:
    parts = [np.asarray(read(run), dtype=np.float64) for run in runs]
    for run, part in zip(runs, parts, strict=True):
        if part.shape != parts[0].shape:
            raise ValueError(f"{runs[0].name} and {run.name} have not come equally far ({len(parts[0])} and "
                             f"{len(part)} records): let both end, or draw one")  # fmt: skip
    mean: Array = np.mean(parts, axis=0)
    return mean


def _over_epochs(run: RunFolder, signal: str, classes: int) -> Array:
    """(epochs, classes); NaN where a class was not evaluated."""
    t = run.history.trajectory(signal, split=run.split)
    values = np.full((len(t.step), classes), np.nan)
    values[:, t.classes] = t.values
    return values


def _even_shares(run: RunFolder, tasks: NDArray[np.int64]) -> Array:
    """Rows drawn of each class, as a multiple of an even share over the classes seen; NaN before a class is seen."""
    log = run.replay
    assert log is not None
    drawn = np.array(log["drawn"].to_list(), dtype=np.float64)
    seen = tasks <= log["task"].to_numpy()[:, None]
    with np.errstate(invalid="ignore", divide="ignore"):
        times: Array = np.where(seen, drawn / drawn.sum(1, keepdims=True) * seen.sum(1, keepdims=True), np.nan)
    return times


def _image(axes: Axes, values: Array, **options: Any) -> Any:
    """An image whose columns are the epochs, counted from 1."""
    from matplotlib import colormaps

    cmap = colormaps[options.pop("cmap")].with_extremes(bad=ABSENT)
    rows, columns = values.shape
    return axes.imshow(np.ma.masked_invalid(values), cmap=cmap, aspect="auto", interpolation="nearest",
                       extent=(0.5, columns + 0.5, rows - 0.5, -0.5), **options)  # fmt: skip


def _mark_tasks(
    axes: Axes, learning: NDArray[np.int64], tasks: NDArray[np.int64], names: Sequence[str], line: str = "white",
    time: str = "epoch",
) -> None:  # fmt: skip
    """Lines between tasks in both directions, and their names (or the classes', if there are few) beside."""
    from matplotlib.ticker import MaxNLocator

    style: Any = {"color": line, "linewidth": 0.7}
    for start in np.flatnonzero(np.diff(learning)) + 1:
        axes.axvline(start + 0.5, **style)
    for start in np.flatnonzero(np.diff(tasks)) + 1:
        axes.axhline(start - 0.5, **style)
    if len(names) <= NAMED:
        axes.set_yticks(range(len(names)), [plain(_fit(name, 14)) for name in names], fontsize=5.5)
    else:
        of_task = [np.flatnonzero(tasks == t) for t in np.unique(tasks)]
        axes.set_yticks([float(rows.mean()) for rows in of_task], [f"task {tasks[rows[0]] + 1}" for rows in of_task])
        axes.tick_params(axis="y", length=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=7))
    axes.set_xlabel(time)
