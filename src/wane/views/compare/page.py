"""Pages that stand alone: one file, no network, no script."""

import math
import os
from typing import Any

from wane.files import write_page
from wane.predictions.comparison import EVIDENCE, FEWEST, VERDICTS, Comparison
from wane.softmax.signals import SIGNALS
from wane.views.compare.sentences import kind_of_group, sentences
from wane.views.compare.tables import SHOWN, named_flips, percent
from wane.views.page_template import page_templates

__all__ = ["comparison_page", "write_comparison"]

#: Rows of a table that are open at first; the rest are behind a line to click on.
MOST = 40


def comparison_page(comparison: Comparison, *, before: str = "before", after: str = "after") -> str:
    """The page as text; `before` and `after` are what the models are called in it.

    >>> from wane.predictions.comparison import compare
    >>> from wane.predictions.predictions import read_predictions
    >>> result = compare(read_predictions("example:digits_before"), read_predictions("example:digits_after"))
    >>> page = comparison_page(result)
    >>> page.count("<h2"), "http:" in page, "<script" in page
    (8, False, False)
    """
    environment = page_templates("wane.views.compare")
    environment.filters |= {
        "percent": percent,
        "number": _number,
        "signed": _signed,
        "ratio": _ratio,
        "slug": lambda text: text.replace(" ", "-"),
    }
    there = comparison.groups.columns
    signals = {name: row for name, row in SIGNALS.items() if f"{name}_change" in there}
    flips = named_flips(comparison)
    return environment.get_template("compare.html").render(
        c=comparison, sentences=sentences(comparison), before=before, after=after, direction=direction, most=MOST,
        signals=signals, shown=[name for name in SHOWN if name in signals], verdicts=VERDICTS, fewest=FEWEST,
        evidence=[name for name in EVIDENCE if name in signals], taken=_taken(comparison), flips=flips.to_dicts(),
        group=kind_of_group(comparison.by), groups_word=kind_of_group(comparison.by, 2),
        further=[name for name in comparison.by if name in flips.columns and name != "document"],
    )  # fmt: skip


def write_comparison(comparison: Comparison, path: str | os.PathLike[str], *, before: str, after: str) -> None:
    """Write the page atomically, so that a failure leaves an older file intact."""
    write_page(path, comparison_page(comparison, before=before, after=after).encode())


def _taken(comparison: Comparison, most: int = 8) -> list[dict[str, Any]]:
    """For each group that lost accuracy, in order: how many answers turned wrong, and what they turned into."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in comparison.takers.to_dicts():
        found.setdefault(row["name"], []).append(row)
    return [
        {"name": row["name"], "right_to_wrong": row["right_to_wrong"], "takers": found[row["name"]][:most],
         "rest": sum(taker["n"] for taker in found[row["name"]][most:])}
        for row in comparison.having("lost").to_dicts() if row["name"] in found
    ]  # fmt: skip


def direction(row: dict[str, Any], name: str) -> str:
    """Whether a signal of a class got "worse", "better" or neither ("same") as far as its interval can tell.

    >>> direction({"loss_low": 0.1, "loss_high": 0.3}, "loss")
    'worse'
    """
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    if low is None or low <= 0 <= high:
        return "same"
    return "better" if (low > 0) == SIGNALS[name].higher_is_better else "worse"


def _number(value: float | None, digits: int = 2) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _signed(value: float | None, digits: int = 2) -> str:
    return "–" if value is None else f"{round(value, digits) + 0.0:+.{digits}f}".replace("-", "−")  # + 0.0: no -0.00


def _ratio(nats: float | None) -> float:
    """The label's probability relative to the winner's, from how many nats it lacks."""
    return 0.0 if nats is None else math.exp(-nats)
