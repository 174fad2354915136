"""Files of signals: one row a sample (an image, a token, a question), written in batches and read by columns.

Logits of a language model do not fit on a disk: a million tokens of a vocabulary of 128,000 are half a terabyte. Their
signals are 40 bytes a token, and all that `wane.score` and `wane.compare` need. A file is Parquet with the columns
``label``, the signals by name, ``rank``, perhaps ``answer`` (the class the sample was taken for), and whatever else the
writer was given: ``id``, ``document``, ``domain`` ... Its metadata say what it is; see `SignalWriter`.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray
from torch import Tensor

from wane.predictions.files import PredictionsError
from wane.predictions.samples import Array, Columns, Samples, complete
from wane.softmax.registry import SIGNALS

__all__ = ["SCHEMA", "SignalWriter", "is_signal_file", "read_signals", "signal_metadata", "write_samples"]

SCHEMA = 1
#: In the metadata of a file.
_FILE, _ABOUT = "wane.file", "wane.signals_about"
#: Columns that samples are matched by where there is no ``id``.
PLACE = ("document", "position")
#: Rows that are held in memory before they are written.
BATCH = 1 << 18


class SignalWriter:
    """Writes the signals of samples to a file, a batch at a time, in constant memory.

    The file appears, whole, when the writer is closed; if the block it is used in raises, there is none, and an older
    one stays as it was.

    Args:
        path: where, ending in .parquet.
        num_classes: how many classes competed in every sample; None if that differs.
        class_names: of the classes, if there are any; they may repeat, as those of tokens do.
        by: the columns to group by unless something else is asked for; default: the label.
        source: anything worth knowing of where it came from (model, data, date), as JSON.

    >>> import tempfile, torch, wane
    >>> logits, labels = torch.tensor([[2.0, 0.0, 1.0], [0.0, 1.0, 3.0], [1.0, 0.0, 0.0]]), torch.tensor([0, 1, 0])
    >>> folder = tempfile.TemporaryDirectory()
    >>> with SignalWriter(f"{folder.name}/s.parquet", num_classes=3, source={"model": "tiny"}) as writer:
    ...     for rows, light in ((slice(0, 2), "day"), (slice(2, 3), "night")):
    ...         writer.write(wane.signals(logits[rows], labels[rows]), labels[rows], light=light)
    >>> samples = wane.read_samples(f"{folder.name}/s.parquet")
    >>> wane.score(samples, by=["light"]).groups.select("light", "n", "accuracy").rows()
    [('day', 2, 0.5), ('night', 1, 1.0)]
    >>> folder.cleanup()
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        num_classes: int | None,
        class_names: Sequence[str] | None = None,
        by: Sequence[str] | None = None,
        source: Mapping[str, Any] | None = None,
    ) -> None:
        self.path = Path(path)
        if self.path.suffix.lower() != ".parquet":
            raise PredictionsError(f"{self.path} does not end in .parquet: give it that name")
        if not self.path.parent.is_dir():
            raise NotADirectoryError(
                f"{self.path} cannot be written, as {self.path.parent} is not a folder: make it first"
            )
        if num_classes is not None and num_classes < 2:
            raise PredictionsError(
                f"num_classes is {num_classes}: give 2 or more, or None if it differs from row to row"
            )
        if class_names is not None and num_classes is not None and len(class_names) != num_classes:
            raise PredictionsError(f"{len(class_names)} class names for {num_classes} classes: give one for each")
        self.num_classes, self.class_names = num_classes, class_names
        self.by, self.source = tuple(by or ("class",)), dict(source or {})
        json.dumps(self.source)  # now, not after hours of writing
        self.rows = 0
        self._parts = self.path.with_name(f".{self.path.name}.{uuid.uuid4().hex}.tmp")
        self._waiting: list[pl.DataFrame] = []
        self._schema: pl.Schema | None = None
        self._count = 0

    def write(self, signals: Mapping[str, Any] | Any, labels: Any, *, answers: Any = None, **columns: Any) -> None:
        """Add a batch of any shape.

        Args:
            signals: what `wane.signals` returned, or arrays by name, ``rank`` among them. Rows of rank 0 (padding that
                was to be ignored) are left out.
            labels: in the shape of the signals.
            answers: the class each was taken for, in that shape, if known.
            columns: in that shape, or one value for all: ``id``, ``document``, ``position``, and what to group by.
        """
        values = signals._asdict() if hasattr(signals, "_asdict") else dict(signals)
        if "rank" not in values or not any(name in values for name in SIGNALS):
            raise PredictionsError(f"signals have {', '.join(values) or 'nothing'}: give rank and at least one signal")
        shape = _array(labels).shape
        frame = {"label": pl.Series(_array(labels).ravel(), dtype=pl.Int32)}
        if answers is not None:
            frame["answer"] = pl.Series(_array(answers).ravel(), dtype=pl.Int32)
        for name, value in values.items():
            array = _array(value)
            if array.shape != shape:
                raise PredictionsError(
                    f"{name} has shape {array.shape} and labels {shape}: give one value for each label"
                )
            frame[name] = pl.Series(array.ravel(), dtype=pl.Int32 if name == "rank" else pl.Float32)
        for name, value in columns.items():
            if name in frame or name in ("class", "name", "gap"):
                raise PredictionsError(f"a column cannot be called {name!r}: choose another name")
            frame[name] = _column(name, value, shape)
        batch = pl.DataFrame(frame).filter(pl.col("rank") > 0)
        if self._schema is None:
            self._schema = batch.schema
            self._parts.mkdir()
        if batch.schema != self._schema:
            raise PredictionsError(f"a batch has columns {_described(batch.schema)}, after one that had "
                                   f"{_described(self._schema)}: give the same columns in every batch")  # fmt: skip
        self.rows += len(batch)
        self._waiting.append(batch)
        if sum(map(len, self._waiting)) >= BATCH:
            self._flush()

    def close(self) -> None:
        """Put the file in its place."""
        if self._schema is None or not self.rows:
            self.discard()
            raise PredictionsError(f"{self.path} would have no rows: write at least one sample")
        try:
            self._flush()
            whole = self._parts / "whole.parquet"
            parts = [self._parts / f"{i:06d}.parquet" for i in range(self._count)]
            signals = [name for name in self._schema if SIGNALS.knows(name)]
            metadata = signal_metadata(
                num_classes=self.num_classes,
                signals=signals,
                class_names=self.class_names,
                by=self.by,
                source=self.source,
            )
            pl.scan_parquet(parts, glob=False).sink_parquet(
                whole, metadata=metadata, row_group_size=BATCH, maintain_order=True
            )
            with whole.open("rb") as file:
                os.fsync(file.fileno())
            whole.replace(self.path)
        finally:
            self.discard()

    def discard(self) -> None:
        """Give up: nothing is left of what was written."""
        self._waiting = []
        shutil.rmtree(self._parts, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()

    def _flush(self) -> None:
        if self._waiting:
            pl.concat(self._waiting).write_parquet(self._parts / f"{self._count:06d}.parquet", compression="lz4")
            self._waiting, self._count = [], self._count + 1


def signal_metadata(
    *,
    num_classes: int | None,
    signals: Sequence[str],
    class_names: Sequence[str] | None = None,
    by: Sequence[str] = ("class",),
    source: Mapping[str, Any] | None = None,
    label: str = "label",
) -> dict[str, str]:
    """What the metadata of a Parquet file say to be read as a file of signals, whoever writes its rows.

    Args:
        num_classes: as of `SignalWriter`.
        signals: the columns that are signals.
        class_names: as of `SignalWriter`.
        by: as of `SignalWriter`.
        source: as of `SignalWriter`.
        label: the column of labels, where it has another name, such as ``"token"``.

    >>> signal_metadata(num_classes=50257, signals=["loss"], label="token")["wane.file"]
    'signals'
    """
    about = {
        "schema": SCHEMA, "signals": list(signals), "num_classes": num_classes, "by": list(by), "label": label,
        "class_names": None if class_names is None else list(class_names), "source": dict(source or {}),
    }  # fmt: skip
    return {_FILE: "signals", _ABOUT: json.dumps(about)}


def write_samples(samples: Samples, path: str | os.PathLike[str], *, source: Mapping[str, Any] | None = None) -> int:
    """Write measured samples to a file of signals; returns how many.

    >>> import tempfile, wane
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_samples(wane.read_samples("example:digits_before"), f"{folder}/before.parquet")
    899
    """
    rows = len(samples)
    columns = {**samples.columns, **(samples.keys or {})}
    values = {name: samples.values[name] for name in samples.values if name not in ("gap", "answer")}
    values.setdefault("rank", np.ones(rows, dtype=np.int32))
    answers = samples.values.get("answer")
    classes, names = samples.num_classes or None, samples.class_names
    with SignalWriter(path, num_classes=classes, class_names=names, by=samples.by, source=source) as writer:
        for start in range(0, rows, BATCH):
            part = slice(start, start + BATCH)
            writer.write(
                {name: value[part] for name, value in values.items()},
                samples.labels[part],
                answers=None if answers is None else answers[part],
                **{name: column[part].to_numpy() for name, column in columns.items()},
            )
    return rows


def is_signal_file(path: Path) -> bool:
    """Whether a file says that it holds signals."""
    return path.suffix.lower() == ".parquet" and pl.read_parquet_metadata(path).get(_FILE) == "signals"


def read_signals(path: Path) -> Samples:
    """A file of signals; its columns are read when they are asked for, one at a time."""
    about = json.loads(pl.read_parquet_metadata(path)[_ABOUT])
    if about["schema"] > SCHEMA:
        raise PredictionsError(f"{path} has schema {about['schema']}, and this wane reads up to {SCHEMA}: update wane")
    scan = pl.scan_parquet(path, glob=False)
    schema = scan.collect_schema()

    def read(name: str) -> pl.Series:
        column = pl.col(name)
        if schema[name] == pl.String:
            column = column.cast(pl.Categorical)  # 4 bytes a row, not a text
        return scan.select(column).collect(engine="streaming").to_series()

    def numbers(name: str) -> Array:
        return read(name).to_numpy()

    known = [name for name in about["signals"] if name in schema and schema[name].is_numeric()]
    extras = [name for name in ("rank", "answer") if name in schema]
    others = [name for name in schema if name not in (*known, *extras, "label")]
    keys = ("id",) if "id" in schema else PLACE if all(name in schema for name in PLACE) else ()
    names = about.get("class_names")
    return Samples(
        labels=numbers(about.get("label", "label")),
        values=complete(Columns((*known, *extras), numbers)),
        num_classes=about.get("num_classes") or 0,
        class_names=None if names is None else tuple(names),
        keys=Columns(keys, read) if keys else None,
        columns=Columns(others, read),
        by=tuple(about.get("by") or ("class",)),
        path=path,
    )


def _array(values: Any) -> NDArray[Any]:
    return values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)


def _column(name: str, values: Any, shape: tuple[int, ...]) -> pl.Series:
    if isinstance(values, str | int | float | bool):
        values = np.broadcast_to(np.asarray(values), shape)
    array = _array(values)
    if array.shape != shape:
        raise PredictionsError(
            f"column {name!r} has shape {array.shape} and labels {shape}: give one value for each label"
        )
    return pl.Series(name, array.ravel() if array.dtype.kind != "O" else array.ravel().tolist())


def _described(schema: pl.Schema) -> str:
    return ", ".join(f"{name} ({kind})" for name, kind in schema.items())
