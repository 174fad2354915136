"""What the paper prints, with where it stands in it: numbers to be put beside measured ones, never used otherwise.

A run finds its row by its method, whatever recipe it came from. Tables are in percent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil

from wane.paper.methods import er, trend, weights
from wane.runs.identity import Method
from wane.runs.recipes import load_recipe
from wane.views.tables.run_tables import Printed, PrintedResults

__all__ = ["PAPER", "RESULTS", "SEEDS", "STATEMENTS", "Statement", "printed", "printed_error"]


#: Runs behind each of the paper's means.
SEEDS = 3


@dataclass(frozen=True)
class Statement:
    """What the paper says of a distribution: `values` maps a statistic of `wane.views.observations.Box` to its number.

    `exact` is False where only a bound is given, or an example.
    """

    part: str
    signal: str
    values: dict[str, float]
    text: str
    where: str
    exact: bool = True


_TABLE_1 = """
           ER | 36.33 0.55 | 53.20 0.59 | 23.67 0.81 | 54.98 0.28
          tlr | 36.40 0.68 | 52.30 0.31 | 23.51 0.38 | 55.00 1.06
      log_tlr | 36.98 0.55 | 51.92 0.35 | 23.72 0.19 | 53.38 1.58
         rtlr | 35.42 0.49 | 52.55 0.49 | 23.04 0.30 | 54.67 0.12
           cm | 36.43 0.40 | 52.54 0.16 | 23.76 0.60 | 54.05 1.08
          nkl | 35.56 0.55 | 51.49 0.22 | 23.30 0.46 | 53.85 0.12
          ctl | 35.42 0.54 | 52.10 0.51 | 22.78 0.90 | 53.89 0.72
     accuracy | 35.21 0.58 | 52.21 0.84 | 22.19 0.87 | 54.54 0.60
"""
_TABLE_2 = """
           ER | 36.33 0.55 | 53.20 0.59 | 23.67 0.81 | 54.98 0.28
          tlr | 39.93 0.94 | 46.10 1.99 | 23.14 0.72 | 46.79 1.21
      log_tlr | 41.71 0.73 | 44.52 0.57 | 24.74 0.81 | 47.26 1.14
         rtlr | 41.88 0.60 | 44.73 1.07 | 24.16 1.34 | 49.11 1.37
           cm | 40.67 1.14 | 46.30 1.31 | 23.27 0.13 | 49.39 3.34
          nkl | 41.13 0.70 | 45.95 0.77 | 21.92 4.23 | 46.54 3.95
          ctl | 37.30 1.34 | 51.21 2.02 | 23.43 1.15 | 48.32 0.91
         loss | 41.44 0.52 | 43.73 0.52 | 24.00 1.37 | 46.23 3.53
     accuracy | 37.75 0.94 | 50.65 1.35 | 24.30 0.27 | 49.11 1.74
"""
#: The columns of both tables: data set and measure.
_COLUMNS = (
    ("cifar100", "accuracy"),
    ("cifar100", "forgetting"),
    ("tiny_imagenet", "accuracy"),
    ("tiny_imagenet", "forgetting"),
)


def _rows(table: str, intervention: Callable[[str], Method], where: str) -> dict[tuple[str, Method, str], Printed]:
    found = {}
    for line in table.strip().splitlines():
        signal, *cells = (cell.strip() for cell in line.split("|"))
        method = er() if signal == "ER" else intervention(signal)
        for (data, measure), cell in zip(_COLUMNS, cells, strict=True):
            mean, std = map(float, cell.split())
            found[data, method, measure] = Printed(mean, std, "Tables 1 and 2" if signal == "ER" else where)
    return found


#: (data set, method, measure) to what is printed.
RESULTS: dict[tuple[str, Method, str], Printed] = {
    **_rows(_TABLE_1, weights, "Table 1"),
    **_rows(_TABLE_2, trend, "Table 2"),
    ("cifar100", trend("accuracy", 3), "accuracy"): Printed(34.79, 2.32, "section 4.4, Figure 4"),
    ("cifar100", trend("log_tlr", 3), "accuracy"): Printed(41.07, 0.57, "abstract, section 1"),
    ("cifar100", trend("accuracy", 15), "accuracy"): Printed(40.33, None, "section 4.4"),
    ("cifar100", trend("accuracy", 20), "accuracy"): Printed(39.14, None, "section 4.4"),
    ("cifar100", trend("loss", 3), "accuracy"): Printed(41.14, 0.53, "section 4.4"),
    ("cifar100", trend("loss", 20), "accuracy"): Printed(40.53, 0.68, "section 4.4"),
}


def printed(data: str, method: Method, measure: str) -> Printed | None:
    """What the paper prints for a method on a data set, if it does.

    >>> printed("cifar100", trend("log_tlr"), "forgetting")
    Printed(mean=44.52, std=0.57, where='Table 2')
    >>> printed("glyphs", er(), "accuracy") is None
    True
    """
    return RESULTS.get((data, method, measure))


def _replays_a_slot(rows: int) -> float:
    """How often a slot of the paper's memory is replayed in a task of so many rows: 256 times on both data sets."""
    config = load_recipe("diagnostics", scale="paper")
    learner = config.learner
    steps = ceil(rows / learner.batch_size) * learner.epochs
    return steps * learner.replay_size / config.memory.capacity


def printed_error(data: str, measure: str, one: Method, other: Method) -> float:
    """The standard error of a printed difference of two methods, from the deviations of three seeds each; 0 if unknown.

    >>> round(printed_error("cifar100", "forgetting", trend("log_tlr"), er()), 2)
    0.47
    """
    found = [printed(data, method, measure) for method in (one, other)]
    deviations = [number.std for number in found if number is not None and number.std is not None]
    return (sum(s * s for s in deviations) / SEEDS) ** 0.5 if len(deviations) == 2 else 0.0


#: For tables that put measured results beside the paper's.
PAPER = PrintedResults(
    printed, "a ResNet-18 with 50 epochs a task and three seeds", seeds=SEEDS, replays=_replays_a_slot(rows=20 * 500)
)


#: The distributions of section 4.2: ER on Sequential CIFAR-100, every class and epoch an observation.
STATEMENTS: tuple[Statement, ...] = (
    Statement("accuracy 0 %", "accuracy", {"n": 31}, "n = 31", "section 1"),
    Statement("accuracy 0 %", "cm", {"q1": 0.32, "q3": 0.50, "max": 0.85}, "IQR [0.32, 0.50], max 0.85", "section 4.2"),
    Statement("accuracy 0 %", "cm", {"min": 0.18}, "one class at 0.18", "section 4.2", exact=False),
    Statement("accuracy 0 %", "tlr", {"median": 0.65, "q1": 0.60, "q3": 0.76}, "median 0.65, IQR [0.60, 0.76]",
              "section 4.2"),
    Statement("accuracy 0 %", "ctl", {"q1": 0.00, "q3": 0.01}, "IQR [0.00, 0.01]", "section 4.2"),
    Statement("accuracy 0 %", "nkl", {"q1": 0.02, "q3": 0.04}, "IQR [0.02, 0.04]", "section 4.2"),
    Statement("change, transition", "accuracy", {"whisker_high": 0.35}, "upper whisker > 0.35", "section 4.2, Figure 2",
              exact=False),
)  # fmt: skip
