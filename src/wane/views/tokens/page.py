"""The page of lost tokens: the tables, and the text itself, coloured by what each token lost. One file, no script."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any

from wane.files import write_page
from wane.language.comparison import BOTH, TokenComparison
from wane.views.page_template import page_templates
from wane.views.tokens.tables import group_name, sentences

__all__ = ["token_page", "write_token_page"]

#: Nats at which a token has its full colour: e^3 is a twentieth of the probability.
FULL = 3.0
#: Rows of a table on the page.
ROWS = 60


def token_page(comparison: TokenComparison, *, before: str = "base", after: str = "tuned") -> str:
    """The page as text; `before` and `after` are what the models are called in it.

    It holds sums and the worst passages, so its size does not grow with the number of tokens.
    """
    environment = page_templates("wane.views.tokens")
    environment.filters |= {"signed": _signed, "percent": _percent}
    tables = [
        {
            "title": ", ".join(level),
            "rows": [_row(row, level, _widest(frame)) for row in frame.head(ROWS).iter_rows(named=True)],
            "left_out": max(0, len(frame) - ROWS),
        }
        for level, frame in comparison.tables.items()
        if level
    ]
    passages = [
        {
            "document": p.document,
            "domain": p.domain,
            "lost": p.lost,
            "tokens": [_token(t) for t in p.tokens.iter_rows(named=True)],
        }
        for p in comparison.passages
    ]
    return environment.get_template("lost.html").render(
        before=before, after=after, sentences=sentences(comparison), tables=tables, passages=passages, full=FULL,
        notes=comparison.notes, alpha=comparison.alpha, both="kl_base_tuned" in comparison.tables[()].columns,
        both_title=BOTH["kl_base_tuned"],
    )  # fmt: skip


def write_token_page(comparison: TokenComparison, path: str | os.PathLike[str], *, before: str, after: str) -> None:
    """Write the page atomically, so that a failure leaves an older file intact."""
    write_page(path, token_page(comparison, before=before, after=after).encode())


def _widest(frame: Any) -> float:
    """The furthest that an interval of a table reaches, in nats."""
    ends = [frame[f"perplexity_{end}"].drop_nulls().log().abs().max() for end in ("low", "high", "ratio")]
    return max([float(end) for end in ends if end is not None], default=1.0) or 1.0


def _row(row: Mapping[str, Any], level: tuple[str, ...], widest: float) -> dict[str, Any]:
    """A row of a table, with the places of its bar: from -1, twice the widest below, to 1."""

    def at(value: float | None) -> float:
        return 0.0 if not value else math.log(value) / widest

    ratio = at(row["perplexity_ratio"])
    low, high = (ratio if row[key] is None else at(row[key]) for key in ("perplexity_low", "perplexity_high"))
    return {**row, "name": group_name(row, level), "at": ratio, "from": low, "to": high}


def _token(token: Mapping[str, Any]) -> dict[str, Any]:
    """A token with the strength of its colour, and what is said where one points at it."""
    change = token["loss_after"] - token["loss_before"]
    strength = max(-1.0, min(1.0, change / FULL))
    said = (
        f"{token['kind']} · p {_probability(token['loss_before'])} → {_probability(token['loss_after'])} · "
        f"rank {token['rank_before']} → {token['rank_after']}"
    )
    return {"text": token["text"], "strength": round(strength, 2), "said": said, "turned": _turned(token)}


def _turned(token: Mapping[str, Any]) -> str:
    if token["rank_before"] == 1 and token["rank_after"] > 1:
        return "wrong"
    return "right" if token["rank_before"] > 1 and token["rank_after"] == 1 else ""


def _probability(loss: float) -> str:
    p = math.exp(-loss)
    return f"{p:.2f}" if p >= 0.01 else f"{p:.0e}"


def _signed(value: float | None, digits: int = 3) -> str:
    return "–" if value is None else f"{value:+.{digits}f}"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"
