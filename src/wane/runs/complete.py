"""A config made complete, so that what is written down says everything: options, and which data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from wane.runs.config import Config, ConfigError, build_config

__all__ = ["complete"]


def complete(config: Config, *, known: dict[str, str] | None = None) -> Config:
    """The config with all options of its method, and its data folder by absolute path and fingerprint.

    An unknown or invalid option is an error, and so is weight decay for a method that cannot have it. So is a data
    folder whose files are not those of the fingerprint that the config already has. A folder that is not
    there is left alone: a run that is done can be read without its data.

    Args:
        config: as the user gave it, or as a run folder holds it.
        known: fingerprints by folder, filled in here: for a caller who completes many configs at once.

    >>> from wane.runs.config import build_config
    >>> config = build_config({"learner": {"name": "er"}})
    >>> complete(config) == config
    True
    """
    data = _data(config, {} if known is None else known)
    learner = {"options": _options(config)}
    return build_config(config.model_dump(exclude={"learner": {"options"}}), {"data": data, "learner": learner})


def _options(config: Config) -> dict[str, Any]:
    from wane.learners import find_learner
    from wane.learners.options import check_options

    given = {name: value for name, value in config.learner.options.items() if value is not None}
    try:
        options = check_options(config.learner.name, given)
        decays = find_learner(config.learner.name).decays
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(str(error)) from None
    if config.learner.weight_decay > 0 and not decays:
        raise ConfigError(
            f"learner.weight_decay = {config.learner.weight_decay} would move weights that learner "
            f"{config.learner.name} promises to leave alone: set it to 0"
        )
    return {name: value for name, value in options.items() if value is not None}  # TOML has no null


def _data(config: Config, known: dict[str, str]) -> dict[str, Any]:
    """The settings that say which data, as far as they are paths."""
    from wane.streams import DATASETS
    from wane.streams.fingerprint import fingerprint_folder

    data = config.data
    root = {"root": str(Path(data.root).expanduser().absolute())} if data.root else {}
    path = Path(data.name).expanduser().absolute()
    if data.name in DATASETS or not path.is_dir():
        return root
    folder = str(path)
    if folder not in known:
        known[folder] = fingerprint_folder(path)
    if data.fingerprint not in (None, known[folder]):
        raise ConfigError(
            f"the files in {folder} are not those that this run was planned with (fingerprint {known[folder]}, not "
            f"{data.fingerprint}): restore them, or leave data.fingerprint out for a new run"
        )
    return {**root, "name": folder, "fingerprint": known[folder]}
