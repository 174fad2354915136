"""Kinds of token, read off the text itself, so that they mean the same under every tokenizer.

A tokenizer says where in the text each token stands. What stands there decides, whitespace around it aside, and not how
the tokenizer marks it (a word start is ``Ġthe`` to one, ``▁the`` to another, ``the`` to a third, with ``##m`` for the
rest of a word):

* ``word``: the beginning of a word; ``continuation``: the rest of one, also after an apostrophe or a hyphen. In scripts
  that put no spaces between words, such as Chinese, every token begins one;
* ``number``: digits, with what is written inside numbers;
* ``punctuation``: signs that belong to writing; ``whitespace``: nothing but spaces and line ends;
* ``keyword`` and ``identifier``: the beginning of a word in program code, of the language or of the programmer;
* ``other``: symbols, emoji, parts of a character, and tokens that stand for no text.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from pathlib import PurePosixPath

__all__ = ["CODE_NAMES", "KEYWORDS", "KINDS", "is_code", "kinds_of"]

KINDS = ("word", "continuation", "number", "punctuation", "whitespace", "keyword", "identifier", "other")

#: Reserved words of common languages. A word that is reserved in one of them counts in all: few are names elsewhere.
KEYWORDS = frozenset(
    "and as assert async await break case catch char class const continue def default del delete do double elif else "  # noqa: SIM905
    "enum except export extends extern false finally float fn for foreach from func function global goto if impl "
    "implements import in instanceof int interface is lambda let long loop match mod mut namespace new nil None "
    "nonlocal not null or package pass private protected pub public raise return self short signed sizeof static "
    "struct super switch this throw throws trait True true try type typedef typeof union unsafe unsigned use using "
    "var virtual void volatile where while with yield False".split()
)

#: Domains and endings of file names that mean program code.
CODE_NAMES = frozenset(
    "code python py javascript js typescript ts java c h cpp cc hpp cxx cs csharp go rust rs ruby rb php swift kotlin "  # noqa: SIM905
    "kt scala r julia jl lua perl pl sh bash sql haskell hs".split()
)

#: Inside a word, between two letters: don't, well-known. What follows continues the word.
JOINTS = "'’-‑"
#: Inside a number, between two digits.
IN_NUMBERS = ".,:/-–'’ _"


def is_code(domain: str, name: str = "") -> bool:
    """Whether a document is program code, by the name of its domain or the ending of its file.

    >>> is_code("python"), is_code("bible"), is_code("mine", "src/loop.py:3"), is_code("Code")
    (True, False, True, True)
    """
    ending = PurePosixPath(name.partition(":")[0]).suffix.removeprefix(".")
    return domain.lower() in CODE_NAMES or ending.lower() in CODE_NAMES


def kinds_of(text: str, offsets: Sequence[tuple[int, int]], *, code: bool = False) -> list[str]:
    """The kind of every token of a text, from where each stands in it.

    Args:
        text: of the document.
        offsets: beginning and end of each token in it, as tokenizers give them; an empty one stands for no text.
        code: whether the text is program code.

    >>> text = "Don't pay 1,50 €!"
    >>> kinds_of(text, [(0, 3), (3, 4), (4, 5), (5, 9), (9, 11), (11, 12), (12, 14), (14, 16), (16, 17)])
    ['word', 'continuation', 'continuation', 'word', 'number', 'number', 'number', 'other', 'punctuation']
    >>> kinds_of("for item_id in x:", [(0, 3), (3, 8), (8, 11), (11, 14), (14, 16), (16, 17)], code=True)
    ['keyword', 'identifier', 'continuation', 'keyword', 'identifier', 'punctuation']
    """
    found: list[str] = []
    before = 0  # where the token before ended: a token that begins earlier is a part of the same character
    for start, stop in offsets:
        found.append(_kind(text, start, stop, part=start < before, code=code))
        before = max(before, stop)
    return found


def _kind(text: str, start: int, stop: int, *, part: bool, code: bool) -> str:
    piece = text[start:stop]
    shown = piece.strip()
    if not shown:
        return "whitespace" if piece else "other"
    at = start + piece.index(shown[0])
    first = shown[0]
    if first.isdecimal():
        # digits inside a name (layer2, B12) belong to it
        return "continuation" if at and _in_word(text, at - 1, code) and _is_letter(text, at - 1, code) else "number"
    if _is_letter(text, at, code):
        if part or _continues(text, at, code):
            return "continuation"
        if code:
            return "keyword" if _whole_word(text, at) in KEYWORDS else "identifier"
        return "word"
    if part:
        return "other"
    if len(shown) == 1 and 0 < at < len(text) - 1:
        if first in IN_NUMBERS and text[at - 1].isdecimal() and text[at + 1].isdecimal():
            return "number"
        if not code and first in JOINTS and text[at - 1].isalpha() and text[at + 1].isalpha():
            return "continuation"
    return "punctuation" if all(_is_punctuation(c, code) for c in shown) else "other"


def _is_letter(text: str, at: int, code: bool) -> bool:
    """Letters, the marks that belong to them, and in code the underscore."""
    c = text[at]
    return c.isalpha() or unicodedata.category(c).startswith("M") or (code and c == "_")


def _in_word(text: str, at: int, code: bool) -> bool:
    return _is_letter(text, at, code) or text[at].isdecimal()


def _continues(text: str, at: int, code: bool) -> bool:
    """Whether the character at a place goes on with a word that began before it."""
    if at == 0 or unicodedata.east_asian_width(text[at]) in "WF":  # scripts that put no spaces between words
        return False
    if _in_word(text, at - 1, code):
        return True
    joined = not code and text[at - 1] in JOINTS
    return joined and at >= 2 and text[at - 2].isalpha()


def _whole_word(text: str, at: int) -> str:
    end = at
    while end < len(text) and (text[end].isalnum() or text[end] == "_"):
        end += 1
    return text[at:end]


def _is_punctuation(c: str, code: bool) -> bool:
    """Signs of writing; in code, also those of arithmetic and assignment."""
    category = unicodedata.category(c)
    return category.startswith("P") or c.isspace() or (code and category.startswith("S") and ord(c) < 128)
