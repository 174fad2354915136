"""The small part of finished runs: what tables and figures need, without checkpoints. No torch here."""

from __future__ import annotations

import io
from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from wane.files import replace_file
from wane.names import safe_name
from wane.runs.config import differences
from wane.runs.folder import RunFolder
from wane.runs.layout import ABOUT, CONFIG, FLOW, HISTORY, LADDER, OWN_LOOP, RECOVERY, REPLAY, SUMMARY, SUMS
from wane.runs.place import is_url
from wane.runs.sums import render_sums, sum_of

if TYPE_CHECKING:
    import polars

__all__ = ["archive"]

#: Of every run, beside its summary and what it replayed. A few kilobytes.
ALWAYS = (CONFIG, OWN_LOOP, ABOUT, RECOVERY, LADDER)
#: Of runs to be looked at epoch by epoch.
DETAILS = (HISTORY, FLOW)


def archive(runs: Sequence[RunFolder], out: Path, *, histories: Collection[str] = ()) -> list[Path]:
    """Copy the small files of every finished run to a folder of the same name below `out`.

    Every view takes the copies for runs, as far as their files go: tables need no history. The runs may be at a URL.

    Args:
        runs: from `find_runs`; those that are not done are passed over.
        out: made if it is not there; what is there already is written over.
        histories: recipes (such as "diagnostics", at any scale, or "diagnostics-small"), methods (such as "er,
            class_uniform") or runs by name (such as "cifar100-er-seed*") that keep their history and flow too.
    """
    written = []
    done = _one_of_each([run for run in runs if run.summary is not None])
    _check_apart(done, out)
    for run in done:
        folder = out / safe_name(run.name)
        wanted = (*ALWAYS, *(DETAILS if _is_wanted(run, histories) else ()), SUMMARY)
        kept = {name: data for name in wanted if (data := run.read(name)) is not None}
        if run.replay is not None:
            kept[REPLAY] = _short_replay(run.replay)
        # without sums it is read unchecked, so nobody takes half a copy for a damaged one
        folder.mkdir(parents=True, exist_ok=True)
        (folder / SUMS).unlink(missing_ok=True)
        sums = render_sums({name: (sum_of(data),) for name, data in kept.items()})
        # the summary comes last: with it the copy is whole
        for name in sorted({**kept, SUMS: sums}, key=SUMMARY.__eq__):
            replace_file(folder / name, sums if name == SUMS else kept[name])
        written.append(folder)
    if not written:
        raise ValueError(f"none of {len(runs)} runs is done: there is nothing to keep yet")
    return written


def _check_apart(runs: Sequence[RunFolder], out: Path) -> None:
    """Raise, before anything is written, if a copy would land on, above or inside of a run; links are followed."""
    target = out.resolve()
    for run in runs:
        if run.files is not None or is_url(run.place):
            continue
        place = run.path.resolve()
        if (target / safe_name(run.name)).resolve() == place or target.is_relative_to(place):
            raise ValueError(f"{run.place} would be written over itself, with less precision: give another --out")
        if place.is_relative_to(target):
            raise ValueError(f"{out} holds {run.place}, so the copy would stand beside it as another run: give a "
                             "folder outside")  # fmt: skip


def _one_of_each(runs: Sequence[RunFolder]) -> list[RunFolder]:
    """Runs of different stores may have one name; if they are not the same run, one would be lost."""
    first: dict[str, RunFolder] = {}
    for run in runs:
        other = first.setdefault(run.name, run)
        if changed := _differences(other, run):
            raise ValueError(
                f"{other.place} and {run.place} are different runs ({changed[0]}) of the same name: rename one, or "
                "keep them in different folders"
            )
    return list(first.values())


def _differences(one: RunFolder, other: RunFolder) -> list[str]:
    if one.own is None and other.own is None:
        return differences(one.config, other.config)
    # what is known of a run of someone's own loop does not tell it apart from another: its results do
    return [] if one.own == other.own and one.summary == other.summary else ["of someone's own loop"]


def _is_wanted(run: RunFolder, patterns: Collection[str]) -> bool:
    recipe = run.recipe  # diagnostics-small; one's own may have a hyphen, and no scale
    known_as = (recipe, recipe.rpartition("-")[0], run.method.title, run.name)
    return any(fnmatchcase(name, pattern) for name in known_as for pattern in patterns)


def _short_replay(log: polars.DataFrame) -> bytes:
    """The probabilities of the draws are most of what is kept of a run: seven digits of each are enough."""
    import polars as pl

    short, buffer = log.with_columns(pl.col("probabilities").cast(pl.List(pl.Float32))), io.BytesIO()
    short.write_parquet(buffer)
    return buffer.getvalue()
