"""The formats of saved predictions: from a file to what it holds, by name. Nothing in a file is ever executed.

Errors raised here leave out the path, which `wane.predictions.predictions.read_predictions` puts in front.
"""

from __future__ import annotations

import math
import os
import re
import struct
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from wane.files import read_whole
from wane.registry import Registry
from wane.softmax.inputs import SUM_TOLERANCE

if TYPE_CHECKING:
    import polars as pl

__all__ = ["ALIASES", "KNOWN", "READERS", "Found", "PredictionsError", "one_sentence"]

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


@contextmanager
def one_sentence(path: Path, how: str) -> Iterator[None]:
    """Turn whatever a broken file raises, which differs from library to library, into a `PredictionsError`."""
    try:
        yield
    except (PredictionsError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic of polars is no Exception
        reason = (str(error).splitlines() or [""])[0].split(". ")[0].rstrip(" .")
        what = f"{path.suffix} ({type(error).__name__}: {reason})"
        raise PredictionsError(f"{path} cannot be read as {what}: save it again with {how}") from error


def _read_npz(path: Path) -> Found:
    with path.open("rb") as stream:
        file = np.load(stream, allow_pickle=False)
        if not isinstance(file, Mapping):
            raise PredictionsError("is a single array: save it with np.savez(path, logits=..., labels=...)")
        return {key: _readable(path, file, key) for key in file}


def _readable(path: Path, file: Mapping[str, Any], key: str) -> Any:
    """An array of the archive; None for one that is not needed and would have to be unpickled."""
    try:
        if (
            key in (*ALIASES["logits"], *ALIASES["probabilities"])
            and (array := _stored(path, f"{key}.npy")) is not None
        ):
            return array
        return file[key]
    except ValueError:
        if key in KNOWN:
            raise
        return None


def _stored(path: Path, member: str) -> NDArray[Any] | None:
    """An array of the archive that stays on the disk until it is looked at; None if it is compressed."""
    with zipfile.ZipFile(path) as archive, path.open("rb") as file:
        there = archive.getinfo(member)
        if there.compress_type != zipfile.ZIP_STORED:
            return None
        file.seek(there.header_offset + 26)  # of the entry: the lengths of its name and of its extra field
        file.seek(sum(struct.unpack("<HH", file.read(4))), os.SEEK_CUR)
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, column_major, dtype = read(file)
        if dtype.hasobject or 0 in shape:
            return None
        if file.tell() + dtype.itemsize * math.prod(shape) > there.header_offset + there.file_size + 4096:
            return None  # the header promises more than there is: for numpy to say
        return np.memmap(path, dtype, "c", file.tell(), shape, "F" if column_major else "C")


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


def _read_npy(path: Path) -> Found:
    """An array (N, C) with the labels in another beside it, or one of records, whose fields have the names."""
    array = _mapped(path)
    if array.dtype.names:
        return {name: array[name] for name in array.dtype.names}
    found: Found = {"probabilities" if _sums_to_one(array) else "logits": array}
    stem = re.sub("_?(logits|probabilities|probs)$", "", path.stem)
    for key, names in ALIASES.items():
        places = [path.with_name(f"{before}{name}.npy") for name in names for before in (f"{stem}_", "")]
        beside = next((place for place in places if key not in found and place != path and place.is_file()), None)
        if beside is not None:
            found[key] = _mapped(beside)
    if "labels" not in found:
        raise PredictionsError("has no labels beside it: save them as labels.npy in the same folder")
    return found


def _mapped(path: Path) -> NDArray[Any]:
    """An array that stays on the disk until it is looked at."""
    array = np.load(path, mmap_mode="c", allow_pickle=False)
    if not isinstance(array, np.ndarray):
        raise PredictionsError("is an archive of arrays: give it a name that ends in .npz")
    return array


def _sums_to_one(array: NDArray[Any]) -> bool:
    """Whether rows look like probabilities: logits that are from 0 to 1 and sum to 1 in every row do not occur."""
    if array.ndim != 2 or array.dtype.kind != "f" or not len(array):
        return False
    some = np.asarray(array[:1000], dtype=np.float64)
    return bool((some >= 0).all() and (np.abs(some.sum(1) - 1) <= SUM_TOLERANCE).all())


def _read_json(path: Path) -> Found:
    import polars as pl

    return _columns(pl.read_ndjson(read_whole(path), infer_schema_length=None))


def _read_table(path: Path) -> Found:
    import polars as pl

    file, csv = read_whole(path), path.suffix.lower() == ".csv"
    if csv:  # polars would call the second of two columns logit_0_duplicated_0, which looks like a class
        names = pl.read_csv(file, n_rows=1, has_header=False, infer_schema=False).row(0)
        file.seek(0)
        if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
            raise PredictionsError(f"has {names.count(twice[0])} columns called {twice[0]!r}: keep one")
    return _columns(pl.read_csv(file, infer_schema_length=None) if csv else pl.read_parquet(file))


def _columns(frame: pl.DataFrame) -> Found:
    """What a table holds by name, the columns of one class each taken together."""
    if not len(frame):
        raise PredictionsError("has no rows: save at least one sample")
    found: Found = {name: _column(frame[name], needed=name in KNOWN) for name in frame.columns}
    for prefix, key in (("logit_", "logits"), ("prob_", "probabilities"), ("p", "probabilities")):
        wide = [name for name in frame.columns if name.startswith(prefix)]
        if prefix == "p":  # as short as that only with a number
            wide = [name for name in wide if name[1:].isdecimal()]
        if not wide:
            continue
        if found.get(key) is not None:
            raise PredictionsError(f"has a column {key!r} and a column {wide[0]!r}: keep one form")
        found = {name: value for name, value in found.items() if name not in wide}
        found |= _wide(frame, wide, prefix, key)
    if not {"logits", "probabilities", "probs"} & {*found} and (bare := [n for n in frame.columns if n.isdecimal()]):
        raise PredictionsError(f"has columns {bare[0]!r} to {bare[-1]!r}, which could be logits or probabilities: "
                               f"call them logit_{bare[0]} or prob_{bare[0]} and so on")  # fmt: skip
    return found


def _wide(frame: pl.DataFrame, wide: list[str], prefix: str, key: str) -> Found:
    """One column a class: the array, and the names of the classes if they have names."""
    import polars as pl

    for name in wide:
        if not frame[name].dtype.is_numeric():
            row = frame[name].cast(pl.Float64, strict=False).is_null().arg_max() or 0
            value = f"{frame[name][row]!r} in row {row} of column {name!r}"
            raise PredictionsError(f"has {value}: save numbers only")
    classes = [name.removeprefix(prefix) for name in wide]
    if all(name.isdecimal() for name in classes):
        wide = [f"{prefix}{i}" for i in range(len(wide))]
        if absent := set(wide) - set(frame.columns):
            raise PredictionsError(f"has {len(wide)} columns {prefix}<number>, but no {min(absent)!r}: count from 0")
        return {key: frame.select(wide).to_numpy()}
    found: Found = {key: frame.select(wide).to_numpy(), "class_names": classes}
    if any(name.isdecimal() for name in classes):
        # A label of 2 is then the class called 2, and not the one in the third column.
        found |= {
            name: frame[name].cast(pl.String).to_numpy().astype(str) for name in ALIASES["labels"] if name in frame
        }
    return found


def _column(column: pl.Series, *, needed: bool) -> NDArray[Any] | None:
    """A column as an array, (N, C) where it holds lists; None for what is not needed and is no plain column."""
    import polars as pl

    if not needed:
        plain = column.dtype.is_numeric() or column.dtype in (pl.String, pl.Boolean, pl.Categorical)
        return np.array(column.to_list()) if plain and not column.null_count() else None
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
        ".npy": (_read_npy, "np.save"),
        ".parquet": (_read_table, "polars or pandas"),
        ".csv": (_read_table, "one header line, then one line per sample"),
        ".jsonl": (_read_json, "one JSON object a line"),
        ".ndjson": (_read_json, "one JSON object a line"),
        ".pt": (_read_torch, "torch.save"),
        ".pth": (_read_torch, "torch.save"),
    },
)
