"""What the paper claims, from its abstract and sections 4.2 to 4.4, each as a number that should be above zero."""

from __future__ import annotations

from collections.abc import Callable

from wane.paper.claim_measures import (
    CONTINUOUS,
    FIGURE_4_WINDOWS,
    as_wide_as,
    elevated,
    foretold,
    in_order,
    lost_at_once,
    more_at_once,
    near_zero,
    saturated,
    spread_at,
    steadier,
    varies_more,
    volatile,
    whiskers,
    within,
)  # fmt: skip
from wane.paper.judging import Claim, Measure, better, of_er
from wane.paper.methods import class_uniform, er, trend, weights
from wane.paper.values import printed_error
from wane.runs.folder import RunFolder
from wane.runs.identity import Method
from wane.views.observations import LEVELS

__all__ = ["CLAIMS"]

AT_THREE = "At a window of 3 the Log-TLR trend beats the accuracy trend"
DOUBLINGS = "doublings of the standard deviation"
#: Of the printed gap at a window of 3, from the deviations beside the two numbers.
_ERROR_AT_THREE = printed_error("cifar100", "accuracy", trend("log_tlr", 3), trend("accuracy", 3))
RECOVERS = "The accuracy trend recovers with the window: 15 epochs beat 3"


def _points(recipe: str, data: str, where: str, text: str, printed: str, measure: Measure) -> Claim:
    """Most claims are about differences of accuracy or forgetting."""
    return Claim(recipe, data, where, text, printed, "points", measure)


def _gain(
    recipe: str, data: str, where: str, text: str, printed: str, measure: str, one: Method, other: Method
) -> Claim:
    """A claim that one method beats another, beside the printed gain and its own error."""
    error = printed_error(data, measure, one, other)
    return Claim(recipe, data, where, text, printed, "points", better(measure, (one, other)), error)


def _windows(recipe: str, slope: str) -> tuple[Claim, ...]:
    """The claims of Figure 4, with slopes in one unit or the other."""
    note = "" if slope == "raw" else ", slopes standardised"

    def claim(where: str, text: str, printed: str, measure: Measure, unit: str = "points", error: float = 0.0) -> Claim:
        return Claim(recipe, "cifar100", where, f"{text}{note}", printed, unit, measure, error)

    def at(signal: str, window: int) -> Method:
        return trend(signal, window, slope)

    others = ("log_tlr", "loss", "nkl", "cm")
    return (
        claim("abstract, Figure 4", AT_THREE, "6.28", better("accuracy", (at("log_tlr", 3), at("accuracy", 3))),
              error=_ERROR_AT_THREE),
        claim("Figure 4, 4.4", "At a window of 3 every continuous signal beats the accuracy trend",
              "more than 6 (caption), 5.0 to 6.35 (text)",
              better("accuracy", *((at(s, 3), at("accuracy", 3)) for s in others))),
        claim("Figure 4", "Continuous signals are stable across windows, accuracy is not", "no number", steadier(slope),
              "points less range"),
        claim("4.4", "The loss trend is stable: at 3 and 20 epochs within a point of each other", "0.61",
              within(1, "accuracy", (at("loss", 3), at("loss", 20))), "points within the margin"),
        claim("4.4", RECOVERS, "5.54", better("accuracy", (at("accuracy", 15), at("accuracy", 3)))),
        claim("4.4", "Accuracy needs 15 epochs to come near what continuous signals reach at 3: until then it is below "
              "Log-TLR at 3", "3.32 at 10",
              better("accuracy", *((at("log_tlr", 3), at("accuracy", w)) for w in (5, 10)))),
        claim("4.4", "The accuracy trend falls again from 15 to 20 epochs", "1.19",
              better("accuracy", (at("accuracy", 15), at("accuracy", 20)))),
        claim("4.4", "The accuracy trend's variance stays elevated: above Log-TLR's", "no number",
              varies_more("accuracy", *((at("accuracy", w), at("log_tlr", w)) for w in FIGURE_4_WINDOWS)), DOUBLINGS),
    )  # fmt: skip


