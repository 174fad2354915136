"""Tables of run folders: a method a row, mean ± std over seeds, and paired differences to the baseline and the control.

Nothing is called best unless the 95 % interval of its paired difference to ER excludes zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from wane.measures.transfer import average, forgetting, plasticity, retention
from wane.paper.values import printed
from wane.registry import Registry
from wane.runs.config import Config
from wane.runs.folder import RunFolder
from wane.runs.identity import method_title
from wane.runs.recipes import recipe_settings, recipes
from wane.sweeps.plan import expand, variant_settings
from wane.views.comparable_runs import Setting, by_setting, protocol

__all__ = [
    "BASELINE", "CONTROL", "MEASURES", "Interval", "RunTable", "mean_std", "measures", "paired", "run_table",
]  # fmt: skip

#: What differences are taken to, by `method_title`.
BASELINE, CONTROL = "er", "er, class_uniform"
#: The columns, and whether more is better.
MEASURES = {"accuracy": True, "forgetting": False, "retention": True, "plasticity": True}


class Interval(NamedTuple):
    """A mean paired difference over `n` common seeds with its 95 % t-interval; what cannot be computed is None."""

    n: int
    difference: float | None
    low: float | None
    high: float | None


class Method(NamedTuple):
    """What the runs of a row have in common: the method, and what its variant sets beside it, such as a schedule."""

    title: str
    beside: frozenset[tuple[str, str]] = frozenset()  # dotted keys with their values as JSON


@dataclass(frozen=True)
class Rows:
    """What a table should have."""

    title: str
    methods: dict[str, Method]  # by label
    seeds: list[int]

    @property
    def set_apart(self) -> set[str]:
        """The keys that some row sets beside its method."""
        return {key for method in self.methods.values() for key, _ in method.beside}

    def method_of(self, config: Config) -> Method:
        """That of the row which fits a run best: its method, and all that its variant sets; else the bare method."""
        title, settings = method_title(config), protocol(config)
        fitting = [m for m in self.methods.values() if m.title == title and m.beside <= settings.items()]
        return max(fitting, key=lambda method: len(method.beside), default=Method(title))


@dataclass(frozen=True)
class RunTable:
    """A table before it is rendered: a row of `frame` for each setting, method and measure, in percentage points.

    Columns: setting, data, method, measure; n, mean, std, seeds, missing; er_n, er_difference, er_low, er_high (to ER)
    and the same for control_ (to class_uniform); paper, paper_std, paper_where; best.
    """

    title: str
    definition: str
    frame: pl.DataFrame
    notes: tuple[str, ...]


def run_table(name: str, runs: Sequence[RunFolder], *, definition: str = "peak") -> RunTable:
    """The table of a sweep recipe, of a TOML file, or (`auto`) of whatever methods the runs are of.

    Args:
        name: table1, table2, any other recipe, a path that ends in .toml, or auto.
        runs: at any scale; a run belongs to the row whose method it is of.
        definition: of forgetting: peak, past_peak or first.
    """
    rows = _rows_of(name, runs)
    notes: list[str] = []
    records: list[dict[str, Any]] = []
    for setting in by_setting(runs, apart_from=rows.set_apart):
        values = _values(setting.runs, rows, definition, notes)
        shown = {label: method for label, method in rows.methods.items() if name != "auto" or method in values}
        seeds = sorted({*rows.seeds, *(seed for by_seed in values.values() for seed in by_seed)})
        for measure in MEASURES if any(values.get(method) for method in shown.values()) else ():
            column = {key: {s: v[measure] for s, v in by_seed.items()} for key, by_seed in values.items()}
            records += _column(setting, measure, shown, column, seeds)
        if strangers := sorted({method.title for method in values.keys() - rows.methods.values()}):
            notes.append(f"{setting.title}: runs of {'; '.join(strangers)} belong to no row of {name}.")
    if not any(record["n"] for record in records):
        raise ValueError(f"none of {len(runs)} runs is done and belongs to a row of {name!r}: its rows are "
                         f"{'; '.join(rows.methods)}; `auto` takes the methods from the runs")  # fmt: skip
    schema = {k: pl.Int64 if k in ("n", "er_n", "control_n") else pl.Boolean if k == "best" else pl.String if k in TEXT
              else pl.Float64 for k in records[0]}  # fmt: skip
    return RunTable(rows.title, definition, pl.DataFrame(records, schema=schema), tuple(dict.fromkeys(notes)))


TEXT = ("setting", "data", "method", "measure", "seeds", "missing", "paper_where")


def measures(run: RunFolder, definition: str = "peak") -> dict[str, float] | None:
    """The summaries of a run's accuracy in percent; None while it is not done."""
    if run.summary is None:
        return None
    matrix = np.array([[np.nan if x is None else x for x in row] for row in run.summary["accuracy_matrix"]])
    found = average(matrix), forgetting(matrix, definition), retention(matrix), plasticity(matrix)
    return {name: 100 * float(value) for name, value in zip(MEASURES, found, strict=True)}


