"""What the paper leaves open, as paired differences between methods: what a draw, a unit or a constant does by itself.

A question has no verdict of its own: each measure of a difference is read from its interval, lower forgetting beside
what was kept (retention) and what was learnt (plasticity).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from wane.escaping import csv_table, markdown
from wane.paper.judging import UNBROKEN, has_constant_rate
from wane.paper.methods import class_uniform, er, trend, uniform_past, weights
from wane.runs.folder import RunFolder
from wane.runs.identity import Method, method_of
from wane.views.statistics import Interval, counted, paired
from wane.views.summaries import accuracy_measures

__all__ = ["QUESTIONS", "Answer", "Question", "answers", "answers_csv", "answers_markdown", "effective_share"]


#: What a difference is shown of.
DIFFERENCES = ("accuracy", "forgetting", "retention", "plasticity")


class Question(NamedTuple):
    """How `method` differs from `against`."""

    text: str
    method: Method
    against: Method
    constant: bool = False  # the runs of `against` have a constant learning rate
    aside: bool = False  # both of runs that set training images aside (data.holdout)


class Answer(NamedTuple):
    """The differences of a question on one data set, and how far each draw was from uniform over the seen classes."""

    question: Question
    data: str
    differences: dict[str, Interval]
    shares: tuple[float | None, float | None]


def _standardised(signal: str, **settings: Any) -> Method:
    return trend(signal, slope="standardised", **settings)


def _percent(signal: str, window: int) -> Method:
    """The trend of a signal in percent: a hundred times the slope, which is a hundred times the gamma."""
    return trend(signal, window, gamma=200.0)


_DRAW = "How much of trend sampling is the class-wise draw?"
_TREND = "Does the trend add to the class-wise draw?"
_UNIT = "Does the slope's unit matter?"
_PERCENT = "Is the collapse at a window of 3 that of accuracy, or of percent (gamma 200)?"
_WINDOW = "Is it accuracy alone that needs a long window?"
_SCOPE = "Drawing past classes only: does the trend add to that?"
_SOURCE = "Do replayed rows tell as much as test data?"
_SIGNAL = "Is a continuous signal the better trend?"
_LITERAL = "Does the sign matter: the formula as printed favours classes that improve?"
_ASIDE = "Do images set aside tell more than replayed rows?"
_EPSILON = "What does epsilon do to the weights?"

QUESTIONS: tuple[Question, ...] = (
    Question(_DRAW, class_uniform(), er()),
    Question(_DRAW, class_uniform("past"), er()),
    Question(_DRAW, uniform_past(), er()),
    Question(_DRAW, class_uniform("past"), uniform_past()),
    Question(_DRAW, trend("log_tlr"), er()),
    Question(_TREND, trend("log_tlr"), class_uniform()),
    *(Question(_TREND, _standardised("log_tlr", gamma=g), class_uniform()) for g in (0.25, 0.5, 1.0, 2.0)),
    Question(_UNIT, _standardised("log_tlr"), trend("log_tlr")),
    Question(_UNIT, _standardised("accuracy"), trend("accuracy")),
    Question(_PERCENT, trend("accuracy", 3), class_uniform()),
    Question(_PERCENT, trend("log_tlr", 3), trend("accuracy", 3)),
    Question(_PERCENT, _percent("accuracy", 3), class_uniform()),
    Question(_PERCENT, trend("log_tlr", 3), _percent("accuracy", 3)),
    Question(_PERCENT, _percent("log_tlr", 3), class_uniform()),
    Question(_PERCENT, _percent("log_tlr", 3), _percent("accuracy", 3)),
    Question(_PERCENT, _percent("accuracy", 15), _percent("accuracy", 3)),
    Question(_PERCENT, _percent("log_tlr", 15), _percent("log_tlr", 3)),
    *(Question(_WINDOW, _standardised(s, window=15), _standardised(s, window=3))
      for s in ("accuracy", "log_tlr", "loss", "nkl", "cm")),
    Question(_SCOPE, trend("log_tlr", scope="past"), class_uniform("past")),
    Question(_SCOPE, _standardised("log_tlr", gamma=0.5, scope="past"), class_uniform("past")),
    Question(_SCOPE, _standardised("log_tlr", scope="past"), class_uniform("past")),
    Question(_SOURCE, trend("log_tlr", source="test"), trend("log_tlr")),
    Question(_SOURCE, _standardised("log_tlr", gamma=0.5, source="test"), _standardised("log_tlr", gamma=0.5)),
    Question(_SOURCE, _standardised("log_tlr", source="test"), _standardised("log_tlr")),
    Question(_SOURCE, _standardised("log_tlr", gamma=0.5, source="test"), class_uniform()),
    Question(_ASIDE, trend("log_tlr", source="holdout"), trend("log_tlr"), aside=True),
    *(Question(_ASIDE, _standardised("log_tlr", gamma=g, source="holdout"), _standardised("log_tlr", gamma=g),
               aside=True) for g in (0.5, 2.0)),
    *(Question(_ASIDE, _standardised("log_tlr", gamma=g, source="holdout"), class_uniform(), aside=True)
      for g in (0.5, 2.0)),
    Question(_LITERAL, trend("log_tlr", literal=True), trend("log_tlr")),
    *(Question(_LITERAL, _standardised("log_tlr", gamma=g, literal=True), _standardised("log_tlr", gamma=g))
      for g in (0.5, 2.0)),
    *(Question(_LITERAL, _standardised("log_tlr", gamma=g, literal=True), class_uniform()) for g in (0.5, 2.0)),
    Question(_SIGNAL, trend("log_tlr"), trend("accuracy")),
    Question(_SIGNAL, _standardised("log_tlr", gamma=0.5), _standardised("accuracy", gamma=0.5)),
    Question(_SIGNAL, _standardised("log_tlr"), _standardised("accuracy")),
    Question("What does the schedule of the learning rate do?", er(), er(), constant=True),
    Question(_EPSILON, weights("log_tlr", epsilon=0.01), weights("log_tlr")),
    Question(_EPSILON, weights("log_tlr", epsilon=1.0), weights("log_tlr")),
)  # fmt: skip


class _Kind(NamedTuple):
    """What runs have to agree in to be one side of a question."""

    method: Method
    constant: bool
    aside: bool


def answers(runs: Sequence[RunFolder]) -> list[Answer]:
    """Every question that the runs can answer with at least one seed, on each of their data sets."""
    found = []
    for data in dict.fromkeys(run.config.data.name for run in runs):
        values: dict[_Kind, dict[int, dict[str, float]]] = {}
        shares: dict[_Kind, list[float]] = {}
        for run in runs:
            measured = accuracy_measures(run) if run.config.data.name == data else None
            if measured is None or "accuracy" not in measured:
                continue
            kind = _Kind(method_of(run.config), has_constant_rate(run), run.config.data.holdout > 0)
            values.setdefault(kind, {})[run.config.seed] = measured
            share = effective_share(run)
            if share is not None:
                shares.setdefault(kind, []).append(share)
        scheduled = any(not kind.constant for kind in values)  # at the paper's scale one data set has no schedule
        for question in QUESTIONS:
            first = _Kind(question.method, not scheduled, question.aside)
            second = _Kind(question.against, question.constant or not scheduled, question.aside)
            a, b = values.get(first, {}), values.get(second, {})
            if first == second or not a.keys() & b.keys():
                continue
            differences = {m: paired({s: v[m] for s, v in a.items()}, {s: v[m] for s, v in b.items()})
                           for m in DIFFERENCES}  # fmt: skip
            means = [float(np.mean(shares[kind])) if kind in shares else None for kind in (first, second)]
            found.append(Answer(question, data, differences, (means[0], means[1])))
    return found


def effective_share(run: RunFolder) -> float | None:
    """The effective number of classes of the draw over that of the seen classes, in percent, from the second task on.

    A draw that is uniform over the seen classes has 100; None without a memory, or with a single task.
    """
    log = run.replay
    if log is None or run.summary is None:
        return None
    later = log.filter(pl.col("task") > 0)
    if later.is_empty():
        return None
    seen = np.cumsum(_task_sizes(run))[later["task"].to_numpy()]
    return float(100 * np.mean(later["effective_classes"].to_numpy() / seen))


def _task_sizes(run: RunFolder) -> list[int]:
    """How many classes each task has; where they cannot be equal, the first tasks have one more."""
    tasks: Any = run.config.data.tasks
    if not isinstance(tasks, int):
        return [len(classes) for classes in tasks]
    return [len(part) for part in np.array_split(np.arange(len(run.class_names)), tasks)]


def answers_markdown(found: Sequence[Answer]) -> str:
    """A table a data set, a line a difference."""
    parts = []
    for data in dict.fromkeys(answer.data for answer in found):
        lines = [f"{markdown(data)}, paired differences in percentage points", "",
                 f"| question | method | against | {' | '.join(DIFFERENCES)} | effective classes |",
                 f"|:--|:--|:--|{'--:|' * (len(DIFFERENCES) + 1)}"]  # fmt: skip
        before = ""
        for question, _, differences, shares in (answer for answer in found if answer.data == data):
            text = question.text if question.text != before else ""
            before = question.text
            against = question.against.title + ", constant rate" * question.constant
            against += ", images set aside" * question.aside
            cells = [_shown(interval) for interval in differences.values()]
            both = " / ".join("" if share is None else f"{share:.0f} %" for share in shares)
            lines.append(f"| {' | '.join([text, markdown(question.method.title), markdown(against), *cells, both])} |")
        parts.append("\n".join(lines))
    intervals = [interval for answer in found for interval in answer.differences.values()]
    return "\n\n".join([*parts, counted(intervals)]) + "\n"


def answers_csv(found: Sequence[Answer]) -> str:
    """A line for each question and measure."""
    return csv_table(pl.DataFrame(list(_records(found)), infer_schema_length=None))


def _records(found: Sequence[Answer]) -> Iterator[dict[str, object]]:
    for question, data, differences, shares in found:
        for measure, interval in differences.items():
            yield {"data": data, "question": question.text, "method": question.method.title,
                   "against": question.against.title, "against_constant_rate": question.constant,
                   "images_set_aside": question.aside, "measure": measure, **interval._asdict(),
                   "effective_percent": shares[0], "against_effective_percent": shares[1]}  # fmt: skip


def _shown(interval: Interval) -> str:
    if interval.difference is None:
        return ""
    bold = "**" if interval.decided else ""
    around = "" if interval.low is None else f" [{interval.low:+.1f}, {interval.high:+.1f}]"
    return f"{bold}{interval.difference:+.1f}{around}{bold}, n = {interval.n}".translate(UNBROKEN)
