"""What a run comes to, in one number for each signal: the registry of summaries, which every table and file reads.

A new summary is one row of `SUMMARIES`: summary.json, tables, reports and loggers take names and titles from here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from wane.measures.cl_score import cl_score, costs_of, learnt_matrix
from wane.measures.history import History
from wane.measures.ladder import RUNGS, Ladder, Rung
from wane.measures.transfer import (
    average,
    backward_transfer,
    forgetting,
    forward_transfer,
    min_acc,
    plasticity,
    retention,
    wc_acc,
    windowed_forgetting,
    windowed_plasticity,
)
from wane.registry import Registry
from wane.softmax.registry import SIGNALS

__all__ = ["SUMMARIES", "Summary", "learnt_matrix", "summarise"]


@dataclass(frozen=True)
class Summary:
    """One row of the registry.

    Args:
        name: the key in `SUMMARIES`, in summary.json and in loggers.
        title: for headings.
        description: one sentence.
        better: ``"signal"``: a mean of the signal itself, so higher is better where it is for the signal;
            ``"higher"`` or ``"lower"``: that is better, whatever the signal.
        of: the value from (source, signal, split); None or NaN where it is not defined. A ValueError, which is how the
            functions of `wane.measures.transfer` say that something was not recorded, counts as not defined.
        family: what it is shown with; empty for the four that every table has.
        source: what it is taken from: the ``"history"``, or the ``"ladder"`` where one was recorded.
    """

    name: str
    title: str
    description: str
    better: Literal["signal", "higher", "lower"]
    of: Callable[[Any, str, str], float | None] = field(repr=False)
    family: str = ""
    source: Literal["history", "ladder"] = "history"

    def higher_is_better(self, signal: str) -> bool:
        """Whether a higher value of this summary of a signal is better.

        >>> SUMMARIES["average"].higher_is_better("loss"), SUMMARIES["backward_transfer"].higher_is_better("loss")
        (False, True)
        """
        return SIGNALS[signal].higher_is_better if self.better == "signal" else self.better == "higher"


def _of_matrix(summary: Callable[[Any], float]) -> Callable[[History, str, str], float]:
    return lambda history, signal, split: summary(learnt_matrix(history, signal, split))


def _of_steps(summary: Callable[[Any, Any, Any], float]) -> Callable[[History, str, str], float]:
    """Of the evaluations between the ends of epochs, which have a split of their own."""

    def of(history: History, signal: str, split: str) -> float:
        steps, tasks, _, values = history.by_task(signal, split=f"{split}_steps")
        return summary(steps, tasks, values)

    return of


def _forward_transfer(history: History, signal: str, split: str) -> float | None:
    untrained = history.untrained(signal, split=split)
    matrix = learnt_matrix(history, signal, split)
    return None if untrained is None else forward_transfer(matrix, untrained[: len(matrix)])


def _of_ladder(rung: Rung) -> Summary:
    """Mean over all tasks at the end with one of the remedies; of accuracy only, class-incremental."""

    def of(ladder: Ladder, signal: str, split: str) -> float | None:
        return ladder.average(rung.name) if (signal, split) == ("accuracy", "test") else None

    title = rung.title[0].upper() + rung.title[1:]
    return Summary(
        rung.name, title, f"Mean over all tasks at the end. {rung.description}", "signal", of, LADDER, "ladder"
    )


def _of_cl_score(name: str) -> Callable[[History, str, str], float]:
    """One criterion of CLScore, of any signal between 0 and 1 that is better where it is higher."""
    return lambda history, signal, split: cl_score(learnt_matrix(history, signal, split), **costs_of(history))[name]


def _rows(*rows: Summary) -> dict[str, Summary]:
    return {row.name: row for row in rows}


#: Families of rows: about transfer and the stability gap, and about what the remedies of a ladder bring back.
TRANSFER, LADDER = "transfer and stability", "what comes back"

SUMMARIES: Registry[Summary] = Registry(
    "summary",
    _rows(
        Summary("average", "Average", "Mean over all tasks at the end.", "signal", _of_matrix(average)),
        Summary("forgetting", "Forgetting", "Mean over the old tasks of their best value minus the last.", "lower",
                _of_matrix(forgetting)),
        Summary("retention", "Retention", "Mean over the old tasks at the end: what was kept.", "signal",
                _of_matrix(retention)),
        Summary("plasticity", "Plasticity", "Mean over the tasks right after each was learnt: what was learnt.",
                "signal", _of_matrix(plasticity)),
        Summary("backward_transfer", "Backward transfer",
                "Mean over the old tasks of the last value minus the one right after learning.", "higher",
                _of_matrix(backward_transfer), TRANSFER),
        Summary("forward_transfer", "Forward transfer",
                "Mean over the later tasks of the value just before learning minus that of the untrained model.",
                "higher", _forward_transfer, TRANSFER),
        Summary("min_acc", "Worst since learnt",
                "Mean over the old tasks of the worst value since each was learnt, between epochs too.", "signal",
                _of_steps(min_acc), TRANSFER),
        Summary("wc_acc", "Worst case",
                "Mean of the worst value of each old task and the last value of the current one.", "signal",
                _of_steps(wc_acc), TRANSFER),
        Summary("windowed_forgetting", "Windowed forgetting",
                "Mean over tasks of the largest fall within ten consecutive evaluations.", "lower",
                _of_steps(windowed_forgetting), TRANSFER),
        Summary("windowed_plasticity", "Windowed plasticity",
                "Mean over tasks of the largest rise within ten consecutive evaluations.", "higher",
                _of_steps(windowed_plasticity), TRANSFER),
        *(Summary(f"cl_{name}", title, description, "higher", _of_cl_score(criterion), "CLScore")
          for name, criterion, title, description in (
            ("accuracy", "A", "CL-A", "Mean over all tasks after each task, not only at the end."),
            ("backward", "BWT", "CL-BWT", "Mean change since learning, over all later tasks."),
            ("remembering", "REM", "CL-REM", "1 minus what was lost by BWT; 1 is nothing."),
            ("improvement", "BWT+", "CL-BWT+", "What later tasks added to earlier ones."),
            ("forward", "FWT", "CL-FWT", "Mean over the tasks that were not learnt yet."),
            ("model_size", "MS", "CL-MS", "1 if the model and what the method keeps of it do not grow."),
            ("storage", "SSS", "CL-SSS", "1 minus the stored share of all training data."),
            ("computation", "CE", "CL-CE", "One pass over the data divided by the work that was done."),
            ("score", "CLscore", "CLscore", "CLScore, the mean of A, REM, BWT+, FWT, MS, SSS and CE."),
        )),
        *(_of_ladder(rung) for rung in RUNGS.values() if rung.part != "now"),
    ),
)  # fmt: skip


def summarise(
    history: History, split: str = "test", *, ladder: Ladder | None = None
) -> dict[str, dict[str, float | None]]:
    """Every summary of every signal; None where it is not defined, or what it needs was not recorded.

    The stability-gap summaries (min_acc, wc_acc and the windowed ones) are of split ``<split>_steps``.

    Args:
        history: of a run; of an unfinished one, the summaries are of the tasks learnt so far.
        split: ``"test"``, or ``"test_task"`` for the task-incremental ones.
        ladder: of the run, where one was recorded.

    >>> history = History(class_to_task=[0, 1])
    >>> for task, (first, second) in enumerate([(0.8, 0.0), (0.5, 0.9)]):
    ...     values = dict.fromkeys(SIGNALS, np.array([first, second]))
    ...     history.record({**values, "n": np.array([10, 10 * task])}, step=task, task=task)
    >>> {name: value and round(value, 3) for name, value in summarise(history)["accuracy"].items()}
    {'average': 0.7, 'forgetting': 0.3, 'retention': 0.5, 'plasticity': 0.85, 'backward_transfer': -0.3,
     'forward_transfer': None, 'min_acc': None, 'wc_acc': None, 'windowed_forgetting': None,
     'windowed_plasticity': None, 'cl_accuracy': 0.733, 'cl_backward': -0.3, 'cl_remembering': 0.7,
     'cl_improvement': 0.0, 'cl_forward': None, 'cl_model_size': None, 'cl_storage': None, 'cl_computation': None,
     'cl_score': None, 'bias_memory': None, 'bias_holdout': None, 'bias_oracle': None, 'head_memory': None,
     'head_all': None}
    """
    further = [name for name in history.signals if name not in SIGNALS and SIGNALS.knows(name)]
    sources = {"history": history, "ladder": ladder}
    return {
        signal: {name: _value(summary, sources[summary.source], signal, split) for name, summary in SUMMARIES.items()}
        for signal in (*SIGNALS, *further)
    }


def _value(summary: Summary, source: Any, signal: str, split: str) -> float | None:
    if source is None:
        return None
    try:
        value = summary.of(source, signal, split)
    except ValueError:  # a task that was not evaluated, or a split that was not recorded
        return None
    return None if value is None or not np.isfinite(value) else float(value)
