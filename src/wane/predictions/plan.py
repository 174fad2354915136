"""How many rows a class does it take to see a fall? From two files, or from what was measured on real pairs of models.

Rows are drawn again and again from those of a class, and tested as `compare` tests them: accuracy by McNemar's test,
the signals by the signed ranks of their mean. The power is the share of draws in which the fall is found.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from typing import NamedTuple, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from wane.predictions.alignment import align
from wane.predictions.groups import grouped
from wane.predictions.paired_tests import answers_p, paired_p
from wane.predictions.predictions import Predictions
from wane.predictions.samples import Samples
from wane.predictions.verdicts import EVIDENCE, FEWEST
from wane.softmax.registry import SIGNALS

__all__ = ["FALLS", "PairedRows", "Plan", "built_in_plan", "paired_rows", "plan_from", "plan_from_files"]

Array: TypeAlias = NDArray[np.float64]

#: The falls of accuracy that a plan is made for.
FALLS = (0.05, 0.1, 0.2, 0.3)
#: Numbers of rows that are tried; more than the last is "more".
ROWS = (5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50, 60, 80, 100, 125, 150, 200, 250, 300, 400, 500)
#: How many classes are judged together where a plan says "one of many".
MANY = 100


class PairedRows(NamedTuple):
    """The rows of one class under two models, as changes from one to the other; higher is better."""

    answers: Array  # 1 turned right, -1 turned wrong, 0 neither
    drift: Array  # the mean change of the signals of `EVIDENCE`


class Plan(NamedTuple):
    """How many rows a class it takes to see falls of accuracy."""

    table: pl.DataFrame
    """Columns: ``fall``; ``judged``, classes judged together, of which one fell; ``accuracy`` and ``signals``, the rows
    that each test needs, null if more than 500; ``classes``, how many fell about so much in the source."""
    power: float
    alpha: float
    source: str


def paired_rows(
    before: Predictions | Samples, after: Predictions | Samples, *, common: bool = False
) -> list[PairedRows]:
    """The paired rows of each class of two files; see `wane.predictions.alignment.align`."""
    pair = align(before, after, common=common)
    groups, _ = grouped(pair.before, ("class",))
    old, new = pair.before.values, pair.after.values
    known = [name for name in EVIDENCE if name in old and name in new]
    answers = (new["accuracy"] == 1).astype(np.float64) - (old["accuracy"] == 1)
    drift = np.zeros(len(answers))
    for name in known:
        drift += SIGNALS[name].sign * np.subtract(new[name], old[name], dtype=np.float64) / len(known)
    parts = zip(groups.split(answers), groups.split(drift), strict=True)
    return [PairedRows(a.astype(np.float64), d.astype(np.float64)) for a, d in parts]


def plan_from(
    classes: Sequence[PairedRows],
    source: str,
    *,
    judged: int = MANY,
    power: float = 0.8,
    alpha: float = 0.05,
    draws: int = 400,
    seed: int = 0,
) -> Plan:
    """The rows that it takes to see falls like those of these classes.

    A fall of d points is planned for from the classes whose accuracy fell by about so much (within 2 points, or a fifth
    of it), each as likely as the other. Of one class alone the test is at alpha; of one among many at alpha / many,
    which is what the correction comes to if no other changed.

    Args:
        classes: from `paired_rows`; those with fewer than 5 rows are left out.
        source: what they are, in words.
        judged: how many classes are judged together, in the second line of each fall.
        power: the share of falls to find.
        alpha: the accepted rate of false alarms.
        draws: how often rows are drawn for each number of them.
        seed: of the draws.

    >>> rng = np.random.default_rng(0)
    >>> lost = [PairedRows(-1.0 * (rng.random(200) < 0.2), rng.normal(-0.2, 0.2, 200)) for _ in range(5)]
    >>> plan_from(lost, "simulated", judged=10).table.filter(pl.col("fall") == 0.2).rows()
    [(0.2, 1, 30, 12, 5), (0.2, 10, 60, 20, 5)]
    """
    if not 0 < power < 1:
        raise ValueError(f"power is {power}: give the share of falls to find, between 0 and 1, such as 0.8")
    if not 0 < alpha < 1:
        raise ValueError(f"alpha is {alpha}: give a rate of false alarms between 0 and 1, such as 0.05")
    enough = [rows for rows in classes if len(rows.answers) >= FEWEST]
    fell = np.array([-rows.answers.mean() for rows in enough])
    rng = np.random.default_rng(seed)
    lines = []
    for fall in FALLS:
        chosen = [enough[i] for i in np.flatnonzero(np.abs(fell - fall) <= max(0.02, fall / 5) + 1e-9)]
        levels = (alpha / 2, alpha / judged / 2)  # one side of two
        needed = _rows_needed(chosen, levels, power, draws, rng) if chosen else np.full((2, 2), -1)
        for i, together in enumerate((1, judged)):
            found = [int(rows) if rows > 0 else None for rows in needed[i]]
            lines.append((fall, together, *found, len(chosen)))
    columns = {"fall": pl.Float64, "judged": pl.Int64, "accuracy": pl.Int64, "signals": pl.Int64, "classes": pl.Int64}
    return Plan(pl.DataFrame(lines, schema=columns, orient="row"), power, alpha, source)


def plan_from_files(
    before: Predictions | Samples, after: Predictions | Samples, *, common: bool = False, alpha: float = 0.05
) -> Plan:
    """A plan from the classes of two files: their falls as they were seen, noise included."""
    classes = paired_rows(before, after, common=common)
    judged = sum(len(rows.answers) >= FEWEST for rows in classes)
    return plan_from(classes, "the classes of these files, as they fell", judged=max(2, judged), alpha=alpha)


def built_in_plan() -> Plan:
    """What was measured on real pairs: ends of tasks under replay, CIFAR-100 and Tiny-ImageNet, three runs each.

    `python results/evidence.py` measures it anew from the samples kept in results/samples.

    >>> built_in_plan().table.row(2)  # a fall of 10 points, of one class: by accuracy, by the signals
    (0.1, 1, 125, 25, 1409)
    """
    table = pl.read_csv(files("wane.predictions").joinpath("plan.csv").read_bytes())
    return Plan(table, 0.8, 0.05, "real pairs: ends of tasks under replay, CIFAR-100 and Tiny-ImageNet")


def _rows_needed(
    classes: Sequence[PairedRows], levels: Sequence[float], power: float, draws: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """(levels, tests) the fewest rows of `ROWS` at which each test has the power; -1 if none is enough."""
    needed = np.full((len(levels), 2), -1)
    for k in ROWS:
        p = np.array([_tests(classes[int(rng.integers(len(classes)))], k, rng) for _ in range(draws)])
        reached = np.array([(p <= level).mean(0) >= power for level in levels])
        needed = np.where((needed < 0) & reached, k, needed)
        if (needed > 0).all():
            break
    return needed


def _tests(rows: PairedRows, k: int, rng: np.random.Generator) -> tuple[float, float]:
    """How likely k of the rows are by chance, by accuracy and by the signals; one-sided."""
    drawn = rng.integers(len(rows.answers), size=k)
    answers = rows.answers[drawn]
    lost, gained = int((answers < 0).sum()), int((answers > 0).sum())
    return answers_p(lost, gained, k), paired_p(rows.drift[drawn])
