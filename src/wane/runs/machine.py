"""Which processor this is: runs that are compared should come from one kind, for rounding alone moves a result."""

from __future__ import annotations

import platform
from pathlib import Path

__all__ = ["processor"]

CPUINFO = Path("/proc/cpuinfo")


def processor() -> str:
    """Its name; where the system tells them (Linux), with family and model, which a rented machine's name leaves out.

    >>> processor() != ""
    True
    """
    try:
        lines = CPUINFO.read_text(encoding="utf-8", errors="replace").split("\n\n")[0].splitlines()
    except OSError:
        lines = []
    told = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    numbers = [f"{key} {told[name]}" for key, name in (("family", "cpu family"), ("model", "model")) if told.get(name)]
    name = told.get("model name") or platform.processor() or platform.machine() or "unknown"
    return f"{name} ({', '.join(numbers)})" if numbers else name
