"""Texts to score: files of text or JSON lines, and folders of them, as documents that know their domain.

Everything is read in one fixed order, file after file, so that two models see the same documents under the same names.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["SUFFIXES", "Document", "TextsError", "find_files", "read_documents"]

#: What is read: one document a file, or one a line.
SUFFIXES = (".txt", ".md", ".jsonl")
#: Where a line of JSON has its text, unless it is told.
TEXT = "text"
#: Where a line of JSON names its domain, unless it is told; a document without one has the name of its file.
DOMAIN = "domain"


class TextsError(ValueError):
    """Texts that cannot be used, in one sentence: which file, what is wrong, what to do."""


@dataclass(frozen=True)
class Document:
    """One text.

    Attributes:
        name: the file and, where a file has several, the number of the line, from 1: ``news.jsonl:3``.
        text: as it is in the file.
        domain: what it is grouped by.
        columns: further columns of its line, those asked for.
    """

    name: str
    text: str
    domain: str
    columns: dict[str, str] = field(default_factory=dict)


def find_files(paths: Sequence[str | Path]) -> list[tuple[str, Path]]:
    """The files of some paths with their names, folders searched whole and in order.

    A file is named by its own name, one in a folder by its path from there.
    """
    found: list[tuple[str, Path]] = []
    for path in map(Path, paths):
        if path.is_dir():
            inside = sorted(p for p in path.rglob("*") if p.suffix.lower() in SUFFIXES and p.is_file())
            if not inside:
                raise TextsError(f"{path} holds no texts: put files there that end in {', '.join(SUFFIXES)}")
            found += [(p.relative_to(path).as_posix(), p) for p in inside]
        elif not path.is_file():
            raise TextsError(f"{path} is not a file or a folder: check the path")
        elif path.suffix.lower() not in SUFFIXES:
            raise TextsError(f"{path} is no text that wane reads: give files that end in {', '.join(SUFFIXES)}")
        else:
            found.append((path.name, path))
    names = [name for name, _ in found]
    if twice := next((name for i, name in enumerate(names) if name in names[:i]), None):
        raise TextsError(f"two files are called {twice}, so documents could not be told apart: rename one of them")
    if not found:
        raise TextsError("no texts were given: name files or folders")
    return found


def read_documents(
    files: Sequence[tuple[str, Path]], *, by: str | None = None, text: str = TEXT, keep: Sequence[str] = ()
) -> Iterator[Document]:
    """The documents of files from `find_files`, one after the other; none is held longer than it is used.

    Args:
        files: names and paths.
        by: the column of JSON lines that holds the domain; default: ``domain`` where a line has it, else the file's
            name without its ending.
        text: the column that holds the text.
        keep: further columns to keep.
    """
    for name, path in files:
        if path.suffix.lower() == ".jsonl":
            yield from _lines(name, path, by, text, keep)
        else:
            try:
                content = path.read_text(encoding="utf-8")
            except UnicodeDecodeError as error:
                raise TextsError(f"{path} is not UTF-8 (at byte {error.start}): save it as UTF-8") from None
            yield Document(name, content, Path(name).stem, dict.fromkeys(keep, ""))


def _lines(name: str, path: Path, by: str | None, text: str, keep: Sequence[str]) -> Iterator[Document]:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                reason = str(error).split(":")[0]
                raise TextsError(f"{path} is not JSON in line {number} ({reason}): write one object a line") from None
            where = f"{path}, line {number},"
            if not isinstance(row, dict) or not isinstance(row.get(text), str):
                has = f"it has {', '.join(map(repr, row))}" if isinstance(row, dict) else f"it is {row!r:.40}"
                raise TextsError(f"{where} has no text in column {text!r} ({has}): name the column with --text")
            if by is not None and by not in row:
                raise TextsError(f"{where} has no column {by!r} to group by: add it, or leave --by out")
            domain = row[by] if by is not None else row.get(DOMAIN, Path(name).stem)
            yield Document(f"{name}:{number}", row[text], _word(domain), {key: _word(row.get(key, "")) for key in keep})


def _word(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
