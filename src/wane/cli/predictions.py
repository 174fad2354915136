"""The commands for saved predictions: score, compare. `wane.cli` registers them; imports wait until one is called."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["compare", "score"]

FILE = "Logits or probabilities, and labels: .npz, .parquet, .csv, .pt; or example:digits_before, example:digits_after."
NEXT = "The same samples under the next model."
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead; what is not a number is null.")]
Top = Annotated[int | None, typer.Option(min=1, help="Show this many classes of each table only.")]


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
    groups = scores.groups.head(top or len(scores.groups))
    if as_json:
        _print_json({"overall": scores.overall, "groups": groups.to_dicts(), "notes": scores.notes})
    elif as_csv:
        typer.echo(groups.write_csv(), nl=False)
    else:
        from wane.views.compare.tables import score_table

        _console().print(score_table(scores, top=top))


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
            "overall": result.overall, "groups": result.groups.head(top or len(result.groups)).to_dicts(),
            "at_zero": result.at_zero["name"].to_list(),
        })  # fmt: skip
    else:
        from wane.views.compare.tables import comparison_tables

        _console().print(comparison_tables(result, top=top))
    if html is not None:
        typer.echo(f"wrote {html}", err=True)


def _title(path: str) -> str:
    from wane.predictions.examples import PREFIX

    return Path(path.removeprefix(PREFIX)).name


def _console() -> Console:
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = max(console.width, 120)  # into a file or a pipe: no window to widen
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
