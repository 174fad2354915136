"""One kind of look-up table for everything that has a name: it says what it knows when it does not know."""

from difflib import get_close_matches
from typing import TypeVar

Row = TypeVar("Row")


class UnknownNameError(KeyError, ValueError):
    """A name that a registry does not hold."""

    def __str__(self) -> str:
        # KeyError would print the sentence as a quoted literal.
        return str(self.args[0])


class Registry(dict[str, Row]):
    """A dict whose failed look-up names the nearest entry and lists the rest.

    >>> colours = Registry("colour", {"red": 1, "green": 2})
    >>> colours["red"]
    1
    >>> colours["gren"]
    Traceback (most recent call last):
    ...
    wane.registry.UnknownNameError: unknown colour 'gren'; did you mean 'green'? Known: red, green
    """

    def __init__(self, kind: str, rows: dict[str, Row]) -> None:
        super().__init__(rows)
        self.kind = kind

    def __missing__(self, name: str) -> Row:
        near = get_close_matches(str(name), self, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        raise UnknownNameError(f"unknown {self.kind} {name!r}{hint} Known: {', '.join(self)}")
