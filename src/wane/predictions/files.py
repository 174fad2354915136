"""The formats of saved predictions: from a file to what it holds, by name. Nothing in a file is ever executed.

Errors raised here leave out the path, which `wane.predictions.predictions.read_predictions` puts in front.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from wane.files import read_whole
from wane.registry import Registry

if TYPE_CHECKING:
    import polars as pl

__all__ = ["ALIASES", "KNOWN", "READERS", "Found", "PredictionsError"]

ALIASES: dict[str, tuple[str, ...]] = {
    "logits": ("logits",),
    "probabilities": ("probabilities", "probs"),
    "labels": ("labels", "label", "targets", "target", "y"),
    "class_names": ("class_names",),
    "ids": ("ids", "id"),
    "documents": ("documents", "document"),
}
KNOWN = {name for names in ALIASES.values() for name in names}

Found: TypeAlias = dict[str, Any]  # what a file holds, by name; None where wane can make nothing of it


class PredictionsError(ValueError):
    """Predictions that cannot be used, in one sentence: which file, what is wrong, what to do."""


def _read_npz(path: Path) -> Found:
    with path.open("rb") as stream:
        file = np.load(stream, allow_pickle=False)
        if not isinstance(file, Mapping):
            raise PredictionsError("is a single array: save it with np.savez(path, logits=..., labels=...)")
        return {key: file[key] if key in KNOWN else None for key in file}


def _read_torch(path: Path) -> Found:
    try:
        with warnings.catch_warnings(action="ignore"):  # on odd pickles torch asks for a report
            found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        # torch's own message tells how to load it all the same, which would execute what is in there.
        advice = "save a dict of tensors with torch.save"
        raise PredictionsError(f"is broken, or holds more than tensors, lists and text: {advice}") from error
    if not isinstance(found, dict):
        raise PredictionsError(f"holds a {type(found).__name__}: save a dict with the keys logits and labels")
    return {str(key): value for key, value in found.items()}


def _read_table(path: Path) -> Found:
    import polars as pl

    file, csv = read_whole(path), path.suffix.lower() == ".csv"
    frame = pl.read_csv(file, infer_schema_length=None) if csv else pl.read_parquet(file)
    if not len(frame):
        raise PredictionsError("has no rows: save at least one sample")
    found: Found = {name: _column(frame[name]) if name in KNOWN else None for name in frame.columns}
    for prefix, key in (("logit_", "logits"), ("prob_", "probabilities")):
        wide = [name for name in frame.columns if name.startswith(prefix)]
        if not wide:
            continue
        if key in found:
            raise PredictionsError(f"has a column {key!r} and a column {wide[0]!r}: keep one form")
        for name in wide:
            del found[name]
            if not frame[name].dtype.is_numeric():
                row = frame[name].cast(pl.Float64, strict=False).is_null().arg_max() or 0
                value = f"{frame[name][row]!r} in row {row} of column {name!r}"
                raise PredictionsError(f"has {value}: save numbers only")
        classes = [name.removeprefix(prefix) for name in wide]
        if all(name.isdecimal() for name in classes):
            wide = [f"{prefix}{i}" for i in range(len(wide))]
            if absent := set(wide) - set(frame.columns):
                raise PredictionsError(
                    f"has {len(wide)} columns {prefix}<number>, but no {min(absent)!r}: count from 0"
                )
        else:
            found["class_names"] = classes
        found[key] = frame.select(wide).to_numpy()
    return found


def _column(column: pl.Series) -> NDArray[Any]:
    """A column as an array, (N, C) where it holds lists."""
    import polars as pl

    if column.null_count():
        row = column.is_null().arg_max()
        raise PredictionsError(f"has no value in row {row} of column {column.name!r}: fill it, or drop the row")
    if isinstance(column.dtype, pl.Array):
        column = column.arr.to_list()
    if isinstance(column.dtype, pl.List):
        sizes = column.list.len().to_numpy()
        if (sizes != sizes[0]).any():
            row = int((sizes != sizes[0]).argmax())
            lengths = f"{sizes[0]} {column.name} in row 0 but {sizes[row]} in row {row}"
            raise PredictionsError(f"has {lengths}: save one for each class in every row")
        return column.explode().to_numpy().reshape(len(column), sizes[0])
    return column.to_numpy() if column.dtype.is_numeric() else np.array(column.to_list())


READERS: Registry[tuple[Callable[[Path], Found], str]] = Registry(
    "kind of file",
    {
        ".npz": (_read_npz, "np.savez, without arrays of objects"),
        ".parquet": (_read_table, "polars or pandas"),
        ".csv": (_read_table, "one header line, then one line per sample"),
        ".pt": (_read_torch, "torch.save"),
        ".pth": (_read_torch, "torch.save"),
    },
)
