"""Fonts for whatever classes are called: those that are installed and have the letters, or what to install."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["families_for", "letters_of", "usual_families", "what_to_install"]

#: The font of all figures, which comes with matplotlib.
OURS = "DejaVu Sans"
#: Fonts to prefer for letters that it lacks (Chinese, Japanese, Korean, emoji), where they are installed.
PREFERRED = (
    "Noto Sans CJK SC", "Noto Sans CJK JP", "Source Han Sans SC", "WenQuanYi Zen Hei", "WenQuanYi Micro Hei",
    "Droid Sans Fallback", "Microsoft YaHei", "Yu Gothic", "Malgun Gothic", "PingFang SC", "Hiragino Sans",
    "Arial Unicode MS", "Unifont", "Noto Emoji", "Symbola", "Segoe UI Emoji",
)  # fmt: skip
#: Fonts that have every letter as a box, letters in the places of others, or pictures that matplotlib cannot draw.
USELESS = ("Last Resort", "Color Emoji", "NonUnicode", "SizeOneSym", "SizeTwoSym", "SizeThreeSym", "SizeFourSym",
           "SizeFiveSym", "cmex10", "cmsy10", "cmmi10")  # fmt: skip
#: Scripts whose font is not called after them.
CJK = ("CJK", "HIRAGANA", "KATAKANA", "HANGUL", "IDEOGRAPHIC", "FULLWIDTH", "BOPOMOFO")


@cache
def usual_families() -> tuple[str, ...]:
    """Our font, and what is installed of the preferred ones."""
    installed = set(_installed())
    return (OURS, *(name for name in PREFERRED if name in installed))


def letters_of(figure: Figure) -> frozenset[str]:
    """Every letter that is written in a figure."""
    from matplotlib.text import Text

    return frozenset("".join(text.get_text() for text in figure.findobj(Text)))


@cache
def families_for(letters: frozenset[str]) -> tuple[tuple[str, ...], frozenset[str]]:
    """The usual fonts and whatever else is installed that has the letters which they lack; and those that none has.

    >>> families_for(frozenset("abc")) == (usual_families(), frozenset())
    True
    """
    chosen = list(usual_families())
    wanted = {ord(letter) for letter in letters if letter.isprintable() and not _is_mark(letter)}
    for name in chosen:
        wanted -= _charmap(_installed()[name])
    for name, path in _installed().items():
        if not wanted:
            break
        if found := wanted & _charmap(path):
            chosen.append(name)
            wanted -= found
    return tuple(chosen), frozenset(map(chr, wanted))


def what_to_install(letters: Iterable[str]) -> str:
    """Which letters are missing and which fonts would have them, in a sentence.

    >>> what_to_install("犬猫")
    'no installed font has 犬 猫, drawn as boxes: install Noto Sans CJK'
    """
    ordered = sorted(letters)
    shown = " ".join(ordered[:8]) + (f" and {len(ordered) - 8} more" if len(ordered) > 8 else "")
    fonts = dict.fromkeys(_font_of(letter) for letter in ordered)
    return f"no installed font has {shown}, drawn as boxes: install {' and '.join(fonts)}"


def _font_of(letter: str) -> str:
    """The family of Noto that has a letter."""
    script = unicodedata.name(letter, "SYMBOL").split()[0].split("-")[0]
    if script in CJK:
        return "Noto Sans CJK"
    if unicodedata.category(letter).startswith("S"):
        return "Noto Emoji"
    return f"Noto Sans {script.capitalize()}"


def _is_mark(letter: str) -> bool:
    """A sign that is not drawn by itself: variation selectors and joiners of emoji."""
    return letter in "\u200d\ufe0e\ufe0f" or letter.isspace()


@cache
def _installed() -> dict[str, str]:
    """The upright fonts of normal weight that can be drawn, by name."""
    from matplotlib.font_manager import fontManager

    found: dict[str, str] = {}
    for font in fontManager.ttflist:
        upright = font.style == "normal" and font.weight in (400, "normal", "regular", "book")
        if upright and not any(part in font.name for part in USELESS):
            found.setdefault(font.name, font.fname)
    return found


@cache
def _charmap(path: str) -> frozenset[int]:
    from matplotlib.font_manager import get_font

    try:
        font = get_font(path)
        return frozenset(font.get_charmap()) if font.scalable else frozenset()
    except (RuntimeError, OSError):  # of no use to matplotlib
        return frozenset()
