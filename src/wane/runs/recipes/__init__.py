"""Recipes: what to run (one TOML file each), at five scales (`scales.toml`). No torch here."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from wane.registry import Registry
from wane.runs.config import Config, ConfigError, build_config, read_toml
from wane.runs.layout import OWN_LOOP

__all__ = ["load_recipe", "recipe_settings", "recipes", "scales"]


@cache  # a sweep asks for every run
def recipes() -> Registry[dict[str, Any]]:
    """The recipes that come with wane, from the `recipes` folder of any room: settings by name, with a `title`.

    >>> recipes()["diagnostics"]["learner"]["name"]
    'er'
    """
    package = Path(str(files("wane")))  # recipes are where their subject is, such as paper/recipes
    found = sorted(package.glob("*/recipes/*.toml"), key=lambda path: path.stem)
    return Registry("recipe", {path.stem: read_toml(path) for path in found})


@cache
def scales() -> Registry[dict[str, Any]]:
    """The scales: settings for all data sets and for each, with a `title`.

    >>> list(scales())
    ['demo', 'small', 'middle', 'regime', 'paper']
    """
    return Registry("scale", read_toml(Path(str(files("wane.runs").joinpath("scales.toml")))))


def recipe_settings(name_or_path: str) -> dict[str, Any]:
    """What a recipe, or a TOML file, says: settings, `title`, and for a sweep `over` and `variants`."""
    path = Path(name_or_path)
    return read_toml(path) if path.suffix == ".toml" else dict(recipes()[name_or_path])


def load_recipe(
    name_or_path: str, *, scale: str | None = None, settings: tuple[dict[str, Any], ...] = (), sweep: bool = False
) -> Config:
    """The config of a recipe at a scale, or of a TOML file; `settings` go on top, the last one highest.

    A recipe with `variants` or `over` is many runs: an error, unless it is the sweep that asks.

    >>> config = load_recipe("diagnostics", scale="paper", settings=({"seed": 3},))
    >>> config.data.name, config.model.width, config.learner.milestones, config.seed
    ('cifar100', 64, (35, 45), 3)
    """
    path = Path(name_or_path)
    if path.name == OWN_LOOP or (path / OWN_LOOP).exists():
        raise ConfigError(f"{name_or_path} is of a run that wane did not train: there is no config to run again")
    own_file = path.suffix == ".toml"
    recipe = recipe_settings(name_or_path)
    recipe.pop("title", None)
    lists = [recipe.pop(key, None) for key in ("over", "variants")]
    if any(lists) and not sweep:
        raise ConfigError(f"{name_or_path} is a sweep of many runs: use `wane sweep {name_or_path}`")
    if scale is None and not own_file:
        scale = "demo"
    layers: list[dict[str, Any]] = [{"recipe": path.stem if own_file else f"{name_or_path}-{scale}"}]
    if scale is not None:
        size = scales()[scale]
        if "dataset" in size:
            recipe["data"] = {**recipe.get("data", {}), "name": size["dataset"]}
        dataset = _named("data", recipe, *settings)
        if dataset and dataset not in size and not size.get("others", True):
            raise ConfigError(f"there is no scale {scale!r} for data set {dataset!r}: the paper used cifar100 and "
                              "tiny_imagenet; write a TOML file for it")  # fmt: skip
        model = _named("model", recipe, *settings)
        for layer in (size.get("all", {}), size.get(dataset, {})):
            other = model and model != layer.get("model", {}).get("name")  # width is that of the scale's own model
            layers.append({key: value for key, value in layer.items() if not (other and key == "model")})
    return build_config(*layers, recipe, *settings)


def _named(section: str, *layers: dict[str, Any]) -> str:
    """The last name that a section is given, or ""."""
    given = [layer[section] for layer in layers if isinstance(layer.get(section), dict)]
    return next((str(settings["name"]) for settings in reversed(given) if "name" in settings), "")
