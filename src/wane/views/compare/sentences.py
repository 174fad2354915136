"""What a comparison says, in words."""

import polars as pl

from wane.predictions.comparison import Comparison

__all__ = ["sentences"]


def sentences(c: Comparison) -> tuple[str, ...]:
    """What happened from one model to the next.

    >>> from wane.predictions.comparison import compare
    >>> from wane.predictions.predictions import read_predictions
    >>> result = compare(read_predictions("example:digits_before"), read_predictions("example:digits_after"))
    >>> for sentence in sentences(result):
    ...     print(sentence)
    Accuracy went from 77.6 % to 70.0 % over 899 samples.
    3 of 10 classes lost accuracy (digit 1, digit 3, digit 2); 3 more are declining though accuracy held (digit 4, ...).
    2 classes are at 0 %; digit 1 is nearest to coming back, its label 1.6 nats short on average.
    2 classes gained accuracy (digit 8, digit 9).
    1 class is improving though accuracy held (digit 6).
    """
    total, n = len(c.classes), c.overall["n"]
    lost, declining, gained, improving = (c.having(v) for v in ("lost", "declining", "gained", "improving"))
    first, second = (100 * c.overall[f"accuracy_{when}"] for when in ("before", "after"))
    said = [f"Accuracy went from {first:.1f} % to {second:.1f} % over {n:,} samples."]
    worse = [f"{len(lost)} of {_classes(total)} lost accuracy ({_listed(lost)})"] if len(lost) else []
    if len(declining):
        who = f"{len(declining)} more" if len(lost) else f"{len(declining)} of {_classes(total)}"
        worse.append(f"{who} {_are(declining)} declining though accuracy held ({_listed(declining)})")
    if worse:
        said.append("; ".join(worse) + ".")
    if len(zero := c.at_zero):
        nearest = zero.row(0, named=True)
        who = f"{_classes(len(zero))} {_are(zero)} at 0 %"
        if (gap := nearest["gap_after"]) is not None:
            who += f"; {nearest['name']} is nearest to coming back, its label {gap:.1f} nats short on average"
        said.append(f"{who}.")
    if len(gained):
        said.append(f"{_classes(len(gained))} gained accuracy ({_listed(gained)}).")
    if len(improving):
        said.append(
            f"{_classes(len(improving))} {_are(improving)} improving though accuracy held ({_listed(improving)})."
        )
    if len(mixed := c.having("mixed")):
        said.append(f"{_classes(len(mixed))} moved both ways while accuracy held ({_listed(mixed)}).")
    if c.classes["verdict"].is_in(["steady", "never", "few"]).all():
        said.append("No class changed beyond chance.")
    return tuple(said)


def _classes(count: int) -> str:
    return f"{count} class{'es' if count != 1 else ''}"


def _are(frame: pl.DataFrame) -> str:
    return "is" if len(frame) == 1 else "are"


def _listed(frame: pl.DataFrame, most: int = 5) -> str:
    names = frame["name"].to_list()
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
