"""Settings before they are a config: nested by section, or flat by dotted name. No torch here."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["ConfigError", "flat", "merge", "naming", "nested", "parse_setting", "read_toml"]


class ConfigError(ValueError):
    """An invalid setting: the message names it, quotes its value, and says what would be right."""


def parse_setting(text: str) -> dict[str, Any]:
    """`learner.lr=0.1` as nested settings; the value is TOML, or else a plain string.

    >>> parse_setting("learner.lr=0.1"), parse_setting("data.name=digits")
    ({'learner': {'lr': 0.1}}, {'data': {'name': 'digits'}})
    """
    key, equals, value = text.partition("=")
    if not equals or not all(part.strip() for part in key.split(".")):
        raise ConfigError(f"cannot read the setting {text!r}: write it as section.key=value, such as learner.lr=0.1")
    try:
        parsed = tomllib.loads(f"v = {value}")["v"]
    except (tomllib.TOMLDecodeError, RecursionError):
        parsed = value.strip()
    return nested(key.strip(), parsed)


def read_toml(path: Path) -> dict[str, Any]:
    """The settings in a TOML file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, IsADirectoryError):
        raise ConfigError(f"there is no config at {path}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path} is not TOML that can be read: {error}") from None


@contextmanager
def naming(path: Path | str) -> Iterator[None]:
    """Prefix errors with the file's path."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def nested(key: str, value: Any) -> dict[str, Any]:
    """One setting by its dotted name, nested.

    >>> nested("learner.trend.window", 3)
    {'learner': {'trend': {'window': 3}}}
    """
    for part in reversed(key.split(".")):
        value = {part: value}
    settings: dict[str, Any] = value
    return settings


def flat(settings: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by dotted name.

    >>> flat({"seed": 0, "model": {"hidden": [16, 16]}})
    {'seed': 0, 'model.hidden': [16, 16]}
    """
    found: dict[str, Any] = {}
    for key, value in settings.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return found


def merge(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Nested settings over others, without a change to either."""
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        merged[key] = merge(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged
