"""The paper's claims, each as a number with an interval over seeds, and the verdict that the interval allows.

A claim is that some number is above zero (or above a bound). It *holds* if the whole 95 % interval is, *does not hold*
if the whole interval is below, and we *cannot tell* otherwise, or with fewer than two seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import polars as pl

from wane.lab.folder import RunFolder
from wane.lab.sweep import method_title
from wane.sample_signals import SIGNALS
from wane.views.diagnostics import at_level, changes, observations, transition_width
from wane.views.recovery import WITHIN, correlate, speeds
from wane.views.run_tables import Interval, measures, paired

__all__ = ["CLAIMS", "VERDICTS", "Claim", "Judged", "judge", "verdict_of"]

VERDICTS = ("holds", "does not hold", "cannot tell")
Numbers = Mapping[int, float]  # by seed
CONTINUOUS = ("tlr", "log_tlr", "rtlr", "cm", "nkl", "ctl")


@dataclass(frozen=True)
class Claim:
    """One claim: `measure` gives, for every part of it, the number that should be above zero, seed by seed."""

    recipe: str
    data: str
    where: str
    text: str
    printed: str
    unit: str
    measure: Callable[[Sequence[RunFolder]], dict[str, Numbers]]


class Judged(NamedTuple):
    """A claim beside what was measured: one interval for each of its parts."""

    claim: Claim
    data: str  # what it was measured on, which in the demo is not what it speaks of
    parts: dict[str, Interval]
    verdict: str


def judge(claim: Claim, runs: Sequence[RunFolder]) -> Judged:
    """Measure a claim on runs (those of its data set count); a claim of several parts holds if every part does."""
    chosen = [run for run in runs if _stands_for(run.config.data.name) == claim.data and run.summary is not None]
    numbers = claim.measure(chosen) if chosen else {}
    data = ", ".join(sorted({run.config.data.name for run in chosen})) or claim.data
    data += f" (for {claim.data})" if data != claim.data else ""
    parts = {name: paired(by_seed, dict.fromkeys(by_seed, 0.0)) for name, by_seed in numbers.items()}
    verdicts = [verdict_of(part) for part in parts.values()]
    if verdicts and all(v == "holds" for v in verdicts):
        return Judged(claim, data, parts, "holds")
    return Judged(claim, data, parts, "does not hold" if "does not hold" in verdicts else "cannot tell")


def verdict_of(interval: Interval) -> str:
    """What an interval says of the claim that its number is above zero.

    >>> verdict_of(Interval(3, 1.0, 0.2, 1.8)), verdict_of(Interval(3, 1.0, -0.2, 2.2))
    ('holds', 'cannot tell')
    """
    if interval.low is None or interval.high is None:
        return "cannot tell"
    return "holds" if interval.low > 0 else "does not hold" if interval.high < 0 else "cannot tell"


def _stands_for(data: str) -> str:
    """The demo's glyphs stand in for the paper's first data set: 100 classes, five tasks."""
    return "cifar100" if data == "glyphs" else data


def _by_seed(runs: Sequence[RunFolder], method: str, measure: str) -> dict[int, float]:
    found = {}
    for run in runs:
        values = measures(run) if method_title(run.config) == method else None
        if values is not None:
            found[run.config.seed] = values[measure]
    return found


def _better(measure: str, *pairs: tuple[str, str]) -> Callable[[Sequence[RunFolder]], dict[str, Numbers]]:
    """Each pair's first method beats its second: higher accuracy, or lower forgetting."""
    sign = -1 if measure == "forgetting" else 1

    def numbers(runs: Sequence[RunFolder]) -> dict[str, Numbers]:
        parts: dict[str, Numbers] = {}
        for better, worse in pairs:
            a, b = _by_seed(runs, better, measure), _by_seed(runs, worse, measure)
            parts[f"{better} against {worse}"] = {seed: sign * (a[seed] - b[seed]) for seed in a if seed in b}
        return parts

    return numbers


def _of_er(number: Callable[[RunFolder], dict[str, float]]) -> Callable[[Sequence[RunFolder]], dict[str, Numbers]]:
    """A number of each ER run."""

    def numbers(runs: Sequence[RunFolder]) -> dict[str, Numbers]:
        parts: dict[str, dict[int, float]] = {}
        for run in runs:
            if method_title(run.config) == "er":
                for name, value in number(run).items():
                    parts.setdefault(name, {})[run.config.seed] = value
        return dict(parts)

    return numbers


def _first_epoch_share(run: RunFolder) -> dict[str, float]:
    """Of the fall of task 1's classes over task 2, how much comes in its first epoch: accuracy's share minus TLR's."""
    share = {}
    for signal in ("accuracy", "cm", "tlr"):
        curve = run.history.by_task(signal)
        before = curve.values[curve.task == 0, 0][-1]
        after = curve.values[curve.task == 1, 0]
        share[signal] = (before - after[0]) / (before - after.min())
    return {f"accuracy against {s}": 100 * (share["accuracy"] - share[s]) for s in ("cm", "tlr")}


def _whiskers(run: RunFolder) -> dict[str, float]:
    from wane.views.diagnostics import box

    moved = changes([run], around=transition_width([run])).filter(pl.col("phase") == "transition")
    return {signal: box(moved[signal].to_numpy()).whisker_high for signal in SIGNALS if signal != "loss"}


def _spread_at_zero(run: RunFolder) -> dict[str, float]:
    zero = at_level(observations([run]), 0.0)
    if len(zero) < 4:  # no quartiles to speak of
        return {}
    iqr = {s: float(np.subtract(*np.quantile(zero[s].to_numpy(), (0.75, 0.25)))) for s in ("cm", "tlr", "ctl", "nkl")}
    return {f"{a} against {b}": iqr[a] - iqr[b] for a in ("cm", "tlr") for b in ("ctl", "nkl")}


