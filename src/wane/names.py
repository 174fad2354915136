"""Texts of users as names of files and folders."""

from __future__ import annotations

import hashlib
import re

__all__ = ["safe_name"]

LONGEST = 150  # bytes of a name; file systems allow 255 in all


def safe_name(text: str, *, distinct: bool = False) -> str:
    """`text` as the name of one file or folder, whatever is in it: never a path, nor an option of a command.

    Different texts may have the same name; with `distinct` they have not, as a text that had to change ends in a hash.

    >>> safe_name("my_package.methods:Mine"), safe_name("../../x"), safe_name("-rf")
    ('my_package.methods_Mine', '_.._.._x', '_-rf')
    >>> safe_name("a/b", distinct=True), safe_name("cifar100", distinct=True)
    ('a_b-c14cddc0', 'cifar100')
    """
    plain = re.sub(r"[^\w.,+= -]", "_", text).encode()[:LONGEST].decode(errors="ignore")
    plain = f"_{plain}" if plain[:1] in ("", ".", "-", " ") else plain
    return plain if plain == text or not distinct else f"{plain}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
