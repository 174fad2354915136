"""Which test sees a fall with how few rows, and how often it is wrong: measured on pairs of real models.

A *pair* is one class under two models; its rows are taken as a population, from which k are drawn, so that what truly
changed is known. Falls are between two ends of tasks of a run. There are four kinds of pairs in which accuracy did not
fall, and they ask for more and more:

* `flipped`: each row of such a pair turned round or not, by lot. Nothing changed, and a valid test is at its level.
* `halves`: rows of a class against other rows of it, under the same model. Nothing changed either.
* `seeds`: two runs with different seeds, where they are equally accurate within a point. Two models that differ.
* `held`: two ends of tasks of a run, equally accurate. An alarm is no error of the test: the signal did fall.

Of the last two only classes with an accuracy of 10 % or more count: below, there is no accuracy to hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from wane.predictions.paired_tests import answers_p, paired_p
from wane.predictions.plan import PairedRows
from wane.predictions.verdicts import EVIDENCE
from wane.runs.folder import RunFolder
from wane.softmax.registry import SIGNALS

__all__ = ["FALLS", "NULLS", "ROWS", "paired_changes", "paired_ends", "power_table"]

Array: TypeAlias = NDArray[np.float64]
#: One class under two models: the change of each row by each signal and by `drift`, higher is better; and as `before`
#: whether it was right under the first.
Changes: TypeAlias = dict[str, Array]
#: Rows a class.
ROWS = (3, 5, 10, 20, 50, 100)
#: Falls of accuracy, in points, and how near counts.
FALLS = {5: 2, 10: 2, 20: 4}
NULLS = ("flipped", "halves", "seeds", "held")
#: Accuracy is the same if it differs by no more.
SAME = 0.0101
#: And it can hold only where there is some.
LEAST = 0.1
LEVEL = 0.05


def power_table(runs: Sequence[RunFolder], *, draws: int = 400, rows: Sequence[int] = ROWS) -> pl.DataFrame:
    """False alarms and power of the test of each signal against the number of rows a class.

    Args:
        runs: of one method and data set with record.samples, at least two seeds.
        draws: how often k rows are drawn for each number.
        rows: the numbers.

    Columns: ``rows``, ``signal`` (``drift`` is the mean of the six bounded ones), ``kind`` of pair and ``fall`` in
    points (0 for those without), ``found``, the share of alarms at 5 %, one-sided; and for falls ``equal_seeds`` and
    ``equal_held``, the power at the threshold at which the test alarms in 5 % of those pairs.
    """
    ends = _ends(runs)
    falls = paired_changes(runs)
    seeds = _pairs([pair for a, b in combinations(ends, 2) for pair in zip(a, b, strict=True)], both_ways=True)
    fell = np.array([-pair["accuracy"].mean() for pair in falls])
    kinds = {("flipped", 0): falls, ("halves", 0): [rows for each in ends for rows in _alone(each)],
             ("seeds", 0): [pair for pair in seeds if _holds(pair)],
             ("held", 0): [pair for pair in falls if _holds(pair)]}  # fmt: skip
    for fall, near in FALLS.items():
        kinds["fall", fall] = [falls[i] for i in np.flatnonzero(np.abs(100 * fell - fall) <= near)]
    if missing := [f"{kind} {fall or ''}".strip() for (kind, fall), pairs in kinds.items() if not pairs]:
        raise ValueError(f"these runs have no pair of the kind {missing[0]}: give more runs with "
                         "record.samples=tasks, of several seeds and tasks")  # fmt: skip
    rng = np.random.default_rng(0)  # the same runs, the same table
    lines = []
    for k in rows:
        for signal in (*SIGNALS, "drift"):
            p = {kind: _drawn(pairs, signal, k, draws, rng, kind[0]) for kind, pairs in kinds.items()}
            for (kind, fall), values in p.items():
                equal = [_equal_power(p[null, 0], values) if fall else None for null in ("seeds", "held")]
                lines.append((k, signal, kind, fall, float((values[0] <= LEVEL).mean()), *equal))
    schema = {"rows": pl.Int64, "signal": pl.String, "kind": pl.String, "fall": pl.Int64, "found": pl.Float64,
              "equal_seeds": pl.Float64, "equal_held": pl.Float64}  # fmt: skip
    return pl.DataFrame(lines, schema=schema, orient="row")


def paired_changes(runs: Sequence[RunFolder]) -> list[Changes]:
    """Every class between any two ends of tasks of each run."""
    return [pair for each in _ends(runs) for pair in _pairs(list(combinations(each, 2)))]


def paired_ends(runs: Sequence[RunFolder]) -> list[PairedRows]:
    """The classes of all pairs of ends of tasks of each run, as a plan takes them."""
    return [PairedRows(pair["accuracy"], pair["drift"]) for pair in paired_changes(runs)]


def _ends(runs: Sequence[RunFolder]) -> list[list[pl.DataFrame]]:
    """The samples of each run at the end of each task."""
    found = []
    for run in runs:
        if run.samples is None:
            raise ValueError(f"{run.place} has no samples: run it with --set record.samples=tasks")
        tested = run.samples.filter(pl.col("split") == run.split)
        found.append([part.sort("sample") for (_,), part in sorted(tested.group_by("task"))])
    return found


def _pairs(models: Sequence[tuple[pl.DataFrame, pl.DataFrame]], *, both_ways: bool = False) -> list[Changes]:
    """The classes that two models were both tested on."""
    found = []
    for before, after in models:
        both = before.join(after, on="sample", suffix="_after", maintain_order="left")
        change = {name: SIGNALS[name].sign * (both[f"{name}_after"].to_numpy() - both[name].to_numpy(writable=False))
                  for name in SIGNALS if name in before.columns}  # fmt: skip
        change["drift"] = np.mean([change[name] for name in EVIDENCE], axis=0)
        change["before"] = both["accuracy"].to_numpy()
        labels = both["class"].to_numpy()
        for label in np.unique(labels):
            mine = labels == label
            found.append({name: values[mine].astype(np.float64) for name, values in change.items()})
    return found + [_turned(pair) for pair in found if both_ways]


def _turned(pair: Changes) -> Changes:
    """The same pair with the second model first."""
    return {name: -values for name, values in pair.items()} | {"before": pair["before"] + pair["accuracy"]}


def _holds(pair: Changes) -> bool:
    return bool(abs(pair["accuracy"].mean()) < SAME and pair["before"].mean() >= LEAST)


def _alone(ends: Sequence[pl.DataFrame]) -> list[Changes]:
    """The values, not changes, of each class under each model."""
    found = []
    for model in ends:
        for _, part in sorted(model.group_by("class")):
            values = {name: SIGNALS[name].sign * part[name].to_numpy().astype(np.float64)
                      for name in SIGNALS if name in part.columns}  # fmt: skip
            values["drift"] = np.mean([values[name] for name in EVIDENCE], axis=0)
            found.append(values)
    return found


def _drawn(
    pairs: Sequence[Changes], signal: str, k: int, draws: int, rng: np.random.Generator, kind: str
) -> tuple[Array, Array]:
    """How likely k rows are by chance, for each draw; and by mid-p, which tells more of them apart."""
    p, mid = np.empty(draws), np.empty(draws)
    for i in range(draws):
        changes = pairs[int(rng.integers(len(pairs)))][signal]
        drawn = changes[rng.integers(len(changes), size=k)]
        if kind == "flipped":
            drawn = drawn * rng.choice([-1, 1], k)
        elif kind == "halves":
            drawn = changes[rng.integers(len(changes), size=k)] - drawn
        mid[i] = paired_p(drawn, mid=True)
        is_answer = signal == "accuracy"
        p[i] = answers_p(int((drawn < 0).sum()), int((drawn > 0).sum()), k) if is_answer else paired_p(drawn)
    return p, mid


def _equal_power(null: tuple[Array, Array], values: tuple[Array, Array]) -> float:
    """The power at the threshold that alarms in exactly 5 % of the null pairs; ties at it count by lot."""
    threshold = np.quantile(null[1], LEVEL, method="inverted_cdf")
    share = (LEVEL - (null[1] < threshold).mean()) / (null[1] == threshold).mean()
    return float((values[1] < threshold).mean() + share * (values[1] == threshold).mean())
