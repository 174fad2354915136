"""Do the signals of a lost class tell how fast it comes back? Rank correlations with intervals, over run folders.

An observation is one lost class at the end of one task of one run. Its **speed** is the area under its recovery curve:
the mean, over the steps of the fine-tune, of the class's accuracy. Its **net** speed takes off the share of other
classes' images that are then answered with it, step by step: what is left is recognition, not a habit of one answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from wane.runs.folder import RunFolder
from wane.softmax.signals import SIGNALS
from wane.views.comparable_runs import distinct_titles

__all__ = ["SPEEDS", "WITHIN", "Correlation", "correlate", "curves", "recovery_table", "recovery_text",
           "shown_rho", "spearman", "speeds"]  # fmt: skip

Array: TypeAlias = NDArray[np.float64]
#: How fast a class comes back, by the name of the column.
SPEEDS = ("speed", "net")
#: What ranks are taken within, by name: everything as one, or only classes that stood before the same model.
WITHIN: dict[str, tuple[str, ...]] = {
    "all": (),
    "run and task": ("run", "task"),
    "run, task and age": ("run", "task", "class_task"),
}
DRAWS = 1000


class Correlation(NamedTuple):
    """Spearman's rho with its 95 % interval; None where there is nothing to rank."""

    n: int
    rho: float | None
    low: float | None
    high: float | None


def curves(runs: Sequence[RunFolder]) -> pl.DataFrame:
    """What the runs recorded: a row for each class, `beside` and step k, with its run and the title of its method."""
    found = [(run, run.recovery) for run in runs]
    if sets := sorted({run.data for run, frame in found if frame is not None})[1:]:
        raise ValueError(f"the runs are of several data sets ({sets[0]} is one): give those of one")
    titles = distinct_titles(run.method for run in runs)
    frames = [
        frame.with_columns(pl.lit(run.name).alias("run"), pl.lit(titles[run.method]).alias("method"))
        for run, frame in found
        if frame is not None
    ]
    if not frames or not any(len(frame) for frame in frames):
        why = "no class was lost" if frames else "none has a recovery.parquet"
        raise ValueError(f"of {len(runs)} runs {why}: use `wane sweep recovery`, or --set record.recovery.below=0.05")
    return pl.concat(frames)


def speeds(runs: Sequence[RunFolder]) -> pl.DataFrame:
    """An observation a row: method, run, task, class, class_task, beside, the signals before, `speed` and `net`."""
    keys = ["method", "run", "beside", "task", "class", "class_task"]
    after = curves(runs).filter(pl.col("k") > 0)
    return after.group_by(keys, maintain_order=True).agg(
        pl.col("n", *(name for name in SIGNALS if name in after.columns)).first(),
        pl.col("recovered").mean().alias("speed"),
        (pl.col("recovered") - pl.col("taken")).mean().alias("net"),
    )


def recovery_table(runs: Sequence[RunFolder], *, draws: int = DRAWS) -> pl.DataFrame:
    """Each signal before against speed: a row for each method, `beside`, measure, `within` and signal, with interval.

    Methods are kept apart: they lose classes in different ways, some of them hundreds and others a few. Runs of one
    method with memories of different sizes are pooled: within a run, the size makes no correlation.
    The loss counts with its sign turned, so a rho above zero always says: the better the signal before, the faster the
    class came back. Accuracy has no rho where every lost class is at 0 %.
    """
    seen = speeds(runs)
    rows = []
    for (method, beside), part in seen.group_by("method", "beside", maintain_order=True):
        for measure in SPEEDS:
            for within, columns in WITHIN.items():
                found = correlate(part, measure, within=columns, draws=draws)
                about = {"method": method, "beside": beside, "measure": measure, "within": within}
                rows += [{**about, "signal": name, **c._asdict()} for name, c in found.items()]
    kinds = {"beside": pl.Int64, "n": pl.Int64, "rho": pl.Float64, "low": pl.Float64, "high": pl.Float64}
    return pl.DataFrame(rows, schema_overrides=kinds)


def recovery_text(table: pl.DataFrame) -> str:
    """The table as Markdown: for each method, `beside` and measure, signals down, what ranks are within across."""
    lines = []
    for (method, beside, measure, n), part in table.group_by("method", "beside", "measure", "n", maintain_order=True):
        names = part["within"].unique(maintain_order=True).to_list()
        mode = f"with {beside} other rows" if beside else "alone"
        lines += [f"{method}, {mode}: {measure}, n = {n}; ranks within:", "",
                  f"| signal | {' | '.join(names)} |", f"|---|{'---|' * len(names)}"]  # fmt: skip
        for (signal,), rows in part.group_by("signal", maintain_order=True):
            lines.append(f"| {signal} | {' | '.join(shown_rho(row) for row in rows.to_dicts())} |")
        lines.append("")
    return "\n".join(lines)


def shown_rho(row: dict[str, Any]) -> str:
    """A rho with its interval, as tables print it.

    >>> shown_rho({"rho": 0.5, "low": -0.1, "high": 0.9}), shown_rho({"rho": None, "low": None, "high": None})
    ('+0.50 [-0.10, +0.90]', 'all the same')
    """
    if row["rho"] is None:
        return "all the same"
    return f"{row['rho']:+.2f}" + ("" if row["low"] is None else f" [{row['low']:+.2f}, {row['high']:+.2f}]")


