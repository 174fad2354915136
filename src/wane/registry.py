"""One kind of look-up table for everything that has a name: it says what it knows when it does not know."""

from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import entry_points
from typing import TypeVar

Row = TypeVar("Row")


class UnknownNameError(KeyError, ValueError):
    """A name that a registry does not hold."""

    def __str__(self) -> str:
        # KeyError would print the sentence as a quoted literal.
        return str(self.args[0])


class Registry(dict[str, Row]):
    """A dict whose failed look-up names the nearest entry and lists the rest.

    Args:
        kind: what a row is, for the error.
        rows: by name.
        group: the entry-point group by which other packages add rows, such as ``"wane.learners"``; None if they cannot.

    >>> colours = Registry("colour", {"red": 1, "green": 2})
    >>> colours["red"]
    1
    >>> colours["gren"]
    Traceback (most recent call last):
    ...
    wane.registry.UnknownNameError: unknown colour 'gren'; did you mean 'green'? Known: red, green
    >>> Registry("function", {}).find("math:sqrt")(9)
    3.0
    """

    def __init__(self, kind: str, rows: dict[str, Row], *, group: str | None = None) -> None:
        super().__init__(rows)
        self.kind, self.group = kind, group

    def __missing__(self, name: str) -> Row:
        raise self.unknown(name, [*self])

    def unknown(self, name: str, known: list[str]) -> UnknownNameError:
        """What to raise for a name that is not among the known ones."""
        near = get_close_matches(str(name), known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        return UnknownNameError(f"unknown {self.kind} {name!r}{hint} Known: {', '.join(known)}")

    def find(self, name: str) -> Row:
        """The row of a name, of an installed package's entry point, or at ``package.module:Name``."""
        if name in self:
            return self[name]
        module, colon, attribute = name.partition(":")
        if colon:
            return self._at(name, module, attribute)
        self.load_installed()
        return self[name]

    def load_installed(self) -> None:
        """Add the rows that installed packages offer; a name that is here already stays what it is."""
        for entry in entry_points(group=self.group) if self.group else ():
            if entry.name not in self:
                self[entry.name] = entry.load()

    def _at(self, name: str, module: str, attribute: str) -> Row:
        try:
            found: Row = getattr(import_module(module), attribute)
        except ModuleNotFoundError as error:
            if not f"{module}.".startswith(f"{error.name}."):
                raise  # the module is there, and lacks a package of its own
            raise UnknownNameError(
                f"{self.kind} {name!r}: there is no module {error.name!r} here: install it first"
            ) from None
        except AttributeError:
            raise UnknownNameError(f"{self.kind} {name!r}: module {module!r} has no {attribute!r}") from None
        return found
