"""The small part of finished runs: what tables and figures need, without checkpoints. No torch here."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from wane.files import replace_file
from wane.runs.config import differences
from wane.runs.folder import RunFolder
from wane.runs.identity import method_title

if TYPE_CHECKING:
    import polars

__all__ = ["archive"]

#: Of every run, beside its summary and what it replayed. A few kilobytes.
ALWAYS = ("config.toml", "recovery.parquet")
#: Of the runs that are to be looked at epoch by epoch.
DETAILS = ("history.parquet", "flow.npz")


def archive(runs: Sequence[RunFolder], out: Path, *, histories: Collection[str] = ()) -> list[Path]:
    """Copy the small files of every finished run to a folder of the same name below `out`.

    Every view takes the copies for runs, as far as their files go: tables need no history.

    Args:
        runs: from `find_runs`; those that are not done are passed over.
        out: made if it is not there; what is there already is written over.
        histories: recipes (such as "diagnostics", at any scale, or "diagnostics-small"), methods (such as "er,
            class_uniform") or runs by name (such as "cifar100-er-seed*") that keep their history and flow too.
    """
    written = []
    for run in _one_of_each([run for run in runs if run.summary is not None]):
        folder = out / run.name
        folder.mkdir(parents=True, exist_ok=True)
        if run.replay is not None:
            _write_replay(folder / "replay.parquet", run.replay)
        # the summary comes last: with it the copy is whole
        for name in (*ALWAYS, *(DETAILS if _is_wanted(run, histories) else ()), "summary.json"):
            if (run.path / name).exists():
                replace_file(folder / name, (run.path / name).read_bytes())
        written.append(folder)
    if not written:
        raise ValueError(f"none of {len(runs)} runs is done: there is nothing to keep yet")
    return written


def _one_of_each(runs: Sequence[RunFolder]) -> list[RunFolder]:
    """Runs of different stores may have one name; if they are not the same run, one would be lost."""
    first: dict[str, RunFolder] = {}
    for run in runs:
        other = first.setdefault(run.name, run)
        if changed := differences(other.config, run.config):
            raise ValueError(f"{other.path} and {run.path} are different runs ({changed[0]}) of the same name: rename "
                             "one, or keep them in different folders")  # fmt: skip
    return list(first.values())


def _is_wanted(run: RunFolder, patterns: Collection[str]) -> bool:
    recipe = run.config.recipe  # diagnostics-small; one's own may have a hyphen, and no scale
    known_as = (recipe, recipe.rpartition("-")[0], method_title(run.config), run.name)
    return any(fnmatchcase(name, pattern) for name in known_as for pattern in patterns)


def _write_replay(path: Path, log: polars.DataFrame) -> None:
    """Most of what is kept of a run are the probabilities of its draws: seven digits of them do."""
    import polars as pl

    short = log.with_columns(pl.col("probabilities").cast(pl.List(pl.Float32)))
    replace_file(path, lambda file: short.write_parquet(file))
