"""A claim as a number with an interval over seeds, and the verdict that the interval allows.

A claim is that some number is above zero (or above a bound). It *holds* if the whole 95 % interval is, *does not hold*
if the whole interval is below, and we *cannot tell* otherwise, or with fewer than three seeds. A claim of several parts
holds if every part does. One part below zero is enough for it not to hold, so that part has to be below by an interval
that is corrected for their number.

Where the paper prints a number that is above what was measured, beyond the uncertainty of both, the gain is *less than
printed*, whatever else is known. Where two one-sided tests at 5 % leave no room for more, there is *no effect larger
than* so many points. The paper's claims are listed in `wane.paper.claims`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf, isfinite
from typing import TYPE_CHECKING, NamedTuple

from wane.escaping import markdown, visible
from wane.paper.methods import er
from wane.paper.values import SEEDS
from wane.runs.folder import RunFolder
from wane.runs.identity import Method, method_of
from wane.views.observations import has_history
from wane.views.statistics import FEWEST_SEEDS, Interval, counted, paired
from wane.views.summaries import accuracy_measures

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = [
    "CLAIM_VERDICTS",
    "UNBROKEN",
    "Claim",
    "IntervalAt",
    "Judged",
    "Measure",
    "Numbers",
    "better",
    "by_seed_of",
    "differences_of",
    "has_constant_rate",
    "judge",
    "judged_markdown",
    "judged_table",
    "of_er",
    "verdict_of",
]

CLAIM_VERDICTS = ("holds", "does not hold", "cannot tell")
Numbers = Mapping[int, float]  # by seed
IntervalAt = Callable[[float], Interval]  # by its confidence
#: What is above zero if a claim holds, part by part: numbers whose mean it is, or an interval of another kind.
Measure = Callable[[Sequence[RunFolder]], Mapping[str, Numbers | IntervalAt]]
#: The largest effect, in points, whose absence is worth a word, in steps of half a point.
NEGLIGIBLE, STEP = 1.0, 0.5
#: A number with its interval stays on one line of a narrow table.
UNBROKEN = str.maketrans({"-": "−", " ": "\u00a0"})


@dataclass(frozen=True)
class Claim:
    """One claim: `measure` gives, for every part of it, the number that should be above zero."""

    recipe: str
    data: str
    where: str
    text: str
    printed: str
    unit: str
    measure: Measure
    printed_error: float = 0.0  # standard error of the printed number; 0 where the paper does not tell


class Judged(NamedTuple):
    """A claim beside what was measured: one interval for each of its parts."""

    claim: Claim
    data: str  # what it was measured on, which in the demo is not what it speaks of
    parts: dict[str, Interval]
    verdict: str
    largest: float | None = None  # the smallest number of points that the effect is shown not to exceed, if it is small

    @property
    def less_than_printed(self) -> bool:
        """Whether the paper's number, if it gives one for a claim of one part, is above what was measured.

        Beyond the uncertainty of both: their errors are added as those of independent means (Welch).
        """
        (part,) = self.parts.values() if len(self.parts) == 1 else (Interval(0, None, None, None),)
        try:
            printed = float(self.claim.printed)
        except ValueError:
            return False  # words, or several numbers
        if part.difference is None or part.high is None or part.n < FEWEST_SEEDS:
            return False
        from scipy.stats import t

        theirs, ours = self.claim.printed_error**2, ((part.high - part.difference) / t.ppf(0.975, part.n - 1)) ** 2
        if not theirs:
            return part.high < printed
        freedom = (theirs + ours) ** 2 / (theirs**2 / (2 * SEEDS - 2) + ours**2 / (part.n - 1))
        return bool(part.difference + t.ppf(0.975, freedom) * (theirs + ours) ** 0.5 < printed)

    @property
    def worst(self) -> Interval:
        """The part that decides: the one that is furthest below zero, or that says least for the claim."""
        there = [part for part in self.parts.values() if part.difference is not None]

        def bound(part: Interval) -> float:
            end = part.high if self.verdict == "does not hold" else part.low
            return -inf if end is None else end

        return min(there, key=bound, default=Interval(0, None, None, None))

    @property
    def words(self) -> str:
        """The verdict, as tables say it."""
        if all(part.difference is None for part in self.parts.values()):
            return "not run"
        small = "" if self.largest is None else f"; no effect larger than {self.largest:g} point"
        return self.verdict + small + ("; less than printed" if self.less_than_printed else "")


def judge(claim: Claim, runs: Sequence[RunFolder]) -> Judged:
    """Measure a claim on runs (those of its data set count); a claim of several parts holds if every part does."""
    chosen = [run for run in runs if _stands_for(run.config.data.name) == claim.data and run.summary is not None]
    numbers = claim.measure(chosen) if chosen else {}
    data = ", ".join(sorted({run.config.data.name for run in chosen})) or claim.data
    data += f" (for {claim.data})" if data != claim.data else ""
    parts = {name: _interval(part, 0.95) for name, part in numbers.items()}
    if parts and all(verdict_of(part) == "holds" for part in parts.values()):
        return Judged(claim, data, parts, "holds")
    corrected = [_interval(part, 1 - 0.05 / len(parts)) for part in numbers.values()]
    if any(verdict_of(part) == "does not hold" for part in corrected):
        return Judged(claim, data, parts, "does not hold")
    return Judged(claim, data, parts, "cannot tell", _largest(claim, [_interval(p, 0.9) for p in numbers.values()]))


def _interval(part: Numbers | IntervalAt, confidence: float) -> Interval:
    return part(confidence) if callable(part) else paired(part, dict.fromkeys(part, 0.0), confidence=confidence)


def _largest(claim: Claim, parts: Sequence[Interval]) -> float | None:
    """Of a claim of one part, in points: what two one-sided tests at 5 % leave of its effect, if that is little."""
    if claim.unit != "points" or len(parts) != 1 or parts[0].n < FEWEST_SEEDS:
        return None
    (part,) = parts
    if part.low is None or part.high is None:
        return None
    found = STEP * ceil(max(abs(part.low), abs(part.high)) / STEP)
    return found if found <= NEGLIGIBLE else None


def verdict_of(interval: Interval) -> str:
    """What an interval says of the claim that its number is above zero.

    >>> verdict_of(Interval(3, 1.0, 0.2, 1.8)), verdict_of(Interval(3, 1.0, -0.2, 2.2))
    ('holds', 'cannot tell')
    """
    if interval.low is None or interval.high is None or interval.n < FEWEST_SEEDS:
        return "cannot tell"
    return "holds" if interval.low > 0 else "does not hold" if interval.high < 0 else "cannot tell"


def judged_markdown(judged: Sequence[Judged]) -> str:
    """A table: what the paper says, what was measured, and the verdict."""
    lines = [
        "| claim | where | data | the paper | measured: mean [95 % interval], seeds | verdict |",
        "|:--|:--|:--|:--|:--|:--|",
    ]
    for each in judged:
        claim, data, parts = each.claim, each.data, each.parts
        shown, several = [], len(parts) > 1
        for name, part in parts.items():
            if part.difference is None:
                continue
            number = f"{_number(part, claim.unit)}, n = {part.n}".translate(UNBROKEN)
            shown.append(f"{name}: {number}" if several else number)
        left = sum(part.difference is None for part in parts.values())
        if shown and left:
            shown.append(f"{left} of {len(parts)} parts not run")
        measured = "<br>".join([*shown, f"({claim.unit})"]) if shown else "not run"
        lines.append(
            f"| {claim.text} | {claim.where} | {markdown(data)} | {claim.printed} | {measured} | **{each.words}** |"
        )
    about = "Verdicts of claims with several parts are corrected for the number of parts."
    lines += ["", f"{counted(part for each in judged for part in each.parts.values())} {about}"]
    return "\n".join(lines) + "\n"


def judged_table(judged: Sequence[Judged]) -> RenderableType:
    """For the terminal, 100 columns at most: verdict, number and claim, by data set, and what does not hold first.

    Of a claim with several parts the number is that of the part which decides. What was not run is left out.
    """
    from rich.table import Table
    from rich.text import Text

    colours = {"holds": "green", "does not hold": "red", "cannot tell": ""}
    order = ("does not hold", "holds", "cannot tell")
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", width=100)
    table.add_column("verdict", width=17)
    table.add_column("measured, 95 % interval", no_wrap=True)
    table.add_column("claim", ratio=1)
    for data in dict.fromkeys(each.data for each in judged):
        of_data = [each for each in judged if each.data == data and each.words != "not run"]
        if of_data:
            table.add_row(Text(visible(data), style="bold"))
        for each in sorted(of_data, key=lambda each: order.index(each.verdict)):
            worst = each.worst
            few = f", n = {worst.n}" if worst.low is None else ""
            more = f", worst of {len(each.parts)}" if len(each.parts) > 1 else ""
            measured = f"{_number(worst, each.claim.unit)}{few}{more}".replace("-", "−")
            table.add_row(Text(each.words, style=colours[each.verdict]), measured, each.claim.text)
    return table


def _number(part: Interval, unit: str) -> str:
    digits = 2 if unit.startswith(("points", "doublings")) else 3
    around = "" if part.low is None else f" [{part.low:+.{digits}f}, {part.high:+.{digits}f}]"
    return f"{part.difference:+.{digits}f}{around}"


def _stands_for(data: str) -> str:
    """The demo's glyphs stand in for the paper's first data set: 100 classes, five tasks."""
    return "cifar100" if data == "glyphs" else data


def has_constant_rate(run: RunFolder) -> bool:
    """Whether the learning rate of a run has no schedule."""
    learner = run.config.learner
    return learner.decay == 1 or not learner.milestones


def by_seed_of(runs: Sequence[RunFolder], method: Method, measure: str) -> dict[int, float]:
    """A measure of every run of a method that is done, by its seed, in percent."""
    found = {}
    for run in runs:
        values = accuracy_measures(run) if method_of(run.config) == method else None
        if values is not None and measure in values:
            found[run.config.seed] = values[measure]
    return found


def differences_of(runs: Sequence[RunFolder], one: Method, other: Method, measure: str) -> dict[int, float]:
    """How far a method is above another, for the seeds that both have."""
    a, b = by_seed_of(runs, one, measure), by_seed_of(runs, other, measure)
    return {seed: a[seed] - b[seed] for seed in a if seed in b}


def better(measure: str, *pairs: tuple[Method, Method]) -> Measure:
    """Each pair's first method beats its second: higher accuracy, or lower forgetting."""
    sign = -1 if measure == "forgetting" else 1

    def numbers(runs: Sequence[RunFolder]) -> dict[str, Numbers]:
        parts: dict[str, Numbers] = {}
        for better, worse in pairs:
            differences = differences_of(runs, better, worse, measure)
            parts[f"{better.title} against {worse.title}"] = {seed: sign * d for seed, d in differences.items()}
        return parts

    return numbers


def of_er(number: Callable[[RunFolder], dict[str, float]], *, constant_rate: bool = False) -> Measure:
    """Numbers of each ER run whose history was kept and crosses a boundary.

    With `constant_rate`, only runs without a schedule of the learning rate count. What a run cannot tell is NaN, or is
    left out.
    """

    def numbers(runs: Sequence[RunFolder]) -> dict[str, Numbers]:
        parts: dict[str, dict[int, float]] = {}
        for run in runs:
            if run.config.num_tasks < 2 or (constant_rate and not has_constant_rate(run)):
                continue
            if method_of(run.config) == er() and has_history(run):
                for name, value in number(run).items():
                    if isfinite(value):
                        parts.setdefault(name, {})[run.config.seed] = value
        return dict(parts)

    return numbers
