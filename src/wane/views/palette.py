"""The colours of every view: a signal has the same one in each figure and on each page.

Okabe and Ito's set, which keeps its differences for the colour-blind, without its yellow (too pale on paper); grey for
the loss, and the colour of the text for accuracy, against which everything else is seen.
"""

from wane.softmax.registry import SIGNALS

__all__ = [
    "BACKGROUND", "INK", "LADDER", "SEQUENTIAL", "SOFT", "TASKS", "is_bounded", "short_name", "signal_colour",
    "signal_unit", "task_colour",
]  # fmt: skip

#: Text, quiet text and ground: light, dark.
INK = ("#1c1e26", "#e9e8e4")
SOFT = ("#626673", "#9ca1ae")
BACKGROUND = ("#fbfaf8", "#12141a")
#: Of heat maps, by the name that matplotlib and d3 share: even steps, also in grey and for the colour-blind.
SEQUENTIAL = "cividis"

#: The parts of what was lost, from what is kept to what only all training rows would bring back: light, dark.
LADDER = {
    "now": ("#2f6690", "#5b9bd0"), "bias": ("#e69f00", "#f2b632"), "head": ("#009e73", "#35c79b"),
    "features": ("#c9ced6", "#565e6c"),
}  # fmt: skip

#: Paul Tol's "light" set without its grey, for tasks side by side: fills that stand out on paper and on a dark ground.
#: Two more make ten, as many as most streams have tasks.
TASKS = (
    "#77aadd", "#ee8866", "#44bb99", "#eedd88", "#ffaabb", "#99ddff", "#bbcc33", "#aaaa00", "#b39ddb", "#c49a6c",
)  # fmt: skip


def signal_colour(name: str, *, dark: bool = False) -> str:
    """The colour of a signal, on paper or on a dark ground.

    >>> signal_colour("cm"), signal_colour("cm", dark=True)
    ('#d55e00', '#f0793a')
    """
    return SIGNALS[name].colours[dark]


def short_name(name: str) -> str:
    """What a signal is called where there is little room.

    >>> short_name("log_tlr")
    'Log-TLR'
    """
    return SIGNALS[name].short


def is_bounded(name: str) -> bool:
    """Whether a signal lies between 0 and 1, so that it can share an axis with the others that do.

    >>> is_bounded("cm"), is_bounded("loss")
    (True, False)
    """
    return SIGNALS[name].bounded


def signal_unit(name: str) -> str:
    """The unit of a signal, "" for a share.

    >>> signal_unit("loss"), signal_unit("cm")
    ('nats', '')
    """
    return SIGNALS[name].unit


def task_colour(task: int) -> str:
    """The colour of a task; they come round again after eight.

    >>> task_colour(0), task_colour(10)
    ('#77aadd', '#77aadd')
    """
    return TASKS[task % len(TASKS)]
