"""An extension of griffe that shows the doctests of docstrings as code, with their output, and not as quotations."""

import re
from typing import Any

from griffe import Extension, Object

DOCTEST = re.compile(r"^(?P<indent> *)>>> .*(?:\n(?! *$).*)*", re.MULTILINE)


class DoctestFences(Extension):
    """Put every doctest into a fence."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Called once for each module, class, function and attribute."""
        if obj.docstring is not None and "```" not in obj.docstring.value:
            obj.docstring.value = DOCTEST.sub(r"\g<indent>```pycon\n\g<0>\n\g<indent>```", obj.docstring.value)
