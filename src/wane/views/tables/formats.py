"""A `RunTable` as text, Markdown, LaTeX or CSV: one set of cells, four small renderers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import polars as pl

from wane.escaping import csv_table, latex, markdown, visible
from wane.measures.summaries import SUMMARIES
from wane.registry import Registry
from wane.views.statistics import FEWEST_SEEDS
from wane.views.summaries import Column, accuracy_columns
from wane.views.tables.run_tables import RunTable

__all__ = ["FORMATS", "legend", "to_csv", "to_latex", "to_markdown", "to_text"]

FORGETTING_IS = {
    "peak": "best value after any task minus the last one",
    "past_peak": "best value before the last minus the last one",
    "first": "value right after learning minus the last one",
}


#: The summaries of the first grid, in each setting if it is the only one; beside another, the second has the first two.
LEADING = ("average", "forgetting", "retention", "plasticity")


class Cell(NamedTuple):
    """A cell: words, or numbers."""

    text: str
    bold: bool = False
    number: bool = True


@dataclass(frozen=True)
class Grid:
    """Cells in rows under a header."""

    title: str
    header: list[str]
    rows: list[list[Cell]]


def to_text(table: RunTable) -> str:
    """For the terminal; the best carries a star."""

    def shown(cell: Cell) -> str:
        return cell.text + ("*" if cell.bold else " " if cell.number and cell.text else "")

    parts = [visible(table.title)]
    for grid in _grids(table):
        lines = [grid.header, *([shown(cell) for cell in row] for row in grid.rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        rows = ["  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]).rstrip() for line in lines]
        parts.append("\n".join([grid.title, rows[0], "-" * (sum(widths) + 2 * len(widths) - 2), *rows[1:]]))
    return "\n\n".join([*parts, "\n".join(legend(table))]) + "\n"


def to_markdown(table: RunTable) -> str:
    """For a README; the best in bold."""

    def cell(c: Cell) -> str:
        return f"**{c.text}**" if c.bold else c.text if c.number else markdown(c.text)

    parts = [f"**{markdown(table.title)}**"]
    for grid in _grids(table):
        rule = [":--", *["--:"] * (len(grid.header) - 1)]
        rows = [[markdown(h) for h in grid.header], rule, *([cell(c) for c in row] for row in grid.rows)]
        parts.append("\n".join([f"{markdown(grid.title)}", "", *(f"| {' | '.join(row)} |" for row in rows)]))
    return "\n\n".join([*parts, "\n".join(f"- {markdown(line)}" for line in legend(table))]) + "\n"


def to_latex(table: RunTable) -> str:
    """For a paper: needs booktabs, and says so; the best in bold, and a label for each table."""

    def cell(c: Cell) -> str:
        if not c.number or not c.text:
            return latex(c.text)
        inside = c.text.replace("±", r"\pm").replace("−", "-").replace(" [", r"\;[")
        return rf"$\mathbf{{{inside}}}$" if c.bold else f"${inside}$"

    # the notes, for whoever writes the caption
    parts = ["\n".join(f"% {line}" for line in (r"Needs \usepackage{booktabs}.", *legend(table)))]
    for number, grid in enumerate(_grids(table), 1):
        rows = [" & ".join(map(cell, row)) + r" \\" for row in grid.rows]
        parts.append("\n".join([
            r"\begin{table}[t]", r"\centering\small", rf"\caption{{{latex(table.title)}. {latex(grid.title)}.}}",
            rf"\label{{tab:{_label(table.name)}-{number}}}",
            rf"\begin{{tabular}}{{l{'r' * (len(grid.header) - 1)}}}", r"\toprule",
            " & ".join(map(latex, grid.header)) + r" \\", r"\midrule", *rows, r"\bottomrule", r"\end{tabular}",
            r"\end{table}",
        ]))  # fmt: skip
    return "\n\n".join(parts) + "\n"


def to_csv(table: RunTable) -> str:
    """For other programs: everything, a line for each setting, method and measure."""
    return csv_table(table.frame.with_columns(pl.lit(table.definition).alias("forgetting_definition")))


FORMATS: Registry[Callable[[RunTable], str]] = Registry(
    "format", {"text": to_text, "markdown": to_markdown, "latex": to_latex, "csv": to_csv}
)


def legend(table: RunTable) -> list[str]:
    """What the numbers are, and what had to be left out."""
    frame = table.frame
    lines = [f"Percentage points, mean ± std over seeds; forgetting: {table.definition}, the "
             f"{FORGETTING_IS[table.definition]}."]  # fmt: skip
    columns = accuracy_columns()
    shown = {columns[name].setting for name in frame["measure"].unique()}
    if "task" in shown:
        lines.append("(task): the task-incremental setting, where a row is scored among the classes of its own task.")
    if "corrected" in shown:
        lines.append("(corrected): with offsets added to the logits, as record.correction of each run says.")
    if frame["er_n"].max():
        lines.append(
            f"Differences are paired by seed, with 95 % t-intervals (from {FEWEST_SEEDS} seeds on), each for "
            f"itself. The best is marked only where its interval to {table.baseline} excludes zero."
        )  # fmt: skip
    elif table.comparable and table.baseline == "ER":
        lines.append("No run of plain ER with a seed in common: no differences, and nothing is marked as best. Choose "
                     "another row to compare with by --baseline.")  # fmt: skip
    elif table.comparable:
        lines.append(
            f"No run of {table.baseline} with a seed in common: no differences, and nothing is marked as best."
        )
    if table.comparable and table.controlled and not frame["control_n"].max():
        lines.append("No run of the control class_uniform (memory.draw) with a seed in common: a gain may be that of a "
                     "class-wise draw alone.")  # fmt: skip
    if frame["paper"].count():
        lines.append(f"The paper's figures ({', '.join(frame['paper_where'].drop_nulls().unique().sort())}) are of "
                     f"{table.about_printed}.")  # fmt: skip
    absent = (
        frame.filter(~_worth_a_row())
        .group_by("setting", maintain_order=True)
        .agg(pl.col("method").unique(maintain_order=True))
    )
    for setting, methods in absent.iter_rows():
        lines.append(f"{visible(setting)}, not run: {'; '.join(map(visible, methods))}.")
    return [*lines, *map(visible, table.notes)]


def _worth_a_row() -> pl.Expr:
    """Methods that were run on a data set, and those with published results; the others are only named."""
    return ((pl.col("n") > 0) | pl.col("paper").is_not_null()).any().over("setting", "method")


def _grids(table: RunTable) -> Iterator[Grid]:
    shown = table.frame.filter(_worth_a_row())
    for setting in shown["setting"].unique(maintain_order=True):
        part = shown.filter(pl.col("setting") == setting)
        by_row: dict[str, dict[str, dict[str, Any]]] = {}
        for record in part.to_dicts():
            by_row.setdefault(record["method"], {})[record["measure"]] = record
        columns = [c for c in accuracy_columns().values() if any(c.name in of for of in by_row.values())]
        settings = dict.fromkeys(column.setting for column in columns)
        leading = [c for c in columns if c.summary in LEADING[: 2 if c.setting != "class" and len(settings) > 1 else 4]]
        yield _values_grid(visible(setting), by_row, leading)
        # what a grid beside another had no room for, and all else with corrected logits, is in the CSV
        families = dict.fromkeys((SUMMARIES[c.summary].family, c.setting) for c in columns)
        for family, of in ((f, s) for f, s in families if f and s != "corrected"):
            more = [c for c in columns if (SUMMARIES[c.summary].family, c.setting) == (family, of)]
            measured = {m: row for m, row in by_row.items() if any(row[c.name]["n"] for c in more)}
            # the setting stands in the title, and not in every column's
            suffix = more[0].title.partition(" (")
            short = [c._replace(title=c.title.removesuffix("".join(suffix[1:]))) for c in more]
            yield _values_grid(f"{visible(setting)}, {family}{''.join(suffix[1:])}", measured, short)
        if any(record["er_n"] or record["control_n"] for record in part.to_dicts()):
            yield _differences_grid(visible(setting), by_row, leading, visible(table.baseline))


def _values_grid(title: str, by_row: dict[str, dict[str, dict[str, Any]]], columns: list[Column]) -> Grid:
    published = {m for measures in by_row.values() for m, r in measures.items() if r["paper"] is not None}
    header = ["method", "seeds"]
    for column in columns:
        arrow = "↑" if column.higher_is_better else "↓"
        header += [f"{column.title} {arrow}", *(["paper"] if column.name in published else [])]
    rows = []
    for method, measures in by_row.items():
        most = max((measures[column.name] for column in columns), key=lambda record: record["n"])
        row = [Cell(visible(method), number=False), Cell(_seeds(most["n"], most["missing"]), number=False)]
        for column in columns:
            record = measures[column.name]
            row.append(Cell(_spread(record["mean"], record["std"]), bold=record["best"]))
            if column.name in published:
                row.append(Cell(_spread(record["paper"], record["paper_std"])))
        rows.append(row)
    return Grid(title, header, rows)


def _differences_grid(
    title: str, by_row: dict[str, dict[str, dict[str, Any]]], columns: list[Column], baseline: str
) -> Grid:
    """Of accuracy and forgetting; those of the other summaries are in the CSV."""
    names = {"er": baseline, "control": "class-uniform"}
    records = [r for measures in by_row.values() for r in measures.values()]
    pairs = [(c, p) for c in columns if c.summary in LEADING[:2] for p in names if any(r[f"{p}_n"] for r in records)]
    rows = [
        [Cell(visible(method), number=False), *(Cell(_interval(measures[c.name], p)) for c, p in pairs)]
        for method, measures in by_row.items()
        if any(measures[c.name][f"{p}_n"] for c, p in pairs)
    ]
    return Grid(f"{title}, paired differences", ["method", *(f"{c.title} − {names[p]}" for c, p in pairs)], rows)


def _seeds(n: int, missing: str) -> str:
    """How many seeds there are, and which are missing.

    >>> _seeds(3, ""), _seeds(2, "2"), _seeds(1, "1, 2")
    ('3', '2 (seed 2 missing)', '1 (seeds 1, 2 missing)')
    """
    return f"{n} (seed{'s' if ',' in missing else ''} {missing} missing)" if missing else f"{n}"


def _spread(mean: float | None, std: float | None) -> str:
    if mean is None:
        return ""
    return _minus(f"{mean:.2f}") + ("" if std is None else f" ± {std:.2f}")


def _interval(record: dict[str, Any], prefix: str) -> str:
    difference, low, high = (record[f"{prefix}_{name}"] for name in ("difference", "low", "high"))
    if difference is None:
        return ""
    common = record[f"{prefix}_n"]
    fewer = f" (n = {common})" if common < record["n"] else ""
    return _minus(f"{difference:+.2f}" + ("" if low is None else f" [{low:+.2f}, {high:+.2f}]")) + fewer


def _minus(text: str) -> str:
    return text.replace("-", "−")


def _label(name: str) -> str:
    r"""A name as part of a LaTeX label.

    >>> _label("my table_1")
    'my-table-1'
    """
    return "".join(sign if sign.isascii() and sign.isalnum() else "-" for sign in name)