def mean_std(values: Iterable[float]) -> tuple[float | None, float | None]:
    """Mean, and standard deviation with n - 1; None for what needs more values.

    >>> mean_std([36.0, 37.0, 38.0]), mean_std([36.0]), mean_std([])
    ((37.0, 1.0), (36.0, None), (None, None))
    """
    v = np.array([*values], dtype=np.float64)
    v = v[~np.isnan(v)]  # with a single task there is nothing to forget
    return (float(v.mean()) if v.size else None), (float(v.std(ddof=1)) if v.size > 1 else None)


def paired(values: Mapping[int, float], reference: Mapping[int, float]) -> Interval:
    """The mean difference over the seeds that both have, with its 95 % t-interval; one seed gives no interval.

    >>> paired({0: 2.0, 1: 4.0, 2: 6.0, 9: 0.0}, {0: 1.0, 1: 2.0, 2: 3.0})
    Interval(n=3, difference=2.0, low=-0.484..., high=4.484...)
    >>> paired({0: 2.0}, {0: 1.0})
    Interval(n=1, difference=1.0, low=None, high=None)
    """
    from scipy.stats import t

    d = np.array([values[seed] - reference[seed] for seed in values if seed in reference])
    d = d[~np.isnan(d)].round(9)  # else a rounding, the same in every seed, would be a difference without spread
    mean, std = mean_std(d)
    if mean is None or std is None:
        return Interval(d.size, mean, None, None)
    half = float(t.ppf(0.975, d.size - 1)) * std / d.size**0.5
    return Interval(d.size, mean, mean - half, mean + half)


def _rows_of(name: str, runs: Sequence[RunFolder]) -> Rows:
    """The title, the rows, and the seeds that there should be."""
    if name == "auto":
        titles = {method_title(run.config) for run in runs}
        first = [BASELINE, CONTROL, f"{CONTROL} past"]
        ordered = sorted(titles, key=lambda t: (first.index(t) if t in first else len(first), t))
        return Rows("Methods by what is different about them", {t: Method(t) for t in ordered}, [])
    if not name.endswith(".toml"):
        Registry("table", {"auto": {}, **recipes()})[name]  # an unknown name lists the known ones
    described, settings = recipe_settings(name), variant_settings(name)
    methods: dict[str, list[Method]] = {}
    for planned in expand(name):
        own = settings.get(planned.variant, {})
        beside = frozenset((key, value) for key, value in protocol(planned.config).items() if key in own)
        found = methods.setdefault(planned.variant, [])
        if (method := Method(method_title(planned.config), beside)) not in found:
            found.append(method)
    # A list of `over` may change the method too: then one variant is several rows.
    rows = {v if len(ms) == 1 else f"{v}: {m.title}": m for v, ms in methods.items() for m in ms}
    return Rows(described.get("title", Path(name).stem), rows, described.get("over", {}).get("seed", []))


def _values(
    runs: Sequence[RunFolder], rows: Rows, definition: str, notes: list[str]
) -> dict[Method, dict[int, dict[str, float]]]:
    """Method to seed to measure to value; adds what had to be left out to the notes."""
    values: dict[Method, dict[int, dict[str, float]]] = {}
    for run in runs:
        found = measures(run, definition)
        by_seed = values.setdefault(rows.method_of(run.config), {})
        seed = run.config.seed
        if found is None:
            notes.append(f"{run.name} is not done, and left out.")
        elif seed not in by_seed:
            by_seed[seed] = found
        elif by_seed[seed] != found:
            notes.append(f"{run.name} is left out: there is another result of the same method and seed {seed}.")
    return values


def _column(
    setting: Setting,
    measure: str,
    rows: Mapping[str, Method],
    column: Mapping[Method, Mapping[int, float]],
    seeds: list[int],
) -> list[dict[str, Any]]:
    """One measure of every method."""
    references = {"er": BASELINE, "control": CONTROL}
    records: list[dict[str, Any]] = []
    for label, method in rows.items():
        values = column.get(method, {})
        mean, std = mean_std(values.values())
        record: dict[str, Any] = {
            "setting": setting.title, "data": setting.data, "method": label, "measure": measure,
            "n": len(values), "mean": mean, "std": std, "seeds": _listed(values),
            "missing": _listed(s for s in seeds if s not in values),
        }  # fmt: skip
        for prefix, reference in references.items():
            # the reference under the same conditions, else under those of rows that set none
            alike = [m for m in (Method(reference, method.beside), Method(reference)) if m in column and m != method]
            difference = paired(values, column[alike[0]] if alike else {})
            record |= {f"{prefix}_{name}": value for name, value in difference._asdict().items()}
        paper = None if method.beside else printed(setting.data, method.title, measure)
        record |= {
            "paper": paper and paper.mean,
            "paper_std": paper and paper.std,
            "paper_where": paper and paper.where,
            "best": False,
        }
        records.append(record)
    sign = 1 if MEASURES[measure] else -1
    top = max((r for r in records if r["mean"] is not None), key=lambda r: sign * r["mean"], default=None)
    # The best by its mean, and better than ER beyond chance: the interval lies on the good side of zero.
    if top is not None and top["er_low"] is not None:
        top["best"] = min(sign * top["er_low"], sign * top["er_high"]) > 0
    return records


def _listed(seeds: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(seeds)))
