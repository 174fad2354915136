"""A comparison of tokens in words and on the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from wane.escaping import visible
from wane.language.comparison import TokenComparison

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["group_name", "sentences", "token_tables"]

#: Rows of a table on the terminal; the page and JSON have all of them.
SHOWN = 8


def group_name(row: Mapping[str, Any], level: tuple[str, ...]) -> str:
    """What a group is called.

    >>> group_name({"domain": "law", "kind": "number"}, ("domain", "kind"))
    'law, number'
    """
    return ", ".join(str(row[column]) for column in level) or "all tokens"


def sentences(comparison: TokenComparison) -> list[str]:
    """What happened, in a few sentences: first over all tokens, then the worst group of each column."""
    whole = comparison.overall
    said = [
        f"Perplexity {_moved(whole)} over {whole['tokens']:,} tokens of {whole['documents']:,} documents: "
        f"{whole['perplexity_before']:.2f} → {whole['perplexity_after']:.2f}, {_ratio(whole)}.",
        f"Of the right answers {_share(whole['lost'], whole['accuracy_before'])} turned wrong, of the wrong ones "
        f"{_share(whole['gained'], 1 - whole['accuracy_before'])} turned right.",
    ]
    for column in comparison.by:
        table = comparison.tables[column,]
        lost = table.filter(table["verdict"] == "lost")
        if len(table) < 2:
            continue
        if lost.is_empty():
            said.append(f"No {column} lost anything beyond chance.")
        else:
            worst = lost.row(0, named=True)
            said.append(
                f"{len(lost)} of {len(table)} groups by {column} lost; most of all {worst[column]}: perplexity "
                f"{_ratio(worst)}."
            )
    return said


def token_tables(comparison: TokenComparison, *, top: int | None = None) -> RenderableType:
    """The sentences and a short table for each column, worst first."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    parts: list[RenderableType] = [Text(visible(sentence)) for sentence in sentences(comparison)]
    for level, frame in comparison.tables.items():
        if not level:
            continue
        count = top or SHOWN
        title = f"by {', '.join(level)}" + (f": the worst {count} of {len(frame)}" if len(frame) > count else "")
        table = Table(title=Text(visible(title)), title_justify="left", box=None, pad_edge=False)
        table.add_column(Text(visible(", ".join(level))))
        for heading in ("tokens", "perplexity", "ratio", "accuracy", "1→0", "0→1", "log-rank", *_both(frame)):
            table.add_column(heading, justify="right", no_wrap=True)
        table.add_column("")
        for row in frame.head(count).iter_rows(named=True):
            table.add_row(
                Text(visible(group_name(row, level))), f"{row['tokens']:,}",
                f"{row['perplexity_before']:.2f} → {row['perplexity_after']:.2f}",
                _ratio(row),
                f"{row['accuracy_before']:.1%} → {row['accuracy_after']:.1%}",
                f"{row['lost']:.1%}", f"{row['gained']:.1%}", f"{row['log_rank_change']:+.3f}",
                *(f"{row[name]:.3f}" for name in _both(frame).values()), row["verdict"],
            )  # fmt: skip
        parts += [Text(""), table]
    parts += [Text(visible(f"note: {note}"), style="dim") for note in comparison.notes]
    return Group(*parts)


def _both(frame: Any) -> dict[str, str]:
    return {"KL": "kl_base_tuned"} if "kl_base_tuned" in frame.columns else {}


def _moved(row: Mapping[str, Any]) -> str:
    return {"lost": "rose", "gained": "fell"}.get(row["verdict"], "did not move beyond chance")


def _ratio(row: Mapping[str, Any]) -> str:
    """Of the perplexities, with its interval.

    >>> _ratio({"perplexity_ratio": 1.25, "perplexity_low": 1.125, "perplexity_high": 1.375})
    '× 1.250 [1.125, 1.375]'
    """
    low, high = row["perplexity_low"], row["perplexity_high"]
    return f"× {row['perplexity_ratio']:.3f}" + ("" if low is None else f" [{low:.3f}, {high:.3f}]")


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.1%}" if whole else "none"
