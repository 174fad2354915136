"""Tables of run folders: a method a row, mean ± std over seeds, and paired differences to the baseline and the control.

Nothing is called best unless the 95 % interval of its paired difference to ER excludes zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from wane.measures.transfer import DEFINITIONS
from wane.registry import Registry
from wane.runs.folder import RunFolder
from wane.runs.identity import Method, method_of
from wane.runs.recipes import recipe_settings, recipes
from wane.sweeps.plan import expand, variant_settings
from wane.views.comparable_runs import (
    BASELINE,
    CONTROL,
    CONTROL_PAST,
    Setting,
    by_setting,
    distinct_titles,
    protocol,
    protocol_of,
)
from wane.views.statistics import FEWEST_SEEDS, mean_std, paired
from wane.views.summaries import SETTINGS, Column, accuracy_columns, accuracy_measures

__all__ = ["Printed", "PrintedResults", "RunTable", "run_table"]


class Printed(NamedTuple):
    """A mean over seeds that was published, in percent; `std` None where the mean stands alone."""

    mean: float
    std: float | None
    where: str


class PrintedResults(NamedTuple):
    """Published results to put beside the measured ones.

    `find` takes the name of the data set, the method and the column; `about` says in a few words what they are of,
    `seeds` of how many runs each is, and `replays` how often a slot of the memory was replayed in a task.
    """

    find: Callable[[str, Method, str], Printed | None]
    about: str
    seeds: int | None = None
    replays: float | None = None


class RowKey(NamedTuple):
    """What the runs of a row have in common: the method, and what its variant sets beside it, such as a schedule."""

    method: Method
    beside: frozenset[tuple[str, str]] = frozenset()  # dotted keys with their values as JSON


@dataclass(frozen=True)
class Rows:
    """What a table should have."""

    title: str
    keys: dict[str, RowKey]  # by label
    seeds: list[int]

    @property
    def set_apart(self) -> set[str]:
        """The keys that some row sets beside its method."""
        return {setting for key in self.keys.values() for setting, _ in key.beside}

    def key_of(self, run: RunFolder) -> RowKey:
        """That of the row which fits a run best: its method, and all that its variant sets; else the bare method."""
        method, settings = run.method, protocol_of(run)
        fitting = [key for key in self.keys.values() if key.method == method and key.beside <= settings.items()]
        return max(fitting, key=lambda key: len(key.beside), default=RowKey(method))


@dataclass(frozen=True)
class RunTable:
    """A table before it is rendered: a row of `frame` for each setting, method and measure, in percentage points.

    Columns: setting, data, method, measure; n, mean, std, seeds, missing; er_n, er_difference, er_low, er_high (to ER)
    and the same for control_ (to class_uniform); paper, paper_std, paper_where; best. `comparable` is False where
    there is one method alone, so that there is nothing to compare. `about_printed` says what the published results are
    of, "" without any. `baseline` is what the differences er_ are to: plain ER, unless another row was chosen;
    `controlled` whether the class-wise control is to be asked for.
    """

    name: str
    title: str
    definition: str
    frame: pl.DataFrame
    notes: tuple[str, ...]
    comparable: bool = True
    about_printed: str = ""
    baseline: str = "ER"
    controlled: bool = True


def run_table(
    name: str,
    runs: Sequence[RunFolder],
    *,
    definition: str = "peak",
    setting: str = "both",
    baseline: str | None = None,
    printed: PrintedResults | None = None,
) -> RunTable:
    """The table of a sweep recipe, of a TOML file, or (`auto`) of whatever methods the runs are of.

    Args:
        name: table1, table2, any other recipe, a path that ends in .toml, or auto.
        runs: at any scale; a run belongs to the row whose method it is of.
        definition: of forgetting: peak, past_peak or first.
        setting: which columns: those of the class-incremental setting (`class`), of the task-incremental one (`task`),
            with `corrected` logits, or `both`, which is all that the runs recorded.
        baseline: the row that differences are to, as the table calls it; default: plain ER of the lab.
        printed: published results to put beside.
    """
    if setting not in (*SETTINGS, "both"):
        raise ValueError(f"setting is {setting!r}: choose {', '.join(SETTINGS)} or both")
    if definition not in DEFINITIONS:
        raise ValueError(f"unknown definition of forgetting {definition!r}: choose one of {', '.join(DEFINITIONS)}")
    rows = _rows_of(name, runs)
    if baseline is not None and baseline not in rows.keys:
        raise ValueError(f"the table has no row {baseline!r} to compare with: there are {'; '.join(rows.keys)}")
    reference = BASELINE if baseline is None else rows.keys[baseline].method
    notes: list[str] = []
    records: list[dict[str, Any]] = []
    for group in by_setting(runs, apart_from=rows.set_apart):
        values = _values(group.runs, rows, definition, notes)
        shown = {label: key for label, key in rows.keys.items() if name != "auto" or key in values}
        seeds = sorted({seed for by_seed in values.values() for seed in by_seed})
        there = {column for key in shown.values() for found in values.get(key, {}).values() for column in found}
        for column in accuracy_columns().values():
            if column.name in there and setting in (column.setting, "both"):
                by_key = {
                    key: {s: v[column.name] for s, v in by_seed.items() if column.name in v}
                    for key, by_seed in values.items()
                }
                records += _records(group, column, shown, by_key, seeds, printed, reference)
        if there and (left := sorted(set(rows.seeds) - set(seeds))):
            notes.append(f"{group.title}: no run has seed{'s' if len(left) > 1 else ''} {_listed(left)} of {name}.")
        if strangers := sorted({key.method.title for key in values.keys() - rows.keys.values()}):
            notes.append(f"{group.title}: runs of {'; '.join(strangers)} belong to no row of {name}.")
    if not any(record["n"] for record in records):
        kind = "with corrected logits" if setting == "corrected" else f"in the {setting}-incremental setting"
        of = "" if setting == "both" else f", with results {kind}"
        if name == "auto" and notes:
            raise ValueError(f"no run has a result to show. {notes[0]}")
        raise ValueError(f"none of {len(runs)} runs is done and belongs to a row of {name!r}{of}: its rows are "
                         f"{'; '.join(rows.keys)}; `auto` takes the methods from the runs")  # fmt: skip
    schema = {k: pl.Int64 if k in ("n", "er_n", "control_n") else pl.Boolean if k == "best" else pl.String if k in TEXT
              else pl.Float64 for k in records[0]}  # fmt: skip
    frame = pl.DataFrame(records, schema=schema)
    done = {record["method"] for record in records if record["n"]}
    alone = len(done) == 1 and (name == "auto" or rows.keys[next(iter(done))].method == BASELINE)
    about = "" if printed is None else printed.about
    if own := [label for label, key in rows.keys.items() if key.method.own and label in done]:
        beside = len(own) < len(done)  # rows of the lab's
        word = " That their data, tasks and test rows are those of the other rows is their owner's word." * beside
        notes.append(f"Not trained by wane: {'; '.join(own)}.{word}")
    controlled = any(not key.method.own and label in done for label, key in rows.keys.items())
    return RunTable(Path(name).stem, rows.title, definition, frame, tuple(dict.fromkeys(notes)), not alone, about,
                    baseline or "ER", controlled and baseline is None)  # fmt: skip


TEXT = ("setting", "data", "method", "measure", "seeds", "missing", "paper_where")


def _rows_of(name: str, runs: Sequence[RunFolder]) -> Rows:
    """The title, the rows, and the seeds that there should be."""
    if name == "auto":
        titles = distinct_titles(run.method for run in runs)
        first = [BASELINE, CONTROL, CONTROL_PAST]
        ordered = sorted(titles, key=lambda m: (first.index(m) if m in first else len(first), titles[m]))
        return Rows("Methods by what is different about them", {titles[m]: RowKey(m) for m in ordered}, [])
    if not name.endswith(".toml"):
        Registry("table", {"auto": {}, **recipes()})[name]  # an unknown name lists the known ones
    described, settings = recipe_settings(name), variant_settings(name)
    keys: dict[str, list[RowKey]] = {}
    for planned in expand(name):
        own = settings.get(planned.variant, {})
        beside = frozenset((key, value) for key, value in protocol(planned.config).items() if key in own)
        found = keys.setdefault(planned.variant, [])
        if (key := RowKey(method_of(planned.config), beside)) not in found:
            found.append(key)
    # A list of `over` may change the method too: then one variant is several rows.
    rows = {v if len(of) == 1 else f"{v}: {key.method.title}": key for v, of in keys.items() for key in of}
    return Rows(described.get("title", Path(name).stem), rows, described.get("over", {}).get("seed", []))


def _values(
    runs: Sequence[RunFolder], rows: Rows, definition: str, notes: list[str]
) -> dict[RowKey, dict[int, dict[str, float]]]:
    """Row to seed to column to value; adds what had to be left out to the notes."""
    values: dict[RowKey, dict[int, dict[str, float]]] = {}
    for run in runs:
        found = accuracy_measures(run, definition)
        by_seed = values.setdefault(rows.key_of(run), {})
        seed = -1 - len(by_seed) if run.seed is None else run.seed  # one that is not known is nobody else's
        if found is None:
            notes.append(f"{run.name} is not done, and left out.")
        elif not found:
            notes.append(f"{run.name} is left out: its history does not say the task of each class (class_to_task).")
        elif seed not in by_seed:
            by_seed[seed] = found
        elif by_seed[seed] != found:
            notes.append(f"{run.name} is left out: there is another result of the same method and seed {seed}.")
    return values


def _records(
    setting: Setting,
    column: Column,
    rows: Mapping[str, RowKey],
    by_key: Mapping[RowKey, Mapping[int, float]],
    seeds: list[int],
    printed: PrintedResults | None,
    baseline: Method,
) -> list[dict[str, Any]]:
    """One column of the table: a record a row."""
    references = {"er": baseline, "control": CONTROL}
    records: list[dict[str, Any]] = []
    for label, key in rows.items():
        values = by_key.get(key, {})
        mean, std = mean_std(values.values())
        record: dict[str, Any] = {
            "setting": setting.title, "data": setting.data, "method": label, "measure": column.name,
            "n": len(values), "mean": mean, "std": std, "seeds": _listed(values),
            "missing": _listed(s for s in seeds if s not in values),
        }  # fmt: skip
        for prefix, reference in references.items():
            # the reference under the same conditions, or else under those of rows that set none
            alike = [k for k in (RowKey(reference, key.beside), RowKey(reference)) if k in by_key and k != key]
            difference = paired(values, by_key[alike[0]] if alike else {})
            record |= {f"{prefix}_{name}": value for name, value in difference._asdict().items()}
        paper = None if key.beside or printed is None else printed.find(setting.data, key.method, column.name)
        record |= {
            "paper": paper and paper.mean,
            "paper_std": paper and paper.std,
            "paper_where": paper and paper.where,
            "best": False,
        }
        records.append(record)
    sign = 1 if column.higher_is_better else -1
    top = max((r for r in records if r["mean"] is not None), key=lambda r: sign * r["mean"], default=None)
    # The best by its mean, and better than ER beyond chance: the interval lies on the good side of zero.
    if top is not None and top["er_low"] is not None and top["er_n"] >= FEWEST_SEEDS:
        top["best"] = min(sign * top["er_low"], sign * top["er_high"]) > 0
    return records


def _listed(seeds: Iterable[int]) -> str:
    return ", ".join("?" if seed < 0 else str(seed) for seed in sorted(seeds))
