"""How well do the rows of the memory stand for test data? They are trained on: the model may know them by heart.

Compared are past classes at the same epoch: the mean of a signal over a class's replayed rows with that over its test
images, and the slopes of both over the last epochs, which is what trend sampling acts on.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from wane.interventions.trend_sampler import least_squares_slopes
from wane.measures.history import Array
from wane.runs.folder import RunFolder
from wane.softmax.signals import SIGNALS
from wane.views.recovery import shown_rho, spearman
from wane.views.statistics import mean_std, paired

__all__ = ["SLOPE_WINDOWS", "agreement_markdown", "agreement_table"]

#: Epochs of a slope: the paper's shortest window, and its choice for CIFAR-100.
SLOPE_WINDOWS = (3, 10)


def agreement_table(runs: Sequence[RunFolder], *, windows: Sequence[int] = SLOPE_WINDOWS) -> pl.DataFrame:
    """A row for each signal and part: its means on replayed rows and on test images, and their rank correlation.

    The parts are `level`, and `slope w` for each window. `rho` is Spearman's, of ranks among the past classes of one
    epoch, over all epochs of a run; its mean over runs has a 95 % t-interval. A rho of 1 says that the memory ranks the
    classes as test data do, 0 that it tells nothing of it.
    """
    rows = []
    found = [_of_run(run, windows) for run in runs]
    for name in SIGNALS:
        each = [values[name] for values in found]
        for part in each[0]:
            replayed, test = (mean_std(values[part][i] for values in each)[0] for i in range(2))
            rho = paired({i: values[part][2] for i, values in enumerate(each)}, dict.fromkeys(range(len(each)), 0.0))
            rows.append({"signal": name, "part": part, "replayed": replayed, "test": test, "n": rho.n,
                         "rho": rho.difference, "low": rho.low, "high": rho.high})  # fmt: skip
    kinds = dict.fromkeys(("replayed", "test", "rho", "low", "high"), pl.Float64)
    return pl.DataFrame(rows, schema_overrides=kinds)


def agreement_markdown(table: pl.DataFrame) -> str:
    """Signals down; the two means of the level, and the correlation of each part, across."""
    parts = table["part"].unique(maintain_order=True).to_list()
    lines = [f"| signal | replayed rows | test images | {' | '.join(f'rho of {part}' for part in parts)} |",
             f"|:--|{'--:|' * (len(parts) + 2)}"]  # fmt: skip
    for (name,), rows in table.group_by("signal", maintain_order=True):
        level = rows.row(0, named=True)
        means = ["" if level[of] is None else f"{level[of]:.2f}" for of in ("replayed", "test")]
        cells = [*means, *map(shown_rho, rows.to_dicts())]
        lines.append(f"| {' | '.join([SIGNALS[str(name)].title, *cells])} |")
    return "\n".join(lines) + "\n"


def _of_run(run: RunFolder, windows: Sequence[int]) -> dict[str, dict[str, tuple[float, float, float]]]:
    """For each signal and part, of one run: mean on replayed rows, mean on test images, rank correlation."""
    history = run.history
    assert history.class_to_task is not None  # a run has tasks
    replayed, test = (history.trajectory("accuracy", split=split) for split in ("replay", "test"))
    classes = np.intersect1d(replayed.classes, test.classes)
    _, at_replayed, at_test = np.intersect1d(replayed.step, test.step, return_indices=True)
    past = history.class_to_task[classes] < test.task[at_test][:, None]
    epoch = np.broadcast_to(np.arange(len(past))[:, None], past.shape)

    def compared(a: Array, b: Array) -> tuple[float, float, float]:
        both = past & np.isfinite(a) & np.isfinite(b)
        if not both.any():
            return float("nan"), float("nan"), float("nan")
        return float(a[both].mean()), float(b[both].mean()), spearman(a[both], b[both], epoch[both])

    found = {}
    for name in SIGNALS:
        a = history.trajectory(name, classes.tolist(), split="replay").values[at_replayed]
        b = history.trajectory(name, classes.tolist(), split="test").values[at_test]
        found[name] = {"level": compared(a, b)}
        for window in windows:
            found[name][f"slope {window}"] = compared(_slopes(a, window), _slopes(b, window))
    return found


def _slopes(values: Array, window: int) -> Array:
    """At every epoch, the slope of each class over the epochs up to it."""
    return np.stack([least_squares_slopes(values[max(0, i + 1 - window) : i + 1]) for i in range(len(values))])
