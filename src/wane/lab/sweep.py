"""Many runs from one description: variants x lists of settings, each with a name that is a function of its config.

The same config has the same name, whoever asked for it: so a run is never done twice. No torch here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from wane.lab.config import PLACES, Config, ConfigError
from wane.lab.recipes import load_recipe, recipe_settings
from wane.registry import Registry

__all__ = ["Planned", "expand", "fingerprint", "method_title", "run_name", "variant_settings"]


class Planned(NamedTuple):
    """One run of a sweep."""

    variant: str  # the row of the table that it belongs to
    config: Config

    @property
    def name(self) -> str:
        """Of its folder."""
        return run_name(self.config)


def expand(
    *recipes: str,
    scale: str | None = None,
    settings: tuple[dict[str, Any], ...] = (),
    over: dict[str, list[Any]] | None = None,
    only: Sequence[str] = (),
) -> list[Planned]:
    """All runs of one or more recipes, each once: variants x lists, with `over` in the place of lists of the same key.

    `over` maps a dotted key to its values; `settings` go on top of everything; `only` names the variants to do, where
    ``*`` stands for anything.

    >>> len(expand("table1", scale="small"))  # 11 variants, 3 seeds
    33
    >>> len(expand("windows", "table2", scale="small", only=["*, w = 3", "Log-TLR"]))  # 5 signals and 1, 3 seeds
    18
    >>> runs = expand("diagnostics", scale="demo", over={"seed": [0, 1], "learner.trend.signal": ["loss", "log_tlr"]})
    >>> [run.name for run in runs][:2]
    ['glyphs-er-trend_loss-seed0-...', 'glyphs-er-trend_log_tlr-seed0-...']
    """
    variants = _chosen({recipe: _variants(recipe) for recipe in recipes}, only)
    planned: dict[str, Planned] = {}
    for recipe in recipes:
        lists = {**recipe_settings(recipe).get("over", {}), **(over or {})}
        for key, values in lists.items():
            if not isinstance(values, list) or not values:
                raise ConfigError(f"over {key} = {values!r}: give a list of values, such as seed = [0, 1, 2]")
        for chosen in product(*lists.values()):
            point = tuple(_nested(key, value) for key, value in zip(lists, chosen, strict=True))
            for variant, values in variants[recipe].items():
                # The data set decides which table of the scale holds, so load_recipe must know it: all as settings.
                config = load_recipe(recipe, scale=scale, settings=(values, *point, *settings), sweep=True)
                planned.setdefault(fingerprint(config), Planned(variant or method_title(config), config))
    return list(planned.values())


def fingerprint(config: Config) -> str:
    """Ten hex digits of everything that the result depends on; not of names or places.

    >>> from wane.lab.config import build_config
    >>> a, b = build_config({"recipe": "x"}), build_config({"data": {"root": "/data"}})
    >>> fingerprint(a) == fingerprint(b) != fingerprint(build_config({"seed": 1}))
    True
    """
    # without what is not set, so that an option added to wane later leaves the names of older runs alone
    settings = config.model_dump(mode="json", exclude=PLACES, exclude_none=True)
    if config.learner.trend is not None:  # the trend decides the draw; what it replaces has no effect
        settings["memory"] |= {"draw": "", "scope": ""}
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:10]


def run_name(config: Config) -> str:
    """The folder of a run: readable in front, exact at the end."""
    data = Path(config.data.name).name
    return f"{data}-{method_title(config, slug=True)}-seed{config.seed}-{fingerprint(config)}"


def method_title(config: Config, *, slug: bool = False) -> str:
    """What is different about a method, in a few words; the defaults of an intervention go unsaid.

    >>> from wane.lab.config import build_config
    >>> method_title(build_config({"learner": {"trend": {"signal": "loss", "window": 3}}}))
    'er, trend loss (window 3)'
    """
    learner, memory = config.learner, config.memory
    parts = [learner.name]
    if learner.weights is not None:
        parts.append(_intervention("weights", learner.weights, slug))
    if learner.trend is not None:
        parts.append(_intervention("trend", learner.trend, slug))
    elif learner.name not in ("finetune", "joint") and memory.draw != "uniform":
        parts.append(memory.draw + (("_past" if slug else " past") if memory.scope == "past" else ""))
    return "-".join(parts) if slug else ", ".join(parts)


def _intervention(kind: str, section: Any, slug: bool) -> str:
    defaults = type(section)()
    said = {k: v for k, v in section.model_dump().items() if k != "signal" and v != getattr(defaults, k)}
    if slug:
        return "_".join([kind, section.signal, *(f"{k}{v}" for k, v in said.items())])
    inside = ", ".join(k if v is True else str(v) if isinstance(v, str) else f"{k} {v:g}" for k, v in said.items())
    return f"{kind} {section.signal}" + (f" ({inside})" if inside else "")


def variant_settings(recipe: str) -> dict[str, dict[str, Any]]:
    """What each variant of a recipe sets, by dotted key.

    >>> variant_settings("ablations")["ER, constant rate"]
    {'learner.decay': 1.0}
    """
    return {name: dict(_leaves(values)) for name, values in _variants(recipe).items()}


def _variants(recipe: str) -> dict[str, dict[str, Any]]:
    described: dict[str, dict[str, Any]] = recipe_settings(recipe).get("variants", {"": {}})
    return {name: values for pattern, lists in described.items() for name, values in _variants_of(pattern, lists)}


def _chosen(
    variants: dict[str, dict[str, dict[str, Any]]], only: Sequence[str]
) -> dict[str, dict[str, dict[str, Any]]]:
    """Those of the variants of each recipe that a pattern names; every pattern has to name one."""
    if not only:
        return variants
    known = Registry(f"variant of {' or '.join(variants)}", {name: () for rows in variants.values() for name in rows})
    for pattern in only:
        if not any(fnmatchcase(name, pattern) for name in known):
            known[pattern]  # says what there is
    return {
        recipe: {name: row for name, row in rows.items() if any(fnmatchcase(name, pattern) for pattern in only)}
        for recipe, rows in variants.items()
    }


def _variants_of(pattern: str, settings: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """A variant whose settings hold lists stands for one variant a choice, named by the pattern's {key}s."""
    lists = {key: value for key, value in _leaves(settings) if isinstance(value, list)}
    if not lists:
        yield pattern, settings
        return
    for chosen in product(*lists.values()):
        values = dict(zip(lists, chosen, strict=True))
        leaves = [_nested(key, values.get(key, value)) for key, value in _leaves(settings)]
        merged: dict[str, Any] = {}
        for leaf in leaves:
            _deep_update(merged, leaf)
        yield pattern.format(**{key.rsplit(".", 1)[-1]: value for key, value in values.items()}), merged


def _leaves(settings: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in settings.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _nested(key: str, value: Any) -> dict[str, Any]:
    for part in reversed(key.split(".")):
        value = {part: value}
    nested: dict[str, Any] = value
    return nested


def _deep_update(target: dict[str, Any], other: dict[str, Any]) -> None:
    for key, value in other.items():
        if isinstance(value, dict) and isinstance(target.get(key), dict):
            _deep_update(target[key], value)
        else:
            target[key] = value
