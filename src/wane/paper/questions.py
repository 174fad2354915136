"""What the paper leaves open, as paired differences between methods: what a draw, a unit or a constant does by itself.

A question has no verdict of its own: each measure of a difference is read from its interval, lower forgetting beside
what was kept (retention) and what was learnt (plasticity).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import polars as pl

from wane.paper.judging import UNBROKEN, has_constant_rate
from wane.runs.folder import RunFolder
from wane.runs.identity import method_title
from wane.views.tables.run_tables import MEASURES, Interval, measures, paired

__all__ = ["QUESTIONS", "Answer", "Question", "answers", "answers_csv", "answers_markdown", "effective_share"]


class Question(NamedTuple):
    """How `method` differs from `against` (by `method_title`; a constant learning rate is said with `constant`)."""

    text: str
    method: str
    against: str
    constant: bool = False  # the runs of `against` have no schedule


class Answer(NamedTuple):
    """The differences of a question on one data set, and how far each draw was from uniform over the seen classes."""

    question: Question
    data: str
    differences: dict[str, Interval]
    shares: tuple[float | None, float | None]


def _trend(said: str) -> str:
    return f"er, trend {said}"


_DRAW = "How much of trend sampling is the class-wise draw?"
_TREND = "Does the trend add to the class-wise draw?"
_UNIT = "Does the slope's unit matter?"
_PERCENT = "Is the collapse at a window of 3 that of accuracy, or of percent (gamma 200)?"
_WINDOW = "Is it accuracy alone that needs a long window?"
_SCOPE = "Drawing past classes only: does the trend add to that?"
_SOURCE = "Do replayed rows tell as much as test data?"
_SIGNAL = "Is a continuous signal the better trend?"
_EPSILON = "What does epsilon do to the weights?"

QUESTIONS: tuple[Question, ...] = (
    Question(_DRAW, "er, class_uniform", "er"),
    Question(_DRAW, "er, class_uniform past", "er"),
    Question(_DRAW, _trend("log_tlr"), "er"),
    Question(_TREND, _trend("log_tlr"), "er, class_uniform"),
    *(Question(_TREND, _trend(f"log_tlr ({g}standardised)"), "er, class_uniform")
      for g in ("gamma 0.25, ", "gamma 0.5, ", "gamma 1, ", "")),
    Question(_UNIT, _trend("log_tlr (standardised)"), _trend("log_tlr")),
    Question(_UNIT, _trend("accuracy (standardised)"), _trend("accuracy")),
    Question(_PERCENT, _trend("accuracy (window 3)"), "er, class_uniform"),
    Question(_PERCENT, _trend("log_tlr (window 3)"), _trend("accuracy (window 3)")),
    Question(_PERCENT, _trend("accuracy (window 3, gamma 200)"), "er, class_uniform"),
    Question(_PERCENT, _trend("log_tlr (window 3)"), _trend("accuracy (window 3, gamma 200)")),
    Question(_PERCENT, _trend("log_tlr (window 3, gamma 200)"), "er, class_uniform"),
    Question(_PERCENT, _trend("log_tlr (window 3, gamma 200)"), _trend("accuracy (window 3, gamma 200)")),
    Question(_PERCENT, _trend("accuracy (window 15, gamma 200)"), _trend("accuracy (window 3, gamma 200)")),
    Question(_PERCENT, _trend("log_tlr (window 15, gamma 200)"), _trend("log_tlr (window 3, gamma 200)")),
    *(Question(_WINDOW, _trend(f"{s} (window 15, standardised)"), _trend(f"{s} (window 3, standardised)"))
      for s in ("accuracy", "log_tlr", "loss", "nkl", "cm")),
    Question(_SCOPE, _trend("log_tlr (past)"), "er, class_uniform past"),
    Question(_SCOPE, _trend("log_tlr (gamma 0.5, standardised, past)"), "er, class_uniform past"),
    Question(_SCOPE, _trend("log_tlr (standardised, past)"), "er, class_uniform past"),
    Question(_SOURCE, _trend("log_tlr (test)"), _trend("log_tlr")),
    Question(_SOURCE, _trend("log_tlr (gamma 0.5, standardised, test)"), _trend("log_tlr (gamma 0.5, standardised)")),
    Question(_SOURCE, _trend("log_tlr (standardised, test)"), _trend("log_tlr (standardised)")),
    Question(_SOURCE, _trend("log_tlr (gamma 0.5, standardised, test)"), "er, class_uniform"),
    Question(_SIGNAL, _trend("log_tlr"), _trend("accuracy")),
    Question(_SIGNAL, _trend("log_tlr (gamma 0.5, standardised)"), _trend("accuracy (gamma 0.5, standardised)")),
    Question(_SIGNAL, _trend("log_tlr (standardised)"), _trend("accuracy (standardised)")),
    Question("What does the schedule of the learning rate do?", "er", "er", constant=True),
    Question(_EPSILON, "er, weights log_tlr (epsilon 0.01)", "er, weights log_tlr"),
    Question(_EPSILON, "er, weights log_tlr (epsilon 1)", "er, weights log_tlr"),
)  # fmt: skip


def answers(runs: Sequence[RunFolder]) -> list[Answer]:
    """Every question that the runs can answer with at least one seed, on each of their data sets."""
    found = []
    for data in dict.fromkeys(run.config.data.name for run in runs):
        values: dict[tuple[str, bool], dict[int, dict[str, float]]] = {}
        shares: dict[tuple[str, bool], list[float]] = {}
        for run in runs:
            measured = measures(run) if run.config.data.name == data else None
            if measured is None:
                continue
            key = method_title(run.config), has_constant_rate(run)
            values.setdefault(key, {})[run.config.seed] = measured
            share = effective_share(run)
            if share is not None:
                shares.setdefault(key, []).append(share)
        scheduled = any(not constant for _, constant in values)  # at the paper's scale one data set has no schedule
        for question in QUESTIONS:
            first, second = (question.method, not scheduled), (question.against, question.constant or not scheduled)
            a, b = values.get(first, {}), values.get(second, {})
            if first == second or not a.keys() & b.keys():
                continue
            differences = {m: paired({s: v[m] for s, v in a.items()}, {s: v[m] for s, v in b.items()})
                           for m in MEASURES}  # fmt: skip
            means = [float(np.mean(shares[key])) if key in shares else None for key in (first, second)]
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
    per_task = len(run.summary["class_names"]) / run.config.num_tasks
    seen = (later["task"].to_numpy() + 1) * per_task
    return float(100 * np.mean(later["effective_classes"].to_numpy() / seen))


def answers_markdown(found: Sequence[Answer]) -> str:
    """A table a data set, a line a difference."""
    parts = []
    for data in dict.fromkeys(answer.data for answer in found):
        lines = [f"{data}, paired differences in percentage points", "",
                 f"| question | method | against | {' | '.join(MEASURES)} | effective classes |",
                 f"|:--|:--|:--|{'--:|' * (len(MEASURES) + 1)}"]  # fmt: skip
        before = ""
        for question, _, differences, shares in (answer for answer in found if answer.data == data):
            text = question.text if question.text != before else ""
            before = question.text
            against = question.against + (", constant rate" if question.constant else "")
            cells = [_shown(interval) for interval in differences.values()]
            both = " / ".join("" if share is None else f"{share:.0f} %" for share in shares)
            lines.append(f"| {' | '.join([text, question.method, against, *cells, both])} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def answers_csv(found: Sequence[Answer]) -> str:
    """A line for each question and measure."""
    return pl.DataFrame(list(_records(found)), infer_schema_length=None).write_csv()


def _records(found: Sequence[Answer]) -> Iterator[dict[str, object]]:
    for question, data, differences, shares in found:
        for measure, interval in differences.items():
            yield {"data": data, "question": question.text, "method": question.method, "against": question.against,
                   "against_constant_rate": question.constant, "measure": measure, **interval._asdict(),
                   "effective_percent": shares[0], "against_effective_percent": shares[1]}  # fmt: skip


def _shown(interval: Interval) -> str:
    if interval.difference is None:
        return ""
    bold = "**" if interval.low is not None and interval.high is not None and interval.low * interval.high > 0 else ""
    around = "" if interval.low is None else f" [{interval.low:+.1f}, {interval.high:+.1f}]"
    return f"{bold}{interval.difference:+.1f}{around}{bold}, n = {interval.n}".translate(UNBROKEN)
