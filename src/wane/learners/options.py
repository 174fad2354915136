"""The options of a method: a frozen dataclass beside its class, and the check of what was given for it."""

from __future__ import annotations

import dataclasses
from difflib import get_close_matches
from typing import Any

__all__ = ["check_options"]


@dataclasses.dataclass(frozen=True)
class NoOptions:
    """What a method without options has."""


def check_options(name: str, given: dict[str, Any]) -> dict[str, Any]:
    """All options of the method `name`: those given, checked, and the defaults of the others.

    >>> check_options("er", {})
    {}
    >>> check_options("er", {"alpha": 0.5})
    Traceback (most recent call last):
    ...
    ValueError: unknown setting learner.options.alpha: er has no options
    """
    from pydantic import TypeAdapter, ValidationError

    from wane.learners import LEARNERS

    kind: Any = getattr(LEARNERS.find(name), "Options", NoOptions)
    known = [field.name for field in dataclasses.fields(kind)]
    for option in given:
        if option not in known:
            near = get_close_matches(option, known, n=1)
            hint = f"{name} has {', '.join(known)}" if known else f"{name} has no options"
            hint = f"did you mean learner.options.{near[0]}?" if near else hint
            raise ValueError(f"unknown setting learner.options.{option}: {hint}")
    try:
        options = TypeAdapter(kind).validate_python(given)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, ("learner.options", *first["loc"])))
        raise ValueError(f"{where} = {first['input']!r} is invalid: {first['msg']}") from None
    return dataclasses.asdict(options)
