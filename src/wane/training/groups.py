"""What is counted together: the groups of a stream, and the metrics and the history that are kept of them.

A group is a class; in a stream of domains it is a class of one domain.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from wane.measures.group_metrics import ClassMetrics, GroupMetrics
from wane.measures.history import History
from wane.runs.config import Config, ConfigError
from wane.softmax.signals import Signals, signals, signals_within
from wane.streams import Dataset, Stream, make_stream

__all__ = ["count", "new_history", "new_metrics", "open_stream", "score_within"]


def open_stream(config: Config, dataset: Dataset) -> Stream:
    """The stream of tasks that the config describes."""
    data = config.data
    for name, wanted in (
        ("flow", config.record.flow),
        ("recovery", config.record.recovery is not None),
        ("correction", config.record.correction is not None),
    ):
        if wanted and data.stream == "domains":
            raise ConfigError(f"record.{name} is about lost classes, but data.stream is domains: leave record."
                              f"{name} out, or set data.stream to classes")  # fmt: skip
    return make_stream(dataset, data.tasks, data.class_order, data.stream, seed=config.seed)


def new_history(stream: Stream) -> History:
    """An empty history of the stream's groups."""
    return History(stream.group_to_task.cpu().numpy(), names=stream.group_names)


def new_metrics(stream: Stream, *, also: Sequence[str] = (), flow: bool = False) -> GroupMetrics:
    """Sums for each group, on the device of the data; with `flow`, also the mean softmax of every class."""
    options: Any = {"also": also, "validate": False, "sync_on_compute": False}
    made = ClassMetrics(stream.num_groups, flow=True, **options) if flow else GroupMetrics(stream.num_groups, **options)
    return made.to(stream.dataset.train.labels.device)


def count(metrics: GroupMetrics, groups: Tensor, scored: Signals, logits: Tensor | None) -> None:
    """Add the signals of some rows; logits are given where the flow is wanted, and groups are then classes."""
    if logits is None:
        metrics.update(groups=groups, scored=scored)
    else:
        metrics.update(logits, groups, scored=scored)  # type: ignore[call-arg]


def score_within(stream: Stream, logits: Tensor, labels: Tensor, *, also: Sequence[str] = ()) -> Signals:
    """Task-incremental signals: each row among the classes of its own task, which in a stream of domains are all."""
    if stream.kind == "classes":
        return signals_within(logits, labels, stream.class_to_task, also=also, validate=False)
    return signals(logits, labels, also=also, validate=False)
