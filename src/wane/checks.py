"""Numbers that an option can have: whole, finite and within bounds, or one sentence that says what is wrong.

No torch or NumPy here: a config that names options needs neither.
"""

from __future__ import annotations

import math
from typing import SupportsIndex, cast

__all__ = ["finite", "whole"]


def whole(name: str, value: object, least: int = 0, most: int | None = None) -> int:
    """`value` as an int, if it is a whole number within bounds; anything else is a ValueError that quotes it.

    A float such as 3.0 is no whole number here, nor is True: where a count is wanted, both are mistakes.

    >>> whole("bins", 15, least=1)
    15
    >>> whole("bins", float("inf"), least=1)
    Traceback (most recent call last):
    ...
    ValueError: bins is inf: give a whole number of at least 1
    >>> whole("devices", 10**13, least=1, most=4096)
    Traceback (most recent call last):
    ...
    ValueError: devices is 10000000000000: give a whole number from 1 to 4,096
    """
    if not isinstance(value, bool) and hasattr(value, "__index__"):
        try:
            found = cast(SupportsIndex, value).__index__()
        except TypeError:  # an array of several numbers has the method all the same
            found = least - 1
        if found >= least and (most is None or found <= most):
            return found
    bounds = f"of at least {least:,}" if most is None else f"from {least:,} to {most:,}"
    raise ValueError(f"{name} is {value!r}: give a whole number {bounds}")


def finite(name: str, value: object, *, above: float | None = None, least: float | None = None) -> float:
    """`value` as a float, if it is a finite number, greater than `above` and no less than `least`.

    >>> finite("gamma", 2, least=0)
    2.0
    >>> finite("epsilon", float("nan"), above=0)
    Traceback (most recent call last):
    ...
    ValueError: epsilon is nan: give a finite number above 0
    """
    if not isinstance(value, bool | str | bytes | complex):
        try:
            found = float(value)  # type: ignore[arg-type]
        except (TypeError, ValueError, OverflowError):
            found = math.nan
        if math.isfinite(found) and (above is None or found > above) and (least is None or found >= least):
            return found
    bounds = f" above {above:g}" if above is not None else f" of at least {least:g}" if least is not None else ""
    raise ValueError(f"{name} is {value!r}: give a finite number{bounds}")
