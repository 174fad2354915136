"""Tables for the terminal. Colour only repeats what a sign says already, and is left out where there is no terminal."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import polars as pl
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from wane.predictions.comparison import VERDICTS, Comparison, Scores
from wane.softmax.signals import SIGNALS
from wane.views.compare.sentences import sentences

__all__ = ["comparison_tables", "printable", "score_table"]

Row: TypeAlias = dict[str, Any]
Cell: TypeAlias = Callable[[Row], str | Text]

STYLES = {"lost": "red", "declining": "yellow", "mixed": "", "improving": "cyan", "gained": "green"}
#: The signals of a change that fit in 80 columns: one of nearness, one of rank, two of confidence.
SHOWN = ("cm", "log_tlr", "ctl", "nkl")


def score_table(scores: Scores, *, top: int | None = None) -> RenderableType:
    """Every signal by class, worst first, and overall; `top` keeps the worst only.

    >>> from rich.console import Console
    >>> from wane.predictions.comparison import score
    >>> from wane.predictions.predictions import read_predictions
    >>> Console(width=80).print(score_table(score(read_predictions("example:digits_after")), top=1))
    class      n    acc   loss     cm    tlr  log_tlr   rtlr    ctl    nkl  rank
    ────────────────────────────────────────────────────────────────────────────
    digit 3   92     0%  2.701  0.482  0.755    0.514  0.268  0.100  0.091     3
    <BLANKLINE>
    all      899  70.0%  0.831  0.874  0.941    0.874  0.799  0.598  0.682     1
    Worst first; rank is the median rank of the true label.
    9 more classes, all better.
    """
    columns: dict[str, Cell] = {"n": lambda row: f"{row['n']}", "acc": lambda row: percent(row["accuracy"])}
    columns |= {name: _value(name) for name in SIGNALS if name != "accuracy"}
    columns["rank"] = lambda row: f"{row['median_rank']:g}"
    shown = scores.classes.head(len(scores.classes) if top is None else top)
    table = _table([*shown.to_dicts(), {**scores.overall, "name": "all"}], columns)
    if table.row_count > 1:
        table.rows[-2].end_section = True
    rest = len(scores.classes) - len(shown)
    more = [f"{rest} more {'class' if rest == 1 else 'classes'}, all better."] if rest else []
    legend = "Worst first; rank is the median rank of the true label."
    return Group(table, *_lines([legend, *more, *scores.notes]))


def comparison_tables(comparison: Comparison, *, top: int | None = None) -> RenderableType:
    """The sentences, and a table for each thing that happened: lost, hidden decline, at 0 %, gained, hidden gain."""
    parts: list[RenderableType] = [*_lines(sentences(comparison))]

    def add(heading: str, classes: pl.DataFrame, columns: dict[str, Cell], style: str = "") -> None:
        if len(classes):
            shown = classes.head(len(classes) if top is None else top)
            rest = len(classes) - len(shown)
            parts.extend(["", Text(heading, style=f"bold {style}"), _table(shown.to_dicts(), columns)])
            parts.extend(_lines([f"and {rest} more."] if rest else []))

    count: dict[str, Cell] = {"n": lambda row: f"{row['n']}"}
    accuracy: dict[str, Cell] = {
        "accuracy": lambda row: f"{percent(row['accuracy_before'])} → {percent(row['accuracy_after'])}"
    }
    signals = {name: _change(name) for name in SHOWN}
    nearness: dict[str, Cell] = {
        "cm": lambda row: _number(row["cm_after"]),
        "log_tlr": lambda row: _number(row["log_tlr_after"]),
        "median rank": lambda row: f"{row['median_rank_after']:g}",
        "nats short": lambda row: _number(row["gap_after"], 2),
    }
    for name in ("lost", "declining", "mixed"):
        add(_heading(name), comparison.having(name), {**count, **accuracy, **signals}, STYLES[name])
    add("At 0 %, nearest to coming back first", comparison.at_zero, {**count, **nearness})
    for name in ("gained", "improving"):
        add(_heading(name), comparison.having(name), {**count, **accuracy, **signals}, STYLES[name])
    steady = len(comparison.having("steady"))
    others = [f"{steady} other {'class' if steady == 1 else 'classes'} did not move beyond chance."] if steady else []
    return Group(*parts, "", *_lines([*others, *comparison.notes]))


def percent(value: float) -> str:
    """A rate to print, so that only a rate of exactly 0 or 1 reads as one.

    >>> percent(0.0), percent(0.0004), percent(0.972), percent(0.9999)
    ('0%', '0.1%', '97.2%', '99.9%')
    """
    shown = 100 * value if value in (0, 1) else min(max(100 * value, 0.1), 99.9)
    return f"{shown:.0f}%" if value in (0, 1) else f"{shown:.1f}%"


def printable(text: str) -> str:
    r"""Text from a file with what could steer a terminal made visible.

    >>> printable("cat\x1b[2J")
    'cat\ufffd[2J'
    """
    return "".join(sign if sign.isprintable() else "\ufffd" for sign in text)


def _table(rows: Iterable[Row], columns: dict[str, Cell]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    table.add_column("class", overflow="ellipsis", no_wrap=True, max_width=24, min_width=5)
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        # Text, not str: a class called "[red]" is not markup.
        table.add_row(Text(printable(row["name"])), *(cell(row) for cell in columns.values()))
    return table


def _value(name: str) -> Cell:
    return lambda row: _number(row[name])


def _change(name: str) -> Cell:
    def cell(row: Row) -> Text:
        mark = "▼" if name in row["fallen"] else "▲" if name in row["risen"] else "·"
        values = "→".join(_number(row[f"{name}_{when}"], 2) for when in ("before", "after"))
        return Text(f"{values} {mark}")

    return cell


def _number(value: float | None, digits: int = 3) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _heading(name: str) -> str:
    verdict = VERDICTS[name]
    return f"{verdict.sign} {verdict.title}: {verdict.meaning}"


def _lines(texts: Sequence[str]) -> list[Text]:
    return [Text(printable(text)) for text in texts]
