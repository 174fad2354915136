"""What a reader should know of the numbers of a score or a comparison, in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl
from numpy.typing import NDArray

from wane.predictions.alignment import Pair
from wane.predictions.samples import Samples
from wane.predictions.verdicts import FEWEST

__all__ = ["about", "absent", "infinite_losses"]


def about(pair: Pair, by: Sequence[str], frame: pl.DataFrame) -> Iterator[str]:
    """Of a comparison: what was matched, left out, or cannot be judged."""
    yield from dict.fromkeys((*pair.before.notes, *pair.after.notes, *pair.notes))
    yield from _heads(pair)
    yield from absent(pair.before, by, len(frame))
    kind, plural = ("class", "classes") if by == ("class",) else ("group", "groups")
    if few := int((frame["units"] < FEWEST).sum()):
        units = "samples" if (frame["units"] == frame["n"]).all() else "documents"
        yield f"Of {len(frame)} {plural}, {few} with fewer than {FEWEST} {units} cannot be judged."
    if never := int((frame["verdict"] == "never right").sum()):
        who = f"{never} {f'{kind} was' if never == 1 else f'{plural} were'} at 0 % before and after while signals fell"
        yield f"{who}: with no accuracy to hold, that is no hidden decline."


def _heads(pair: Pair) -> Iterator[str]:
    if pair.same_head:
        return
    first, second, both = pair.before.num_classes, pair.after.num_classes, len(pair.common)
    known = f"The models know {first:,} and {second:,} classes, {both:,} of them in common"
    if not pair.restrictable:
        yield f"{known}; the files hold no logits, so every signal is over all classes of its own model."
    else:
        yield (
            f"{known}: accuracy, answers and ranks are over all classes of each model, "
            "every other signal over the common ones."
        )


def absent(samples: Samples, by: Sequence[str], present: int) -> Iterator[str]:
    """The classes that have no samples."""
    if tuple(by) == ("class",) and present < samples.num_classes:
        size = samples.num_classes
        yield f"Of {size:,} classes, {size - present:,} without samples are left out."


def infinite_losses(infinite: NDArray[np.bool_], who: str) -> Iterator[str]:
    """The samples whose loss cannot be averaged."""
    if count := int(infinite.sum()):
        yield (
            f"In {count} of {len(infinite):,} samples {who} gives the label probability 0: "
            "their infinite loss is left out of the means of loss and gap, while the other signals count them."
        )
