"""Which runs may be compared: those that differ in their method and seed only; and what their methods are called."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from wane.runs.config import Config, flat
from wane.runs.folder import RunFolder
from wane.runs.identity import Method

__all__ = [
    "BASELINE", "CONTROL", "CONTROL_PAST", "Setting", "by_setting", "differ", "distinct_titles", "protocol",
    "protocol_of",
]  # fmt: skip

#: What methods are compared with: plain replay, and class-wise draws without any signal.
BASELINE = Method()
CONTROL = Method(draw="class_uniform")
CONTROL_PAST = Method(draw="class_uniform", scope="past")


#: Data, number of tasks, and the settings that runs have in common: dotted keys with their values as JSON.
Protocol: TypeAlias = tuple[str, int | None, tuple[tuple[str, str], ...]]


class Setting(NamedTuple):
    """Runs that may be compared: they differ in seed and method only."""

    title: str
    data: str
    runs: list[RunFolder]


def by_setting(runs: Sequence[RunFolder], *, apart_from: Collection[str] = ()) -> list[Setting]:
    """The runs in groups that may be compared; if a data set has several settings, their titles say what differs.

    Runs that differ only in the dotted keys `apart_from` count as comparable, too. A run that wane did not train joins
    the one group of the lab's runs that has its data and number of tasks, and contradicts none of the settings that its
    owner wrote down; where there is none, or where several fit, such runs are among themselves.
    """
    groups: dict[Protocol, list[RunFolder]] = {}
    own: dict[Protocol, list[RunFolder]] = {}
    for run in runs:
        shared = tuple((key, value) for key, value in protocol_of(run).items() if key not in apart_from)
        (groups if run.own is None else own).setdefault((run.data, run.num_tasks, shared), []).append(run)
    for known, chosen in own.items():
        fitting = [of_lab for of_lab in groups if groups[of_lab][0].own is None and _fits(known, of_lab)]
        groups.setdefault(fitting[0] if len(fitting) == 1 else known, []).extend(chosen)
    return [Setting(_setting_title(key, groups), key[0], chosen) for key, chosen in groups.items()]


def _setting_title(key: Protocol, groups: Mapping[Protocol, Sequence[RunFolder]]) -> str:
    """The data, and what sets this group apart from others of the same data."""
    data, tasks, shared = key
    own = groups[key][0].own is not None
    of_data = [other for other in groups if other[0] == data]
    alike = [other for other in of_data if (groups[other][0].own is not None) == own]
    settings, others = dict(shared), [dict(other[2]) for other in alike]
    # a section that is off is one key in one run and several in another
    apart = [f"{k} {json.loads(settings[k])}" for k in settings if any(o.get(k) != settings[k] for o in others)]
    if own and any(other[1] != tasks for other in alike):
        apart.append(f"{tasks} tasks" if tasks else "no tasks")
    if own and len(of_data) > len(alike):
        apart.append("own loop")
    return (data or "unnamed data") + (f" ({', '.join(apart)})" if apart else "")


def _fits(own: Protocol, of_lab: Protocol) -> bool:
    """Whether nothing that is known of a run of someone's own contradicts the lab's."""
    theirs = dict(of_lab[2])
    return (
        own[0] == of_lab[0]
        and own[1] in (None, of_lab[1])
        and all(theirs.get(key, value) == value for key, value in own[2])
    )


def protocol_of(run: RunFolder) -> dict[str, str]:
    """The protocol of a run; of one that wane did not train, those of its settings that bear a name of the lab's."""
    if run.own is None:
        return protocol(run.config)
    known = protocol(Config())
    return {key: json.dumps(value, sort_keys=True) for key, value in flat(run.own.settings).items() if key in known}


def differ(one: RunFolder, other: RunFolder) -> str:
    """In what two runs differ beyond the seed, the first that there is; "" if in nothing that is known."""
    if one.method != other.method:
        return f"{one.method.title} and {other.method.title}"
    if one.data != other.data:
        return f"data {one.data or 'unnamed'} and {other.data or 'unnamed'}"
    a, b = protocol_of(one), protocol_of(other)
    return next((f"{key}: {a.get(key)} -> {b.get(key)}" for key in {**a, **b} if a.get(key) != b.get(key)), "")


def protocol(config: Config) -> dict[str, str]:
    """Everything that a result depends on except the method and the seed: values as JSON, by dotted key."""
    hidden: Any = {
        "recipe": True, "seed": True, "device": True, "data": {"root"}, "memory": {"draw", "scope"},
        "learner": {"name", "options", "weights", "trend"},
        "record": {"eval_every", "signals", "samples", "flow", "recovery", "ladder"},
    }  # fmt: skip
    settings = flat(config.model_dump(mode="json", exclude=hidden))
    if config.data.fingerprint is not None:
        del settings["data.name"]  # the files count, wherever they are
    return {key: json.dumps(value, sort_keys=True) for key, value in settings.items()}


def distinct_titles(methods: Iterable[Method]) -> dict[Method, str]:
    """The title of each method, with a number (or that it is someone's own) where two that differ have the same.

    >>> distinct_titles([Method(), Method("joint"), Method("er", options=(("x", 1),))])[Method("joint")]
    'joint'
    """
    found: dict[Method, str] = {}
    for method in sorted(dict.fromkeys(methods), key=lambda method: method.own):  # the lab's keep their names
        alike = sum(other.title == method.title for other in found)
        mark = "own loop" if method.own else f"{alike + 1}"
        found[method] = f"{method.title} [{mark}]" if alike else method.title
    return found
