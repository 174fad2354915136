"""What a run is about, for readers that know neither its learner nor its data."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["About"]


class About(NamedTuple):
    """Stand-in of H5: the two fields that views need."""

    has_memory: bool
    settings: tuple[str, ...] = ("class",)
