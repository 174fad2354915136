"""Which run is this? Its method, fingerprint and folder name are functions of the config. No torch here."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wane.runs.config import PLACES, Config

__all__ = ["Method", "fingerprint", "method_of", "method_title", "run_name"]


@dataclass(frozen=True)
class Method:
    """How a run learns and what it replays: runs with equal methods belong to one row of a table.

    A value, made from the config and compared as a whole. `title` is for people, and never read back.

    >>> from wane.runs.config import Trend
    >>> Method(trend=Trend(signal="loss", window=3)).title
    'er, trend loss (window 3)'
    >>> Method(trend=Trend(signal="loss")) == Method(trend=Trend(signal="loss", window=3))
    False
    """

    learner: str = "er"
    options: tuple[tuple[str, Any], ...] = ()
    weights: Any = None
    trend: Any = None
    draw: str = "uniform"
    scope: str = "seen"

    @property
    def title(self) -> str:
        """What is different about it, in a few words; the defaults of an intervention go unsaid."""
        return ", ".join(self._parts(slug=False))

    @property
    def slug(self) -> str:
        """The title as part of a folder's name."""
        return "-".join(self._parts(slug=True))

    def _parts(self, *, slug: bool) -> list[str]:
        parts = [self.learner]
        if self.weights is not None:
            parts.append(_intervention("weights", self.weights, slug))
        if self.trend is not None:
            parts.append(_intervention("trend", self.trend, slug))
        elif self.draw != "uniform":
            parts.append(self.draw + (("_past" if slug else " past") if self.scope == "past" else ""))
        return parts


def method_of(config: Config) -> Method:
    """The method of a run. Where a trend decides the draw, what it replaces has no effect and does not count."""
    learner, memory = config.learner, config.memory
    draw = {} if learner.trend is not None else {"draw": memory.draw, "scope": memory.scope}
    return Method(learner.name, (), learner.weights, learner.trend, **draw)


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
    # without what is not set, so that an option added to wane later leaves the names of older runs alone
    settings = config.model_dump(mode="json", exclude=PLACES, exclude_none=True)
    if not config.learner.options:
        del settings["learner"]["options"]
    if config.learner.trend is not None:  # the trend decides the draw; what it replaces has no effect
        settings["memory"] |= {"draw": "", "scope": ""}
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:10]


def run_name(config: Config) -> str:
    """The folder of a run: readable in front, exact at the end."""
    data = Path(config.data.name).name
    return f"{data}-{method_of(config).slug}-seed{config.seed}-{fingerprint(config)}"


def _intervention(kind: str, settings: Any, slug: bool) -> str:
    defaults = type(settings)()
    said = {k: v for k, v in settings.model_dump().items() if k != "signal" and v != getattr(defaults, k)}
    if slug:
        return "_".join([kind, settings.signal, *(f"{k}{v}" for k, v in said.items())])
    inside = ", ".join(k if v is True else str(v) if isinstance(v, str) else f"{k} {v:g}" for k, v in said.items())
    return f"{kind} {settings.signal}" + (f" ({inside})" if inside else "")
