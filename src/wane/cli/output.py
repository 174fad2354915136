"""How commands print: tables to a console of a sensible width, and JSON that every reader takes."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

from wane.escaping import lines_visible

__all__ = ["console", "print_json", "say"]


def say(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print to the standard output or error; what could steer a terminal is made visible."""
    typer.echo(lines_visible(text), err=err, nl=nl)


def console() -> Console:
    """The standard output; into a file or a pipe, wide enough for a table."""
    from rich.console import Console

    made = Console(highlight=False, markup=False, emoji=False)  # a class may be called "[red]" or "C:x:"
    if not made.is_terminal:
        made.width = max(made.width, 120)  # no window to widen
    return made


def print_json(value: Any) -> None:
    """Print JSON; what is not a number is null."""
    typer.echo(json.dumps(_finite(value), indent=2, ensure_ascii=False, allow_nan=False, default=str))


def _finite(value: Any) -> Any:
    """JSON knows neither NaN nor infinity."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
