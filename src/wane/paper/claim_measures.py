"""How each claim is measured: numbers by seed, one for each part of a claim, that should be above zero."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import permutations

import numpy as np
import polars as pl
from scipy.stats import rankdata

from wane.paper.judging import IntervalAt, Measure, Numbers, by_seed_of, differences_of
from wane.paper.methods import trend
from wane.paper.values import RESULTS
from wane.runs.folder import RunFolder
from wane.runs.identity import Method
from wane.views.observations import at_level, box, changes, observations, transition_width
from wane.views.recovery import WITHIN, correlate, speeds
from wane.views.statistics import FEWEST_SEEDS, Interval

__all__ = [
    "CONTINUOUS", "FIGURE_4_WINDOWS", "as_wide_as", "elevated", "foretold", "in_order", "lost_at_once",
    "more_at_once", "near_zero", "saturated", "spread_at", "steadier", "varies_more", "volatile", "whiskers", "within",
]  # fmt: skip

#: The signals that the paper calls continuous, in its order, and the windows of its Figure 4.
CONTINUOUS = ("tlr", "log_tlr", "rtlr", "cm", "nkl", "ctl")
FIGURE_4_WINDOWS = (3, 5, 10, 15, 20)
FEW = 4  # observations; with fewer, quartiles mean nothing


def first_epoch_share(run: RunFolder) -> dict[str, float]:
    """Of the fall of task 1's classes over task 2, how many percent come in its first epoch, for three signals."""
    share = {}
    for signal in ("accuracy", "cm", "tlr"):
        curve = run.history.by_task(signal)
        before = curve.values[curve.task == 0, 0][-1]
        after = curve.values[curve.task == 1, 0]
        fall = before - after.min()
        share[signal] = 100 * float((before - after[0]) / fall) if fall else float("nan")
    return share


def more_at_once(run: RunFolder) -> dict[str, float]:
    """How many percent more of accuracy's fall come in the first epoch than of that of CM and TLR."""
    share = first_epoch_share(run)
    return {f"accuracy against {s}": share["accuracy"] - share[s] for s in ("cm", "tlr")}


def lost_at_once(run: RunFolder) -> dict[str, float]:
    """How many points the task just learnt loses in the first epoch of the next, over all boundaries."""
    curve = run.history.by_task("accuracy")
    lost = [curve.values[curve.task == k - 1, k - 1][-1] - curve.values[curve.task == k, k - 1][0]
            for k in range(1, int(curve.task.max()) + 1)]  # fmt: skip
    return {"accuracy": 100 * float(np.mean(lost))}


def _after_first_boundary(run: RunFolder) -> pl.DataFrame:
    """The observations of task 1's classes while task 2 is learnt."""
    return observations([run]).filter(pl.col("task") == 1, pl.col("class_task") == 0)


def near_zero(run: RunFolder) -> dict[str, float]:
    """How far below 5 % the accuracy of task 1's classes comes within three epochs of task 2."""
    after = _after_first_boundary(run)
    first = after.filter(pl.col("epoch") < pl.col("epoch").min() + 3).group_by("epoch").agg(pl.col("accuracy").mean())
    return {"accuracy": 5 - 100 * float(first["accuracy"].min())}  # type: ignore[arg-type]


def saturated(run: RunFolder) -> dict[str, float]:
    """How much more than half of those observations is at 0 % accuracy."""
    return {"classes at 0 %": 100 * float((_after_first_boundary(run)["accuracy"] == 0).mean()) - 50}  # type: ignore[arg-type]


def whiskers(run: RunFolder) -> dict[str, float]:
    """The upper whisker of each signal's changes at transitions."""
    moved = changes([run], around=transition_width([run])).filter(pl.col("phase") == "transition")
    return {signal: box(moved[signal].to_numpy()).whisker_high for signal in ("accuracy", *CONTINUOUS)}


