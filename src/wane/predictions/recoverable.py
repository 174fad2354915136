"""How many points a correction of the logits would bring back, and saved predictions with the correction applied.

A correction that is fitted and judged on the same rows always seems to help. So it is cross-fitted: the rows are
divided into folds, and each fold is corrected by what the others say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from wane.interventions.correction import LogitCorrection
from wane.predictions.files import PredictionsError
from wane.predictions.paired_tests import paired_interval
from wane.predictions.predictions import Predictions

__all__ = ["FOLDS", "Recoverable", "as_logits", "class_groups", "correct", "recoverable"]

#: Parts that the rows are divided into; classes are spread over them evenly.
FOLDS = 5
#: Rows x classes that are looked at: beyond, a random part of the rows is enough, and keeps the fits to seconds.
LARGEST = 5 * 10**6


@dataclass(frozen=True)
class Recoverable:
    """What adding one number a class, or a group of classes, to the logits would bring back."""

    accuracy: float
    """As it is, over all rows."""
    corrected: float
    """With each row corrected by what rows of other folds say."""
    low: float
    """Of the interval of `points`."""
    high: float
    """Of the interval of `points`."""
    rows: int
    """How many it was measured on."""
    offsets: int
    """How many numbers were fitted: groups, or classes with rows."""
    by: str
    """The signal that they were fitted by."""
    alpha: float
    """One minus the level of the interval."""

    @property
    def points(self) -> float:
        """Corrected accuracy minus accuracy, in percentage points."""
        return 100 * (self.corrected - self.accuracy)

    @property
    def sentence(self) -> str:
        """The same in words."""
        level = f"{100 * (1 - self.alpha):g} %: {self.low:+.1f} to {self.high:+.1f}"
        if self.low > 0:
            return f"Bias: a correction would bring back {self.points:.1f} points ({level})."
        return f"Bias: a correction would change accuracy by {self.points:+.1f} points ({level})."


def recoverable(
    predictions: Predictions, *, groups: Sequence[int] | Tensor | None = None, by: str = "loss", folds: int = FOLDS,
    alpha: float = 0.05,
) -> Recoverable:  # fmt: skip
    """How many points of accuracy a correction would bring back, on rows that it was not fitted on.

    The rows of each class are spread evenly over the folds, in an order drawn from a fixed seed. Every row counts the
    same, in the fit as in the accuracy. The interval is paired, row by row; it takes the offsets of each fold as given.
    Of a file with more than five million outputs a random part of the rows is used.

    Args:
        predictions: of one model.
        groups: (C,) the group of each class, one offset for each; None: one for each class, held back where the rows do
            not tell (`wane.LogitCorrection`).
        by: the signal to fit by.
        folds: how many.
        alpha: one minus the level of the interval.

    >>> from wane import read_predictions
    >>> found = recoverable(read_predictions("example:digits_after"))
    >>> round(100 * found.accuracy, 1), round(100 * found.corrected, 1), round(found.low, 1), round(found.high, 1)
    (70.0, 91.2, 18.1, 24.3)
    >>> print(recoverable(read_predictions("example:digits_after"), groups=[0] * 5 + [1] * 5).sentence)
    Bias: a correction would bring back 21.2 points (95 %: +18.3 to +24.1).
    """
    logits, labels = as_logits(predictions), predictions.labels
    if (most := max(LARGEST // logits.shape[1], 2 * folds)) < len(labels):
        some = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))[:most].sort().values
        logits, labels = logits[some], labels[some]
    corrected = _cross_fitted(logits, labels, groups, by, folds, predictions)
    right, now = ((_answers(z, labels)) for z in (corrected, logits))
    change = right - now
    n = np.array([len(change)])
    error = np.array([change.std(ddof=1) / np.sqrt(len(change))])
    low, high = paired_interval(np.array([change.mean()]), error, n, alpha=alpha, answers=True)
    known = len(np.unique(labels.numpy())) if groups is None else len({int(g) for g in groups if int(g) >= 0})
    return Recoverable(
        float(now.mean()), float(right.mean()), 100 * float(low[0]), 100 * float(high[0]), len(now), known, by, alpha
    )


def correct(
    predictions: Predictions, fit: Predictions | None = None, *, groups: Sequence[int] | Tensor | None = None,
    by: str = "nkl", folds: int = FOLDS,
) -> tuple[Predictions, Tensor | None]:  # fmt: skip
    """The predictions with corrected logits, and the offsets (C,) that were added.

    Args:
        predictions: what to correct.
        fit: a few labelled rows of the same model, which the offsets are fitted on, every class counting the same.
            None: cross-fitted on the predictions themselves, each fold by the others; no offsets are then returned.
        groups: as in `recoverable`.
        by: the signal to fit by.
        folds: how many, without `fit`.

    >>> from wane import read_predictions
    >>> rows = read_predictions("example:digits_after")
    >>> fixed, offsets = correct(rows, rows, groups=[0] * 5 + [1] * 5)
    >>> offsets.round(decimals=2)[[0, 9]]
    tensor([ 0.0000, -2.7600], dtype=torch.float64)
    """
    logits = as_logits(predictions)
    if fit is None:
        corrected: Tensor = _cross_fitted(logits, predictions.labels, groups, by, folds, predictions)
        return replace(predictions, logits=corrected, probabilities=None), None
    if fit.num_classes != predictions.num_classes or (
        fit.class_names and predictions.class_names and fit.class_names != predictions.class_names
    ):
        raise PredictionsError(
            f"{fit.path} has {fit.num_classes} classes and {predictions.path} {predictions.num_classes}, or they have "
            "other names or another order: fit on rows of the same model"
        )
    try:
        correction = LogitCorrection(by, groups).fit(as_logits(fit), fit.labels)
    except ValueError as error:
        raise PredictionsError(f"{fit.path} cannot be fitted on, as {error}") from None
    return replace(predictions, logits=correction.apply(logits), probabilities=None), correction.offsets


def class_groups(predictions: Predictions, by: Sequence[str]) -> list[int] | None:
    """The group of each class, where columns of the file tell it (its task, say); None where a class is in several.

    Classes without rows are in no group, -1.
    """
    if any(name not in predictions.columns for name in by):
        return None
    labels = predictions.labels.tolist()
    values = list(zip(*(predictions.columns[name].to_list() for name in by), strict=True))
    known: dict[int, tuple[object, ...]] = dict(zip(labels, values, strict=True))
    if any(known[label] != value for label, value in zip(labels, values, strict=True)):
        return None
    number = {value: k for k, value in enumerate(sorted(set(known.values()), key=repr))}
    found = [number[known[c]] if c in known else -1 for c in range(predictions.num_classes)]
    return found if len(number) > 1 else None


def as_logits(predictions: Predictions) -> Tensor:
    """The logits; of probabilities their logarithms, of a probability of 0 that of the least positive number."""
    if predictions.logits is not None:
        return predictions.logits
    assert predictions.probabilities is not None
    p = predictions.probabilities.double()
    return p.clamp(min=torch.finfo(torch.float64).tiny).log()


def _cross_fitted(
    logits: Tensor, labels: Tensor, groups: Sequence[int] | Tensor | None, by: str, folds: int, of: Predictions
) -> Tensor:
    """Each fold corrected by offsets fitted on the others."""
    if not 2 <= folds <= len(labels):
        raise ValueError(f"folds={folds} for {len(labels)} rows: give at least 2, and at most the number of rows")
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    by_class = order[labels[order].argsort(stable=True)]
    fold = torch.empty(len(labels), dtype=torch.int64)
    fold[by_class] = torch.arange(len(labels)) % folds
    corrected = logits.clone()
    for k in range(folds):
        others, held_out = fold != k, fold == k
        correction = LogitCorrection(by, groups, balanced=False)
        try:
            correction.fit(logits[others], labels[others])
        except ValueError as error:
            raise PredictionsError(f"{of.path} is too small to correct by its own rows, as {error}") from None
        corrected[held_out] = correction.apply(logits[held_out])
    return corrected


def _answers(logits: Tensor, labels: Tensor) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """1 where the label is on top; a tie goes to the label."""
    right: Tensor = logits.gather(1, labels[:, None])[:, 0] >= logits.amax(1)
    return right.double().numpy()
