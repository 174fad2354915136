"""The command `wane sweep`; `wane.cli` registers it. Imports wait until it is called."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from wane.cli.lab import Loggers, Settings
from wane.cli.output import say

if TYPE_CHECKING:
    from wane.runs.status import Status
    from wane.sweeps.engines import Options
    from wane.sweeps.plan import Planned

__all__ = ["carry_out", "sweep"]


def sweep(
    recipes: Annotated[
        list[str], typer.Argument(metavar="RECIPE...", help="Recipes (see `wane recipes`) or TOML files.")
    ],
    scale: Annotated[
        str | None, typer.Option(help="demo, small, middle, regime or paper; default: demo, or none for a file.")
    ] = None,
    settings: Settings = None,
    over: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=A,B,...", help="A run for each value, such as seed=0,1,2; as often as needed."),
    ] = None,
    variant: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only these rows of the tables (* is any); as often as needed."),
    ] = None,
    out: Annotated[
        str, typer.Option(metavar="DIR", help="The run store: a folder, or a URL such as s3://...")
    ] = "runs",
    engine: Annotated[str, typer.Option(help="local, ray or slurm.")] = "local",
    workers: Annotated[int | None, typer.Option(min=1, help="Runs at a time; default: as many as fit.")] = None,
    cpus: Annotated[int | None, typer.Option(min=1, help="Cores for each run; default: 1, or its share.")] = None,
    gpus: Annotated[float, typer.Option(min=0, help="GPUs for each run (ray: also parts of one; slurm).")] = 0,
    address: Annotated[str | None, typer.Option(help="ray: of a running cluster; default: start one here.")] = None,
    partition: Annotated[str | None, typer.Option(help="slurm: where to queue.")] = None,
    minutes: Annotated[int, typer.Option(min=2, help="slurm: limit of a job; it is then queued again.")] = 240,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Also run what failed before.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the runs, their state, and what they will take; do nothing.")
    ] = False,
    logger: Loggers = None,
) -> None:
    """Do all runs of recipes that are missing; the same command goes on where it was stopped."""
    from wane.runs.config import parse_setting
    from wane.runs.store import Status, statuses
    from wane.sweeps.engines import Options
    from wane.sweeps.execute import parse_over
    from wane.sweeps.plan import expand

    layers = tuple(parse_setting(text) for text in settings or [])
    planned = expand(*recipes, scale=scale, settings=layers, over=parse_over(over or []), only=variant or ())
    if dry_run:
        found = statuses(out)
        states = {run.name: found.get(run.name, Status("waiting")) for run in planned}
        for run in planned:
            say(f"{run.name}: {states[run.name].words(run.config.total_epochs)}")
        say(_total(planned, states))
        return
    options = Options(workers, cpus, gpus, retry_failed, address, partition, minutes)
    if not carry_out(planned, out, engine=engine, options=options, loggers=logger or ()):
        say("wane: --retry-failed runs them again", err=True)
        raise typer.Exit(1)


def _total(planned: Sequence[Planned], states: dict[str, Status]) -> str:
    """What a sweep has yet to do: runs, epochs, time and disk."""
    from wane.runs.identity import fingerprint
    from wane.training.estimate import Estimate, estimate, spelled_bytes, spelled_time

    each: dict[str, Estimate] = {}  # one is enough for runs that differ only in what is drawn and weighted
    epochs, seconds, disk, unknown = 0, 0.0, 0, ""
    todo = [run for run in planned if states[run.name].state != "done"]
    for run in todo:
        left = run.config.total_epochs - states[run.name].epochs
        epochs += left
        learner = run.config.learner.model_copy(update={"weights": None, "trend": None})
        alike = run.config.model_copy(update={"seed": 0, "learner": learner})
        key = fingerprint(alike)
        try:
            each.setdefault(key, each.get(key) or estimate(alike))
        except Exception as error:
            unknown = f"; of some the time is unknown ({error})"
            continue
        seconds += each[key].seconds * left / run.config.total_epochs
        disk += each[key].disk
    if not todo:
        return f"{len(planned)} runs, all done"
    return (f"{len(planned)} runs, {len(planned) - len(todo)} done; to do: {epochs} epochs, about "
            f"{spelled_time(seconds)} one run after the other, {spelled_bytes(disk)} on disk{unknown}")  # fmt: skip


def carry_out(
    planned: Iterable[Planned], out: Path | str, *, engine: str, options: Options, loggers: Sequence[str] = ()
) -> bool:
    """Do the runs of a sweep and say how they ended: whether all of them are done."""
    from wane.cli.listeners import references
    from wane.runs.layout import LOG
    from wane.sweeps.execute import run_sweep

    try:
        ended = run_sweep(planned, out, engine=engine, options=options, listeners=references(loggers))
    except KeyboardInterrupt:
        say("wane: stopped; the same command goes on from the last whole epoch of every run", err=True)
        raise typer.Exit(130) from None
    failed = {name: outcome for name, outcome in ended.items() if outcome.state == "failed"}
    say(f"{len(ended) - len(failed)} of {len(ended)} runs in {out} are done; see `wane runs {out}`")
    for name, outcome in failed.items():
        say(f"failed: {out}/{name}: {outcome.note} ({LOG} there)", err=True)
    return not failed
