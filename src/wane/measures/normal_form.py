"""A history in the form that every view reads: what was never taught stands apart, and steps only grow."""

from __future__ import annotations

import operator

import numpy as np

from wane.measures.history import FUTURE, History
from wane.measures.history_files import Evaluation
from wane.measures.task_map import tasks_of

__all__ = ["normal_form"]


def normal_form(history: History) -> History:
    """The same measurements, as the lab would have recorded them; `history` itself where it is so already.

    * A class that is evaluated before its task began was never taught: it cannot be forgotten, and its 0 % says
      nothing. Its values move from split ``test`` to ``future`` (``test_task`` to ``future_task``), where
      `wane.forward_transfer` finds them; from any other split they are left out.
    * Where steps begin anew with a task, as a count of epochs does, they go on from the last one.

    >>> history = History(class_to_task=[0, 1])
    >>> for task, accuracy in enumerate([(0.9, 0.1), (0.4, 0.8)]):
    ...     history.record({"accuracy": accuracy, "n": [10, 10]}, step=0, task=task)
    >>> normal_form(history).frame.select("step", "task", "split", "class", "accuracy").rows()
    [(0, 0, 'test', 0, 0.9), (0, 0, 'future', 1, 0.1), (1, 1, 'test', 0, 0.4), (1, 1, 'test', 1, 0.8)]
    """
    found: list[Evaluation] = []
    last_step, task, shift = -1, None, 0
    for e in history.evaluations:
        if task is not None and e.task != task and e.step + shift <= last_step:
            shift = last_step + 1 - e.step
        task, last_step = e.task, max(last_step, e.step + shift)
        found += _parted(e._replace(step=e.step + shift) if shift else e, history)
    same = len(found) == len(history.evaluations) and all(map(operator.is_, found, history.evaluations))
    return history if same else history.with_evaluations(found)


def _parted(e: Evaluation, history: History) -> list[Evaluation]:
    """The part of an evaluation that is about what was taught, and the rest under a name of its own."""
    if e.split in FUTURE.values() or e.split.startswith("untrained"):
        return [e]
    ahead = tasks_of(history.class_to_task, e.classes) > e.task
    if not ahead.any():
        return [e]
    parts = [(~ahead, e.split), *([(ahead, FUTURE[e.split])] if e.split in FUTURE else [])]
    return [
        Evaluation(e.step, e.task, split, e.classes[of], e.n[of], e.values[of], None if e.bins is None else e.bins[of])
        for of, split in parts
        if np.any(of)
    ]
