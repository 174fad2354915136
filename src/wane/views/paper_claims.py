"""What the paper claims, from its abstract and sections 4.2 to 4.4, each as a number that should be above zero."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import polars as pl

from wane.lab.folder import RunFolder
from wane.sample_signals import SIGNALS
from wane.views.claims import Claim, Numbers, better, by_seed_of, of_er
from wane.views.diagnostics import LEVELS, at_level, box, changes, observations, transition_width
from wane.views.paper_values import RESULTS
from wane.views.recovery import WITHIN, correlate, spearman, speeds

__all__ = ["CLAIMS", "first_epoch_share"]

CONTINUOUS = ("tlr", "log_tlr", "rtlr", "cm", "nkl", "ctl")
WINDOWS = (3, 5, 10, 15, 20)
AT_THREE = "At a window of 3 the Log-TLR trend beats the accuracy trend"
RECOVERS = "The accuracy trend recovers with the window: 15 epochs beat 3"


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


def _more_at_once(run: RunFolder) -> dict[str, float]:
    share = first_epoch_share(run)
    return {f"accuracy against {s}": share["accuracy"] - share[s] for s in ("cm", "tlr")}


def _lost_at_once(run: RunFolder) -> dict[str, float]:
    """How many points the task just learnt loses in the first epoch of the next, over all boundaries."""
    curve = run.history.by_task("accuracy")
    lost = [curve.values[curve.task == k - 1, k - 1][-1] - curve.values[curve.task == k, k - 1][0]
            for k in range(1, int(curve.task.max()) + 1)]  # fmt: skip
    return {"accuracy": 100 * float(np.mean(lost))}


def _after_first_boundary(run: RunFolder) -> pl.DataFrame:
    """The observations of task 1's classes while task 2 is learnt."""
    return observations([run]).filter(pl.col("task") == 1, pl.col("class_task") == 0)


def _near_zero(run: RunFolder) -> dict[str, float]:
    """How far below 5 % the accuracy of task 1's classes comes within three epochs of task 2."""
    after = _after_first_boundary(run)
    first = after.filter(pl.col("epoch") < pl.col("epoch").min() + 3).group_by("epoch").agg(pl.col("accuracy").mean())
    return {"accuracy": 5 - 100 * float(first["accuracy"].min())}  # type: ignore[arg-type]


def _saturated(run: RunFolder) -> dict[str, float]:
    """How much more than half of those observations is at 0 % accuracy."""
    return {"classes at 0 %": 100 * float((_after_first_boundary(run)["accuracy"] == 0).mean()) - 50}  # type: ignore[arg-type]


def _whiskers(run: RunFolder) -> dict[str, float]:
    moved = changes([run], around=transition_width([run])).filter(pl.col("phase") == "transition")
    return {signal: box(moved[signal].to_numpy()).whisker_high for signal in SIGNALS if signal != "loss"}


def _volatile(run: RunFolder) -> dict[str, float]:
    whiskers = _whiskers(run)
    pairs = [(a, b) for a in ("ctl", "rtlr", "nkl") for b in ("cm", "tlr", "log_tlr")]
    return {f"{a} against {b}": whiskers[a] - whiskers[b] for a, b in pairs}


def _elevated(run: RunFolder) -> dict[str, float]:
    moved = changes([run], around=transition_width([run]))
    at, between = (moved.filter(pl.col("phase") == phase) for phase in ("transition", "stable"))
    if at.is_empty() or between.is_empty():  # tasks of an epoch or two
        return {}
    return {s: float(np.median(at[s].to_numpy()) - np.median(between[s].to_numpy())) for s in CONTINUOUS}


