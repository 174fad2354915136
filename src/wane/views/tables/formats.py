"""A `RunTable` as text, Markdown, LaTeX or CSV: one set of cells, four small renderers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import polars as pl

from wane.registry import Registry
from wane.views.compare.tables import printable
from wane.views.tables.run_tables import MEASURES, RunTable

__all__ = ["FORMATS", "legend", "to_csv", "to_latex", "to_markdown", "to_text"]

DEFINITIONS = {
    "peak": "best value after any task minus the last one",
    "past_peak": "best value before the last minus the last one",
    "first": "value right after learning minus the last one",
}


class Cell(NamedTuple):
    """What stands in a place: words, or numbers."""

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

    parts = [table.title]
    for grid in _grids(table):
        lines = [grid.header, *([shown(cell) for cell in row] for row in grid.rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        rows = ["  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]).rstrip() for line in lines]
        parts.append("\n".join([grid.title, rows[0], "-" * (sum(widths) + 2 * len(widths) - 2), *rows[1:]]))
    return "\n\n".join([*parts, "\n".join(legend(table))]) + "\n"


def to_markdown(table: RunTable) -> str:
    """For a README; the best in bold."""

    def escaped(text: str) -> str:
        return "".join(f"\\{sign}" if sign in "\\|<>*`[" else sign for sign in text)

    def cell(c: Cell) -> str:
        return f"**{c.text}**" if c.bold else c.text if c.number else escaped(c.text)

    parts = [f"**{escaped(table.title)}**"]
    for grid in _grids(table):
        rule = [":--", *["--:"] * (len(grid.header) - 1)]
        rows = [[escaped(h) for h in grid.header], rule, *([cell(c) for c in row] for row in grid.rows)]
        parts.append("\n".join([f"{escaped(grid.title)}", "", *(f"| {' | '.join(row)} |" for row in rows)]))
    return "\n\n".join([*parts, "\n".join(f"- {escaped(line)}" for line in legend(table))]) + "\n"


def to_latex(table: RunTable) -> str:
    """For a paper: booktabs; the best in bold."""

    def cell(c: Cell) -> str:
        if not c.number or not c.text:
            return _tex(c.text)
        inside = c.text.replace("±", r"\pm").replace("−", "-").replace(" [", r"\;[")
        return rf"$\mathbf{{{inside}}}$" if c.bold else f"${inside}$"

    parts = ["\n".join(f"% {line}" for line in legend(table))]  # the notes, for whoever writes the caption
    for grid in _grids(table):
        rows = [" & ".join(map(cell, row)) + r" \\" for row in grid.rows]
        parts.append("\n".join([
            r"\begin{table}[t]", r"\centering\small", rf"\caption{{{_tex(table.title)}. {_tex(grid.title)}.}}",
            rf"\begin{{tabular}}{{l{'r' * (len(grid.header) - 1)}}}", r"\toprule",
            " & ".join(map(_tex, grid.header)) + r" \\", r"\midrule", *rows, r"\bottomrule", r"\end{tabular}",
            r"\end{table}",
        ]))  # fmt: skip
    return "\n\n".join(parts) + "\n"


def to_csv(table: RunTable) -> str:
    """For other programs: everything, a line for each setting, method and measure."""
    return table.frame.with_columns(pl.lit(table.definition).alias("forgetting_definition")).write_csv()


FORMATS: Registry[Callable[[RunTable], str]] = Registry(
    "format", {"text": to_text, "markdown": to_markdown, "latex": to_latex, "csv": to_csv}
)


def legend(table: RunTable) -> list[str]:
    """What the numbers are, and what had to be left out."""
    frame = table.frame
    lines = [f"Percentage points, mean ± std over seeds; forgetting: {table.definition}, the "
             f"{DEFINITIONS[table.definition]}."]  # fmt: skip
    if frame["er_n"].max():
        lines.append("Differences are paired by seed, with 95 % t-intervals, each for itself. The best is marked only "
                     "where its interval to ER excludes zero.")  # fmt: skip
    else:
        lines.append("No run of plain ER with a seed in common: no differences, and nothing is marked as best.")
    if not frame["control_n"].max():
        lines.append("No run of the control class_uniform (memory.draw) with a seed in common: a gain may be that of a "
                     "class-wise draw alone.")  # fmt: skip
    if frame["paper"].count():
        lines.append(f"The paper's figures ({', '.join(frame['paper_where'].drop_nulls().unique().sort())}) are of a "
                     "ResNet-18 with 50 epochs a task and three seeds.")  # fmt: skip
    absent = (
        frame.filter(~_worth_a_row())
        .group_by("setting", maintain_order=True)
        .agg(pl.col("method").unique(maintain_order=True))
    )
    for setting, methods in absent.iter_rows():
        lines.append(f"{printable(setting)}, not run: {'; '.join(map(printable, methods))}.")
    return [*lines, *table.notes]


def _worth_a_row() -> pl.Expr:
    """Methods that were run on a data set, and those whose figures the paper has; the others are only named."""
    return ((pl.col("n") > 0) | pl.col("paper").is_not_null()).any().over("setting", "method")


def _grids(table: RunTable) -> Iterator[Grid]:
    shown = table.frame.filter(_worth_a_row())
    for setting in shown["setting"].unique(maintain_order=True):
        part = shown.filter(pl.col("setting") == setting)
        by_row: dict[str, dict[str, dict[str, Any]]] = {}
        for record in part.to_dicts():
            by_row.setdefault(record["method"], {})[record["measure"]] = record
        yield _values_grid(printable(setting), by_row)
        if any(record["er_n"] or record["control_n"] for record in part.to_dicts()):
            yield _differences_grid(printable(setting), by_row)


def _values_grid(title: str, by_row: dict[str, dict[str, dict[str, Any]]]) -> Grid:
    published = {m for measures in by_row.values() for m, r in measures.items() if r["paper"] is not None}
    header = ["method", "seeds"]
    for measure, higher in MEASURES.items():
        header += [f"{measure} {'↑' if higher else '↓'}", *(["paper"] if measure in published else [])]
    rows = []
    for method, measures in by_row.items():
        first = measures["accuracy"]
        row = [Cell(printable(method), number=False), Cell(_seeds(first["n"], first["missing"]), number=False)]
        for measure, record in measures.items():
            row.append(Cell(_spread(record["mean"], record["std"]), bold=record["best"]))
            if measure in published:
                row.append(Cell(_spread(record["paper"], record["paper_std"])))
        rows.append(row)
    return Grid(title, header, rows)


def _differences_grid(title: str, by_row: dict[str, dict[str, dict[str, Any]]]) -> Grid:
    """Of accuracy and forgetting; those of retention and plasticity are in the CSV."""
    names = {"er": "ER", "control": "class-uniform"}
    records = [r for measures in by_row.values() for r in measures.values()]
    columns = [(m, p) for m in ("accuracy", "forgetting") for p in names if any(r[f"{p}_n"] for r in records)]
    rows = [
        [Cell(printable(method), number=False), *(Cell(_interval(measures[m], p)) for m, p in columns)]
        for method, measures in by_row.items()
        if any(measures[m][f"{p}_n"] for m, p in columns)
    ]
    return Grid(f"{title}, paired differences", ["method", *(f"{m} − {names[p]}" for m, p in columns)], rows)


def _seeds(n: int, missing: str) -> str:
    """How many, and which are not there.

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


_TEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "%": r"\%", "#": r"\#", "_": r"\_",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "↑": r"$\uparrow$", "↓": r"$\downarrow$", "−": "$-$",
    "±": r"$\pm$", "<": r"\textless{}", ">": r"\textgreater{}",
}  # fmt: skip


def _tex(text: str) -> str:
    return "".join(_TEX.get(sign, sign) for sign in text)
