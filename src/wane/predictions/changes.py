"""How every signal changed from one model to the next, by group, with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from wane.predictions.alignment import Pair
from wane.predictions.groups import Groups
from wane.predictions.notes import infinite_losses
from wane.predictions.paired_tests import paired_interval
from wane.predictions.samples import Samples, known_signals
from wane.predictions.verdicts import EVIDENCE, FEWEST, Moved, moved
from wane.softmax.registry import SIGNALS

__all__ = ["Changes", "intervals", "paired_changes"]

Array: TypeAlias = NDArray[np.float64]
#: By signal: the mean change of each group, its standard error, and how many independent samples they rest on.
Spreads: TypeAlias = dict[str, tuple[Array, Array, NDArray[np.int64]]]


@dataclass(frozen=True, eq=False)
class Changes:
    """What changed, in each of several groupings of the same samples."""

    tables: list[dict[str, Any]]
    """For each grouping: columns by name, one value a group."""
    spreads: list[Spreads]
    drift: Moved
    """How the mean of the signals of `EVIDENCE` moved, in the first grouping."""
    evidence: dict[str, Moved]
    """How each of them moved."""
    notes: tuple[str, ...]


def paired_changes(pair: Pair, groupings: Sequence[Groups]) -> Changes:
    """Before, after and paired change of everything, by group; one signal at a time, as there may be many samples."""
    tables: list[dict[str, Any]] = [{"n": groups.count()} for groups in groupings]
    spreads: list[Spreads] = [{} for _ in groupings]
    drift = np.zeros(len(pair.before))
    shared = None if pair.same_head or not pair.restrictable else pair.restricted()
    evidence: dict[str, Moved] = {}
    infinite = [np.zeros(len(pair.before), dtype=bool) for _ in range(2)]

    def add(name: str, samples: Sequence[Samples], as_name: str) -> None:
        signal = SIGNALS[name]
        old, new = (each.values[name] for each in samples)
        if not signal.bounded:
            old, new = _finite_in_both(old, new, infinite)
        difference = np.subtract(new, old, dtype=np.float64)
        for table, spread, groups in zip(tables, spreads, groupings, strict=True):
            change, _, units = spread[as_name] = groups.spread(difference)
            table |= {f"{as_name}_before": groups.mean(old), f"{as_name}_after": groups.mean(new),
                      f"{as_name}_change": change}  # fmt: skip
            table.setdefault("units", units)
        if name in EVIDENCE:
            better = signal.sign * difference
            evidence[name] = moved(better, groupings[0])
            np.add(drift, better, out=drift)

    own = (pair.before, pair.after)
    for name in [name for name in known_signals(own[0].values) if name in own[1].values]:
        add(name, own if name == "accuracy" else shared or own, name)
    if shared is not None:
        add("accuracy", shared, "accuracy_common")
    extras = {"rank", "gap"} & {*own[0].values} & {*own[1].values}
    for i, when in enumerate(("before", "after")):
        values = own[i].values  # to be the answer, a label must win against all classes
        for table, groups in zip(tables, groupings, strict=True):
            if "rank" in extras:
                table[f"median_rank_{when}"] = groups.medians(values["rank"])
    if "gap" in extras:
        first, second = (each.values["gap"] for each in own)
        gaps = _finite_in_both(first, second)
        for when, gap in zip(("before", "after"), gaps, strict=True):
            for table, groups in zip(tables, groupings, strict=True):
                table[f"gap_{when}"] = groups.mean(gap)
    drift /= max(1, len(evidence))
    for table, groups in zip(tables, groupings, strict=True):
        table["drift"] = groups.mean(drift)
    who = ("the first model", "the second model")
    notes = [note for mask, name in zip(infinite, who, strict=True) for note in infinite_losses(mask, name)]
    return Changes(tables, spreads, moved(drift, groupings[0]), evidence, tuple(notes))


def intervals(spreads: Spreads, alpha: float, *, clustered: bool) -> dict[str, Array]:
    """The ends of the interval of every change; of too few samples there is none."""
    columns = {}
    for name, (change, error, units) in spreads.items():
        signal = SIGNALS[name.removesuffix("_common")]
        answers = signal.family == "decision" and not clustered
        low, high = paired_interval(change, error, units, alpha=alpha, answers=answers)
        most = signal.bounds[1]  # a change between values in [0, 1] is at most 1, and so is its interval
        enough = units >= FEWEST
        columns[f"{name}_low"] = np.where(enough, np.maximum(low, -most), np.nan)
        columns[f"{name}_high"] = np.where(enough, np.minimum(high, most), np.nan)
    return columns


def _finite_in_both(old: Array, new: Array, infinite: Sequence[NDArray[np.bool_]] = ()) -> tuple[Array, Array]:
    """A pair counts only where both are finite; where one is not, it is noted in `infinite`."""
    if np.isfinite(old).all() and np.isfinite(new).all():
        return old, new
    for mask, values in zip(infinite, (old, new), strict=False):
        mask |= np.isinf(values)
    unpaired = ~(np.isfinite(old) & np.isfinite(new))
    return np.where(unpaired, np.nan, old), np.where(unpaired, np.nan, new)