def _spread_at(*levels: float) -> Callable[[RunFolder], dict[str, float]]:
    """How much wider CM and TLR are spread than CTL and NKL among observations at the same accuracy."""

    def spread(run: RunFolder) -> dict[str, float]:
        found: dict[str, float] = {}
        seen = observations([run])
        for level in levels:
            at = at_level(seen, level)
            if len(at) < 4:  # no quartiles to speak of
                continue
            iqr = {s: float(np.subtract(*np.quantile(at[s].to_numpy(), (0.75, 0.25)))) for s in CONTINUOUS}
            where = f" at {100 * level:g} %" if len(levels) > 1 else ""
            found |= {f"{a} against {b}{where}": iqr[a] - iqr[b] for a in ("cm", "tlr") for b in ("ctl", "nkl")}
        return found

    return spread


def _steadier(slope: str) -> Callable[[Sequence[RunFolder]], dict[str, Numbers]]:
    """How much further the accuracy trend's result moves over the windows than that of each continuous signal.

    Windows that were not run for every signal are left out, and the parts say which count.
    """
    others = ("log_tlr", "loss", "nkl", "cm")
    every = (*others, "accuracy")

    def numbers(runs: Sequence[RunFolder]) -> dict[str, Numbers]:
        ends = {(s, w): by_seed_of(runs, _trend(s, w, slope), "accuracy") for s in every for w in WINDOWS}
        seeds = {w: set.intersection(*(set(ends[s, w]) for s in every)) for w in WINDOWS}
        complete = [w for w in WINDOWS if seeds[w]]
        if len(complete) < 2:
            return {s: {} for s in others}
        common = sorted(set.intersection(*(seeds[w] for w in complete)))

        def moves(signal: str, seed: int) -> float:
            return float(np.ptp([ends[signal, w][seed] for w in complete]))

        which = ", ".join(map(str, complete))
        return {f"{s}, w = {which}": {seed: moves("accuracy", seed) - moves(s, seed) for seed in common}
                for s in others}  # fmt: skip

    return numbers


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


def _in_order(*methods: str) -> Callable[[Sequence[RunFolder]], dict[str, Numbers]]:
    """The rank correlation of the methods' accuracies with the printed ones, for seeds that have them all."""
    said = [RESULTS["cifar100", method, "accuracy"].mean for method in methods]

    def numbers(runs: Sequence[RunFolder]) -> dict[str, Numbers]:
        columns = [by_seed_of(runs, method, "accuracy") for method in methods]
        complete = sorted(set.intersection(*(set(column) for column in columns)))
        return {"rho": {seed: spearman([column[seed] for column in columns], said) for seed in complete}}

    return numbers


def _weights(signal: str) -> str:
    return f"er, weights {signal}"


def _trend(signal: str, window: int = 10, slope: str = "raw", gamma: float = 2) -> str:
    """As `method_title` says it."""
    said = [f"window {window}"] * (window != 10) + [f"gamma {gamma:g}"] * (gamma != 2) + [slope] * (slope != "raw")
    return f"er, trend {signal}" + (f" ({', '.join(said)})" if said else "")


def _windows(recipe: str, slope: str) -> tuple[Claim, ...]:
    """The claims of Figure 4, with slopes in one unit or the other."""
    note = "" if slope == "raw" else ", slopes standardised"
    binary = _trend("accuracy", 3, slope)
    return (
        Claim(recipe, "cifar100", "abstract, Figure 4", f"{AT_THREE}{note}", "6.28", "points",
              better("accuracy", (_trend("log_tlr", 3, slope), binary))),
        Claim(recipe, "cifar100", "Figure 4", "At a window of 3 every continuous signal beats the accuracy trend"
              f"{note}", "5.0 to 6.35", "points",
              better("accuracy", *((_trend(s, 3, slope), binary) for s in ("log_tlr", "loss", "nkl", "cm")))),
        Claim(recipe, "cifar100", "Figure 4", f"Continuous signals are stable across windows, accuracy is not{note}",
              "no number", "points less range", _steadier(slope)),
        Claim(recipe, "cifar100", "4.4", f"{RECOVERS}{note}", "5.54", "points",
              better("accuracy", (_trend("accuracy", 15, slope), binary))),
    )  # fmt: skip


