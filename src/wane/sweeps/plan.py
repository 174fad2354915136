"""Many runs from one description: variants x lists of settings, each with a name that is a function of its config.

The same config has the same name, wherever it comes from: so a run is never done twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from functools import reduce
from itertools import chain, product
from string import Formatter
from typing import Any, NamedTuple

from wane.registry import Registry
from wane.runs.complete import complete
from wane.runs.config import Config, ConfigError, flat, merge, nested, takes_list
from wane.runs.identity import fingerprint, method_title, run_name
from wane.runs.recipes import load_recipe, recipe_settings

__all__ = ["Planned", "expand", "variant_settings"]


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
    known: dict[str, str] = {}  # fingerprints of data folders: each is read once
    for recipe in recipes:
        lists = {**recipe_settings(recipe).get("over", {}), **(over or {})}
        for key, values in lists.items():
            if not isinstance(values, list) or not values:
                raise ConfigError(f"over {key} = {values!r}: give a list of values, such as seed = [0, 1, 2]")
        for chosen in product(*lists.values()):
            point = tuple(nested(key, value) for key, value in zip(lists, chosen, strict=True))
            for variant, values in variants[recipe].items():
                # The data set decides which table of the scale holds, so load_recipe must know it: all as settings.
                config = load_recipe(recipe, scale=scale, settings=(values, *point, *settings), sweep=True)
                config = complete(config, known=known)
                planned.setdefault(fingerprint(config), Planned(variant or method_title(config), config))
    return list(planned.values())


def variant_settings(recipe: str) -> dict[str, dict[str, Any]]:
    """What each variant of a recipe sets, by dotted key.

    >>> variant_settings("ablations")["ER, constant rate"]
    {'learner.decay': 1.0}
    """
    return {name: flat(values) for name, values in _variants(recipe).items()}


def _variants(recipe: str) -> dict[str, dict[str, Any]]:
    described: dict[str, dict[str, Any]] = recipe_settings(recipe).get("variants", {"": {}})
    found: dict[str, dict[str, Any]] = {}
    for name, values in chain.from_iterable(_variants_of(*item) for item in described.items()):
        if found.setdefault(name, values) != values:
            raise ConfigError(f"two variants of {recipe} are called {name!r}: give them names of their own")
    return found


def _chosen(
    variants: dict[str, dict[str, dict[str, Any]]], only: Sequence[str]
) -> dict[str, dict[str, dict[str, Any]]]:
    """Those of the variants of each recipe that a pattern names; every pattern has to name one."""
    if not only:
        return variants
    where, names = " or ".join(variants), {name: () for rows in variants.values() for name in rows}
    for pattern in only:
        if not any(fnmatchcase(name, pattern) for name in names):
            if not any(names):
                raise ConfigError(f"{where} has no variants, so none is called {pattern!r}: leave --variant out")
            Registry(f"variant of {where}", names)[pattern]  # says what there is
    return {
        recipe: {name: row for name, row in rows.items() if any(fnmatchcase(name, pattern) for pattern in only)}
        for recipe, rows in variants.items()
    }


def _variants_of(pattern: str, settings: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """A variant whose name holds the {key} of a list stands for one variant a value; other lists are values."""
    leaves = flat(settings)
    if not any(isinstance(value, list) for value in leaves.values()):
        yield pattern, settings  # a name, as it is: LaTeX has braces too
        return
    keys = {name: _key_of(name, pattern, list(leaves)) for name in _placeholders(pattern)}
    for key, value in leaves.items():
        if isinstance(value, list) and key not in keys.values() and not takes_list(key):
            short = key.rpartition(".")[2]
            raise ConfigError(f"variant {pattern!r} has {key} = {value}: write {{{short}}} in its name for a variant "
                              "of each value, or give one value")  # fmt: skip
    lists = {key: leaves[key] if isinstance(leaves[key], list) else [leaves[key]] for key in keys.values()}
    for chosen in product(*lists.values()):
        values = dict(zip(lists, chosen, strict=True))
        said = {name: values[key] for name, key in keys.items()}
        yield _Name().vformat(pattern, (), said), reduce(merge, (nested(*item) for item in values.items()), settings)


class _Name(Formatter):
    """Fills placeholders by their whole name, dots included."""

    def get_field(self, field_name: str, args: Any, kwargs: Any) -> Any:
        return kwargs[field_name], field_name


def _placeholders(pattern: str) -> list[str]:
    try:
        return [name for _, name, _, _ in Formatter().parse(pattern) if name is not None]
    except ValueError as error:
        raise ConfigError(f"variant {pattern!r} has a brace alone ({error}): double it, or write {{key}}") from None


def _key_of(name: str, pattern: str, keys: list[str]) -> str:
    """The setting that a placeholder stands for: its dotted key, or the end of that."""
    found = [key for key in keys if f".{key}".endswith(f".{name}")]
    if len(found) == 1:
        return found[0]
    which = f"could be {' or '.join(found)}" if found else f"is none of its settings ({', '.join(keys)})"
    raise ConfigError(f"variant {pattern!r}: {{{name}}} {which}; write the key of one, or double the braces")
