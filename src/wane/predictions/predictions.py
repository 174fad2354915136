"""Predictions saved by anything: logits or probabilities with labels, from .npz, .parquet, .csv, .pt, .pth.

A file holds ``logits`` or ``probabilities`` (N, C) and ``labels`` (N,), and may hold ``class_names`` (C,) and
``ids`` (N,); `ALIASES` lists the other names accepted. A table may instead have one column per class, named
``logit_<class>`` or ``prob_<class>``. Nothing in a file is ever executed. Whatever is wrong with it ends in a
`PredictionsError` of one sentence, in which rows and classes count from 0.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wane.predictions import examples
from wane.predictions.files import ALIASES, READERS, Found, PredictionsError
from wane.registry import UnknownNameError
from wane.softmax.signals import signals

if TYPE_CHECKING:
    import os

__all__ = ["ALIASES", "Predictions", "PredictionsError", "align", "measure", "read_predictions"]


@dataclass(frozen=True, eq=False)
class Predictions:
    """What a model said about N samples of C classes; either ``logits`` or ``probabilities`` is given.

    >>> p = Predictions(labels=torch.tensor([0, 2]), logits=torch.tensor([[2.0, 0, 0], [0, 1, 3]]))
    >>> len(p), p.num_classes
    (2, 3)
    """

    labels: Tensor
    """(N,) int64."""
    logits: Tensor | None = None
    """(N, C), in the precision of the file."""
    probabilities: Tensor | None = None
    """(N, C), in the precision of the file."""
    class_names: tuple[str, ...] | None = None
    """(C,), where known."""
    ids: tuple[Hashable, ...] | None = None
    """(N,), what the samples of two files are matched by."""
    path: Path = Path("<memory>")

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def num_classes(self) -> int:
        """C."""
        scores = self.probabilities if self.logits is None else self.logits
        return 0 if scores is None else scores.shape[1]


def read_predictions(path: str | os.PathLike[str]) -> Predictions:
    """Read and check a file of predictions; the suffix of its name tells the format.

    ``example:<name>`` stands for one of the files that come with wane, which `wane.predictions.examples` lists.

    >>> read_predictions("example:digits_before").logits.shape
    torch.Size([899, 10])
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/a.npz", logits=np.array([[2.0, 1.0], [0.5, 3.0]]), labels=np.array([0, 1]))
    ...     read_predictions(f"{folder}/a.npz").labels
    tensor([0, 1])
    """
    try:
        path = examples.find(path)
        reader, how = READERS[path.suffix.lower()]
    except UnknownNameError as error:
        raise PredictionsError(f"{path} is an {error}") from None
    if not path.is_file():
        raise PredictionsError(f"{path} is not a file: check the path")
    try:
        return replace(_assemble(reader(path)), path=path)
    except PredictionsError as error:
        raise PredictionsError(f"{path} {error}") from error
    except Exception as error:  # what a broken file raises differs from library to library
        reason = (str(error).splitlines() or [""])[0].split(". ")[0].rstrip(" .")
        raise PredictionsError(
            f"{path} cannot be read as {path.suffix} ({type(error).__name__}: {reason}): save it again with {how}"
        ) from error


def align(before: Predictions, after: Predictions) -> tuple[Predictions, Predictions]:
    """The same samples in the same order: ``before`` as it is, and ``after`` brought into its order.

    Samples are matched by their ids where both have them; otherwise they are taken to be in the same order
    already, which the labels must bear out.

    >>> logits, labels = torch.tensor([[2.0, 1.0], [0.0, 3.0]]), torch.tensor([0, 1])
    >>> before = Predictions(labels=labels, logits=logits, ids=("a", "b"))
    >>> after = Predictions(labels=labels.flip(0), logits=logits.flip(0) * 2, ids=("b", "a"))
    >>> align(before, after)[1].logits
    tensor([[4., 2.],
            [0., 6.]])
    """
    try:
        return before, _align(before, after)
    except PredictionsError as error:
        raise PredictionsError(f"{before.path} and {after.path} {error}") from None


def measure(predictions: Predictions) -> dict[str, NDArray[np.float64]]:
    """Every signal of every sample, ``rank``, and ``gap``: how many nats the label lacks to be the answer.

    >>> p = Predictions(labels=torch.tensor([0, 2]), logits=torch.tensor([[2.0, 0, 0], [0, 4, 3]]))
    >>> measure(p)["gap"], measure(p)["rank"]
    (array([0., 1.]), array([1., 2.]))
    """
    logits, probabilities, labels = predictions.logits, predictions.probabilities, predictions.labels
    # Not compiled: for a single pass, compiling would take longer than running.
    scored = signals(logits, labels, probabilities=probabilities, compiled=False)
    scores = probabilities if logits is None else logits
    assert scores is not None  # or `signals` would have complained
    top, own = scores.amax(1).double(), scores.gather(1, labels[:, None])[:, 0].double()
    gap = top - own if logits is not None else top.log() - own.log()
    return {name: values.double().numpy() for name, values in {**scored._asdict(), "gap": gap}.items()}


def _align(before: Predictions, after: Predictions) -> Predictions:
    if before.num_classes != after.num_classes:
        classes = f"{before.num_classes} and {after.num_classes} classes"
        raise PredictionsError(f"have {classes}: compare models with the same classes")
    for i, (a, b) in enumerate(zip(before.class_names or (), after.class_names or (), strict=False)):
        if a != b:
            raise PredictionsError(f"call class {i} {a!r} and {b!r}: save the classes in the same order")
    if before.ids is not None and after.ids is not None:
        after = _in_order(after, before.ids)
    elif len(before) != len(after):
        rows = f"{len(before)} and {len(after)} rows"
        raise PredictionsError(f"have {rows}: save the same samples, or ids to match them by")
    if (row := _first(before.labels != after.labels)) is not None:
        sample = f"row {row}" if before.ids is None or after.ids is None else f"id {before.ids[row]!r}"
        raise PredictionsError(
            f"are not of the same samples, as {sample} has label {int(before.labels[row])} in one and "
            f"{int(after.labels[row])} in the other: save both in one order, or with ids to match them by"
        )
    return after


def _in_order(p: Predictions, ids: tuple[Hashable, ...]) -> Predictions:
    row_of = {name: row for row, name in enumerate(p.ids or ())}
    wanted = set(ids)
    for given, distinct in ((ids, len(wanted)), (p.ids or (), len(row_of))):
        if distinct < len(given):
            twice = next(name for name in given if given.count(name) > 1)
            raise PredictionsError(f"cannot be matched, as id {twice!r} occurs more than once: make the ids unique")
    missing, extra = [i for i in ids if i not in row_of], [i for i in row_of if i not in wanted]
    if missing or extra:
        raise PredictionsError(
            f"are not of the same samples, as {len(missing)} ids are only in the first and {len(extra)} only "
            f"in the second (such as {[*missing, *extra][0]!r}): save the same samples in both"
        )
    rows = torch.tensor([row_of[name] for name in ids], dtype=torch.int64)
    logits = None if p.logits is None else p.logits[rows]
    probabilities = None if p.probabilities is None else p.probabilities[rows]
    return replace(p, labels=p.labels[rows], logits=logits, probabilities=probabilities, ids=ids)


# From what a file holds to predictions. These raise errors without the path, which `read_predictions` adds.


def _assemble(found: Found) -> Predictions:
    given: Found = dict.fromkeys(ALIASES)
    for key, aliases in ALIASES.items():
        present = [name for name in aliases if name in found]
        if len(present) > 1:
            raise PredictionsError(f"has {' and '.join(present)}, which mean the same: keep one")
        given[key] = found[present[0]] if present else None
    logits, probabilities, raw_labels, raw_names, raw_ids = given.values()
    keys = f"it has {', '.join([*map(repr, found)][:10]) or 'nothing'}{', ...' if len(found) > 10 else ''}"
    if logits is None and probabilities is None:
        raise PredictionsError(f"has neither logits nor probabilities ({keys}): save one of them by that name")
    if logits is not None and probabilities is not None:
        raise PredictionsError("has logits and probabilities: keep the logits, which say more")
    if raw_labels is None:
        raise PredictionsError(f"has no labels ({keys}): save the true class of every row by that name")

    scores = _scores(probabilities if logits is None else logits)
    rows, classes = scores.shape
    names = None if raw_names is None else _class_names(raw_names, classes)
    labels = _labels(raw_labels, names, rows, classes)
    ids = None if raw_ids is None else _ids(raw_ids, rows)
    if logits is None:
        _check_rows(labels, probabilities=scores)
        return Predictions(labels, probabilities=scores, class_names=names, ids=ids)
    _check_rows(labels, logits=scores)
    return Predictions(labels, logits=scores, class_names=names, ids=ids)


def _scores(raw: Any) -> Tensor:
    """Logits or probabilities (N, C), in the precision they came in."""
    if isinstance(raw, Tensor):
        scores = raw.detach() if raw.is_floating_point() else raw.double()
    else:
        array = np.asarray(raw)
        if array.dtype.kind not in "fiu":
            raise PredictionsError(f"has outputs of type {array.dtype}: save them as floating-point numbers")
        # torch knows neither long doubles nor foreign byte orders
        size = min(array.dtype.itemsize, 8) if array.dtype.kind == "f" else 8
        scores = torch.from_numpy(np.array(array, dtype=f"f{size}"))
    if scores.ndim != 2 or scores.shape[1] < 2:
        shape = tuple(scores.shape)
        raise PredictionsError(f"has outputs of shape {shape}: save (samples, classes), 2 classes or more")
    if len(scores) == 0:
        raise PredictionsError("has no rows: save at least one sample")
    return scores


def _class_names(raw: Any, classes: int) -> tuple[str, ...]:
    names: tuple[str, ...] = tuple(np.asarray(raw).astype(str).ravel().tolist())
    if len(names) != classes:
        raise PredictionsError(f"has {len(names)} class names for {classes} classes: save one for each")
    if len(set(names)) < classes:
        twice = next(name for name in names if names.count(name) > 1)
        raise PredictionsError(f"has the class name {twice!r} twice: give each class its own")
    return names


def _labels(raw: Any, names: tuple[str, ...] | None, rows: int, classes: int) -> Tensor:
    """Labels as int64, from integers or from class names."""
    array = raw.detach().double().numpy() if isinstance(raw, Tensor) and raw.is_floating_point() else np.asarray(raw)
    if array.shape != (rows,):
        shapes = f"labels of shape {array.shape} for {rows} rows of {classes} classes"
        raise PredictionsError(f"has {shapes}: save one label for each row")
    if array.dtype.kind in "US":
        number = {name: i for i, name in enumerate(names or ())}
        texts = array.astype(str).tolist()
        if unknown := [row for row, text in enumerate(texts) if text not in number]:
            known = (
                f"one of {classes} class names, such as {names[0]!r}" if names else "a number, as it has no class names"
            )
            raise PredictionsError(f"has label {texts[unknown[0]]!r} in row {unknown[0]}: each must be {known}")
        array = np.array([number[text] for text in texts])
    if array.dtype.kind not in "iu":
        raise PredictionsError(f"has labels of type {array.dtype}, such as {array[0]}: save them as integers")
    labels = torch.from_numpy(array.astype(np.int64))
    if (row := _first((labels < 0) | (labels >= classes))) is not None:
        raise PredictionsError(f"has label {labels[row]} in row {row}: number the {classes} classes 0 to {classes - 1}")
    return labels


def _ids(raw: Any, rows: int) -> tuple[Hashable, ...]:
    array = np.asarray(raw)
    if array.shape != (rows,):
        raise PredictionsError(f"has ids of shape {array.shape} for {rows} rows: save one for each row")
    row_of: dict[Hashable, int] = {}
    for row, name in enumerate(array.tolist()):
        if row_of.setdefault(name, row) != row:
            raise PredictionsError(f"has id {name!r} in rows {row_of[name]} and {row}: make the ids unique")
    return tuple(row_of)


def _check_rows(labels: Tensor, *, logits: Tensor | None = None, probabilities: Tensor | None = None) -> None:
    """Whether every row can be scored is for `signals` to say."""
    try:
        signals(logits, labels, probabilities=probabilities, compiled=False)
    except ValueError as error:
        raise PredictionsError(f"cannot be scored, as {error}") from None


def _first(mask: Tensor) -> int | None:
    """Flat index of the first True, None if there is none."""
    return int(mask.flatten().int().argmax()) if bool(mask.any()) else None
