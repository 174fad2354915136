"""The command `wane reproduce`; `wane.cli` registers it. Imports wait until it is called."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from wane.cli.lab import Settings

__all__ = ["reproduce"]


def reproduce(
    part: Annotated[
        str,
        typer.Argument(
            help="diagnostics, table1, table2, headline, controls, ablations, windows, windows_standardised, "
            "windows_percent, recovery or all."
        ),
    ] = "all",
    scale: Annotated[str, typer.Option(help="demo, small or paper.")] = "small",
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
    from wane.paper.reproduction import PARTS, write_reproduction
    from wane.registry import Registry
    from wane.runs.config import parse_setting
    from wane.runs.folder import find_runs
    from wane.sweeps.engines import Options
    from wane.sweeps.plan import expand

    parts = list(PARTS) if part == "all" else [part]
    for name in parts:
        Registry("part", {**PARTS, "all": ()})[name]
    over: dict[str, list[Any]] = {} if seeds is None else {"seed": list(range(seeds))}
    if scale != "demo":  # the demo has its own data
        over["data.name"] = list(data or ["cifar100"])
    layers = tuple(parse_setting(text) for text in settings or [])
    planned = {name: expand(name, scale=scale, settings=layers, over=_seeded(name, over)) for name in parts}
    all_done = True
    if not only_show:
        once = {plan.name: plan for plans in planned.values() for plan in plans}  # parts share runs
        all_done = carry_out(once.values(), runs, engine=engine, options=Options(workers=workers))
    page = write_reproduction(planned, find_runs(runs), out)
    typer.echo(f"wrote {page}")
    if not all_done:
        raise typer.Exit(1)


def _seeded(recipe: str, over: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """`over`, with three seeds where neither it nor the recipe names any: one run proves nothing."""
    from wane.runs.recipes import recipe_settings

    named = {**recipe_settings(recipe).get("over", {}), **over}
    return over if "seed" in named else {**over, "seed": [0, 1, 2]}