def volatile(run: RunFolder) -> dict[str, float]:
    """How much longer the whiskers of CTL, RTLR and NKL are than those of CM, TLR and Log-TLR."""
    length = whiskers(run)
    pairs = [(a, b) for a in ("ctl", "rtlr", "nkl") for b in ("cm", "tlr", "log_tlr")]
    return {f"{a} against {b}": length[a] - length[b] for a, b in pairs}


def elevated(run: RunFolder) -> dict[str, float]:
    """How much more each signal changes at transitions than between them, by the median."""
    moved = changes([run], around=transition_width([run]))
    at, between = (moved.filter(pl.col("phase") == phase) for phase in ("transition", "stable"))
    if at.is_empty() or between.is_empty():  # tasks of an epoch or two
        return {}
    return {s: float(np.median(at[s].to_numpy()) - np.median(between[s].to_numpy())) for s in CONTINUOUS}


def _iqr(values: pl.Series) -> float:
    return float(np.subtract(*np.quantile(values.to_numpy(), (0.75, 0.25))))


def spread_at(*levels: float) -> Callable[[RunFolder], dict[str, float]]:
    """How much wider CM and TLR are spread than CTL and NKL among observations at the same accuracy."""

    def spread(run: RunFolder) -> dict[str, float]:
        found: dict[str, float] = {}
        seen = observations([run])
        for level in levels:
            at = at_level(seen, level)
            if len(at) < FEW:
                continue
            iqr = {s: _iqr(at[s]) for s in CONTINUOUS}
            where = f" at {100 * level:g} %" if len(levels) > 1 else ""
            found |= {f"{a} against {b}{where}": iqr[a] - iqr[b] for a in ("cm", "tlr") for b in ("ctl", "nkl")}
        return found

    return spread


def steadier(slope: str) -> Measure:
    """How much further the accuracy trend's result moves over the windows than that of each continuous signal.

    Windows that were not run for every signal are left out, and the parts say which count.
    """
    others = ("log_tlr", "loss", "nkl", "cm")
    every = (*others, "accuracy")

    def numbers(runs: Sequence[RunFolder]) -> dict[str, Numbers]:
        ends = {(s, w): by_seed_of(runs, trend(s, w, slope), "accuracy") for s in every for w in FIGURE_4_WINDOWS}
        seeds = {w: set.intersection(*(set(ends[s, w]) for s in every)) for w in FIGURE_4_WINDOWS}
        complete = [w for w in FIGURE_4_WINDOWS if seeds[w]]
        if len(complete) < 2:
            return {s: {} for s in others}
        common = sorted(set.intersection(*(seeds[w] for w in complete)))

        def moves(signal: str, seed: int) -> float:
            return float(np.ptp([ends[signal, w][seed] for w in complete]))

        which = ", ".join(map(str, complete))
        return {f"{s}, w = {which}": {seed: moves("accuracy", seed) - moves(s, seed) for seed in common}
                for s in others}  # fmt: skip

    return numbers


def foretold(beside: int) -> Measure:
    """Each signal's rank correlation with the speed of recovery, among lost classes of the same run and task."""

    def numbers(runs: Sequence[RunFolder]) -> dict[str, Numbers]:
        recorded = [run for run in runs if run.recovery is not None and (run.recovery["beside"] == beside).any()]
        parts: dict[str, dict[int, float]] = {}
        for seed in sorted({run.config.seed for run in recorded}):
            seen = speeds([run for run in recorded if run.config.seed == seed]).filter(pl.col("beside") == beside)
            for (method,), part in seen.group_by("method", maintain_order=True):
                found = correlate(part, within=WITHIN["run and task"], draws=0)
                for signal in CONTINUOUS:
                    if (rho := found[signal].rho) is not None:
                        parts.setdefault(f"{signal}, {method}", {})[seed] = rho
        return dict(parts)

    return numbers


