"""What a model knows, class by class, and what the next one lost and gained, from the same samples under both.

`score` is a table of means; `compare` is a table of paired changes with one of the `VERDICTS` for each class.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy import stats
from scipy.special import ndtri

from wane.predictions.predictions import Predictions, align, measure
from wane.registry import Registry
from wane.softmax.registry import SIGNALS

__all__ = ["EVIDENCE", "FEWEST", "VERDICTS", "Comparison", "Scores", "Verdict", "compare", "score"]

Array: TypeAlias = NDArray[np.float64]
Classes: TypeAlias = NDArray[np.int64]

#: A class with fewer samples is shown, not judged: even five out of five lost is a matter of chance in 1 of 16 cases.
FEWEST = 5
#: The signals that can tell of a hidden decline: the decision itself is what it hides from, and of an unbounded signal,
#: such as the loss, a single sample can carry the whole mean (its bounded forms are ctl and nkl).
EVIDENCE = tuple(name for name, row in SIGNALS.items() if row.bounded and row.family != "decision")
#: How many of them must agree: one alone may be an artefact of its scale.
AGREE = 2


@dataclass(frozen=True)
class Verdict:
    """What is said of a class: a sign, a heading, and what it means."""

    sign: str
    title: str
    meaning: str


#: From worst to best; this is the order of the tables.
VERDICTS: Registry[Verdict] = Registry("verdict", {
    "lost": Verdict("▼", "Lost accuracy", "more right answers turned wrong than chance allows"),
    "declining": Verdict("▽", "Hidden decline", "accuracy held within noise, but the signals under it fell"),
    "mixed": Verdict("◇", "Mixed", "accuracy held within noise; some signals fell, others rose"),
    "never": Verdict("○", "Never right", "at 0 % before and after, and signals fell: there was no accuracy to hold"),
    "steady": Verdict("·", "Steady", "nothing moved beyond chance"),
    "improving": Verdict("△", "Hidden gain", "accuracy held within noise, but the signals under it rose"),
    "gained": Verdict("▲", "Gained accuracy", "more wrong answers turned right than chance allows"),
    "few": Verdict("?", "Too few samples", f"fewer than {FEWEST} samples: shown, not judged"),
})  # fmt: skip


@dataclass(frozen=True, eq=False)
class Scores:
    """The mean of every signal, for each class that has samples and over all samples.

    Columns: ``class``, ``name``, ``n``, the eight signals, ``median_rank`` of the label, and ``infinite``: how many
    samples give their label probability 0. Their loss is infinite, and is left out of the mean loss.
    """

    classes: pl.DataFrame
    """One row a class, worst first: by accuracy, then log_tlr, then nkl."""
    overall: dict[str, Any]
    """The same columns, but for class and name, over all samples."""
    notes: tuple[str, ...]
    """What a reader should know of these numbers."""


@dataclass(frozen=True, eq=False)
class Comparison:
    """What changed from one model to the next; `compare` says how it is judged.

    For each signal ``s`` the columns are ``s_before``, ``s_after``, their difference ``s_change``, and ``s_low`` and
    ``s_high``, its paired 1 - alpha interval (null under 5 samples). Differences are after - before: a loss that rises
    got worse. ``drift`` is the mean change of the six signals of `EVIDENCE`. ``gap`` is the mean of ln p_max - ln p_y:
    how many nats the label lacks to be the answer. ``accuracy_p``, ``decline_p`` and ``rise_p`` are adjusted for the
    number of classes; ``fallen`` and ``risen`` name the signals that did so beyond chance.
    """

    classes: pl.DataFrame
    """One row a class, from worst verdict to best, and worst (of gains: largest) first among equals."""
    overall: dict[str, Any]
    """The same columns, over all samples, but for verdicts and their probabilities."""
    alpha: float
    smallest: float
    notes: tuple[str, ...]
    """What a reader should know of these numbers."""

    def having(self, *verdicts: str) -> pl.DataFrame:
        """The classes of these verdicts."""
        return self.classes.filter(pl.col("verdict").is_in([name for name in verdicts if VERDICTS[name]]))

    @property
    def at_zero(self) -> pl.DataFrame:
        """The classes that the second model never gets right, the nearest to coming back first."""
        zero = self.classes.filter(pl.col("accuracy_after") == 0, pl.col("verdict") != "few")
        return zero.sort("gap_after", "class", nulls_last=True)


def score(predictions: Predictions) -> Scores:
    """The mean of every signal by class and overall.

    >>> from wane.predictions.predictions import read_predictions
    >>> scores = score(read_predictions("example:digits_after"))
    >>> scores.overall["n"], round(scores.overall["accuracy"], 3)
    (899, 0.7)
    >>> scores.classes.select("name", "accuracy", pl.col("cm").round(2), "median_rank").head(2).rows()
    [('digit 3', 0.0, 0.48, 3.0), ('digit 1', 0.0, 0.53, 2.0)]
    """
    values, labels = measure(predictions), predictions.labels.numpy()

    def table(group: Classes, size: int) -> dict[str, Any]:
        columns: dict[str, Any] = {"n": np.bincount(group, minlength=size)}
        columns |= {name: _spread(values[name], group, size)[0] for name in SIGNALS}
        columns["median_rank"] = _medians(values["rank"], group, size)
        columns["infinite"] = np.bincount(group[np.isinf(values["loss"])], minlength=size)
        return columns

    classes = _per_class(table(labels, predictions.num_classes), predictions.class_names)
    notes = (*_absent(classes, predictions.num_classes), *_infinite(values["loss"], "the model"))
    return Scores(classes.sort("accuracy", "log_tlr", "nkl", "class"), _single(table(np.zeros_like(labels), 1)), notes)


def compare(before: Predictions, after: Predictions, *, alpha: float = 0.05, smallest: float = 0.01) -> Comparison:
    """What the second model lost and gained, class by class, from the same samples under both.

    A class *lost* or *gained* accuracy when the exact McNemar test says so at ``alpha``, corrected for the number of
    classes judged.

    A class is in *hidden decline* when it did neither, and at least two of the six bounded signals (cm, tlr, log_tlr,
    rtlr, ctl, nkl) fell: their mean by ``smallest`` or more, since with enough samples any trifle is beyond chance, and
    the typical sample beyond chance (Wilcoxon's signed-rank test, which no few samples can sway). Of the six
    probabilities the second smallest counts, times three: if nothing changed, that is below x in at most a share x of
    all cases, however much the six depend on each other (Rüger 1978). It is corrected for the number of classes whose
    accuracy did not change. *Improving* is the same upwards. A class at 0 % before and after had no accuracy to hold:
    it cannot be in hidden decline. If its signals fell, the verdict is *never* right, and a note says how many.

    Args:
        before: what the first model said.
        after: what the second said of the same samples; see `wane.predictions.predictions.align`.
        alpha: the accepted rate of false alarms; intervals are 1 - alpha.
        smallest: the smallest mean change of a bounded signal (from 0 to 1) that counts as a decline.

    >>> from wane.predictions.predictions import read_predictions
    >>> result = compare(read_predictions("example:digits_before"), read_predictions("example:digits_after"))
    >>> dict(result.classes.select("name", "verdict").rows())
    {'digit 1': 'lost', 'digit 3': 'lost', 'digit 2': 'lost', 'digit 4': 'declining', 'digit 0': 'declining',
     'digit 5': 'declining', 'digit 7': 'steady', 'digit 6': 'improving', 'digit 8': 'gained', 'digit 9': 'gained'}
    >>> result.at_zero.select("name", "median_rank_after", pl.col("gap_after").round(2)).rows()
    [('digit 1', 2.0, 1.63), ('digit 3', 3.0, 2.2)]
    """
    if not 0 < alpha < 1:
        raise ValueError(f"alpha is {alpha}: give a rate of false alarms between 0 and 1, such as 0.05")
    before, after = align(before, after)
    old, new, labels = measure(before), measure(after), before.labels.numpy()
    notes = (*_infinite(old["loss"], "the first model"), *_infinite(new["loss"], "the second model"))
    unbounded = [name for name, row in SIGNALS.items() if not row.bounded]
    for name in (*unbounded, "gap"):  # a pair counts only where both are finite
        unpaired = ~(np.isfinite(old[name]) & np.isfinite(new[name]))
        old[name], new[name] = np.where(unpaired, np.nan, old[name]), np.where(unpaired, np.nan, new[name])

    overall = _single(_changes(old, new, np.zeros_like(labels), 1, alpha))
    columns = _changes(old, new, labels, before.num_classes, alpha)
    columns |= _verdicts(columns, _moved(old, new, labels, before.num_classes), alpha, smallest)
    classes = _per_class(columns, before.class_names or after.class_names)
    about = (*_absent(classes, before.num_classes), *_few(classes), *_never(classes))
    return Comparison(_worst_first(classes), overall, alpha, smallest, (*about, *notes))


def _changes(old: dict[str, Array], new: dict[str, Array], group: Classes, size: int, alpha: float) -> dict[str, Any]:
    """Before, after and paired change of everything, by group."""
    columns: dict[str, Any] = {"n": np.bincount(group, minlength=size)}
    for name in SIGNALS:
        change, error, pairs = _spread(new[name] - old[name], group, size)
        half = np.where(pairs >= FEWEST, stats.t.ppf(1 - alpha / 2, np.maximum(pairs - 1, 1)) * error, np.nan)
        columns[f"{name}_before"], columns[f"{name}_after"] = (_spread(x[name], group, size)[0] for x in (old, new))
        most = SIGNALS[name].bounds[1]  # a change between values in [0, 1] is at most 1, and so is its interval
        low, high = np.maximum(change - half, -most), np.minimum(change + half, most)
        columns |= {f"{name}_change": change, f"{name}_low": low, f"{name}_high": high}
    columns["drift"] = np.mean([SIGNALS[name].sign * columns[f"{name}_change"] for name in EVIDENCE], axis=0)
    for when, values in (("before", old), ("after", new)):
        columns[f"median_rank_{when}"] = _medians(values["rank"], group, size)
        columns[f"gap_{when}"] = _spread(values["gap"], group, size)[0]
    right, still = old["accuracy"] == 1, new["accuracy"] == 1
    columns["right_to_wrong"] = np.bincount(group[right & ~still], minlength=size)
    columns["wrong_to_right"] = np.bincount(group[~right & still], minlength=size)
    return columns


def _moved(old: dict[str, Array], new: dict[str, Array], group: Classes, size: int) -> dict[str, tuple[Array, Array]]:
    """For each signal of `EVIDENCE` and each class: the mean change, higher is better, and its signed-rank z."""
    better = {name: SIGNALS[name].sign * (new[name] - old[name]) for name in EVIDENCE}
    return {
        name: (_spread(x, group, size)[0], np.array([_signed_rank(part) for part in _split(x, group, size)]))
        for name, x in better.items()
    }


def _signed_rank(difference: Array) -> float:
    """Wilcoxon's z: the sum of the signed ranks of what moved, over its deviation if the signs were coin flips."""
    moved = difference[difference != 0]
    if not len(moved):
        return 0.0
    ranks = np.sign(moved) * stats.rankdata(np.abs(moved))
    # Capped at the sign test's bound: the normal approximation is overconfident for few pairs.
    most = -ndtri(0.5 ** len(moved))
    return float(np.clip(ranks.sum() / np.sqrt((ranks**2).sum()), -most, most))


def _verdicts(columns: dict[str, Any], moved: dict[str, Any], alpha: float, smallest: float) -> dict[str, Any]:
    """The adjusted probabilities of each class, its verdict, and the signals that fell or rose."""
    judged = columns["n"] >= FEWEST
    lost, gained = columns["right_to_wrong"], columns["wrong_to_right"]
    # Two-sided and exact: at one half the binomial is symmetric, so twice the smaller tail.
    accuracy_p = _adjusted(np.minimum(1, 2 * stats.binom.cdf(np.minimum(lost, gained), lost + gained, 0.5)), judged)
    changed = judged & (accuracy_p <= alpha)
    never = judged & (columns["accuracy_before"] == 0) & (columns["accuracy_after"] == 0)
    # By chance m x of m probabilities are below x on average, so k of them or more in at most a share m x / k of cases.
    penalty = len(EVIDENCE) / AGREE

    def agreed(direction: int, among: NDArray[np.bool_]) -> tuple[Array, list[list[str]]]:
        tests = [(direction * change, direction * z) for change, z in moved.values()]
        p = np.array([np.where((change >= smallest) & (z > 0), 2 * stats.norm.sf(z), 1) for change, z in tests])
        names = [[name for name, x in zip(EVIDENCE, row, strict=True) if penalty * x <= alpha] for row in p.T]
        return _adjusted(np.minimum(1, penalty * np.sort(p, axis=0)[AGREE - 1]), among), names

    held = judged & ~changed
    (decline_p, fallen), (rise_p, risen) = agreed(-1, held & ~never), agreed(+1, held)
    falls, rises = decline_p <= alpha, rise_p <= alpha
    sinking = never & (np.array([len(names) for names in fallen]) >= AGREE)
    rises &= ~sinking  # both ways: no gain
    cases = [~judged, changed & (lost > gained), changed, falls & rises, falls, rises, sinking]  # the first that holds
    verdict = np.select(cases, ["few", "lost", "gained", "mixed", "declining", "improving", "never"], "steady")
    return {"verdict": verdict, "accuracy_p": accuracy_p, "decline_p": decline_p, "rise_p": rise_p,
            "fallen": fallen, "risen": risen}  # fmt: skip


def _adjusted(p: Array, among: NDArray[np.bool_]) -> Array:
    """Benjamini-Hochberg over the classes that are judged; NaN for the others, which is below no threshold."""
    adjusted: Array = np.full(len(p), np.nan)
    if among.any():
        adjusted[among] = stats.false_discovery_control(p[among])
    return adjusted


def _spread(x: Array, group: Classes, size: int) -> tuple[Array, Array, Classes]:
    """Mean, its standard error and number of the finite values of each group; NaN where there are none."""
    kept = np.isfinite(x)
    x, group = x[kept], group[kept]
    n = np.bincount(group, minlength=size)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean: Array = np.bincount(group, x, size) / n
        squares = np.bincount(group, (x - mean[group]) ** 2, size)
        return mean, np.sqrt(squares / (n - 1) / n), n


def _split(x: Array, group: Classes, size: int) -> list[Array]:
    return np.split(x[np.argsort(group, kind="stable")], np.cumsum(np.bincount(group, minlength=size))[:-1])


def _medians(x: Array, group: Classes, size: int) -> Array:
    return np.array([np.median(part) if len(part) else np.nan for part in _split(x, group, size)])


def _per_class(columns: dict[str, Any], names: Sequence[str] | None) -> pl.DataFrame:
    """One row for each class that has samples; what is not a number is null."""
    index = np.arange(len(columns["n"]))
    named = {"class": index, "name": [str(i) for i in index] if names is None else list(names)}
    frame = pl.DataFrame({**named, **columns}).filter(pl.col("n") > 0)
    return frame.with_columns(pl.col(pl.Float64).fill_nan(None))


def _single(columns: dict[str, Any]) -> dict[str, Any]:
    return pl.DataFrame(columns).with_columns(pl.col(pl.Float64).fill_nan(None)).row(0, named=True)


def _worst_first(classes: pl.DataFrame) -> pl.DataFrame:
    verdict = pl.col("verdict")
    place = verdict.replace_strict({name: i for i, name in enumerate(VERDICTS)})
    amount = pl.when(verdict.is_in(["lost", "gained"])).then("accuracy_change").otherwise("drift")
    first = pl.when(verdict.is_in(["gained", "improving"])).then(-amount).otherwise(amount)
    return classes.sort(place, first, "class")


def _absent(classes: pl.DataFrame, size: int) -> Iterable[str]:
    if len(classes) < size:
        yield f"Of {size} classes, {size - len(classes)} without samples are left out."


def _few(classes: pl.DataFrame) -> Iterable[str]:
    if few := int((classes["n"] < FEWEST).sum()):
        yield f"Of {len(classes)} classes, {few} with fewer than {FEWEST} samples cannot be judged."


def _never(classes: pl.DataFrame) -> Iterable[str]:
    if never := int((classes["verdict"] == "never").sum()):
        who = f"{never} {'class was' if never == 1 else 'classes were'} at 0 % before and after while signals fell"
        yield f"{who}: with no accuracy to hold, that is no hidden decline."


def _infinite(loss: Array, who: str) -> Iterable[str]:
    if count := int(np.isinf(loss).sum()):
        yield (
            f"In {count} of {len(loss):,} samples {who} gives the label probability 0: "
            "their infinite loss is left out of the means of loss and gap, while the other signals count them."
        )
