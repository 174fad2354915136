"""The commands about the paper: diagnostics, reproduce. `wane.cli` registers them; imports wait until one is called."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from wane.cli.lab import Settings
from wane.cli.output import console, say
from wane.cli.views import Around, Classes, Levels, Method, Runs, Tolerance

__all__ = ["diagnostics", "reproduce"]


def diagnostics(
    runs: Runs,
    method: Method = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="OUT.JSON", help="Also write the numbers to a file; - prints them.")
    ] = None,
    level: Levels = None,
    tolerance: Tolerance = None,
    around: Around = None,
    classes: Classes = None,
) -> None:
    """Show how each signal is spread at fixed accuracy and changes near boundaries, beside what the paper says."""
    from wane.paper.diagnostics import diagnose, diagnostics_table
    from wane.runs.folder import find_runs
    from wane.views.observations import choose

    options: dict[str, Any] = {"levels": level or None, "tolerance": tolerance, "around": around, "classes": classes}
    given = {key: value for key, value in options.items() if value is not None}
    found = diagnose(choose(find_runs(*runs), method), **given)
    text = json.dumps(found.to_json(), indent=2, allow_nan=False, ensure_ascii=False)
    if str(json_file) == "-":
        say(text)
        return
    console().print(diagnostics_table(found))
    if json_file is not None:
        json_file.write_text(text + "\n", encoding="utf-8")
        say(f"wrote {json_file}", err=True)


def reproduce(
    part: Annotated[
        str,
        typer.Argument(
            help="diagnostics, table1, table2, headline, controls, sources, regime, ablations, windows, "
            "windows_standardised, windows_percent, recovery or all."
        ),
    ] = "all",
    scale: Annotated[str, typer.Option(help="demo, small, middle, regime or paper.")] = "small",
    data: Annotated[
        list[str] | None, typer.Option(help="cifar100, tiny_imagenet; as often as needed; default: cifar100.")
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Seeds 0 to N - 1 of every method; default: as many as its recipe has.")
    ] = None,
    settings: Settings = None,
    runs: Annotated[
        Path, typer.Option(metavar="DIR", help="The run store; runs that are there are not done again.")
    ] = Path("runs"),
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where tables, figures and the page go.")] = Path(
        "reproduction"
    ),
    engine: Annotated[str, typer.Option(help="local, ray or slurm.")] = "local",
    workers: Annotated[int | None, typer.Option(min=1, help="Runs at a time.")] = None,
    only_show: Annotated[bool, typer.Option("--only-show", help="Run nothing; show what is there.")] = False,
) -> None:
    """Check the paper: run what is missing, then put each of its claims beside the measured value."""
    from wane.cli.sweep import carry_out
    from wane.paper.judging import judged_table
    from wane.paper.reproduction import plan_parts, write_reproduction
    from wane.runs.config import parse_setting
    from wane.runs.folder import find_runs
    from wane.sweeps.engines import Options

    layers = tuple(parse_setting(text) for text in settings or [])
    planned = plan_parts(part, scale=scale, data=data or (), seeds=seeds, settings=layers)
    all_done = True
    if not only_show:
        once = {plan.name: plan for plans in planned.values() for plan in plans}  # parts share runs
        all_done = carry_out(once.values(), runs, engine=engine, options=Options(workers=workers))
    of_lab = [run for run in find_runs(runs) if run.own is None]  # of others it is not known what they reproduce
    written = write_reproduction(planned, of_lab, out)
    if written.judged:
        console().print(judged_table(written.judged))
        say("")
    say(written.words)
    say(f"wrote {written.page}")
    if not all_done:
        raise typer.Exit(1)