def as_wide_as(signal: str, printed: float) -> Callable[[RunFolder], dict[str, float]]:
    """How far the interquartile range of a signal at 0 % accuracy is above the printed one."""

    def wider(run: RunFolder) -> dict[str, float]:
        at = at_level(observations([run]), 0.0)
        return {signal: _iqr(at[signal]) - printed} if len(at) >= FEW else {}

    return wider


def within(margin: float, measure: str, *pairs: tuple[Method, Method]) -> Measure:
    """How far the difference of each pair stays below `margin` points, whichever is greater."""

    def numbers(runs: Sequence[RunFolder]) -> dict[str, Numbers]:
        parts: dict[str, Numbers] = {}
        for one, other in (*pairs, *((b, a) for a, b in pairs)):
            above = differences_of(runs, one, other, measure)
            parts[f"{one.title} above {other.title}"] = {seed: margin - d for seed, d in above.items()}
        return parts

    return numbers


def varies_more(measure: str, *pairs: tuple[Method, Method]) -> Measure:
    """By how many doublings the standard deviation of each pair's first method is above the second's.

    The interval is that of the F distribution. With three seeds it takes in everything up to a ratio of 6.2.
    """

    def numbers(runs: Sequence[RunFolder]) -> dict[str, IntervalAt]:
        found: dict[str, IntervalAt] = {}
        for more, less in pairs:
            a, b = by_seed_of(runs, more, measure), by_seed_of(runs, less, measure)
            found[f"{more.title} against {less.title}"] = partial(_ratio, a, b)
        return found

    return numbers


def _ratio(more: Numbers, less: Numbers, confidence: float) -> Interval:
    from scipy.stats import f

    n, m = len(more), len(less)
    variances = [np.var([*values.values()], ddof=1) if len(values) > 1 else 0.0 for values in (more, less)]
    if not all(variances):
        return Interval(min(n, m), None, None, None)
    ratio = np.log2(variances[0] / variances[1]) / 2
    if min(n, m) < FEWEST_SEEDS:
        return Interval(min(n, m), float(ratio), None, None)
    low, high = (np.log2(f.ppf(p, n - 1, m - 1)) / 2 for p in ((1 - confidence) / 2, (1 + confidence) / 2))
    return Interval(min(n, m), float(ratio), float(ratio - high), float(ratio - low))


def in_order(*methods: Method) -> Measure:
    """The rank correlation of the methods' mean accuracies with the printed ones, over seeds that have them all.

    What varies are the signals, not the seeds: the interval is as wide as chance makes it when they are permuted, in
    all ways, so that it excludes zero where that test does. Means of fewer than three seeds have no interval.
    """
    said = [RESULTS["cifar100", method, "accuracy"].mean for method in methods]

    def numbers(runs: Sequence[RunFolder]) -> dict[str, IntervalAt]:
        columns = [by_seed_of(runs, method, "accuracy") for method in methods]
        complete = sorted(set.intersection(*(set(column) for column in columns)))
        means = [float(np.mean([column[seed] for seed in complete])) for column in columns] if complete else []
        return {"signals": partial(_agreement, means, said, len(complete))}

    return numbers


def _agreement(measured: Sequence[float], said: Sequence[float], seeds: int, confidence: float) -> Interval:
    """Spearman's rho; with 8 signals at most there are 40,320 orders, and all are tried."""
    if not measured:
        return Interval(0, None, None, None)
    ranks = [rankdata(values) for values in (measured, said)]
    x, y = (r - r.mean() for r in ranks)
    scale = float(np.sqrt((x @ x) * (y @ y)))
    orders = np.array(list(permutations(range(len(x)))))
    rho, by_chance = float(x @ y) / scale, (x[orders] @ y) / scale
    if seeds < FEWEST_SEEDS:
        return Interval(len(x), rho, None, None)
    low, high = np.quantile(by_chance, ((1 - confidence) / 2, (1 + confidence) / 2))
    return Interval(len(x), rho, max(-1.0, rho - float(high)), min(1.0, rho - float(low)))
