"""The colours of every view: a signal has the same one in each figure and on each page.

Okabe and Ito's set, which keeps its differences for the colour-blind, without its yellow (too pale on paper); grey for
the loss, and the colour of the text for accuracy, against which everything else is seen.
"""

from wane.softmax.signals import SIGNALS

__all__ = ["BACKGROUND", "DARK", "INK", "LIGHT", "SEQUENTIAL", "SOFT", "TASKS", "task_colour"]

#: Signal to colour, on paper.
LIGHT: dict[str, str] = {
    "accuracy": "#1c1e26", "loss": "#8a8a8a", "cm": "#d55e00", "tlr": "#56b4e9", "log_tlr": "#0072b2",
    "rtlr": "#009e73", "ctl": "#cc79a7", "nkl": "#e69f00",
}  # fmt: skip
#: The same hues on a dark ground: the two darkest made lighter, so that a thin line is still seen.
DARK: dict[str, str] = {
    "accuracy": "#e9e8e4", "loss": "#9a9a9a", "cm": "#f0793a", "tlr": "#8fd0f5", "log_tlr": "#4a9fe0",
    "rtlr": "#2fc497", "ctl": "#dd95bd", "nkl": "#f2b53c",
}  # fmt: skip
assert list(LIGHT) == list(DARK) == list(SIGNALS)  # a new signal needs a colour

#: Text, quiet text and ground: light, dark.
INK = ("#1c1e26", "#e9e8e4")
SOFT = ("#626673", "#9ca1ae")
BACKGROUND = ("#fbfaf8", "#12141a")
#: Of heat maps, by the name that matplotlib and d3 share: even steps, also in grey and for the colour-blind.
SEQUENTIAL = "cividis"

#: Paul Tol's "light" set, for tasks side by side: fills that stand out on paper and on a dark ground.
TASKS = ("#77aadd", "#ee8866", "#44bb99", "#eedd88", "#ffaabb", "#99ddff", "#bbcc33", "#aaaa00")


def task_colour(task: int) -> str:
    """The colour of a task; they come round again after eight.

    >>> task_colour(0), task_colour(8)
    ('#77aadd', '#77aadd')
    """
    return TASKS[task % len(TASKS)]
