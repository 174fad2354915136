"""Which samples turned from right to wrong, worst first, and which classes took them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from wane.predictions.alignment import Pair
from wane.predictions.groups import Groups
from wane.predictions.samples import Samples

__all__ = ["flipped", "takers"]


def takers(
    pair: Pair, lost: NDArray[np.bool_], groups: Groups, names: pl.Series, place: NDArray[np.int64]
) -> pl.DataFrame:
    """For each group, in order of `place`: the answers that its right ones turned into, the most frequent first."""
    schema = {"name": pl.String, "taker": pl.String, "n": pl.Int64, "new": pl.Boolean}
    if "answer" not in pair.after.values or not lost.any():
        return pl.DataFrame(schema=schema)
    of, answers = groups.of[lost], pair.after.values["answer"][lost]
    counts = pl.DataFrame({"group": of, "answer": answers}).group_by("group", "answer").agg(n=pl.len().cast(pl.Int64))
    counts = counts.with_columns(place=pl.Series(place[counts["group"]])).sort("place", -pl.col("n"), "answer")
    new = ~np.isin(counts["answer"], pair.common) if pair.common else np.zeros(len(counts), dtype=bool)
    called = _called(pair.after, counts["answer"])
    return pl.DataFrame(
        {"name": names.gather(counts["group"]), "taker": called, "n": counts["n"], "new": new}, schema=schema
    )


def flipped(pair: Pair, lost: NDArray[np.bool_], *, most: int) -> pl.DataFrame:
    """The samples, worst first: those whose label lost the most probability, or else rank."""
    rows = np.flatnonzero(lost)
    measures = [name for name in ("ctl", "loss", "rank") if name in pair.before.values and name in pair.after.values]
    values = {name: tuple(_at(x.values, name, rows) for x in (pair.before, pair.after)) for name in measures[:2]}
    if measures:
        name = measures[0]
        fall = (values[name][1] - values[name][0]) * (1 if name == "ctl" else -1)
        worst = np.argsort(fall, kind="stable")[:most]
        rows = rows[worst]
        values = {name: tuple(x[worst] for x in both) for name, both in values.items()}
    keys = pair.before.keys
    frame: dict[str, Any] = {"id": rows} if keys is None else {name: keys[name].gather(rows) for name in keys}
    frame["label"] = _called(pair.before, pair.before.labels[rows])
    if "answer" in pair.after.values:
        frame["answer"] = _called(pair.after, pair.after.values["answer"][rows])
    for name in pair.before.columns:
        if name not in frame:
            frame[name] = pair.before.columns[name].gather(rows)
    for name, both in values.items():
        frame[f"{name}_before"], frame[f"{name}_after"] = both
    plain = pl.DataFrame(frame).with_columns(pl.col(pl.Categorical).cast(pl.String))
    return plain.with_columns(pl.col(pl.Float64).fill_nan(None))


def _at(values: Mapping[str, Any], name: str, rows: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.asarray(values[name][rows], dtype=np.float64)


def _called(samples: Samples, classes: Any) -> list[str]:
    names = samples.class_names
    return [str(i) if names is None else names[i] for i in np.asarray(classes).tolist()]
