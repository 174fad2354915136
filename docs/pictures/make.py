"""Draws every picture of README and docs from wane itself: `python docs/pictures/make.py [folder]`.

Each picture comes twice, for light and dark pages. Text becomes outlines, so no font is needed to show them; sizes are
chosen so that the text can be read on a phone. Colours are those of Okabe and Ito, lightened for the dark pages.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl
import numpy as np
import torch
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

import wane
from wane.predictions.comparison import compare
from wane.predictions.predictions import read_predictions
from wane.runs.folder import find_runs
from wane.views.figures.ladder import draw_bars
from wane.views.ladder import bars_of_run, with_ladders

HERE = Path(__file__).parent
LOST_MATRIX = [[80], [70, 82], [84, 60, 78], [50, 66, 30, 81]]  # the example of docs/forgetting.md
MODEL_A, MODEL_B = [0.48, 0.49, 0.02, 0.01], [0.05, 0.10, 0.70, 0.15]  # the paper's; the label is class 0


class Theme(NamedTuple):
    """Colours that hold on one kind of page."""

    name: str
    ink: str
    quiet: str
    faint: str
    blue: str
    sky: str
    green: str
    vermilion: str
    orange: str
    purple: str


THEMES = (
    Theme("light", "#1c1e21", "#5f6670", "#e3e6ea", "#0072B2", "#2f9fd8", "#009E73", "#D55E00", "#c98500", "#b3558a"),
    Theme("dark", "#eceff4", "#a3abb8", "#3a404b", "#5aa9e6", "#8ed0f5", "#35c79b", "#ff8a4c", "#f2b632", "#e39cc4"),
)


@contextmanager
def style(theme: Theme) -> Iterator[None]:
    """A clear background, quiet axes, and files that are the same on every run."""
    settings = {
        "font.size": 10.5, "text.color": theme.ink, "axes.labelcolor": theme.quiet, "axes.edgecolor": theme.quiet,
        "xtick.color": theme.quiet, "ytick.color": theme.quiet, "axes.spines.top": False, "axes.spines.right": False,
        "axes.linewidth": 0.8, "lines.linewidth": 2, "lines.solid_capstyle": "round", "figure.facecolor": "none",
        "axes.facecolor": "none", "savefig.facecolor": "none", "svg.fonttype": "path", "svg.hashsalt": "wane",
    }  # fmt: skip
    with mpl.rc_context(settings):
        yield


def falling_label(theme: Theme) -> Figure:
    """One label among 100 classes falls from the top of the ranking to the bottom: what each signal says of it."""
    size, quantile = 100, torch.distributions.Normal(0.0, 3.0)
    others = quantile.icdf(torch.arange(1, size, dtype=torch.float64) / size)
    lead = torch.linspace(6, -16, 2201, dtype=torch.float64)
    logits = torch.cat([(others.max() + lead)[:, None], others.expand(len(lead), -1)], dim=1)
    s = wane.signals(logits, torch.zeros(len(lead), dtype=torch.int64))

    figure, (top, bottom) = plt.subplots(
        2, 1, figsize=(5.6, 6.0), height_ratios=[4.2, 1], sharex=True, layout="constrained"
    )
    colours = {
        "accuracy": theme.ink, "cm": theme.vermilion, "ctl": theme.orange, "nkl": theme.purple, "tlr": theme.blue,
        "log_tlr": theme.sky, "rtlr": theme.green,
    }  # fmt: skip
    for name, colour in colours.items():
        top.plot(lead, getattr(s, name), color=colour, zorder=4 if name == "accuracy" else 3)
    bottom.plot(lead, s.loss, color=theme.quiet)

    for ax in (top, bottom):
        ax.axvspan(6, 0, color=theme.faint, alpha=0.45, lw=0)
    top.text(5.7, 1.06, "right", color=theme.quiet)
    top.text(-0.3, 1.06, "wrong: accuracy says 0 from here on", color=theme.quiet)
    for name, x, y in [
        ("accuracy", 0.35, 0.03), ("ctl", 1.35, 0.5), ("nkl", -3.0, 0.17), ("rtlr", -4.3, 0.06),
        ("log_tlr", -5.0, 0.335), ("cm", -11.2, 0.66), ("tlr", -7.6, 0.50),
    ]:  # fmt: skip
        side = "right" if name in ("accuracy", "ctl") else "left"
        top.text(x, y, name, color=colours[name], ha=side, weight="bold")
    bottom.text(-8.2, 5.2, "loss", color=theme.quiet, weight="bold")

    top.set(ylim=(-0.02, 1.04), yticks=[0, 0.5, 1], ylabel="signal")
    bottom.set(xlim=(6, -16), ylim=(0, 17), yticks=[0, 15], xticks=[5, 0, -5, -10, -15])
    bottom.set(ylabel="nats", xlabel="label's logit minus the best other class's: falling  →")
    return figure


def models_a_and_b(theme: Theme) -> Figure:
    """The paper's two models: both wrong, one by a hair, one by far."""
    s = wane.signals(probabilities=torch.tensor([MODEL_A, MODEL_B], dtype=torch.float64), labels=[0, 0])
    figure = plt.figure(figsize=(5.6, 5.9), layout="constrained")
    figure.suptitle("Two models, one image, both wrong", x=0.015, ha="left", fontsize=13, weight="bold")
    grid = figure.add_gridspec(2, 2, height_ratios=[1, 1.75])
    near, far = theme.blue, theme.vermilion
    for column, (name, p, colour) in enumerate([("model A", MODEL_A, near), ("model B", MODEL_B, far)]):
        ax = figure.add_subplot(grid[0, column])
        ax.bar(range(4), p, width=0.72, color=[colour, *[theme.faint] * 3], edgecolor="none")
        for i, x in enumerate(p):
            ax.text(i, x + 0.025, f"{x:.2f}", ha="center", color=theme.ink if i == 0 else theme.quiet)
        ax.set(ylim=(0, 0.84), yticks=[], xticks=range(4), xticklabels=["label", "1", "2", "3"])
        ax.tick_params(length=0)
        ax.spines["left"].set_visible(False)
        ax.set_title(name, color=colour, weight="bold", loc="left", fontsize="medium")
        ax.get_xticklabels()[0].set(color=theme.ink, weight="bold")

    ax = figure.add_subplot(grid[1, :])
    names = [name for name in wane.SIGNALS if name != "loss"]
    names.sort(key=lambda name: (name != "accuracy", -abs(float(getattr(s, name)[0] - getattr(s, name)[1]))))
    for row, name in enumerate(names):
        a, b = getattr(s, name).tolist()
        ax.plot([b, a], [row, row], color=theme.quiet, lw=1.6, alpha=0.5, zorder=1)
        ax.scatter(a, row, color=near, s=62, zorder=3)
        ax.scatter(b, row, color=far, s=62 if name != "accuracy" else 170, zorder=2)
        if name == "accuracy":
            ax.text(0.045, row, "0 and 0: no difference", va="center", color=theme.ink)
        else:
            ax.text(a + 0.03, row, f"{a:.2f}", va="center", color=near)
            ax.text(b - 0.03, row, f"{b:.2f}", va="center", ha="right", color=far)
    ax.set(xlim=(-0.13, 1.13), ylim=(len(names) - 0.5, -0.6), xticks=[0, 0.5, 1], yticks=range(len(names)))
    ax.set_yticklabels(names, color=theme.ink)
    ax.spines["left"].set_visible(False)
    ax.tick_params(axis="y", length=0)
    return figure


