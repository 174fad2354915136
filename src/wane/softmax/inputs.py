"""What `wane.signals` takes: arrays of any kind read as tensors, and errors that quote what is invalid."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = [
    "SUM_TOLERANCE", "as_tensor", "check_logits", "check_probabilities", "check_range", "read_integers", "read_labels",
    "read_scores", "restrict", "top_and_label",
]  # fmt: skip

#: How far a row of probabilities may be from summing to 1: room for float16 and for figures rounded in a CSV file.
SUM_TOLERANCE = 1e-2


def as_tensor(values: Any, what: str, device: torch.device | None = None) -> Tensor:
    """An array, a list or a number as a tensor, without a copy where torch can share the memory.

    torch takes no array with negative strides, in a foreign byte order, or of long doubles: these are copied.
    """
    if isinstance(values, Tensor) and (device is None or values.device == device):
        return values
    if isinstance(values, np.ndarray):
        native = values.dtype.newbyteorder("=")
        native = np.dtype(np.float64) if native.kind == "f" and native.itemsize > 8 else native
        if native != values.dtype or any(stride < 0 for stride in values.strides):
            values = np.ascontiguousarray(values, dtype=native)
    try:
        return torch.as_tensor(values, device=device)
    except (TypeError, ValueError, OverflowError) as error:
        kind = getattr(values, "dtype", type(values).__name__)
        raise TypeError(f"{what} cannot be read as numbers ({kind}): give a tensor, or an array of numbers") from error


def read_integers(values: Any, what: str, device: torch.device | None = None) -> Tensor:
    """Labels, ids or tasks as int64, from any integer type; fractions, truth values and complex numbers are refused."""
    tensor = as_tensor(values, what, device)
    if tensor.dtype == torch.int64:
        return tensor
    if tensor.is_floating_point() and not tensor.numel():  # what an empty list becomes
        return tensor.to(torch.int64)
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool:
        raise TypeError(f"{what} should be integers, not {tensor.dtype}")
    found = tensor.to(torch.int64)
    if tensor.dtype == torch.uint64 and bool((found < 0).any()):
        raise ValueError(f"{what} hold a number of {2**63:,} or more: no class has such a number")
    return found


def read_scores(scores: Any, what: str) -> Tensor:
    """Logits, probabilities or hidden states (`what`) as a tensor of at least two dimensions."""
    tensor = as_tensor(scores, what)
    if tensor.is_complex():
        raise TypeError(f"{what} are {tensor.dtype}, and complex numbers have no order: give real numbers")
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
    return read_integers(labels, "labels", scores.device)


def restrict(
    scores: Tensor, labels: Tensor, classes: Sequence[int] | Tensor, ignored: Tensor | None, validate: bool
) -> tuple[Tensor, Tensor]:
    """The columns of `classes`, and the labels as positions among them."""
    try:
        wanted = read_integers(classes, "classes", scores.device)
    except TypeError:
        wanted = torch.empty(0)
    if wanted.ndim != 1 or len(wanted) == 0:
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
    loss: Tensor, labels: Tensor, classes: int, ignored: Tensor | None,
    top_and_label_of: Callable[[int], tuple[float, float]], logits: Tensor | None = None,
) -> None:  # fmt: skip
    """Raise if a row cannot be scored.

    A NaN or +inf anywhere in a row or a label that is no class makes the loss NaN, and -inf at the label makes it
    infinite. So one sum over rows tells, and only then is it looked up what was wrong: the greatest logit of a row and
    that of its label. With all the `logits`, the error also names the class.
    """
    if loss.requires_grad:
        loss = loss.detach()
    if ignored is not None:
        loss = loss.masked_fill(ignored.reshape(-1), 0.0)
    if math.isfinite(float(loss.sum())):
        return
    check_range(labels, classes, ignored)

    def sentence(row: int) -> str:
        top, own = top_and_label_of(row)
        if math.isfinite(top) and math.isfinite(own):
            return (f"the logits of row {row} are as far apart as {own:g} and {top:g}, which {loss.dtype} cannot "
                    "tell from infinity: scale them down")  # fmt: skip
        if top == -math.inf or (math.isfinite(top) and own == -math.inf):
            return (f"the label's own logit is -inf at row {row}: a masked class cannot be the true one, so "
                    "unmask it, or leave the row out")  # fmt: skip
        which = "a logit" if logits is None else f"the logit of class {int(logits.reshape(-1, classes)[row].argmax())}"
        return f"{which} in row {row} is {top}: logits should be finite, or -inf for masked classes"

    _raise_at(~loss.isfinite(), ignored, sentence)


def top_and_label(logits: Tensor, labels: Tensor, row: int) -> tuple[float, float]:
    """The greatest logit of one row, counted over all leading dimensions, and that of its label."""
    where = torch.unravel_index(torch.tensor(row), labels.shape)
    z = logits[where].detach()
    return float(z.max()), float(z[labels[where]])


def check_probabilities(least: Tensor, total: Tensor, ignored: Tensor | None) -> None:
    """Raise if a row has a negative probability, or does not sum to 1."""
    _raise_at(~(least >= 0), ignored, lambda row: (
        f"a probability of row {row} is {float(least[row]):.4g}: probabilities should be at least 0, "
        "so pass these as logits if that is what they are"))  # fmt: skip
    _raise_at(~((total - 1).abs() <= SUM_TOLERANCE), ignored, lambda row: (
        f"the probabilities of row {row} sum to {float(total[row]):.4g}, not 1: "
        "normalise them, or pass logits if that is what they are"))  # fmt: skip
