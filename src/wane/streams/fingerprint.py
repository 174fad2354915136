"""What data is, told by its content."""

from __future__ import annotations

import hashlib
from pathlib import Path

__all__ = ["fingerprint_folder"]


def fingerprint_folder(path: Path | str) -> str:
    """Hex digits of the names and contents of all files below a folder, wherever the folder is."""
    total = hashlib.sha256()
    root = Path(path)
    for file in sorted(p for p in root.rglob("*") if p.is_file() and not p.name.startswith(".")):
        with file.open("rb") as opened:
            content = hashlib.file_digest(opened, "sha256").hexdigest()
        total.update(f"{file.relative_to(root).as_posix()}\0{content}\n".encode())
    return total.hexdigest()[:16]