def three_forgettings(theme: Theme) -> Figure:
    """Task 0 of the matrix over time, and what each definition holds its last value against."""
    first = [row[0] for row in LOST_MATRIX]
    figure, ax = plt.subplots(figsize=(5.6, 3.7), layout="constrained")
    ax.plot(range(4), first, color=theme.ink, marker="o", ms=7, zorder=3)
    for k, x in enumerate(first):
        above = k in (0, 2)
        ax.text(k, x + (2.6 if above else -5.4), str(x), ha="center", weight="bold")
    for x, start, colour, text in [
        (3.3, first[0], theme.orange, "first"), (4.0, max(first), theme.blue, "peak\npast_peak"),
    ]:  # fmt: skip
        ax.plot([first.index(start), x], [start, start], color=colour, lw=1, ls=(0, (3, 3)), zorder=1)
        ax.annotate("", (x, first[-1]), (x, start), arrowprops={"arrowstyle": "->", "color": colour, "lw": 2.2,
                                                               "shrinkA": 0, "shrinkB": 0})  # fmt: skip
        ax.text(x + 0.09, 65, f"{text}\n{start - first[-1]}", color=colour, weight="bold", va="center")
    ax.plot([3, 4.0], [first[-1]] * 2, color=theme.quiet, lw=1, ls=(0, (3, 3)), zorder=1)
    ax.set(xlim=(-0.3, 4.95), ylim=(40, 92), xticks=range(4), yticks=[50, 60, 70, 80, 90], ylabel="accuracy of task 0")
    ax.set_xlabel("after learning task", loc="left")
    return figure


