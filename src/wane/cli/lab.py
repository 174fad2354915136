"""The commands of the lab; `wane.cli` registers them. Imports wait until one is called."""

from __future__ import annotations

import io
from contextlib import nullcontext, redirect_stderr
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wane.cli.output import say

if TYPE_CHECKING:
    from wane.runs.config import Config

__all__ = ["archive", "data", "log", "methods", "recipes", "run", "runs"]

Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Any setting, such as learner.lr=0.1; as often as needed."),
]
Loggers = Annotated[
    list[str] | None,
    typer.Option("--logger", metavar="NAME", help="Also show it in tensorboard, wandb or mlflow; as often as needed."),
]

LONG, TOO_LONG = 600.0, 86_400.0  # seconds of a run that are worth a line, and of one that no CPU should do


def run(
    recipe: Annotated[str, typer.Argument(metavar="RECIPE", help="A recipe (see `wane recipes`) or a TOML file.")],
    scale: Annotated[
        str | None, typer.Option(help="demo, small, middle, regime or paper; default: demo, or none for a file.")
    ] = None,
    settings: Settings = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Sets `seed`.")] = None,
    devices: Annotated[int | None, typer.Option(min=1, help="Sets `devices`: how many GPUs, or processes.")] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The run folder; default: runs/RECIPE-SCALE-seedN.")
    ] = None,
    logger: Loggers = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")] = False,
) -> None:
    """Run a recipe; the same command goes on where it was stopped."""
    from wane.names import safe_name
    from wane.runs.complete import complete
    from wane.runs.config import parse_setting
    from wane.runs.layout import CONFIG
    from wane.runs.recipes import load_recipe

    layers = [parse_setting(text) for text in settings or []]
    if seed is not None:
        layers.append({"seed": seed})
    if devices is not None:
        layers.append({"devices": devices})
    config = load_recipe(recipe, scale=scale, settings=tuple(layers))
    folder = out or Path("runs") / safe_name(f"{config.recipe}-seed{config.seed}")

    from wane.cli.listeners import follow
    from wane.runs.folder import RunFolder
    from wane.training.progress import Progress
    from wane.training.run import run as run_config
    from wane.views.ladder import ladder_sentence, with_ladders
    from wane.views.tables.terminal import summary_table

    config = complete(config)
    if not quiet and not (folder / CONFIG).exists():
        _say_what_it_takes(config)
    listeners = [Progress(config.recipe, quiet=quiet), *(follow(name, folder) for name in dict.fromkeys(logger or ()))]
    try:
        with redirect_stderr(io.StringIO()) if quiet else nullcontext():
            summary = run_config(config, folder, listeners=listeners)
    except KeyboardInterrupt:
        say(f"wane: stopped; the same command goes on from the last whole epoch in {folder}", err=True)
        raise typer.Exit(130) from None
    if quiet:
        return
    _print(summary_table(summary))
    if measured := with_ladders([RunFolder(folder)]):
        _print("", ladder_sentence(measured), "")
    _print(f"{folder}: done in {summary['seconds']:.0f} s of training and evaluation")


def runs(
    root: Annotated[
        str, typer.Argument(metavar="DIR", help="Where to look, with all folders below; or a URL such as s3://...")
    ] = "runs",
) -> None:
    """List the runs below a folder: state, accuracy, forgetting, duration. Also while a sweep goes on elsewhere."""
    from wane.runs.store import read_runs
    from wane.views.tables.terminal import runs_table

    if "://" not in root and not Path(root).exists():
        raise ValueError(f"there is no folder {root}: give the one that your runs are in")
    found = read_runs(root)
    _print(runs_table(found) if found else f"no runs below {root}")


def archive(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUNS...", help="Run folders, folders that hold some, or histories (.parquet)."),
    ],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="DIR", help="Where to: a folder for each run below it.")],
    history: Annotated[
        list[str] | None,
        typer.Option(metavar="WHICH", help="Keep the histories of this recipe, method or run (* is any); repeatable."),
    ] = None,
) -> None:
    """Copy the small files of finished runs, without checkpoints: enough for every table, and to share."""
    from wane.runs.archive import archive as copy_small
    from wane.runs.folder import find_runs

    found = find_runs(*runs)
    written = copy_small(found, out, histories=history or ())
    size = sum(file.stat().st_size for folder in written for file in folder.iterdir())
    left = sum(run.summary is None for run in found)
    say(f"kept {len(written)} runs in {out} ({size / 1e6:.1f} MB){f'; {left} not done, left out' if left else ''}",
        err=True)  # fmt: skip


