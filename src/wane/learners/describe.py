"""What `wane methods` prints: every method with its source, the settings it works in, and its options."""

from __future__ import annotations

import ast
import inspect
import textwrap
from dataclasses import MISSING, dataclass, fields
from itertools import pairwise
from typing import Any

from wane.learners.learner import Learner
from wane.learners.registry import LEARNERS

__all__ = ["MethodDescription", "OptionDescription", "describe_methods", "field_docstrings", "settings_of", "title_of"]


@dataclass(frozen=True)
class OptionDescription:
    """One hyper-parameter of a method."""

    name: str
    default: Any  # None also where there is none
    text: str


@dataclass(frozen=True)
class MethodDescription:
    """One method."""

    name: str
    title: str
    source: str
    settings: tuple[str, ...]  # ("class", "task"), or ("task",) where the task must be known
    has_memory: bool
    options: tuple[OptionDescription, ...]


def describe_methods() -> list[MethodDescription]:
    """All methods that can be named: wane's own, and those of installed packages.

    >>> [(method.name, method.settings) for method in describe_methods()][:3]
    [('finetune', ('class', 'task')), ('joint', ('class', 'task')), ('er', ('class', 'task'))]
    """
    LEARNERS.load_installed()
    return [_described(name, learner) for name, learner in LEARNERS.items()]


def title_of(learner: type[Learner]) -> str:
    """What to call a method."""
    return learner.title or learner.__name__


def settings_of(learner: type[Learner]) -> tuple[str, ...]:
    """The settings in which a method can be evaluated: class-incremental and task-incremental, or the latter only."""
    return ("task",) if learner.needs_task else ("class", "task")


def field_docstrings(kind: type[Any]) -> dict[str, str]:
    """The docstring below each field of a dataclass, also of those that it inherits; none where there is no source.

    >>> field_docstrings(MethodDescription)
    {}
    """
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__[:-1]):
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(base)))
        except (OSError, TypeError, SyntaxError):
            continue
        body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
        for field, below in pairwise(body):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(below, ast.Expr):
                text = below.value.value if isinstance(below.value, ast.Constant) else None
                if isinstance(text, str):
                    found[field.target.id] = " ".join(text.split())
    return found


def _described(name: str, learner: type[Learner]) -> MethodDescription:
    texts = field_docstrings(learner.Options)
    options = []
    for field in fields(learner.Options):
        default = field.default_factory() if field.default_factory is not MISSING else field.default
        options.append(
            OptionDescription(field.name, None if default is MISSING else default, texts.get(field.name, ""))
        )
    return MethodDescription(
        name, title_of(learner), learner.source, settings_of(learner), learner.has_memory(), tuple(options)
    )