def _percent() -> tuple[Claim, ...]:
    """The claims of Figure 4 with accuracy in percent: a hundred times the slope, or the gamma."""
    binary, longer, ranks = (_trend(s, w, gamma=200) for s, w in (("accuracy", 3), ("accuracy", 15), ("log_tlr", 3)))

    def claim(where: str, text: str, printed: str, method: str, against: str) -> Claim:
        return Claim("windows_percent", "cifar100", f"control to {where}", text, printed, "points",
                     better("accuracy", (method, against)))  # fmt: skip

    return (
        claim("Figure 4", f"{AT_THREE}; accuracy in percent", "6.28", _trend("log_tlr", 3), binary),
        claim("Figure 4", f"{AT_THREE}; both in percent", "6.28", ranks, binary),
        claim("4.4", f"{RECOVERS}; accuracy in percent", "5.54", longer, binary),
    )


def _boundaries(*, constant_rate: bool = False) -> tuple[Claim, ...]:
    """The claims of Figures 1 and 2; as a control also without a schedule, whose last epochs keep everything still."""

    def claim(where: str, text: str, printed: str, unit: str, number: Callable[[RunFolder], dict[str, float]]) -> Claim:
        measured = of_er(number, constant_rate=constant_rate)
        if constant_rate:
            text, where, printed = f"{text}; at a constant learning rate", f"control to {where}", "not measured"
        return Claim("ablations" if constant_rate else "diagnostics", "cifar100", where, text, printed, unit, measured)

    return (
        claim("4.2, Figure 1", "At the first boundary accuracy collapses within a few epochs, CM and TLR decay over "
              "many: more of accuracy's fall comes in the first epoch", "no number", "points", _more_at_once),
        claim("4.2", "In the first epoch of a task the one before it loses accuracy", "no number", "points",
              _lost_at_once),
        claim("4.2, Figure 1", "Accuracy of task 1's classes drops to near zero (here: below 5 %) within a few epochs "
              "(here: 3)", "no number", "points below 5 %", _near_zero),
        claim("4.2", "After the boundary accuracy has saturated for most classes: more than half of the observations "
              "of task 1's classes in task 2 are at 0 %", "no number", "points above 50 %", _saturated),
        claim("4.2, Figure 2", "Accuracy's change at transitions has a whisker above 0.35", "> 0.35", "above 0.35",
              lambda run: {"accuracy": _whiskers(run)["accuracy"] - 0.35}),
        claim("4.2, Figure 2", "Such jumps are absent for all continuous metrics: their whiskers are shorter than "
              "accuracy's", "no number", "shorter by",
              lambda run: {s: (w := _whiskers(run))["accuracy"] - w[s] for s in CONTINUOUS}),
        claim("4.2, Figure 2", "Every continuous metric changes more at transitions than between them: greater median "
              "change", "no number", "greater by", _elevated),
        claim("4.2, Figure 2", "CTL, RTLR and NKL are more volatile than CM, TLR and Log-TLR: longer whiskers at "
              "transitions", "no number", "longer by", _volatile),
    )  # fmt: skip