def log(
    runs: Annotated[list[Path], typer.Argument(metavar="RUNS...", help="Run folders, or folders that hold some.")],
    to: Annotated[list[str], typer.Option(metavar="NAME", help="tensorboard, wandb or mlflow; as often as needed.")],
) -> None:
    """Send runs that are done to a logger; what it has is not sent again."""
    from wane.cli.listeners import draw_figures
    from wane.loggers.follow import send_run
    from wane.runs.folder import find_runs
    from wane.runs.lock import HeldError, held

    for run in find_runs(*runs):
        if run.files is not None:
            raise ValueError(f"{run.place} is a history, not a run folder: wane.save_run makes one of it")
        if run.summary is None:
            say(f"{run.path} is left out: it is not done", err=True)
            continue
        for name in to:
            try:
                with held(run.path):
                    where = send_run(run.path, name, draw_figures)
            except HeldError as error:
                say(f"{run.path} is left out: {error}", err=True)
                break
            say(f"{run.path}: {where or f'{name} has it'}")


def recipes() -> None:
    """List the recipes and the scales."""
    from wane.runs.recipes import recipes as all_recipes
    from wane.runs.recipes import scales

    for heading, rows in {"Recipes:": all_recipes(), "\nScales:": scales()}.items():
        say(heading)
        wide = max(map(len, rows))
        for name, row in rows.items():
            say(f"  {name:{wide}}  {row['title']}")


def methods() -> None:
    """List the methods: the setting each works in, its options with their defaults, and where it comes from."""
    from wane.learners.describe import describe_methods

    for method in describe_methods():
        where = "class- and task-incremental" if "class" in method.settings else "task-incremental only"
        memory = "with a memory" if method.has_memory else "without memory"
        say(f"{method.name}: {method.title} ({where}, {memory})")
        if method.source:
            say(f"  {method.source}")
        for option in method.options:
            say(f"  learner.options.{option.name} = {option.default}  {option.text}")
    say("Your own: --set learner.name=package.module:Name")


def data(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Fetch and check this data set, or the folder at this path.")
    ] = None,
    root: Annotated[
        str | None, typer.Option(help="Where data sets are; default: WANE_DATA or the user's cache.")
    ] = None,
) -> None:
    """List the data sets and where they are; with NAME, fetch one if need be and describe it. NAME may be a folder."""
    from wane.streams import DATASETS, Source, data_root, load_dataset

    if name is not None:
        found = load_dataset(name, root=root)
        shape = " x ".join(map(str, found.row_shape))
        rows = f"images of {shape}" if found.is_images else f"rows of {shape} numbers"
        domains = f", domains {', '.join(found.domain_names)}" if found.domain_names else ""
        say(f"{found.name}: {found.num_classes} classes, {len(found.train)} training and {len(found.test)} test "
                   f"{rows}{domains}")  # fmt: skip
        return
    where = data_root(root)
    lines = [f"Data sets (below {where}):"]
    DATASETS.load_installed()
    for key, row in DATASETS.items():
        if not isinstance(row, Source):
            lines.append(f"  {key:15}[from an installed package]")
            continue
        archive = row.archive
        state = "embedded" if archive is None else "here" if (where / archive.folder).exists() else "to be fetched"
        lines.append(f"  {key:15}{row.title} [{state}]")
    say("\n".join(lines))


def _say_what_it_takes(config: Config) -> None:
    """A line about time and memory before a long run starts; whatever is wrong with the run, it will say itself."""
    from wane.training.estimate import estimate

    try:
        found = estimate(config)
    except Exception:
        return
    if found.seconds > LONG:
        say(f"wane: {config.recipe} takes {found}", err=True)
    if found.seconds > TOO_LONG and found.how.endswith("cpu"):
        say("wane: that is too long for a CPU: use a GPU, or --scale small; starting anyway", err=True)


def _print(*parts: Any) -> None:
    from rich.console import Console

    from wane.escaping import visible

    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = 1000  # into a file or a pipe: a line is a line
    for part in parts:
        console.print(visible(part) if isinstance(part, str) else part, soft_wrap=isinstance(part, str))