def _steadier(runs: Sequence[RunFolder]) -> dict[str, Numbers]:
    """How much further the accuracy trend's result moves over the windows than that of each continuous signal."""

    def moves(signal: str) -> dict[int, float]:
        windows = (3, 5, 10, 15, 20)
        titles = [f"er, trend {signal}" + ("" if w == 10 else f" (window {w})") for w in windows]
        columns = [_by_seed(runs, title, "accuracy") for title in titles]
        common = set.intersection(*(set(column) for column in columns))
        return {seed: max(c[seed] for c in columns) - min(c[seed] for c in columns) for seed in sorted(common)}

    reference = moves("accuracy")
    return {s: {k: reference[k] - v for k, v in moves(s).items() if k in reference}
            for s in ("log_tlr", "loss", "nkl", "cm")}  # fmt: skip


def _foretold(beside: int) -> Callable[[Sequence[RunFolder]], dict[str, Numbers]]:
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


def _w(signal: str, kind: str) -> str:
    return f"er, {kind} {signal}"


CLAIMS: tuple[Claim, ...] = (
    Claim("diagnostics", "cifar100", "4.2, Figure 1", "At the first boundary accuracy collapses within a few epochs, "
          "CM and TLR decay over many: more of accuracy's fall comes in the first epoch", "no number", "points",
          _of_er(_first_epoch_share)),
    Claim("diagnostics", "cifar100", "4.2, Figure 2", "Accuracy's change at transitions has a whisker above 0.35",
          "> 0.35", "above 0.35", _of_er(lambda run: {"accuracy": _whiskers(run)["accuracy"] - 0.35})),
    Claim("diagnostics", "cifar100", "4.2, Figure 2", "Such jumps are absent for all continuous metrics: "
          "their whiskers are shorter than accuracy's", "no number", "shorter by",
          _of_er(lambda run: {s: (w := _whiskers(run))["accuracy"] - w[s] for s in CONTINUOUS})),
    Claim("diagnostics", "cifar100", "4.2, Figure 3", "At 0 % accuracy CM and TLR stay spread while CTL and NKL are "
          "concentrated: wider interquartile ranges", "CM 0.18, TLR 0.16; CTL 0.01, NKL 0.02", "wider by",
          _of_er(_spread_at_zero)),
    *(Claim("table1", data, "4.3, Table 1", "Log-TLR weights give less forgetting than ER", gain, "points",
            _better("forgetting", (_w("log_tlr", "weights"), "er")))
      for data, gain in (("cifar100", "1.28"), ("tiny_imagenet", "1.60"))),
    Claim("table1", "cifar100", "4.3, Table 1", "Log-TLR weights give higher accuracy than ER", "0.65", "points",
          _better("accuracy", (_w("log_tlr", "weights"), "er"))),
    Claim("table1", "cifar100", "4.3", "All continuous variants outperform ER (Table 1 itself says otherwise of three)",
          "0.65 to -0.91", "points", _better("accuracy", *((_w(s, "weights"), "er") for s in CONTINUOUS))),
    Claim("table1", "cifar100", "4.3", "Accuracy weights do not outperform ER", "1.12", "points",
          _better("accuracy", ("er", _w("accuracy", "weights")))),
    *(Claim("table2", data, "4.4, Table 2", "Log-TLR trend sampling gives less forgetting than ER", gain, "points",
            _better("forgetting", (_w("log_tlr", "trend"), "er")))
      for data, gain in (("cifar100", "8.68"), ("tiny_imagenet", "7.72"))),
    *(Claim("table2", data, "4.4, Table 2", "Log-TLR trend sampling gives higher accuracy than ER", gain, "points",
            _better("accuracy", (_w("log_tlr", "trend"), "er")))
      for data, gain in (("cifar100", "5.38"), ("tiny_imagenet", "1.07"))),
    Claim("table2", "cifar100", "4.4", "All continuous trends substantially outperform the accuracy trend",
          "-0.45 to 4.13", "points",
          _better("accuracy", *((_w(s, "trend"), _w("accuracy", "trend")) for s in (*CONTINUOUS, "loss")))),
    Claim("windows", "cifar100", "abstract, Figure 4", "At a window of 3 the Log-TLR trend beats the accuracy trend",
          "6.28", "points", _better("accuracy", ("er, trend log_tlr (window 3)", "er, trend accuracy (window 3)"))),
    Claim("windows", "cifar100", "Figure 4", "At a window of 3 every continuous signal beats the accuracy trend",
          "5.0 to 6.35", "points", _better("accuracy", *((f"er, trend {s} (window 3)", "er, trend accuracy (window 3)")
                                                         for s in ("log_tlr", "loss", "nkl", "cm")))),
    Claim("windows", "cifar100", "Figure 4", "Continuous signals are stable across windows, accuracy is not",
          "no number", "points less range", _steadier),
    Claim("recovery", "cifar100", "1", "Classes at 0 % differ in how amenable they are to recovery, and the signals "
          "tell: the better before, the faster a class comes back in a fine-tune on five of its images", "asserted",
          "Spearman's rho", _foretold(0)),
    Claim("recovery", "cifar100", "control, not in the paper", "The same, with 64 rows of other classes beside the "
          "five", "not measured", "Spearman's rho", _foretold(64)),
    # What the paper does not ask: is it the trend, or the class-wise draw that comes with it?
    *(Claim("table2", data, "control, not in the paper", "Log-TLR trend sampling beats a class-uniform draw",
            "not measured", "points", _better("accuracy", (_w("log_tlr", "trend"), "er, class_uniform")))
      for data in ("cifar100", "tiny_imagenet")),
)  # fmt: skip
