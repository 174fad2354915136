"""A config with everything filled in that can be known before a run starts."""

from __future__ import annotations

from wane.runs.config import Config

__all__ = ["complete"]


def complete(config: Config) -> Config:
    """The same run, with the defaults of the learner's options filled in."""
    from wane.learners.options import check_options

    options = check_options(config.learner.name, config.learner.options)
    return config.model_copy(update={"learner": config.learner.model_copy(update={"options": options})})
