"""What is wrong with a setting, in a sentence that names it, quotes its value and says what would be right."""

from __future__ import annotations

import dataclasses
from difflib import get_close_matches
from typing import Any, get_args, get_origin, get_type_hints

from pydantic import BaseModel

__all__ = ["kind_at", "sentence"]

#: How pydantic's names for the branches of a union begin; no setting is called so.
BRANCHES = ("literal[", "tuple[", "constrained-", "union[")


def sentence(root: type[BaseModel], error: Any) -> str:
    """One of pydantic's errors about `root`, for people."""
    where = [str(part) for part in error["loc"] if not str(part).startswith(BRANCHES)]
    value, name = error["input"], ".".join(where)
    if error["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        return _unknown(root, where)
    if not where:
        return str(error["ctx"]["error"])
    if error["type"] == "value_error":
        blamed, value, said = _blamed(kind_at(root, where), value) or ("", value, str(error["ctx"]["error"]))
        name = f"{name}.{blamed}" if blamed else name
        return f"{name} = {value!r} is invalid: {said}"
    return f"{name} = {value!r} is invalid: {error['msg'][0].lower()}{error['msg'][1:]}"


def kind_at(root: type[BaseModel], where: list[str]) -> Any:
    """The section, or the type of the setting, at a place below `root`; a KeyError if there is none.

    >>> from wane.runs.config import Config
    >>> kind_at(Config, ["learner", "trend", "window"])
    <class 'int'>
    """
    kind: Any = root
    for part in where:
        if get_origin(kind) is dict:
            return get_args(kind)[1]
        kind = _fields(kind)[part]
        kind = next((k for k in get_args(kind) if _fields(k)), kind)
    return kind


def _fields(kind: Any) -> dict[str, Any]:
    """The fields of a section, or of a dataclass that stands for one, with their types; none for a plain value."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return {name: field.annotation for name, field in kind.model_fields.items()}
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return get_type_hints(kind)
    return {}


def _unknown(root: type[BaseModel], where: list[str]) -> str:
    known = list(_fields(kind_at(root, where[:-1])))
    near = get_close_matches(where[-1], known, n=1)
    hint = f"did you mean {'.'.join([*where[:-1], near[0]])}?" if near else f"known there: {', '.join(known)}"
    if where[:-1] == ["learner"] and not near:
        hint += f" (an option of the method itself is learner.options.{where[-1]})"
    return f"unknown setting {'.'.join(where)}; {hint}"


def _blamed(kind: Any, given: Any) -> tuple[str, Any, str] | None:
    """The field that a dataclass refuses, with its value and the reason: the first that it refuses by itself."""
    if not (isinstance(kind, type) and dataclasses.is_dataclass(kind) and isinstance(given, dict)):
        return None
    for name, value in given.items():
        try:
            kind(**{name: value})
        except ValueError as error:
            said = str(error)
            for start in (f"{name} is {value!r}: ", f"{name}={value}: ", f"{name}={value} "):
                said = said.removeprefix(start)
            return name, value, said
    return None
