"""The summaries of a run, one row each: what summary.json, tables, reports and loggers name and show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from wane.measures import transfer
from wane.measures.history import History
from wane.registry import Registry
from wane.softmax.signals import SIGNALS

__all__ = ["SUMMARIES", "Summary", "summarise"]


@dataclass(frozen=True)
class Summary:
    """One row of the registry.

    Attributes:
        name: in files and options.
        title: in tables.
        description: one sentence, without its full stop.
        higher_is_better: where higher values of the signal are better, as for accuracy.
        of: from (history, signal, split) to the value; a ValueError where it was not recorded.
    """

    name: str
    title: str
    description: str
    higher_is_better: bool
    of: Callable[[History, str, str], float] = field(repr=False)


def _of_matrix(function: Callable[..., float]) -> Callable[[History, str, str], float]:
    return lambda history, signal, split: function(history.matrix(signal, split=split), signal=signal)


def _of_steps(function: Callable[..., float]) -> Callable[[History, str, str], float]:
    def value(history: History, signal: str, split: str) -> float:
        steps = history.by_task(signal, split="test_steps" if split == "test" else f"{split}_steps")
        return function(steps.step, steps.task, steps.values, signal=signal)

    return value


def _forward_transfer(history: History, signal: str, split: str) -> float:
    untrained: Any = getattr(history, "untrained", lambda *_, **__: None)(signal, split=split)
    if untrained is None:
        raise ValueError("the model was not evaluated before training")
    return transfer.forward_transfer(history.matrix(signal, split=split), untrained, signal=signal)


def _rows(*rows: Summary) -> dict[str, Summary]:
    return {row.name: row for row in rows}


SUMMARIES: Registry[Summary] = Registry(
    "summary",
    _rows(
        Summary("average", "average", "all tasks at the end", True, _of_matrix(transfer.average)),
        Summary("forgetting", "forgetting", "peak minus end, mean over old tasks", False,
                _of_matrix(transfer.forgetting)),
        Summary("retention", "retention", "what old tasks still have at the end", True,
                _of_matrix(transfer.retention)),
        Summary("plasticity", "plasticity", "each task right after it was learnt", True,
                _of_matrix(transfer.plasticity)),
        Summary("backward_transfer", "backward transfer", "end minus right after learning, mean over old tasks", True,
                _of_matrix(transfer.backward_transfer)),
        Summary("forward_transfer", "forward transfer", "each task just before it was learnt, above the untrained "
                "model", True, _forward_transfer),
        Summary("min_acc", "min-ACC", "the worst value of each old task after it was learnt", True,
                _of_steps(transfer.min_acc)),
        Summary("wc_acc", "WC-ACC", "the worst of each old task and the last of the current one", True,
                _of_steps(transfer.wc_acc)),
        Summary("windowed_forgetting", "windowed forgetting", "the largest fall within 10 evaluations", False,
                _of_steps(transfer.windowed_forgetting)),
        Summary("windowed_plasticity", "windowed plasticity", "the largest rise within 10 evaluations", True,
                _of_steps(transfer.windowed_plasticity)),
    ),
)  # fmt: skip


def summarise(history: History, split: str = "test") -> dict[str, dict[str, float | None]]:
    """Every summary of every signal; None where it is not defined or was not recorded."""
    found: dict[str, dict[str, float | None]] = {}
    for signal in SIGNALS:
        values = found.setdefault(signal, {})
        for name, row in SUMMARIES.items():
            try:
                value = float(row.of(history, signal, split))
            except ValueError:
                value = float("nan")
            values[name] = value if value == value else None
    return found
