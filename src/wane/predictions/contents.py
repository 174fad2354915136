"""From what a file holds, by name, to the parts of `wane.predictions.predictions.Predictions`, each checked.

Errors raised here leave out the path, which `wane.predictions.predictions.read_predictions` puts in front.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
import polars as pl
import torch
from torch import Tensor

from wane.predictions.files import ALIASES, KNOWN, Found, PredictionsError

__all__ = ["assemble"]


def assemble(found: Found) -> dict[str, Any]:
    """The arguments of `Predictions`, but for the path."""
    given: Found = dict.fromkeys(ALIASES)
    for key, aliases in ALIASES.items():
        present = [name for name in aliases if found.get(name) is not None]
        if len(present) > 1:
            raise PredictionsError(f"has {' and '.join(present)}, which mean the same: keep one")
        given[key] = found[present[0]] if present else None
    logits, probabilities, raw_labels, raw_names, raw_ids, raw_documents = given.values()
    keys = f"it has {', '.join([*map(repr, found)][:10]) or 'nothing'}{', ...' if len(found) > 10 else ''}"
    if logits is None and probabilities is None:
        wide = ", or in a table one column a class, logit_0 and so on, or prob_0 and so on"
        raise PredictionsError(f"has neither logits nor probabilities ({keys}): save one of them by that name{wide}")
    if logits is not None and probabilities is not None:
        raise PredictionsError("has logits and probabilities: keep the logits, which say more")
    if raw_labels is None:
        raise PredictionsError(f"has no labels ({keys}): save the true class of every row by that name")

    scores = _scores(probabilities if logits is None else logits)
    rows, classes = scores.shape
    names = None if raw_names is None else _class_names(raw_names, classes)
    others = {name: raw for name, raw in found.items() if name not in KNOWN} | {"document": raw_documents}
    columns = {name: column for name, raw in others.items() if (column := _column(name, raw, rows)) is not None}
    return {
        "logits" if logits is not None else "probabilities": scores,
        "labels": _labels(raw_labels, names, rows, classes),
        "class_names": names,
        "ids": None if raw_ids is None else _ids(raw_ids, rows),
        "columns": columns,
    }


def _scores(raw: Any) -> Tensor:
    """Logits or probabilities (N, C), in the precision they came in."""
    if isinstance(raw, Tensor):
        if raw.is_complex() or raw.dtype == torch.bool:
            raise PredictionsError(f"has outputs of type {raw.dtype}: save them as floating-point numbers")
        scores = raw.detach() if raw.is_floating_point() else raw.double()
    else:
        array = np.asarray(raw)
        if array.dtype.kind not in "fiu":
            raise PredictionsError(f"has outputs of type {array.dtype}: save them as floating-point numbers")
        # torch knows neither long doubles nor foreign byte orders
        size = min(array.dtype.itemsize, 8) if array.dtype.kind == "f" else 8
        array = np.ascontiguousarray(array, dtype=f"f{size}")
        # A mapped file stays on the disk; what cannot be written to, torch would not take.
        scores = torch.from_numpy(array if array.flags.writeable else array.copy())
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
        if len(number) < len(names or ()):
            twice = next(name for i, name in enumerate(names or ()) if number[name] != i)
            raise PredictionsError(f"has labels as text and the class name {twice!r} twice: save labels as numbers")
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
    return tuple(array.tolist())


def _column(name: str, raw: Any, rows: int) -> pl.Series | None:
    """What samples can be grouped by: one number or text for each; None for anything else."""
    try:
        array = np.asarray(raw)
    except (TypeError, ValueError):
        return None
    if array.shape != (rows,) or array.dtype.kind not in "iubfUS":
        return None
    return pl.Series(name, array.astype(str) if array.dtype.kind == "S" else array)


def _first(mask: Tensor) -> int | None:
    """Flat index of the first True, None if there is none."""
    return int(mask.flatten().int().argmax()) if bool(mask.any()) else None
