"""Long texts in windows: every token is scored once, and with enough of the text before it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

__all__ = ["Window", "batches", "windows"]


class Window(NamedTuple):
    """A stretch of one document that goes through the model at once.

    The model reads the tokens from `start` to `stop`, and those from `first` on are scored: each by what the model
    makes of the ones before it.
    """

    document: int
    start: int
    first: int
    stop: int

    @property
    def length(self) -> int:
        """Tokens that the model reads: all but the last, of which only the prediction counts."""
        return self.stop - self.start - 1


def windows(tokens: int, *, longest: int, stride: int, document: int = 0) -> Iterator[Window]:
    """Windows over a document of so many tokens, which score every token but the first exactly once.

    Args:
        tokens: of the document.
        longest: how many tokens the model reads at most.
        stride: how many new tokens each window after the first scores; the others are context, so that every token
            has at least `longest - stride` before it, or the whole text.
        document: its number.

    >>> [(w.start, w.first, w.stop) for w in windows(10, longest=4, stride=2)]
    [(0, 1, 5), (2, 5, 7), (4, 7, 9), (5, 9, 10)]
    >>> list(windows(1, longest=4, stride=2))
    []
    """
    if not 1 <= stride <= longest:
        raise ValueError(f"stride is {stride}: give 1 to {longest}, the number of tokens that the model reads")
    first = 1
    while first < tokens:
        stop = min(tokens, first + (longest if first == 1 else stride))
        yield Window(document, max(0, stop - 1 - longest), first, stop)
        first = stop


def batches(found: Sequence[Window], *, most: int) -> list[list[Window]]:
    """Windows in batches of similar length, longest first: at most `most` tokens each, padding included.

    >>> sizes = [windows(n, longest=8, stride=8, document=i) for i, n in enumerate((3, 9, 2, 5))]
    >>> [[w.document for w in batch] for batch in batches([next(s) for s in sizes], most=10)]
    [[1], [3, 0], [2]]
    """
    made: list[list[Window]] = []
    room = 0
    for window in sorted(found, key=lambda w: (-w.length, w.document, w.start)):
        if not made or room < 1:
            made.append([])
            room = max(1, most // window.length)
        made[-1].append(window)
        room -= 1
    return made
