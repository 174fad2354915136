"""The command line: a thin skin over the functions of wane.

A command is a function with typer's declarations, registered on `app`; it imports what it uses inside itself, so that
`wane --help` answers at once. What a user can get wrong is raised as a ValueError or OSError with a sentence that says
what to do; `Commands` prints that sentence and ends with code 2. A RunError (a full disk, a loss that diverged) ends
with code 1: the command itself was right.
"""

import errno
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer
from typer.core import TyperGroup

from wane.cli import correction, lab, language, paper, predictions, views
from wane.cli.output import say
from wane.cli.sweep import sweep
from wane.errors import RunError

__all__ = ["app", "main"]


@contextmanager
def _warnings_in_a_sentence() -> Iterator[None]:
    """What wane warns of is printed as errors are, each once; what others warn of, as ever."""
    said: set[str] = set()

    def show(message: Warning | str, category: type[Warning], filename: str, lineno: int,
             file: TextIO | None = None, line: str | None = None) -> None:  # fmt: skip
        if not (issubclass(category, UserWarning) and Path(filename).is_relative_to(Path(__file__).parent.parent)):
            shown(message, category, filename, lineno, file, line)
        elif str(message) not in said:
            said.add(str(message))
            say(f"wane: {message}", err=True)

    shown = warnings.showwarning
    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


class Commands(TyperGroup):
    """The commands, with one way to fail."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command; an error that has a sentence for the user ends in that sentence."""
        try:
            with _warnings_in_a_sentence():
                return super().invoke(ctx)
        except (ValueError, OSError) as error:
            if getattr(error, "errno", None) == errno.EPIPE:
                raise  # the reader of our output went away, as in `wane score ... | head`
            say(f"wane: {sentence(error)}", err=True)
            raise typer.Exit(2) from error
        except RunError as error:
            say(f"wane: {error}", err=True)
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


def _version(wanted: bool) -> None:
    if wanted:
        import wane

        say(f"wane {wane.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Accuracy says that a class was lost. wane shows it waning."""


COMMANDS: tuple[Callable[..., None], ...] = (
    predictions.score, predictions.compare, predictions.measure, correction.correct, language.tokens,
    lab.run, sweep, lab.runs, lab.archive, lab.log, lab.recipes,
    lab.methods, lab.data,
    views.report, views.figure, views.table, views.export, views.at_risk, paper.diagnostics, paper.reproduce,
)  # fmt: skip
for command in COMMANDS:
    app.command()(command)


#: Characters of an error; the first say what is wrong, the last what to do.
LONGEST = 1000


def sentence(error: ValueError | OSError) -> str:
    """One line without the noise of errno, short also where it quotes something long.

    >>> sentence(FileNotFoundError(2, "No such file or directory", "/no/out.html"))
    '/no/out.html: no such file or directory'
    """
    if isinstance(error, OSError) and error.strerror:
        what = error.strerror[0].lower() + error.strerror[1:]
        return f"{error.filename}: {what}" if error.filename else what
    text = " ".join(str(error).split())
    return text if len(text) <= LONGEST else f"{text[: LONGEST // 2]} ... {text[-LONGEST // 2 :]}"


def main() -> None:
    """The entry point of `wane`."""
    app()
