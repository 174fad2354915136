"""The colours of every view: a signal has the same one in each figure and on each page.

Okabe and Ito's set, which keeps its differences for the colour-blind, without its yellow (too pale on paper); grey for
the loss, and the colour of the text for accuracy, against which everything else is seen.
"""

from wane.softmax.signals import SIGNALS

__all__ = [
    "BACKGROUND", "INK", "SEQUENTIAL", "SOFT", "TASKS", "is_bounded", "short_name", "signal_colour", "signal_unit",
    "task_colour",
]  # fmt: skip

#: Text, quiet text and ground: light, dark.
INK = ("#1c1e26", "#e9e8e4")
SOFT = ("#626673", "#9ca1ae")
BACKGROUND = ("#fbfaf8", "#12141a")
#: Of heat maps, by the name that matplotlib and d3 share: even steps, also in grey and for the colour-blind.
SEQUENTIAL = "cividis"

#: Paul Tol's "light" set, for tasks side by side: fills that stand out on paper and on a dark ground.
TASKS = ("#77aadd", "#ee8866", "#44bb99", "#eedd88", "#ffaabb", "#99ddff", "#bbcc33", "#aaaa00")

# What the four functions below fall back on while a row of SIGNALS does not say it itself: (light, dark), short name.
_COLOURS = {
    "accuracy": INK, "loss": ("#8a8a8a", "#9a9a9a"), "cm": ("#d55e00", "#f0793a"), "tlr": ("#56b4e9", "#8fd0f5"),
    "log_tlr": ("#0072b2", "#4a9fe0"), "rtlr": ("#009e73", "#2fc497"), "ctl": ("#cc79a7", "#dd95bd"),
    "nkl": ("#e69f00", "#f2b53c"),
}  # fmt: skip
_SHORT = {"accuracy": "Accuracy", "loss": "Loss", "cm": "CM", "tlr": "TLR", "log_tlr": "Log-TLR", "rtlr": "RTLR",
          "ctl": "CTL", "nkl": "NKL"}  # fmt: skip


def signal_colour(name: str, *, dark: bool = False) -> str:
    """The colour of a signal, on paper or on a dark ground.

    >>> signal_colour("cm"), signal_colour("cm", dark=True)
    ('#d55e00', '#f0793a')
    """
    colours = getattr(SIGNALS[name], "colours", _COLOURS.get(name, ("#7a5195", "#b48ad0")))
    return str(colours[dark])


def short_name(name: str) -> str:
    """What a signal is called where there is little room.

    >>> short_name("log_tlr")
    'Log-TLR'
    """
    return str(getattr(SIGNALS[name], "short", _SHORT.get(name, SIGNALS[name].title)))


def is_bounded(name: str) -> bool:
    """Whether a signal lies between 0 and 1, so that it can share an axis with the others that do.

    >>> is_bounded("cm"), is_bounded("loss")
    (True, False)
    """
    return bool(getattr(SIGNALS[name], "bounded", name != "loss"))


def signal_unit(name: str) -> str:
    """The unit of a signal, "" for a share.

    >>> signal_unit("loss"), signal_unit("cm")
    ('nats', '')
    """
    return str(getattr(SIGNALS[name], "unit", "nats" if name == "loss" else "") or "")


def task_colour(task: int) -> str:
    """The colour of a task; they come round again after eight.

    >>> task_colour(0), task_colour(8)
    ('#77aadd', '#77aadd')
    """
    return TASKS[task % len(TASKS)]
