"""Which runs may be compared: those that differ in their method and seed only; and what their methods are called."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from wane.runs.config import Config, flat
from wane.runs.folder import RunFolder
from wane.runs.identity import Method

__all__ = ["BASELINE", "CONTROL", "CONTROL_PAST", "Setting", "by_setting", "distinct_titles", "protocol"]

#: What methods are compared with: plain replay, and class-wise draws without any signal.
BASELINE = Method()
CONTROL = Method(draw="class_uniform")
CONTROL_PAST = Method(draw="class_uniform", scope="past")


class Setting(NamedTuple):
    """Runs that may be compared: they differ in seed and method only."""

    title: str
    data: str
    runs: list[RunFolder]


def by_setting(runs: Sequence[RunFolder], *, apart_from: Collection[str] = ()) -> list[Setting]:
    """The runs in groups that may be compared; if a data set has several settings, their titles say what differs.

    Runs that differ only in the dotted keys `apart_from` count as comparable, too.
    """
    groups: dict[tuple[str, tuple[tuple[str, str], ...]], list[RunFolder]] = {}
    for run in runs:
        shared = tuple((key, value) for key, value in protocol(run.config).items() if key not in apart_from)
        groups.setdefault((Path(run.config.data.name).name, shared), []).append(run)
    found = []
    for (data, shared), chosen in groups.items():
        others, own = [dict(p) for d, p in groups if d == data], dict(shared)
        # a section that is off is one key in one run and several in another
        apart = [f"{key} {json.loads(own[key])}" for key in own if any(o.get(key) != own[key] for o in others)]
        found.append(Setting(data + (f" ({', '.join(apart)})" if apart else ""), data, chosen))
    return found


def protocol(config: Config) -> dict[str, str]:
    """Everything that a result depends on except the method and the seed: values as JSON, by dotted key."""
    hidden: Any = {
        "recipe": True, "seed": True, "device": True, "data": {"root"}, "memory": {"draw", "scope"},
        "learner": {"name", "options", "weights", "trend"},
        "record": {"eval_every", "samples", "flow", "recovery"},
    }  # fmt: skip
    settings = flat(config.model_dump(mode="json", exclude=hidden))
    return {key: json.dumps(value, sort_keys=True) for key, value in settings.items()}


def distinct_titles(methods: Iterable[Method]) -> dict[Method, str]:
    """The title of each method, with a number where two that differ have the same.

    >>> distinct_titles([Method(), Method("joint"), Method("er", options=(("x", 1),))])[Method("joint")]
    'joint'
    """
    found: dict[Method, str] = {}
    for method in dict.fromkeys(methods):
        alike = sum(other.title == method.title for other in found)
        found[method] = f"{method.title} [{alike + 1}]" if alike else method.title
    return found