def correlate(
    seen: pl.DataFrame, measure: str = "speed", *, within: Sequence[str] = (), draws: int = DRAWS
) -> dict[str, Correlation]:
    """Spearman's rho of every signal with a measure, and its 95 % interval by the bootstrap.

    A class is observed again at the end of every later task and in every run, and all classes of a run stand before the
    same model: observations are not independent. So runs are drawn anew with replacement, and, independently, classes;
    an observation counts as often as its run was drawn times as often as its class was (Owen's pigeonhole bootstrap,
    which errs on the wide side). Ranks are taken anew in every draw.

    Args:
        seen: from `speeds`, of one method and `beside`.
        measure: speed or net.
        within: columns; ranks are taken among observations that agree in all of them, so that a difference between runs
            or between tasks makes no correlation.
        draws: of the bootstrap.
    """
    groups = _codes(seen, within)
    runs, classes = _codes(seen, ["run"]), _codes(seen, ["class"])
    signs = {name: 1 if row.higher_is_better else -1 for name, row in SIGNALS.items() if name in seen.columns}
    columns = {name: seen[name].to_numpy() * sign for name, sign in signs.items()}
    rank_by = {name: _ranker(values, groups) for name, values in columns.items()}
    rank_measure = _ranker(seen[measure].to_numpy(), groups)
    generator = np.random.default_rng(0)  # the same runs, the same interval
    found: dict[str, list[float]] = {name: [] for name in columns}
    for draw in range(draws + 1):
        weights = np.ones(len(seen))
        if draw:  # the first is the sample itself
            weights = _times_drawn(runs, generator) * _times_drawn(classes, generator)
        y = rank_measure(weights)
        for name, rank in rank_by.items():
            found[name].append(_correlation(rank(weights), y, weights))
    return {name: _interval(len(seen), np.array(values)) for name, values in found.items()}


def spearman(x: ArrayLike, y: ArrayLike, groups: ArrayLike | None = None) -> float:
    """Spearman's rho; with `groups`, of ranks within each group, as a share of its size, all groups taken together.

    >>> round(spearman([1, 2, 3, 4], [1, 3, 2, 9]), 9)
    0.8
    >>> spearman([1, 2, 11, 12], [6, 5, 2, 1], groups=[0, 0, 1, 1]), spearman([1, 1], [1, 2])
    (-1.0, nan)
    """
    a, b = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    codes = np.zeros(len(a), np.int64) if groups is None else np.unique(np.asarray(groups), return_inverse=True)[1]
    once = np.ones(len(a))
    return _correlation(_ranker(a, codes)(once), _ranker(b, codes)(once), once)


def _ranker(values: Array, groups: NDArray[np.int64]) -> Callable[[Array], Array]:
    """From weights to the middle rank of each value in its group, as a share of the group's weight, minus a half.

    The weighted mean over a group is then zero, whatever the weights: no group has an average of its own.
    """
    pairs, codes = np.unique(np.stack([groups, np.unique(values, return_inverse=True)[1]]), axis=1, return_inverse=True)
    group_of, codes = pairs[0], codes.reshape(-1)

    def rank(weights: Array) -> Array:
        weight = np.bincount(codes, weights, minlength=len(group_of))
        total = np.bincount(group_of, weight)
        before = np.cumsum(weight) - weight - (np.cumsum(total) - total)[group_of]
        ranks: Array = ((before + weight / 2) / np.maximum(total, 1e-300)[group_of] - 0.5)[codes]
        return ranks

    return rank


def _correlation(x: Array, y: Array, weights: Array) -> float:
    """Of numbers whose weighted means are zero; NaN where one of them is constant."""
    spread = float((weights * x * x).sum() * (weights * y * y).sum())
    return float((weights * x * y).sum() / spread**0.5) if spread > 1e-12 else float("nan")


def _times_drawn(codes: NDArray[np.int64], generator: np.random.Generator) -> Array:
    """As many clusters as there are, drawn with replacement: how often that of each observation was."""
    count = int(codes.max()) + 1
    drawn: Array = np.bincount(generator.integers(count, size=count), minlength=count)[codes].astype(np.float64)
    return drawn


def _interval(n: int, rhos: Array) -> Correlation:
    there = rhos[1:][~np.isnan(rhos[1:])]
    if np.isnan(rhos[0]):
        return Correlation(n, None, None, None)
    if len(there) < 0.9 * (len(rhos) - 1) or not len(there):  # too few observations for an interval
        return Correlation(n, float(rhos[0]), None, None)
    low, high = np.quantile(there, (0.025, 0.975))
    return Correlation(n, float(rhos[0]), float(low), float(high))


def _codes(frame: pl.DataFrame, columns: Sequence[str]) -> NDArray[np.int64]:
    """The same small number for rows that agree in all columns."""
    if not columns:
        return np.zeros(len(frame), np.int64)
    codes: NDArray[np.int64] = (
        frame.select(pl.struct(columns).rank("dense") - 1).to_series().to_numpy().astype(np.int64)
    )
    return codes
