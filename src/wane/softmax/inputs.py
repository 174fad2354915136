"""What `wane.signals` takes: arrays of any kind read as tensors, and errors that quote what is invalid."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from wane.softmax.row_statistics import RowStatistics, plain

__all__ = [
    "SUM_TOLERANCE", "check_logits", "check_probabilities", "check_range", "read_labels", "read_scores", "restrict",
    "statistics_of_row",
]  # fmt: skip

#: How far a row of probabilities may be from summing to 1: room for float16 and for figures rounded in a CSV file.
SUM_TOLERANCE = 1e-2


def read_scores(scores: Any, what: str) -> Tensor:
    """Logits, probabilities or hidden states (`what`) as a tensor of at least two dimensions."""
    tensor: Tensor = torch.as_tensor(scores)
    if not tensor.is_floating_point():
        raise TypeError(f"{what} should be floating point, not {tensor.dtype}: convert them with .float()")
    if tensor.ndim < 2:
        raise ValueError(f"{what} have shape {tuple(tensor.shape)}: they need at least a row and a class dimension, "
                         "as (1, C) for a single sample")  # fmt: skip
    return tensor


def read_labels(labels: Any, scores: Tensor) -> Tensor:
    """Labels as int64, on the device of the scores."""
    if isinstance(labels, Tensor) and labels.dtype == torch.int64 and labels.device == scores.device:
        return labels
    tensor = torch.as_tensor(labels, device=scores.device)
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool:
        raise TypeError(f"labels should be integers (class indices), not {tensor.dtype}")
    return tensor.to(torch.int64)


def restrict(
    scores: Tensor, labels: Tensor, classes: Sequence[int] | Tensor, ignored: Tensor | None, validate: bool
) -> tuple[Tensor, Tensor]:
    """The columns of `classes`, and the labels as positions among them."""
    wanted = torch.as_tensor(classes, device=scores.device)
    if wanted.ndim != 1 or wanted.is_floating_point() or wanted.dtype == torch.bool or len(wanted) == 0:
        raise ValueError(f"classes should be a list of class indices, such as range(20), not {classes!r}")
    size = scores.shape[-1]
    if validate:
        check_range(labels, size, ignored)
    if validate and (int(wanted.min()) < 0 or int(wanted.max()) >= size or len(set(wanted.tolist())) < len(wanted)):
        raise ValueError(f"classes should be different indices from 0 to {size - 1}, not {classes!r}")
    position = torch.full((size,), -1, device=scores.device)
    position[wanted] = torch.arange(len(wanted), device=scores.device)
    inside = position[labels]
    if validate:
        _raise_at(inside < 0, ignored, lambda row: f"label {int(labels.reshape(-1)[row])} at row {row} is not among "
                  f"the {len(wanted)} classes given: leave out such samples, or add the class to classes")  # fmt: skip
    if isinstance(classes, range) and classes.step == 1:
        return scores.narrow(-1, classes.start, len(classes)), inside
    return scores.index_select(-1, wanted), inside


def _raise_at(bad: Tensor, ignored: Tensor | None, sentence: Callable[[int], str]) -> None:
    """Raise with the sentence for the first bad row, if there is one."""
    bad = bad.reshape(-1)
    if ignored is not None:
        bad = bad & ~ignored.reshape(-1)
    if bool(bad.any()):
        raise ValueError(sentence(int(bad.nonzero()[0, 0])))


def check_range(labels: Tensor, classes: int, ignored: Tensor | None) -> None:
    """Raise if a label is no class."""
    _raise_at((labels < 0) | (labels >= classes), ignored, lambda row: (
        f"label {int(labels.reshape(-1)[row])} at row {row} is not a class from 0 to {classes - 1}: "
        "correct it, or name it as ignore_index if it marks padding"))  # fmt: skip


def check_logits(
    loss: Tensor, labels: Tensor, classes: int, ignored: Tensor | None, statistics_of: Callable[[int], RowStatistics],
    logits: Tensor | None = None,
) -> None:  # fmt: skip
    """Raise if a row cannot be scored.

    A NaN or +inf anywhere in a row or a label that is no class makes the loss NaN, and -inf at the label makes it
    infinite. So one sum over rows tells, and only then is it looked up what was wrong. With all the `logits`, the
    error also names the class.
    """
    if loss.requires_grad:
        loss = loss.detach()
    if ignored is not None:
        loss = loss.masked_fill(ignored.reshape(-1), 0.0)
    if math.isfinite(float(loss.sum())):
        return
    check_range(labels, classes, ignored)

    def sentence(row: int) -> str:
        top, gap = map(float, statistics_of(row)[:2])
        if top == -math.inf or (math.isfinite(top) and gap == -math.inf):
            return (f"the label's own logit is -inf at row {row}: a masked class cannot be the true one, so "
                    "unmask it, or leave the row out")  # fmt: skip
        which = "a logit" if logits is None else f"the logit of class {int(logits.reshape(-1, classes)[row].argmax())}"
        return f"{which} in row {row} is {top}: logits should be finite, or -inf for masked classes"

    _raise_at(~loss.isfinite(), ignored, sentence)


def statistics_of_row(logits: Tensor, labels: Tensor, row: int) -> RowStatistics:
    """Of one row, counted over all leading dimensions."""
    where = torch.unravel_index(torch.tensor(row), labels.shape)
    return plain(logits[where][None].detach(), labels[where][None])


def check_probabilities(least: Tensor, total: Tensor, ignored: Tensor | None) -> None:
    """Raise if a row has a negative probability, or does not sum to 1."""
    _raise_at(~(least >= 0), ignored, lambda row: (
        f"a probability of row {row} is {float(least[row]):.4g}: probabilities should be at least 0, "
        "so pass these as logits if that is what they are"))  # fmt: skip
    _raise_at(~((total - 1).abs() <= SUM_TOLERANCE), ignored, lambda row: (
        f"the probabilities of row {row} sum to {float(total[row]):.4g}, not 1: "
        "normalise them, or pass logits if that is what they are"))  # fmt: skip
