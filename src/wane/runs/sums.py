"""sums.sha256: the checksum of every file of a run, so that none is read that is not as it was written.

The format is that of `sha256sum`, which can check a finished run: ``sha256sum -c sums.sha256``. The last line, a
comment to that tool, is the sum of the lines before it. While a file is being replaced its old and its new sum both
stand there, and a file that may not be there has the comment ``# absent``: killed at any moment, a run has no file
whose state is not listed. A folder without this file (an older run, a copy of one) is read unchecked. No torch here.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping

from wane.errors import DamagedError

__all__ = ["ABSENT", "Sums", "parse_sums", "render_sums", "sum_of"]

#: Stands for the sum of a file that is not there.
ABSENT = "# absent"
#: The sums that are right for each file.
Sums = dict[str, tuple[str, ...]]


def sum_of(data: bytes | memoryview | None) -> str:
    """The checksum of a file's content; None if there is no file.

    >>> sum_of(b"")[:8], sum_of(None)
    ('e3b0c442', '# absent')
    """
    return ABSENT if data is None else hashlib.sha256(data).hexdigest()


def render_sums(sums: Mapping[str, tuple[str, ...]]) -> bytes:
    """The content of sums.sha256.

    >>> print(render_sums({"a": (ABSENT,)}).decode()[:14])
    # absent  a
    #
    """
    lines = "".join(f"{digest}  {name}\n" for name in sorted(sums) for digest in dict.fromkeys(sums[name])).encode()
    return lines + f"# {sum_of(lines)}\n".encode()


def parse_sums(data: bytes, path: str) -> Sums:
    """Read it; one that is damaged is an error that names it.

    >>> parse_sums(render_sums({"a": (sum_of(b""), ABSENT)}), "sums.sha256")["a"][1]
    '# absent'
    """
    body = data.removesuffix(b"\n").rpartition(b"\n")[0]
    lines = body + b"\n" if body else b""
    if data != lines + f"# {sum_of(lines)}\n".encode():
        raise DamagedError(f"{path} is damaged, so that the files beside it cannot be checked: restore it, or delete "
                           "it to take them as they are")  # fmt: skip
    sums: Sums = {}
    for line in lines.decode().splitlines():
        found = re.fullmatch(r"([0-9a-f]{64}|# absent)  (.+)", line)
        if found:
            sums[found[2]] = (*sums.get(found[2], ()), found[1])
    return sums
