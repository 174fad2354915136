"""Which run is this? Its method, fingerprint and folder name are functions of the config. No torch here."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from wane.interventions.loss_weights import LossWeights
from wane.interventions.trend_sampler import TrendSampler
from wane.names import safe_name
from wane.runs.config import PLACES, Config

__all__ = ["ADDED_LATER", "Method", "fingerprint", "method_of", "method_title", "run_name"]

#: Settings that wane did not have at first, with the value that reproduces what it did then. A run with that value is
#: named as before. A setting whose default is None needs no row: what is not set never counts.
ADDED_LATER: dict[tuple[str, ...], Any] = {
    ("learner", "options"): {},
    ("learner", "weights", "normalise"): "mean",
    ("data", "stream"): "classes",
    ("record", "signals"): [],
}


@dataclasses.dataclass(frozen=True)
class Method:
    """How a run learns and what it replays: runs with equal methods belong to one row of a table.

    A value, made from the config and compared as a whole. `title` is for people, and never read back.

    >>> Method(trend=TrendSampler("loss", window=3)).title
    'er, trend loss (window 3)'
    >>> Method(trend=TrendSampler("loss")) == Method(trend=TrendSampler("loss", window=3))
    False
    >>> Method(draw="uniform", scope="past").title
    'er, uniform past'
    >>> Method("er", own=True) == Method("er")  # someone's own ER, in a loop that wane knows nothing of
    False
    """

    learner: str = "er"
    options: tuple[tuple[str, Any], ...] = ()
    weights: LossWeights | None = None
    trend: TrendSampler | None = None
    draw: str = "uniform"
    scope: str = "seen"
    holdout: str = ""  # the share of slots that are not replayed, and whether it is the control
    own: bool = False  # whether it ran in a loop of its owner's, and `learner` is but the name that it was given

    @property
    def title(self) -> str:
        """What is different about it, in a few words; values that are defaults go unsaid."""
        return ", ".join(self._parts(" ", _in_brackets))

    @property
    def slug(self) -> str:
        """The title as part of a folder's name."""
        return safe_name("-".join(self._parts("_", _joined)))

    def _parts(self, space: str, words: Callable[[str, dict[str, Any], bool], str]) -> list[str]:
        if self.own:
            return [self.learner]
        usual = _default_options(self.learner) if self.options else {}
        parts = [words(self.learner, {k: v for k, v in self.options if k not in usual or v != usual[k]}, True)]
        for kind, settings in (("weights", self.weights), ("trend", self.trend)):
            if settings is not None:
                usual = dataclasses.asdict(type(settings)(settings.signal))
                said = {k: v for k, v in dataclasses.asdict(settings).items() if v != usual[k]}
                parts.append(words(f"{kind}{space}{settings.signal}", said, False))
        if self.trend is None and (self.draw, self.scope) != ("uniform", "seen"):
            parts.append(self.draw if self.scope == "seen" else f"{self.draw}{space}{self.scope}")
        if self.holdout:
            parts.append(f"holdout{space}{self.holdout.replace(' ', space)}")
        return parts


def method_of(config: Config) -> Method:
    """The method of a run. Where a trend decides the draw, what it replaces has no effect and does not count."""
    learner, memory = config.learner, config.memory
    draw, scope = ("uniform", "seen") if learner.trend is not None else (memory.draw, memory.scope)
    options = tuple((name, _frozen(value)) for name, value in sorted(learner.options.items()))
    holdout = f"{memory.holdout:g}{' replayed' if memory.holdout_replayed else ''}" if memory.holdout else ""
    return Method(learner.name, options, learner.weights, learner.trend, draw, scope, holdout)


def method_title(config: Config) -> str:
    """The title of a run's method.

    >>> from wane.runs.config import build_config
    >>> method_title(build_config({"learner": {"trend": {"signal": "loss", "window": 3}}}))
    'er, trend loss (window 3)'
    """
    return method_of(config).title


def fingerprint(config: Config) -> str:
    """Ten hex digits of everything that the result depends on; not of names or places.

    >>> from wane.runs.config import build_config
    >>> a, b = build_config({"recipe": "x"}), build_config({"data": {"root": "/data"}})
    >>> fingerprint(a) == fingerprint(b) != fingerprint(build_config({"seed": 1}))
    True
    """
    # without what is not set, so that a setting added to wane later leaves the names of older runs alone
    settings = config.model_dump(mode="json", exclude=PLACES, exclude_none=True)
    for (*sections, name), value in ADDED_LATER.items():
        inside: Any = settings
        for section in sections:
            inside = inside.get(section, {})
        if inside.get(name) == value:
            del inside[name]
    if config.learner.trend is not None:  # the trend decides the draw; what it replaces has no effect
        settings["memory"] |= {"draw": "", "scope": ""}
    if config.data.fingerprint is not None:  # the files count, wherever they are
        del settings["data"]["name"]
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:10]


def run_name(config: Config) -> str:
    """The folder of a run: readable in front, exact at the end."""
    readable = safe_name(f"{Path(config.data.name).name}-{method_of(config).slug}-seed{config.seed}")
    return f"{readable}-{fingerprint(config)}"


def _in_brackets(name: str, values: dict[str, Any], names: bool) -> str:
    """For a title; without `names`, a choice is told by its value alone.

    >>> _in_brackets("trend loss", {"window": 3, "slope": "standardised", "literal": True}, False)
    'trend loss (window 3, standardised, literal)'
    """
    said = ", ".join(_said(key, value, names) for key, value in values.items())
    return f"{name} ({said})" if said else name


def _joined(name: str, values: dict[str, Any], _names: bool) -> str:
    return "_".join([name, *(f"{key}{value}" for key, value in values.items())])


def _said(key: str, value: Any, names: bool) -> str:
    """A setting in a way that no other value of it has."""
    if isinstance(value, bool):
        return key if value else f"not {key}"
    if isinstance(value, str):
        text = value if re.fullmatch(r"[^\W\d][\w.-]*", value) else repr(value)
        return f"{key} {text}" if names or value == "none" else text
    short = f"{value:g}" if isinstance(value, int | float) else ""
    return f"{key} {short if short and float(short) == value else value}"


@cache
def _default_options(learner: str) -> dict[str, Any]:
    """The options of a method that nothing is said about; none if it is not installed here."""
    try:
        from wane.learners.options import check_options

        return {name: _frozen(value) for name, value in check_options(learner, {}).items()}
    except (ImportError, ValueError):
        return {}


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value