def hidden_decline(theme: Theme) -> Figure:
    """The embedded example, but for what accuracy shows by itself: the classes whose accuracy held within noise."""
    result = compare(read_predictions("example:digits_before"), read_predictions("example:digits_after"))
    classes = result.having("hidden decline", "mixed", "steady", "hidden gain")
    colours = {"hidden decline": theme.vermilion, "hidden gain": theme.blue}
    figure, axes = plt.subplots(1, 2, figsize=(5.6, 3.4), sharex=True, sharey=True, layout="constrained")
    for ax, signal in zip(axes, ("accuracy", "nkl"), strict=True):
        ax.axvline(0, color=theme.quiet, lw=0.8)
        for row, c in enumerate(classes.iter_rows(named=True)):
            colour = colours.get(c["verdict"], theme.quiet)
            ax.plot([c[f"{signal}_low"], c[f"{signal}_high"]], [row, row], color=colour, lw=4, alpha=0.4)
            ax.scatter(c[f"{signal}_change"], row, color=colour, s=50, zorder=3)
        ax.set_title(f"change of {signal}", loc="left", fontsize="medium", color=theme.ink)
        ax.spines["left"].set_visible(False)
        ax.tick_params(axis="y", length=0)
    verdicts = np.array(classes["verdict"].to_list())
    for verdict in dict.fromkeys(verdicts.tolist()):
        rows = np.flatnonzero(verdicts == verdict)
        axes[1].text(1.03, rows.mean(), verdict, transform=axes[1].get_yaxis_transform(), va="center", weight="bold",
                     color=colours.get(verdict, theme.quiet))  # fmt: skip
    axes[0].set(yticks=range(len(classes)), ylim=(len(classes) - 0.5, -0.5))
    axes[0].set_yticklabels(classes["name"].to_list(), color=theme.ink)
    return figure


def where_it_went(theme: Theme) -> Figure:
    """The ladder of `make demo`, from the small files of its two runs in docs/pictures/demo."""
    runs = find_runs(HERE / "demo")
    (measured,) = [m for m in with_ladders(runs) if m.run.config.learner.name == "er"]
    *tasks, old, _ = bars_of_run(measured)
    kept, with_number, held = (old.levels[part].difference for part in ("now", "bias", "features"))
    figure, ax = plt.subplots(figsize=(5.6, 4.9), layout="constrained")
    figure.suptitle(
        f"Old tasks fell from {old.learnt:.0f} to {kept:.0f} %. One number brings back\n"
        f"{with_number - kept:.0f} points; the features still hold {held:.0f} %.",
        x=0.015, ha="left", fontsize=12, weight="bold",
    )  # fmt: skip
    draw_bars(ax, [*tasks, old], letters=8, dark=theme.name == "dark", fontsize=9)
    figure.legend(loc="outside lower left", ncols=2, frameon=False, fontsize=9, handlelength=1.2)
    return figure


PICTURES: tuple[Callable[[Theme], Figure], ...] = (
    falling_label, models_a_and_b, three_forgettings, hidden_decline, where_it_went,
)  # fmt: skip


def main(folder: Path = HERE) -> None:
    """Write every picture as SVG."""
    mpl.use("agg")
    for theme in THEMES:
        for picture in PICTURES:
            with style(theme):
                figure = picture(theme)
                figure.savefig(folder / f"{picture.__name__}-{theme.name}.svg", metadata={"Date": None})
                plt.close(figure)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
