"""The command line: a thin skin over the functions of wane.

A command is a function with typer's declarations, registered on `app`; it imports what it uses inside itself, so that
`wane --help` answers at once. What a user can get wrong is raised as a ValueError or OSError with a sentence that says
what to do; `Commands` prints that sentence and ends with code 2. So it does with a RunError (a full disk, a loss that
diverged), with code 1: the command was right.
"""

import errno
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from wane.cli import lab, views
from wane.cli.paper import reproduce
from wane.cli.sweep import sweep
from wane.errors import RunError

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["app", "main"]


class Commands(TyperGroup):
    """The commands, with one way to fail."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command; an error that has a sentence for the user ends in that sentence."""
        try:
            return super().invoke(ctx)
        except (ValueError, OSError) as error:
            if getattr(error, "errno", None) == errno.EPIPE:
                raise  # the reader of our output went away, as in `wane score ... | head`
            typer.echo(f"wane: {sentence(error)}", err=True)
            raise typer.Exit(2) from error
        except RunError as error:
            typer.echo(f"wane: {error}", err=True)
            raise typer.Exit(1) from error


app = typer.Typer(
    name="wane",
    cls=Commands,
    help="Accuracy says that a class was lost. wane shows it waning.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

FILE = "Logits or probabilities, and labels: .npz, .parquet, .csv, .pt; or example:digits_before, example:digits_after."
NEXT = "The same samples under the next model."
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead; what is not a number is null.")]
Top = Annotated[int | None, typer.Option(min=1, help="Show this many classes of each table only.")]


def _version(wanted: bool) -> None:
    if wanted:
        import wane

        typer.echo(f"wane {wane.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Accuracy says that a class was lost. wane shows it waning."""


@app.command()
def score(
    file: Annotated[str, typer.Argument(metavar="FILE", help=FILE, show_default=False)],
    as_json: Json = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV instead: one line a class, worst first.")] = False,
    top: Top = None,
) -> None:
    """Show all eight signals for each class, worst first."""
    from wane.predictions import comparison
    from wane.predictions.predictions import read_predictions

    if as_json and as_csv:
        raise ValueError("--json and --csv were both given: choose one")
    scores = comparison.score(read_predictions(file))
    classes = scores.classes.head(top or len(scores.classes))
    if as_json:
        _print_json({"overall": scores.overall, "classes": classes.to_dicts(), "notes": scores.notes})
    elif as_csv:
        typer.echo(classes.write_csv(), nl=False)
    else:
        from wane.views.compare.tables import score_table

        _console().print(score_table(scores, top=top))


@app.command()
def compare(
    before: Annotated[str, typer.Argument(metavar="BEFORE", help=FILE, show_default=False)],
    after: Annotated[str, typer.Argument(metavar="AFTER", help=NEXT, show_default=False)],
    html: Annotated[Path | None, typer.Option(metavar="OUT.HTML", help="Also write a page that stands alone.")] = None,
    as_json: Json = False,
    alpha: Annotated[float, typer.Option(help="The accepted rate of false alarms.")] = 0.05,
    top: Top = None,
) -> None:
    """Show what the second model lost and gained: accuracy, hidden decline, and how near lost classes are."""
    from wane.predictions import comparison
    from wane.predictions.predictions import read_predictions

    result = comparison.compare(read_predictions(before), read_predictions(after), alpha=alpha)
    if html is not None:
        from wane.views.compare.page import write_comparison

        write_comparison(result, html, before=_title(before), after=_title(after))
    if as_json:
        from wane.views.compare.sentences import sentences

        _print_json({
            "sentences": sentences(result), "notes": result.notes, "alpha": alpha, "smallest": result.smallest,
            "overall": result.overall, "classes": result.classes.head(top or len(result.classes)).to_dicts(),
            "at_zero": result.at_zero["class"].to_list(),
        })  # fmt: skip
    else:
        from wane.views.compare.tables import comparison_tables

        _console().print(comparison_tables(result, top=top))
    if html is not None:
        typer.echo(f"wrote {html}", err=True)


OTHERS: tuple[Callable[..., None], ...] = (
    lab.run, sweep, lab.runs, lab.archive, lab.log, lab.recipes, lab.methods, lab.data,
    views.report, views.figure, views.table, views.diagnostics, reproduce,
)  # fmt: skip
for command in OTHERS:
    app.command()(command)


def sentence(error: ValueError | OSError) -> str:
    """One line without the noise of errno.

    >>> sentence(FileNotFoundError(2, "No such file or directory", "/no/out.html"))
    '/no/out.html: no such file or directory'
    """
    if isinstance(error, OSError) and error.strerror:
        what = error.strerror[0].lower() + error.strerror[1:]
        return f"{error.filename}: {what}" if error.filename else what
    return " ".join(str(error).split())


def _title(path: str) -> str:
    from wane.predictions.examples import PREFIX

    return Path(path.removeprefix(PREFIX)).name


def _console() -> "Console":
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = max(console.width, 120)  # nobody is there to widen the window
    return console


def _print_json(value: Any) -> None:
    typer.echo(json.dumps(_finite(value), indent=2, ensure_ascii=False, allow_nan=False))


def _finite(value: Any) -> Any:
    """JSON knows neither NaN nor infinity."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def main() -> None:
    """The entry point of `wane`."""
    app()
