"""Predictions that come with wane, to try its commands on: `wane compare example:digits_before example:digits_after`.

``digits_before`` is a small network that learnt all ten digits of scikit-learn's set but saw few eights and nines;
``digits_after`` is the same network after fine-tuning on 5 to 9 alone. `make_digits.py` beside this file made both.
"""

import os
from pathlib import Path

from wane.registry import Registry

__all__ = ["EXAMPLES", "PREFIX", "find"]

PREFIX = "example:"
EXAMPLES: Registry[Path] = Registry("example", {
    name: Path(__file__).with_name(f"{name}.npz") for name in ("digits_before", "digits_after")
})  # fmt: skip


def find(path: str | os.PathLike[str]) -> Path:
    """The file behind ``example:<name>``; any other path is itself.

    >>> find("example:digits_before").name
    'digits_before.npz'
    >>> find("mine.npz").name
    'mine.npz'
    """
    text = os.fspath(path)
    return EXAMPLES[text.removeprefix(PREFIX)] if text.startswith(PREFIX) else Path(text)