def _percent() -> tuple[Claim, ...]:
    """The claims of Figure 4 with accuracy in percent: a hundred times the slope, or the gamma."""
    binary, longer, ranks = (trend(s, w, gamma=200) for s, w in (("accuracy", 3), ("accuracy", 15), ("log_tlr", 3)))

    def claim(where: str, text: str, printed: str, method: Method, against: Method) -> Claim:
        measure = better("accuracy", (method, against))
        return _points("windows_percent", "cifar100", f"control to {where}", text, printed, measure)

    return (
        claim("Figure 4", f"{AT_THREE}; accuracy in percent", "6.28", trend("log_tlr", 3), binary),
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
              "many: more of accuracy's fall comes in the first epoch", "no number", "points", more_at_once),
        claim("4.2", "In the first epoch of a task the one before it loses accuracy", "no number", "points",
              lost_at_once),
        claim("4.2, Figure 1", "Accuracy of task 1's classes drops to near zero (here: below 5 %) within a few epochs "
              "(here: 3)", "no number", "points below 5 %", near_zero),
        claim("4.2", "After the boundary accuracy has saturated for most classes: more than half of the observations "
              "of task 1's classes in task 2 are at 0 %", "no number", "points above 50 %", saturated),
        claim("4.2, Figure 2", "Accuracy's change at transitions has a whisker above 0.35", "> 0.35", "above 0.35",
              lambda run: {"accuracy": whiskers(run)["accuracy"] - 0.35}),
        claim("4.2, Figure 2", "Such jumps are absent for all continuous metrics: their whiskers are shorter than "
              "accuracy's", "no number", "shorter by",
              lambda run: {s: (w := whiskers(run))["accuracy"] - w[s] for s in CONTINUOUS}),
        claim("4.2, Figure 2", "Every continuous metric changes more at transitions than between them: greater median "
              "change", "no number", "greater by", elevated),
        claim("4.2, Figure 2", "CTL, RTLR and NKL are more volatile than CM, TLR and Log-TLR: longer whiskers at "
              "transitions", "no number", "longer by", volatile),
    )  # fmt: skip


def _saturation() -> tuple[Claim, ...]:
    """The claims of Figure 3."""
    spread = "At 0 % accuracy CM and TLR stay spread while CTL and NKL are concentrated: wider interquartile ranges"
    return (
        Claim("diagnostics", "cifar100", "abstract, 4.2", "At 0 % accuracy the interquartile range of CM is at least "
              "as wide as printed, [0.32, 0.50]", "0.18", "above 0.18", of_er(as_wide_as("cm", 0.18))),
        Claim("diagnostics", "cifar100", "4.2, Figure 3", spread, "CM 0.18, TLR 0.16; CTL 0.01, NKL 0.02", "wider by",
              of_er(spread_at(0.0))),
        Claim("diagnostics", "cifar100", "4.2, Figure 3", "The same at 25, 50 and 75 % accuracy", "no number",
              "wider by", of_er(spread_at(*LEVELS[1:]))),
        Claim("diagnostics", "tiny_imagenet", "control to 4.2, Figure 3", spread, "not measured", "wider by",
              of_er(spread_at(0.0))),
    )  # fmt: skip


def _weighting() -> tuple[Claim, ...]:
    """The claims of section 4.3 and Table 1."""
    cifar, tiny, ours = "cifar100", "tiny_imagenet", weights("log_tlr")
    others = (*(s for s in CONTINUOUS if s != "log_tlr"), "accuracy")
    return (
        _gain("table1", cifar, "abstract, 4.3", "Log-TLR weights give less forgetting than ER", "1.28",
                "forgetting", ours, er()),
        _gain("table1", cifar, "4.3, Table 1", "Log-TLR weights give higher accuracy than ER", "0.65",
                "accuracy", ours, er()),
        _points("table1", cifar, "4.3", "Log-TLR weights give the highest accuracy of all", "0.55 to 1.77",
                better("accuracy", *((ours, weights(s)) for s in others))),
        Claim("table1", cifar, "4.3", "CM and TLR weights perform similarly (here: within a point)", "0.03",
              "points within the margin", within(1, "accuracy", (weights("cm"), weights("tlr")))),
        _points("table1", cifar, "4.3", "Confidence weights (CTL, NKL) trail CM and TLR weights in accuracy",
                "roughly 1 (0.84 to 1.01)",
                better("accuracy", *((weights(a), weights(b)) for a in ("cm", "tlr") for b in ("ctl", "nkl")))),
        _points("table1", cifar, "4.3", "All continuous variants outperform ER (Table 1 itself says otherwise of "
                "three)", "0.65 to -0.91", better("accuracy", *((weights(s), er()) for s in CONTINUOUS))),
        _gain("table1", cifar, "4.3", "Accuracy weights do not outperform ER", "1.12", "accuracy", er(),
              weights("accuracy")),
        _points("table1", cifar, "4.2, end", "NKL and CTL are suited to weighting (here: less forgetting than TLR)",
                "0.20 to 0.81", better("forgetting", *((weights(s), weights("tlr")) for s in ("nkl", "ctl")))),
        Claim("table1", cifar, "Table 1", "The order of the seven signals as weights, by accuracy, follows that of the "
              "table", "the table's order", "Spearman's rho", in_order(*map(weights, (*CONTINUOUS, "accuracy")))),
        *(_gain("table1", tiny, "4.3, Table 1", f"{name} weights give less forgetting than ER", printed, "forgetting",
                weights(signal), er())
          for name, signal, printed in (("Log-TLR", "log_tlr", "1.60"), ("NKL", "nkl", "1.13"))),
        Claim("table1", tiny, "4.3", "Changes of accuracy are within noise (here: within a point)", "-1.48 to 0.09",
              "points within the margin", within(1, "accuracy", (ours, er()), (weights("nkl"), er()))),
        Claim("table1", tiny, "4.3", "The forgetting of NKL weights varies less than that of Log-TLR weights",
              "± 0.12, ± 1.58", DOUBLINGS, varies_more("forgetting", (ours, weights("nkl")))),
    )  # fmt: skip


