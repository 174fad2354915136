"""Tables for the terminal. Colour only repeats what a sign says already, and is left out where there is no terminal."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import polars as pl
from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from wane.escaping import visible
from wane.predictions.comparison import VERDICTS, Comparison, Scores
from wane.softmax.signals import SIGNALS
from wane.views.compare.sentences import kind_of_group, sentences

__all__ = ["comparison_tables", "score_table"]

Row: TypeAlias = dict[str, Any]
Cell: TypeAlias = Callable[[Row], str | Text]

STYLES = {"lost": "red", "hidden decline": "yellow", "mixed": "", "hidden gain": "cyan", "gained": "green"}
#: How many rows of a table the terminal shows, unless told: the page and JSON have them all.
ROWS = 8
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
    there = scores.groups.columns
    columns: dict[str, Cell] = {"n": lambda row: f"{row['n']}"}
    columns |= {"acc": lambda row: percent(row["accuracy"])} if "accuracy" in there else {}
    columns |= {name: _value(name) for name in SIGNALS if name != "accuracy" and name in there}
    columns |= {"rank": _rank("median_rank")} if "median_rank" in there else {}
    shown = scores.groups.head(len(scores.groups) if top is None else top)
    table = _table([*shown.to_dicts(), {**scores.overall, "name": "all"}], columns, kind_of_group(scores.by))
    if table.row_count > 1:
        table.rows[-2].end_section = True
    rest = len(scores.groups) - len(shown)
    more = [f"{rest:,} more {kind_of_group(scores.by, rest)}, all better."] if rest else []
    legend = "Worst first" + ("; rank is the median rank of the true label." if "rank" in columns else ".")
    return Group(table, *_lines([legend, *more, *scores.notes]))


def comparison_tables(comparison: Comparison, *, top: int | None = None) -> RenderableType:
    """The sentences, and a table for each thing that happened; `top` rows of each (default: a few, and how many more).

    Lost accuracy and who took the answers, hidden decline, at 0 %, gained, hidden gain, and the samples that turned
    from right to wrong.
    """
    parts: list[RenderableType] = [*_lines(sentences(comparison))]
    kind, most = kind_of_group(comparison.by), ROWS if top is None else top
    there = comparison.groups.columns
    shortened: list[int] = []

    def add(heading: str, rows: pl.DataFrame, columns: dict[str, Cell], style: str = "", first: str = kind) -> None:
        if len(rows):
            parts.extend(["", Text(heading, style=f"bold {style}"), _table(rows.head(most).to_dicts(), columns, first)])
            if (rest := len(rows) - most) > 0:
                parts.append(Text(f"and {rest:,} more."))
                shortened.append(rest)

    count: dict[str, Cell] = {"n": lambda row: f"{row['n']}"}
    accuracy: dict[str, Cell] = {
        "accuracy": lambda row: f"{percent(row['accuracy_before'])} → {percent(row['accuracy_after'])}"
    }
    signals = {name: _change(name) for name in SHOWN if f"{name}_change" in there}
    taken = _takers(comparison)
    nearness: dict[str, Cell] = {
        name: _value(f"{name}_after") for name in ("cm", "log_tlr") if f"{name}_after" in there
    }
    nearness |= {"median rank": _rank("median_rank_after")} if "median_rank_after" in there else {}
    nearness |= {"nats short": lambda row: _number(row["gap_after"], 2)} if "gap_after" in there else {}
    for name in ("lost", "hidden decline", "mixed"):
        add(_heading(name), comparison.having(name), {**count, **accuracy, **signals}, STYLES[name])
    lost = comparison.having("lost").filter(pl.col("name").is_in([*taken]))
    answers: dict[str, Cell] = {
        "right → wrong": lambda row: f"{row['right_to_wrong']}",
        "now taken for": lambda row: taken[row["name"]],
    }
    add("Who took the answers of what was lost", lost, answers)
    add("At 0 %, nearest to coming back first", comparison.at_zero, {**count, **nearness})
    for name in ("gained", "hidden gain"):
        add(_heading(name), comparison.having(name), {**count, **accuracy, **signals}, STYLES[name])
    add(*_flips(comparison), first="sample")
    steady = len(comparison.having("steady"))
    others = [f"{steady:,} other {kind_of_group(comparison.by, steady)} did not move beyond chance."] if steady else []
    short = ["--top shows more rows; --html and --json show everything."] if shortened else []
    return Group(*parts, "", *_lines([*others, *comparison.notes, *short]))


def _takers(comparison: Comparison, most: int = 3) -> dict[str, Text]:
    """For each group, the classes that took its answers, as text."""
    found: dict[str, Text] = {}
    for (name,), rows in comparison.takers.group_by("name", maintain_order=True):
        shown = [f"{visible(row['taker'])} ({row['n']:,})" for row in rows.head(most).to_dicts()]
        rest = int(rows["n"][most:].sum())
        found[str(name)] = Text(", ".join([*shown, f"others ({rest:,})"] if rest else shown))
    return found


def named_flips(comparison: Comparison) -> pl.DataFrame:
    """The samples that turned from right to wrong, with a column ``sample`` that names each."""
    flips = comparison.flips
    ids = [name for name in ("id", "document", "position") if name in flips.columns][:2]
    return flips.with_columns(
        sample=pl.concat_str([pl.col(name).cast(pl.String) for name in ids], separator=" · ")
    ).drop([name for name in ("name",) if name in flips.columns])


def _flips(comparison: Comparison) -> tuple[str, pl.DataFrame, dict[str, Cell]]:
    """The heading, rows and cells of the samples that turned from right to wrong."""
    flips = comparison.flips
    rows = named_flips(comparison).rename({"sample": "name"})
    columns: dict[str, Cell] = {"label": lambda row: Text(visible(row["label"]))}
    if "answer" in flips.columns:
        columns["now taken for"] = lambda row: Text(visible(row["answer"]))
    for signal in [name for name in ("ctl", "loss") if f"{name}_before" in flips.columns]:
        columns[signal] = _pair(signal)
    total = comparison.overall["right_to_wrong"]
    return f"Samples that turned from right to wrong, worst first ({total:,})", rows, columns


def percent(value: float | None) -> str:
    """A rate to print, so that only a rate of exactly 0 or 1 reads as one.

    >>> percent(0.0), percent(0.0004), percent(0.972), percent(0.9999)
    ('0%', '0.1%', '97.2%', '99.9%')
    """
    if value is None:
        return "–"
    shown = 100 * value if value in (0, 1) else min(max(100 * value, 0.1), 99.9)
    return f"{shown:.0f}%" if value in (0, 1) else f"{shown:.1f}%"


def _table(rows: Iterable[Row], columns: dict[str, Cell], first: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    table.add_column(first, overflow="ellipsis", no_wrap=True, max_width=24, min_width=5)
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        # Text, not str: a class called "[red]" is not markup.
        table.add_row(Text(visible(row["name"])), *(cell(row) for cell in columns.values()))
    return table


def _value(name: str) -> Cell:
    return lambda row: _number(row[name])


def _rank(name: str) -> Cell:
    return lambda row: "–" if row[name] is None else f"{row[name]:g}"


def _change(name: str) -> Cell:
    def cell(row: Row) -> Text:
        mark = "▼" if name in row["fallen"] else "▲" if name in row["risen"] else "·"
        values = "→".join(_number(row[f"{name}_{when}"], 2) for when in ("before", "after"))
        return Text(f"{values} {mark}")

    return cell


def _pair(name: str) -> Cell:
    return lambda row: "→".join(_number(row[f"{name}_{when}"], 2) for when in ("before", "after"))


def _number(value: float | None, digits: int = 3) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _heading(name: str) -> str:
    verdict = VERDICTS[name]
    return f"{verdict.sign} {verdict.title}: {verdict.meaning}"


def _lines(texts: Sequence[str]) -> list[Text]:
    return [Text(visible(text)) for text in texts]
