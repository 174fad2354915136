"""The colours of every view: a signal has the same one in each figure and on each page.

Okabe and Ito's set, which keeps its differences for the colour-blind, without its yellow (too pale on paper); grey for
the loss, and the colour of the text for accuracy, against which everything else is seen.
"""

from wane.softmax.registry import SIGNALS

__all__ = ["BACKGROUND", "DARK", "INK", "LIGHT", "SEQUENTIAL", "SOFT", "TASKS", "task_colour"]

#: Signal to colour, on a light and on a dark ground.
LIGHT: dict[str, str] = {name: signal.colours[0] for name, signal in SIGNALS.items()}
DARK: dict[str, str] = {name: signal.colours[1] for name, signal in SIGNALS.items()}

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