def _sampling() -> tuple[Claim, ...]:
    """The claims of section 4.4 and Table 2, but for those about windows."""
    cifar, tiny, ours, binary = "cifar100", "tiny_imagenet", trend("log_tlr"), trend("accuracy")
    every = (*CONTINUOUS, "loss", "accuracy")

    def leads(measure: str, best: str) -> Measure:
        return better(measure, *((trend(best), trend(s)) for s in every if s != best))

    return (
        *(_gain("table2", data, where, "Log-TLR trend sampling gives less forgetting than ER", gain,
                  "forgetting", ours, er())
          for data, where, gain in ((cifar, "4.4, Table 2", "8.68"), (tiny, "abstract, 4.4", "7.72"))),
        *(_gain("table2", data, "4.4, Table 2", "Log-TLR trend sampling gives higher accuracy than ER", gain,
                  "accuracy", ours, er())
          for data, gain in ((cifar, "5.38"), (tiny, "1.07"))),
        *(_gain("table2", data, "4.4, Table 2", "Loss trend sampling gives less forgetting than ER", gain,
                  "forgetting", trend("loss"), er())
          for data, gain in ((cifar, "9.47"), (tiny, "8.75"))),
        _points("table2", cifar, "4.4", "The loss trend forgets least of all", "0.79 to 7.48",
                leads("forgetting", "loss")),
        _points("table2", cifar, "4.4", "The RTLR trend has the highest accuracy", "0.17 to 4.58",
                leads("accuracy", "rtlr")),
        _points("table2", cifar, "4.4", "All continuous trends substantially outperform the accuracy trend",
                "-0.45 to 4.13", better("accuracy", *((trend(s), binary) for s in (*CONTINUOUS, "loss")))),
        Claim("table2", cifar, "Table 2", "The order of the eight signals as trends, by accuracy, follows that of the "
              "table", "the table's order", "Spearman's rho", in_order(*map(trend, every))),
        Claim("table2", tiny, "4.4", "The loss trend matches Log-TLR's in forgetting (here: within two points)", "1.03",
              "points within the margin", within(2, "forgetting", (trend("loss"), ours))),
        Claim("table2", tiny, "4.4", "The forgetting of the loss trend varies more than that of Log-TLR's",
              "± 3.53, ± 1.14", DOUBLINGS, varies_more("forgetting", (trend("loss"), ours))),
        _gain("table2", tiny, "4.4", "The accuracy trend forgets more than the Log-TLR trend", "1.85",
                "forgetting", ours, binary),
        Claim("table2", tiny, "4.4", "The accuracy trend is competitive in accuracy (here: within a point of "
              "Log-TLR's)", "0.44", "points within the margin", within(1, "accuracy", (binary, ours))),
        Claim("table2", tiny, "4.4", "The forgetting of the NKL and CM trends varies more than that of Log-TLR's",
              "± 3.95, ± 3.34; ± 1.14", DOUBLINGS,
              varies_more("forgetting", *((trend(s), ours) for s in ("nkl", "cm")))),
    )  # fmt: skip


CLAIMS: tuple[Claim, ...] = (
    *_boundaries(),
    *_saturation(),
    *_weighting(),
    *_sampling(),
    *_windows("windows", "raw"),
    *_windows("windows_standardised", "standardised"),
    *_percent(),
    Claim("recovery", "cifar100", "1", "Classes at 0 % differ in how amenable they are to recovery, and the signals "
          "tell: the better before, the faster a class comes back in a fine-tune on five of its images", "asserted",
          "Spearman's rho", foretold(0)),
    Claim("recovery", "cifar100", "control, not in the paper", "The same, with 64 rows of other classes beside the "
          "five", "not measured", "Spearman's rho", foretold(64)),
    *_boundaries(constant_rate=True),
    # What the paper does not ask: is it the trend, or the class-wise draw that comes with it?
    *(Claim("table2", data, "control, not in the paper", "Log-TLR trend sampling beats a class-uniform draw",
            "not measured", "points", better("accuracy", (trend("log_tlr"), class_uniform())))
      for data in ("cifar100", "tiny_imagenet")),
)  # fmt: skip
