"""The small part of finished runs: what tables and figures need, without checkpoints. No torch here."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from wane.lab.folder import RunFolder
from wane.lab.sweep import method_title

__all__ = ["archive"]

#: Of every run, beside what it replayed: what it was and how it ended. A few kilobytes.
ALWAYS = ("config.toml", "summary.json", "recovery.parquet")
#: Of the runs that are to be looked at epoch by epoch.
DETAILS = ("history.parquet", "flow.npz")


def archive(runs: Sequence[RunFolder], out: Path, *, histories: Collection[str] = ()) -> list[Path]:
    """Copy the small files of every finished run to a folder of the same name below `out`.

    Every view takes the copies for runs, as far as their files go: tables need no history.

    Args:
        runs: from `find_runs`; those that are not done are passed over.
        out: made if it is not there; what is there already is written over.
        histories: recipes (such as "diagnostics", at any scale), methods (such as "er, class_uniform") or runs by name
            (such as "cifar100-er-seed*") that keep their history and flow too.
    """
    import polars as pl

    written = []
    for run in runs:
        if run.summary is None:
            continue
        recipe = run.config.recipe.rpartition("-")[0] or run.config.recipe
        known_as = (recipe, method_title(run.config), run.name)
        detailed = any(fnmatchcase(name, pattern) for name in known_as for pattern in histories)
        wanted = ALWAYS + (DETAILS if detailed else ())
        folder = out / run.name
        folder.mkdir(parents=True, exist_ok=True)
        for name in wanted:
            if (run.path / name).exists():
                shutil.copyfile(run.path / name, folder / name)
        if run.replay is not None:
            # Most of what is kept of a run are the probabilities of its draws: seven digits of them do.
            run.replay.with_columns(pl.col("probabilities").cast(pl.List(pl.Float32))).write_parquet(
                folder / "replay.parquet"
            )
        written.append(folder)
    if not written:
        raise ValueError(f"none of {len(runs)} runs is done: there is nothing to keep yet")
    return written
