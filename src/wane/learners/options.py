"""The hyper-parameters of methods: checked by name and type, filled in with their defaults, and handed to the class."""

from __future__ import annotations

import math
from dataclasses import MISSING, fields, is_dataclass
from difflib import get_close_matches
from typing import Any, get_type_hints

from pydantic import TypeAdapter, ValidationError
from torch import nn

from wane.learners.learner import Learner
from wane.learners.registry import find_learner

__all__ = ["OptionError", "build_learner", "check_options"]


class OptionError(ValueError):
    """An option that a method does not have, or that has an impossible value."""


def check_options(name: str, given: dict[str, Any]) -> dict[str, Any]:
    """All options of a method: those given, checked, and the defaults of the others. One that is None is left out.

    >>> check_options("er", {})
    {}
    >>> check_options("er", {"alpha": 0.5})
    Traceback (most recent call last):
    ...
    wane.learners.options.OptionError: unknown setting learner.options.alpha: learner er has no options
    """
    values = vars(_made(name, find_learner(name), given))
    return {key: value for key, value in values.items() if value is not None}


def build_learner(name: str, model: nn.Module, num_classes: int, options: dict[str, Any] | None = None) -> Learner:
    """The learner of a run that has not begun.

    >>> build_learner("er", nn.Linear(2, 3), 3).options
    NoOptions()
    """
    found = find_learner(name)
    return found(model, num_classes, _made(name, found, options or {}))


def _made(name: str, learner: type[Learner], given: dict[str, Any]) -> Any:
    """The options as an instance of the method's own dataclass."""
    kind = learner.Options
    if not is_dataclass(kind):
        raise OptionError(f"{learner.__name__}.Options is not a dataclass: write @dataclass(frozen=True) above it")
    known, hints = [f.name for f in fields(kind) if f.init], get_type_hints(kind, include_extras=True)
    for key in given:
        if key not in known:
            raise OptionError(f"unknown setting learner.options.{key}{_hint(key, known, name)}")
    for field in fields(kind):
        if field.init and field.default is MISSING and field.default_factory is MISSING and field.name not in given:
            raise OptionError(f"learner {name} needs learner.options.{field.name}: it has no default")
    checked = {key: _checked(f"learner.options.{key}", hints[key], value) for key, value in given.items()}
    try:
        return kind(**checked)
    except ValueError as error:  # of its __post_init__
        raise OptionError(f"learner.options of {name}: {error}") from None


def _checked(key: str, hint: Any, value: Any) -> Any:
    try:
        found = TypeAdapter(hint).validate_python(value)
    except ValidationError as error:
        said = error.errors()[0]["msg"]
        raise OptionError(f"{key} = {value!r} is invalid: {said[0].lower()}{said[1:]}") from None
    if isinstance(found, float) and not math.isfinite(found):
        raise OptionError(f"{key} = {value!r} is invalid: give a finite number")
    return found


def _hint(key: str, known: list[str], name: str) -> str:
    if not known:
        return f": learner {name} has no options"
    near = get_close_matches(key, known, n=1)
    return f"; did you mean learner.options.{near[0]}?" if near else f"; learner {name} has {', '.join(known)}"
