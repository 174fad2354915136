"""Where the accuracy of a class went: the rungs from what it is now to what its features still hold.

What is lost can be hidden by *bias* (a constant added to logits brings it back), hidden in the *head* (a new linear
head on the same features brings it back), or gone from the *features*. `wane.training.ladder` measures the rungs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from wane.registry import Registry

if TYPE_CHECKING:
    import polars

__all__ = ["RUNGS", "Ladder", "Rung"]

Array = NDArray[np.float64]
Part = Literal["now", "bias", "head", "features"]

#: Of the table; `offset` is what the correction adds to the logit of the class, `strength` the penalty of the head.
COLUMNS = ("step", "task", "class", "class_task", "n", "rung", "accuracy", "offset", "strength")


@dataclass(frozen=True)
class Rung:
    """One rung of the ladder.

    Attributes:
        name: in ladder.parquet, and in summary.json.
        title: for tables and figures.
        description: one sentence.
        part: which part of what was lost it brings back: that of the "bias", of the "head", or all that the "features"
            hold; "now" is the accuracy as it is.
        oracle: fitted on the test rows, so that no method could do it.
    """

    name: str
    title: str
    description: str
    part: Part
    oracle: bool = False


RUNGS: Registry[Rung] = Registry(
    "rung",
    {
        row.name: row
        for row in (
            Rung("now", "now", "Accuracy as it is.", "now"),
            Rung("bias_memory", "bias corrected on the memory",
                 "Accuracy with the bias corrected, by offsets fitted on the memory.", "bias"),
            Rung("bias_holdout", "bias corrected on held-out rows",
                 "Accuracy with the bias corrected, by offsets fitted on training rows that were held out.", "bias"),
            Rung("bias_oracle", "bias corrected by an oracle",
                 "Accuracy with the bias corrected by an oracle: offsets fitted on the test rows.", "bias", True),
            Rung("head_memory", "new head on the memory",
                 "Accuracy with the linear head re-fitted on the memory.", "head"),
            Rung("head_all", "head on all training rows",
                 "What the features still hold: accuracy with a head fitted on all training rows of all seen classes.",
                 "features"),
        )
    },
)  # fmt: skip


class Ladder:
    """The rungs of a run, from its ladder.parquet.

    Accuracy of a task is the mean over its test rows, and every mean over tasks is one over these, as in a summary.

    Args:
        frame: a row for each end of a task, class (in a stream of domains: class of a domain) and rung.

    >>> import polars as pl
    >>> rows = [(8, 0, 0, 0, 10, "now", 0.9), (16, 1, 0, 0, 10, "now", 0.2), (16, 1, 1, 1, 10, "now", 0.8),
    ...         (16, 1, 0, 0, 10, "bias_oracle", 0.7), (16, 1, 1, 1, 10, "bias_oracle", 0.6)]
    >>> ladder = Ladder(pl.DataFrame(rows, schema=COLUMNS[:7], orient="row"))
    >>> ladder.rungs, ladder.by_task("now"), ladder.learnt()
    (('now', 'bias_oracle'), array([0.2, 0.8]), array([0.9, 0.8]))
    >>> round(ladder.average("bias_oracle"), 3), ladder.old("bias_oracle")
    (0.65, 0.7)
    """

    def __init__(self, frame: polars.DataFrame) -> None:
        if absent := [name for name in COLUMNS[:7] if name not in frame.columns]:
            raise ValueError(f"a ladder has no column {absent[0]!r}: it has {', '.join(frame.columns)}")
        self.frame = frame
        self.end = -1 if frame.is_empty() else int(frame["task"].to_numpy().max())

    @property
    def rungs(self) -> tuple[str, ...]:
        """Those that were measured at the last end of a task, in the order of the registry."""
        there = set(self.frame.filter(self.frame["task"] == self.end)["rung"].to_list())
        return tuple(name for name in RUNGS if name in there)

    def rung_of(self, part: Part) -> Rung | None:
        """The rung that stands for a part: what rows of its own could do before an oracle, the cleanest first."""
        order = ("now", "bias_holdout", "bias_memory", "bias_oracle", "head_memory", "head_all")
        found = [RUNGS[name] for name in order if RUNGS[name].part == part and name in self.rungs]
        return found[0] if found else None

    def by_class(self, rung: str, end: int | None = None) -> tuple[NDArray[np.int64], Array]:
        """The classes and their accuracy at the end of a task; default: of the last."""
        rows = self._rows(rung, end)
        return rows["class"].to_numpy(), rows["accuracy"].to_numpy()

    def by_task(self, rung: str, end: int | None = None) -> Array:
        """(T,) accuracy of each task so far at the end of a task, over its test rows; NaN where it was not measured."""
        rows = self._rows(rung, end)
        tasks, n = rows["class_task"].to_numpy(), rows["n"].to_numpy().astype(np.float64)
        size = (self.end if end is None else end) + 1
        total = np.bincount(tasks, n, minlength=size)
        right = np.bincount(tasks, n * rows["accuracy"].to_numpy(), minlength=size)
        with np.errstate(invalid="ignore"):
            accuracy: Array = np.where(total > 0, right / total, np.nan)
        return accuracy

    def learnt(self) -> Array:
        """(T,) accuracy of each task right after it was learnt. A mark beside the ladder: fewer classes competed."""
        return np.array([self.by_task("now", end)[end] for end in range(self.end + 1)])

    def average(self, rung: str) -> float:
        """Mean over all tasks at the last end; NaN if it was not measured."""
        tasks = self.by_task(rung)
        return float(tasks.mean()) if len(tasks) else float("nan")

    def old(self, rung: str) -> float:
        """Mean over the old tasks at the last end; NaN if there is none, or it was not measured."""
        tasks = self.by_task(rung)[:-1]
        return float(tasks.mean()) if len(tasks) else float("nan")

    def _rows(self, rung: str, end: int | None) -> polars.DataFrame:
        frame = self.frame
        return frame.filter((frame["task"] == (self.end if end is None else end)) & (frame["rung"] == RUNGS[rung].name))
