"""What a comparison says, in words."""

import polars as pl

from wane.predictions.comparison import Comparison

__all__ = ["kind_of_group", "sentences"]


def kind_of_group(by: tuple[str, ...], count: int = 1) -> str:
    """What a row of the table is called.

    >>> kind_of_group(("class",), 2), kind_of_group(("domain", "kind"))
    ('classes', 'group')
    """
    one, more = ("class", "classes") if by == ("class",) else ("group", "groups")
    return one if count == 1 else more


def sentences(c: Comparison) -> tuple[str, ...]:
    """What happened from one model to the next.

    >>> from wane.predictions.comparison import compare
    >>> from wane.predictions.predictions import read_predictions
    >>> result = compare(read_predictions("example:digits_before"), read_predictions("example:digits_after"))
    >>> for sentence in sentences(result):
    ...     print(sentence)
    Accuracy went from 77.6 % to 70.0 % over 899 samples: 229 turned from right to wrong, 160 from wrong to right.
    4 of 10 classes lost accuracy (digit 1, digit 3, digit 2, digit 4); 2 more are in hidden decline (digit 0, digit 5).
    2 classes are at 0 %; digit 1 is nearest to coming back, its label 1.6 nats short on average.
    2 classes gained accuracy (digit 8, digit 9).
    1 class is in hidden gain (digit 6).
    """
    total, n = len(c.groups), c.overall["n"]

    def groups(count: int) -> str:
        return f"{count:,} {kind_of_group(c.by, count)}"

    lost, declining, gained, rising = (c.having(v) for v in ("lost", "hidden decline", "gained", "hidden gain"))
    first, second = (100 * c.overall[f"accuracy_{when}"] for when in ("before", "after"))
    down, up = c.overall["right_to_wrong"], c.overall["wrong_to_right"]
    flips = f": {down:,} turned from right to wrong, {up:,} from wrong to right" if down or up else ""
    said = [f"Accuracy went from {first:.1f} % to {second:.1f} % over {n:,} samples{flips}."]
    if "accuracy_common_after" in c.overall:
        first, second = (100 * c.overall[f"accuracy_common_{when}"] for when in ("before", "after"))
        taken = f"; {c.overall['to_new']:,} of the {down:,} answers lost went to new classes" if down else ""
        said.append(
            f"Among the {c.heads[2]:,} classes that both know it went from {first:.1f} % to {second:.1f} %{taken}."
        )
    worse = [f"{len(lost):,} of {groups(total)} lost accuracy ({_listed(lost)})"] if len(lost) else []
    if len(declining):
        who = f"{len(declining):,} more" if len(lost) else f"{len(declining):,} of {groups(total)}"
        worse.append(f"{who} {_are(declining)} in hidden decline ({_listed(declining)})")
    if worse:
        said.append("; ".join(worse) + ".")
    if len(zero := c.at_zero):
        nearest = zero.row(0, named=True)
        who = f"{groups(len(zero))} {_are(zero)} at 0 %"
        if (gap := nearest.get("gap_after")) is not None:
            who += f"; {nearest['name']} is nearest to coming back, its label {gap:.1f} nats short on average"
        said.append(f"{who}.")
    if len(gained):
        said.append(f"{groups(len(gained))} gained accuracy ({_listed(gained)}).")
    if len(rising):
        said.append(f"{groups(len(rising))} {_are(rising)} in hidden gain ({_listed(rising)}).")
    if len(mixed := c.having("mixed")):
        said.append(f"{groups(len(mixed))} moved both ways while accuracy held ({_listed(mixed)}).")
    if c.groups["verdict"].is_in(["steady", "never right", "too few"]).all():
        said.append(f"No {kind_of_group(c.by)} changed beyond chance.")
    return tuple(said)


def _are(frame: pl.DataFrame) -> str:
    return "is" if len(frame) == 1 else "are"


def _listed(frame: pl.DataFrame, most: int = 5) -> str:
    names = frame["name"].to_list()
    return ", ".join(names[:most]) + (f" and {len(names) - most:,} more" if len(names) > most else "")
