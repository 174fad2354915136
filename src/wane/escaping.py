"""User text in each place that it is written to: one function a format, and no other way in.

Names of classes, runs and methods come from files and folders: they may hold anything. Pages escape by themselves (see
`wane.views.page_template`); JSON and Parquet hold text as it is.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars

__all__ = ["csv_cell", "csv_table", "latex", "lines_visible", "markdown", "visible"]

_TEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "%": r"\%", "#": r"\#", "_": r"\_",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "↑": r"$\uparrow$", "↓": r"$\downarrow$", "−": "$-$",
    "±": r"$\pm$", "<": r"\textless{}", ">": r"\textgreater{}",
}  # fmt: skip


def visible(text: str) -> str:
    r"""One line of text for a terminal: what could steer it, or turn its direction around, is made visible.

    >>> visible("cat\x1b[2J\n")
    'cat\ufffd[2J\ufffd'
    """
    return "".join(sign if sign.isprintable() else "\ufffd" for sign in text)


def lines_visible(text: str) -> str:
    r"""The same for text of several lines.

    >>> lines_visible("a\x07\n\tb")
    'a\ufffd\n\tb'
    """
    return "".join(sign if sign in "\n\t" or sign.isprintable() else "\ufffd" for sign in text)


def latex(text: str) -> str:
    r"""Text within LaTeX, on one line.

    >>> latex("50 % of a_b") == r"50 \% of a\_b"
    True
    """
    return "".join(_TEX.get(sign, sign) for sign in visible(text))


def markdown(text: str) -> str:
    r"""Text within Markdown, also in a cell of a table.

    >>> markdown("<b>|[x](y)") == r"\<b\>\|\[x](y)"
    True
    """
    return "".join(f"\\{sign}" if sign in "\\|<>*`[" else sign for sign in visible(text))


def csv_cell(text: str) -> str:
    """Text in a cell of a CSV file: what a spreadsheet would take for a formula gets an apostrophe in front.

    >>> csv_cell("=1+1"), csv_cell("cat"), csv_cell("-1.5")
    ("'=1+1", 'cat', '-1.5')
    """
    shown = visible(text)
    formula = shown.lstrip()[:1] in ("=", "+", "-", "@", "\ufffd") and not re.fullmatch(r"[+-]?\d+(\.\d+)?", shown)
    return f"'{shown}" if formula and shown else shown


def csv_table(frame: polars.DataFrame) -> str:
    """A table as CSV, every text in it as `csv_cell` writes it."""
    import polars as pl

    safe = frame.with_columns(
        pl.col(pl.String).map_elements(csv_cell, return_dtype=pl.String),
        pl.col(pl.List(pl.String)).list.join(", ").map_elements(csv_cell, return_dtype=pl.String),
    )
    return safe.rename({name: csv_cell(name) for name in frame.columns}).write_csv()