CLAIMS: tuple[Claim, ...] = (
    *_boundaries(),
    Claim("diagnostics", "cifar100", "4.2, Figure 3", "At 0 % accuracy CM and TLR stay spread while CTL and NKL are "
          "concentrated: wider interquartile ranges", "CM 0.18, TLR 0.16; CTL 0.01, NKL 0.02", "wider by",
          of_er(_spread_at(0.0))),
    Claim("diagnostics", "cifar100", "4.2, Figure 3", "The same at 25, 50 and 75 % accuracy", "no number", "wider by",
          of_er(_spread_at(*LEVELS[1:]))),
    *(Claim("table1", data, "4.3, Table 1", "Log-TLR weights give less forgetting than ER", gain, "points",
            better("forgetting", (_weights("log_tlr"), "er")))
      for data, gain in (("cifar100", "1.28"), ("tiny_imagenet", "1.60"))),
    Claim("table1", "cifar100", "4.3, Table 1", "Log-TLR weights give higher accuracy than ER", "0.65", "points",
          better("accuracy", (_weights("log_tlr"), "er"))),
    Claim("table1", "cifar100", "4.3", "All continuous variants outperform ER (Table 1 itself says otherwise of three)",
          "0.65 to -0.91", "points", better("accuracy", *((_weights(s), "er") for s in CONTINUOUS))),
    Claim("table1", "cifar100", "4.3", "Accuracy weights do not outperform ER", "1.12", "points",
          better("accuracy", ("er", _weights("accuracy")))),
    Claim("table1", "cifar100", "4.3", "Confidence weights (CTL, NKL) trail Log-TLR weights in accuracy",
          "1.42 to 1.56", "points", better("accuracy", *((_weights("log_tlr"), _weights(s)) for s in ("ctl", "nkl")))),
    Claim("table1", "cifar100", "Table 1", "The order of the seven signals as weights, by accuracy, follows that of "
          "the table", "1", "Spearman's rho", _in_order(*map(_weights, (*CONTINUOUS, "accuracy")))),
    Claim("table1", "tiny_imagenet", "4.3, Table 1", "NKL weights give less forgetting than ER", "1.13", "points",
          better("forgetting", (_weights("nkl"), "er"))),
    *(Claim("table2", data, "4.4, Table 2", "Log-TLR trend sampling gives less forgetting than ER", gain, "points",
            better("forgetting", (_trend("log_tlr"), "er")))
      for data, gain in (("cifar100", "8.68"), ("tiny_imagenet", "7.72"))),
    *(Claim("table2", data, "4.4, Table 2", "Log-TLR trend sampling gives higher accuracy than ER", gain, "points",
            better("accuracy", (_trend("log_tlr"), "er")))
      for data, gain in (("cifar100", "5.38"), ("tiny_imagenet", "1.07"))),
    *(Claim("table2", data, "4.4, Table 2", "Loss trend sampling gives less forgetting than ER", gain, "points",
            better("forgetting", (_trend("loss"), "er")))
      for data, gain in (("cifar100", "9.47"), ("tiny_imagenet", "8.75"))),
    Claim("table2", "tiny_imagenet", "4.4", "The accuracy trend forgets more than the Log-TLR trend", "1.85", "points",
          better("forgetting", (_trend("log_tlr"), _trend("accuracy")))),
    Claim("table2", "cifar100", "4.4", "All continuous trends substantially outperform the accuracy trend",
          "-0.45 to 4.13", "points",
          better("accuracy", *((_trend(s), _trend("accuracy")) for s in (*CONTINUOUS, "loss")))),
    Claim("table2", "cifar100", "Table 2", "The order of the eight signals as trends, by accuracy, follows that of "
          "the table", "1", "Spearman's rho", _in_order(*map(_trend, (*CONTINUOUS, "loss", "accuracy")))),
    *_windows("windows", "raw"),
    *_windows("windows_standardised", "standardised"),
    *_percent(),
    Claim("recovery", "cifar100", "1", "Classes at 0 % differ in how amenable they are to recovery, and the signals "
          "tell: the better before, the faster a class comes back in a fine-tune on five of its images", "asserted",
          "Spearman's rho", _foretold(0)),
    Claim("recovery", "cifar100", "control, not in the paper", "The same, with 64 rows of other classes beside the "
          "five", "not measured", "Spearman's rho", _foretold(64)),
    *_boundaries(constant_rate=True),
    # What the paper does not ask: is it the trend, or the class-wise draw that comes with it?
    *(Claim("table2", data, "control, not in the paper", "Log-TLR trend sampling beats a class-uniform draw",
            "not measured", "points", better("accuracy", (_trend("log_tlr"), "er, class_uniform")))
      for data in ("cifar100", "tiny_imagenet")),
)  # fmt: skip
