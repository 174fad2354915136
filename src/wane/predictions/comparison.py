"""What a model knows, class by class, and what the next one lost and gained, from the same samples under both.

`score` is a table of means; `compare` is a table of paired changes with one of the `VERDICTS` for each class, or for
each group of any other kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from wane.predictions.alignment import align
from wane.predictions.changes import intervals, paired_changes
from wane.predictions.flips import flipped, takers
from wane.predictions.groups import Groups, grouped
from wane.predictions.notes import about, absent, infinite_losses
from wane.predictions.paired_tests import interval_alpha
from wane.predictions.predictions import Predictions
from wane.predictions.samples import Samples, known_signals, measure
from wane.predictions.verdicts import EVIDENCE, FEWEST, VERDICTS, Verdict, flip_p, judge, stands_out

__all__ = ["EVIDENCE", "FEWEST", "VERDICTS", "Comparison", "Scores", "Verdict", "compare", "score"]

#: How many samples that turned from right to wrong a comparison lists.
FLIPS = 1000


@dataclass(frozen=True, eq=False)
class Scores:
    """The mean of every signal, for each group that has samples and over all samples.

    Columns: those of `by`, ``name``, ``n``, the signals, ``median_rank`` of the label, and ``infinite``: how many
    samples give their label probability 0. Their loss is infinite, and is left out of the mean loss.
    """

    groups: pl.DataFrame
    """One row a class (or another group), worst first: by accuracy, then log_tlr, then nkl."""
    overall: dict[str, Any]
    """The same columns, but for what tells groups apart, over all samples."""
    by: tuple[str, ...]
    """What tells groups apart: ``("class",)`` unless something else was asked for."""
    notes: tuple[str, ...]
    """What a reader should know of these numbers."""


@dataclass(frozen=True, eq=False)
class Comparison:
    """What changed from one model to the next; `compare` says how it is judged.

    For each signal ``s`` the columns are ``s_before``, ``s_after``, their difference ``s_change``, and ``s_low`` and
    ``s_high``, its paired interval at the level `interval` (null under 5 samples). Differences are after - before: a
    loss that rises got worse. ``drift`` is the mean change of the signals of `EVIDENCE`. ``gap`` is the mean of
    ln p_max - ln p_y: how many nats the label lacks to be the answer. ``units`` is how many samples, or documents, the
    intervals rest on. ``accuracy_p``, ``decline_p`` and ``rise_p`` are adjusted for the number of groups; ``fallen``
    and ``risen`` name the signals that did so beyond chance.

    Where the models do not know the same classes, accuracy, answers, rank and gap are over all classes of each,
    ``accuracy_common_before`` and ``accuracy_common_after`` and every other signal over those that both know, and
    ``to_new`` counts the samples that turned from right to a class which the first model lacks.
    """

    groups: pl.DataFrame
    """One row a class (or another group), from worst verdict to best; among equals worst first (of gains: largest)."""
    overall: dict[str, Any]
    """The same columns, over all samples, but for verdicts and their probabilities."""
    by: tuple[str, ...]
    """What tells groups apart: ``("class",)`` unless something else was asked for."""
    takers: pl.DataFrame
    """Who took the answers that turned from right to wrong: ``name`` of the group, ``taker``, ``n``, most first;
    ``new`` where the first model does not know the taker."""
    flips: pl.DataFrame
    """The samples that turned from right to wrong, worst first, at most `FLIPS`; without ids, ``id`` is the row."""
    heads: tuple[int, int, int]
    """How many classes the first model knows, how many the second, and how many both."""
    clustered: bool
    """Whether intervals and tests take documents, not samples, as independent."""
    alpha: float
    interval: float
    """The level of the intervals of groups; that of the overall ones is 1 - alpha."""
    smallest: float
    notes: tuple[str, ...]
    """What a reader should know of these numbers."""

    def having(self, *verdicts: str) -> pl.DataFrame:
        """The groups of these verdicts."""
        return self.groups.filter(pl.col("verdict").is_in([name for name in verdicts if VERDICTS[name]]))

    @property
    def at_zero(self) -> pl.DataFrame:
        """The groups that the second model never gets right, the nearest to coming back first."""
        zero = self.groups.filter(pl.col("accuracy_after") == 0, pl.col("verdict") != "too few")
        order = ["gap_after"] if "gap_after" in zero.columns else []
        return zero.sort(*order, *self.by, nulls_last=True)


def score(predictions: Predictions | Samples, *, by: Sequence[str] | None = None) -> Scores:
    """The mean of every signal by class, or by other columns of the file, and overall.

    >>> from wane.predictions.predictions import read_predictions
    >>> scores = score(read_predictions("example:digits_after"))
    >>> scores.overall["n"], round(scores.overall["accuracy"], 3)
    (899, 0.7)
    >>> scores.groups.select("name", "accuracy", pl.col("cm").round(2), "median_rank").head(2).rows()
    [('digit 3', 0.0, 0.48, 3.0), ('digit 1', 0.0, 0.53, 2.0)]
    """
    samples = measure(predictions)
    by = tuple(by or samples.by)
    groups, what = grouped(samples, by)
    whole = Groups(np.broadcast_to(np.int32(0), len(samples)), 1)
    tables: list[dict[str, Any]] = [{"n": each.count()} for each in (groups, whole)]
    infinite = np.zeros(len(samples), dtype=bool)
    for name in known_signals(samples.values):
        values = samples.values[name]
        infinite |= np.isinf(values)
        for table, each in zip(tables, (groups, whole), strict=True):
            table[name] = each.mean(values)
    for table, each in zip(tables, (groups, whole), strict=True):
        if "rank" in samples.values:
            table["median_rank"] = each.medians(samples.values["rank"])
        table["infinite"] = each.count(infinite)
    notes = (*samples.notes, *absent(samples, by, len(what)), *infinite_losses(infinite, "the model"))
    order = [name for name in ("accuracy", "log_tlr", "nkl") if name in tables[0]]
    return Scores(_frame(tables[0], what).sort(*order, *by), _frame(tables[1]).row(0, named=True), by, notes)


def compare(
    before: Predictions | Samples,
    after: Predictions | Samples,
    *,
    by: Sequence[str] | None = None,
    common: bool = False,
    alpha: float = 0.05,
    smallest: float = 0.01,
) -> Comparison:
    """What the second model lost and gained, class by class, from the same samples under both.

    A class *lost* or *gained* accuracy when McNemar's test says so at ``alpha``, corrected for the number of classes
    judged (false discovery rate). The test is exact, so that few samples are no problem; see
    `wane.predictions.paired_tests.answers_p`.

    A class is in *hidden decline* when it did neither, and the mean of the six bounded signals (cm, tlr, log_tlr, rtlr,
    ctl, nkl) fell: on average by ``smallest`` or more, since with enough samples any trifle is beyond chance, and in
    the typical sample beyond chance (Wilcoxon's signed-rank test, exact, which no few samples can sway), corrected for
    the number of classes whose accuracy did not change. *Hidden gain* is the same upwards; if some signals fell and
    others rose, each beyond chance, the verdict is *mixed*. A class at 0 % before and after had no accuracy to hold:
    it cannot be in hidden decline. If its signals fell, the verdict is *never right*, and a note says how many.

    Intervals are wider than 1 - alpha where there are many classes: of those of the classes that stand out, a share of
    alpha is expected to miss, not more (false coverage rate); `interval` is their level.

    Where the files have a column ``document``, samples of one document are not taken as independent: intervals are
    clustered, and the tests count documents.

    Args:
        before: what the first model said.
        after: what the second said of the same samples; see `wane.predictions.alignment.align`.
        by: judge groups by these columns of the first file instead of classes, such as ``["domain", "kind"]``; the
            column ``class`` is the label.
        common: compare the samples that both have, where each has some that the other lacks.
        alpha: the accepted rate of false alarms, and of intervals that miss.
        smallest: the smallest mean change (of signals from 0 to 1) that counts as a decline.

    >>> from wane.predictions.predictions import read_predictions
    >>> result = compare(read_predictions("example:digits_before"), read_predictions("example:digits_after"))
    >>> dict(result.groups.select("name", "verdict").rows())
    {'digit 1': 'lost', 'digit 3': 'lost', 'digit 2': 'lost', 'digit 4': 'lost', 'digit 0': 'hidden decline',
     'digit 5': 'hidden decline', 'digit 7': 'steady', 'digit 6': 'hidden gain', 'digit 8': 'gained',
     'digit 9': 'gained'}
    >>> result.at_zero.select("name", "median_rank_after", pl.col("gap_after").round(2)).rows()
    [('digit 1', 2.0, 1.63), ('digit 3', 3.0, 2.2)]
    >>> result.takers.filter(pl.col("name") == "digit 1").rows()
    [('digit 1', 'digit 8', 79, False), ('digit 1', 'digit 9', 10, False), ('digit 1', 'digit 6', 1, False)]
    """
    if not 0 < alpha < 1:
        raise ValueError(f"alpha is {alpha}: give a rate of false alarms between 0 and 1, such as 0.05")
    pair = align(before, after, common=common)
    by = tuple(by or pair.before.by)
    groups, what = grouped(pair.before, by)
    whole = Groups(np.broadcast_to(np.int32(0), len(groups.of)), 1, groups.clusters)
    right, still = (samples.values["accuracy"] == 1 for samples in (pair.before, pair.after))
    lost, gained = right & ~still, ~right & still
    changes = paired_changes(pair, (groups, whole))
    tables = changes.tables
    for table, each in zip(tables, (groups, whole), strict=True):
        table["right_to_wrong"], table["wrong_to_right"] = each.count(lost), each.count(gained)
        if not pair.same_head and "answer" in pair.after.values:
            table["to_new"] = each.count(lost & ~np.isin(pair.after.values["answer"], pair.common))
    flips = flip_p(lost, gained, groups)
    tables[0] |= judge(tables[0], flips, changes.drift, changes.evidence, alpha=alpha, smallest=smallest)
    chosen, judged = int(stands_out(tables[0]["verdict"]).sum()), int((tables[0]["units"] >= FEWEST).sum())
    corrected = interval_alpha(alpha, chosen=chosen, judged=judged)
    for table, spread, each, level in zip(tables, changes.spreads, (groups, whole), (corrected, alpha), strict=True):
        table |= intervals(spread, level, clustered=each.clusters is not None)
    frame = _worst_first(_frame(tables[0], what), by)
    names = _place_of(what, frame, by)
    return Comparison(
        groups=frame,
        overall=_frame(tables[1]).row(0, named=True),
        by=by,
        takers=takers(pair, lost, groups, what["name"], names),
        flips=flipped(pair, lost, most=FLIPS),
        heads=(pair.before.num_classes, pair.after.num_classes, len(pair.common)),
        clustered=groups.clusters is not None,
        alpha=alpha,
        interval=1 - corrected,
        smallest=smallest,
        notes=(*about(pair, by, frame), *changes.notes),
    )


def _frame(columns: dict[str, Any], what: pl.DataFrame | None = None) -> pl.DataFrame:
    """One row a group; what is not a number is null."""
    frame = pl.DataFrame(columns).with_columns(pl.col(pl.Float64).fill_nan(None))
    return frame if what is None else pl.concat([what, frame], how="horizontal")


def _worst_first(groups: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    verdict = pl.col("verdict")
    place = verdict.replace_strict({name: i for i, name in enumerate(VERDICTS)})
    amount = pl.when(verdict.is_in(["lost", "gained"])).then("accuracy_change").otherwise("drift")
    first = pl.when(verdict.is_in(["gained", "hidden gain"])).then(-amount).otherwise(amount)
    return groups.sort(place, first, *by)


def _place_of(what: pl.DataFrame, frame: pl.DataFrame, by: Sequence[str]) -> NDArray[np.int64]:
    """Where each group of `what` is in the table."""
    numbered = frame.select(by).with_row_index("wane.place")
    return what.join(numbered, on=list(by), how="left", nulls_equal=True, maintain_order="left")[
        "wane.place"
    ].to_numpy()
