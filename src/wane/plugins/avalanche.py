"""Avalanche: a metric for the signals, and replay that is drawn by trend and weighted by signal.

An evaluation is one call of `strategy.eval`, or of the periodic evaluation (`eval_every`, `eval_streams`): give it all
the experiences that it is to be about.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import BatchSampler, ConcatDataset, DataLoader, RandomSampler, SequentialSampler

from wane.interventions.loss_weights import LossWeights
from wane.interventions.trend_sampler import TrendSampler
from wane.measures.group_metrics import GroupMetrics
from wane.measures.history import History
from wane.memory.draw import draw_by_class, draw_uniform
from wane.plugins import missing
from wane.plugins.recorder import Recorder, new_history
from wane.softmax.registry import SIGNALS
from wane.softmax.signals import Signals, signals

try:
    from avalanche.evaluation.metric_definitions import PluginMetric
    from avalanche.evaluation.metric_results import MetricValue
    from avalanche.evaluation.metric_utils import get_metric_name
    from avalanche.training.plugins import ReplayPlugin
except ModuleNotFoundError as error:
    raise missing("avalanche", error) from None

__all__ = ["SignalMetrics", "TrendReplay", "class_to_task"]


def class_to_task(stream: Iterable[Any]) -> list[int]:
    """The task of each class in a stream of experiences, for `History(class_to_task=...)`; -1 for a class of none."""
    tasks: dict[int, int] = {}
    for task, experience in enumerate(stream):
        for label in experience.classes_in_this_experience:
            tasks.setdefault(int(label), task)
    return [tasks.get(label, -1) for label in range(max(tasks, default=-1) + 1)]


class SignalMetrics(PluginMetric):
    """The signals of every evaluation: in a history by class, and for Avalanche's loggers by experience.

    Give it to an `EvaluationPlugin`, as any metric. Classes that were not taught yet are recorded as split ``future``,
    and what is measured before any training as ``untrained``. Weights that were measured already, as in the evaluation
    that Avalanche adds before each experience, are not recorded twice.

    Args:
        history: where to record; default: a new one, in which a class belongs to the task that first showed it. Better:
            `History(class_to_task=class_to_task(benchmark.train_stream))`.
        log: the signals for the loggers, as means over each experience.
        by_class: whether the loggers get them for each class too.
        folder: if given, it becomes a run folder, as of `wane.save_run`, up to date after every evaluation.
    """

    def __init__(
        self,
        history: History | None = None,
        *,
        log: Sequence[str] = tuple(SIGNALS),
        by_class: bool = False,
        folder: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__()
        for signal in log:
            SIGNALS[signal]  # an unknown name fails here, with the nearest one
        self.recorder = Recorder(new_history(history), folder=folder)
        self.ahead = Recorder(self.history)  # of classes that were not taught yet
        self.log, self.by_class = tuple(log), by_class
        self._experience: GroupMetrics | None = None
        self._taught: set[int] = set()
        self._measured: tuple[int, set[int]] = (-1, set())  # the iteration, and the classes measured there

    @property
    def history(self) -> History:
        """What was recorded."""
        return self.recorder.history

    def result(self) -> dict[str, float]:
        """The means of the last evaluation's samples, by signal."""
        evaluations = self.history.evaluations
        if not evaluations:
            return {}
        last = evaluations[-1]
        return {
            name: float(self.history.column(last, name) @ last.n / last.n.sum()) for name in self.history.signals
        }  # fmt: skip

    def reset(self) -> None:
        """Drop what was seen of an evaluation that has not ended."""
        self.recorder.drop()
        self.ahead.drop()

    def before_training_exp(self, strategy: Any) -> None:
        """Another task begins: its classes count as taught from now on."""
        self.recorder.task = self.ahead.task = strategy.clock.train_exp_counter
        self._taught |= {int(label) for label in strategy.experience.classes_in_this_experience}

    def before_eval(self, strategy: Any) -> None:
        """Begin an evaluation."""
        self.reset()

    def before_eval_exp(self, strategy: Any) -> None:
        """Begin an experience."""
        self._experience = GroupMetrics(1)

    def after_eval_iteration(self, strategy: Any) -> None:
        """Score the batch, once for all."""
        logits, labels = strategy.mb_output.detach(), strategy.mb_y
        scored = signals(logits, labels)
        assert self._experience is not None
        self._experience.to(logits.device).update(scored=scored, groups=torch.zeros_like(labels))
        taught = torch.isin(labels, torch.tensor(sorted(self._taught), device=labels.device))
        for recorder, rows in ((self.recorder, taught), (self.ahead, ~taught)):
            if bool(rows.any()):
                part = Signals(*(value[rows] for value in scored), names=scored.names)
                recorder.update(labels=labels[rows], scored=part, classes=logits.shape[-1])

    def after_eval_exp(self, strategy: Any) -> list[Any]:
        """The means over the experience, for loggers."""
        assert self._experience is not None
        means = self._experience.compute()
        names = {signal: get_metric_name(signal, strategy, add_experience=True) for signal in self.log}
        return [self._value(strategy, name, means[signal]) for signal, name in names.items()]

    def after_eval(self, strategy: Any) -> list[Any]:
        """Record the evaluation; with `by_class`, its classes for the loggers."""
        now = strategy.clock.train_iterations
        if now != self._measured[0]:
            self._measured = (now, set())
        before = len(self.history.evaluations)
        self._finish(self.ahead, "future" if now else "untrained")
        self._finish(self.recorder, "test")
        values = []
        for evaluation in self.history.evaluations[before:] if self.by_class else ():
            for signal in self.log:
                stem = f"{get_metric_name(f'{signal}_Class', strategy, add_task=False)}"
                for label, value in zip(evaluation.classes, self.history.column(evaluation, signal), strict=True):
                    values.append(self._value(strategy, f"{stem}/{label:03}", value))
        return values

    def _finish(self, recorder: Recorder, split: str) -> None:
        """Record, unless the very same weights were measured on all these classes before."""
        known = self._measured[1]
        classes = set(recorder.classes)
        if classes <= known:
            recorder.drop()
            return
        known |= classes
        recorder.finish(split=split)

    def _value(self, strategy: Any, name: str, value: Any) -> Any:
        return MetricValue(self, name, float(value), strategy.clock.train_iterations)

    def __str__(self) -> str:
        return "wane"


class TrendReplay(ReplayPlugin):
    """Avalanche's replay with a draw by trend, and weights for the replayed rows in the loss.

    The buffer, when it is filled and what it keeps, is Avalanche's own. What is measured on the replayed rows of the
    training passes, which costs no further pass, is recorded at the end of every epoch as split ``replay``.

    Args:
        history: where to record, and whose trend to follow. It needs the task of each class:
            `History(class_to_task=class_to_task(benchmark.train_stream))`; that of a `SignalMetrics` will do.
        trend: how to draw. Default: uniformly, as Avalanche does.
        weights: of the replayed rows in the loss, whose criterion must be a plain mean over rows. Default: none.
        generator: of the draw and of the shuffling.
        mem_size: how many samples the buffer holds.
        options: of `ReplayPlugin`: `batch_size`, `batch_size_mem`, `storage_policy`.
    """

    def __init__(
        self,
        history: History,
        *,
        trend: TrendSampler | None = None,
        weights: LossWeights | None = None,
        generator: torch.Generator,
        mem_size: int = 200,
        **options: Any,
    ) -> None:
        super().__init__(mem_size=mem_size, **options)
        if history.class_to_task is None or not len(history.class_to_task):
            raise ValueError("the history does not know the task of each class, which a trend needs: make it with "
                             "History(class_to_task=class_to_task(benchmark.train_stream))")  # fmt: skip
        if self.task_balanced_dataloader:
            raise ValueError("task_balanced_dataloader is Avalanche's own draw: leave it out, or use ReplayPlugin")
        self.recorder = Recorder(history)
        self.trend, self.weights, self.generator = trend, weights, generator
        self._epochs = 0
        self._rows = 0  # how many of a batch are replayed; they come last
        self._labels = self._wanted = torch.empty(0)  # of the buffer's slots; the draw's class probabilities
        self._scored: Signals | None = None

    @property
    def history(self) -> History:
        """What was measured."""
        return self.recorder.history

    def before_training_exp(
        self, strategy: Any, num_workers: int = 0, shuffle: bool = True, drop_last: bool = False, **kwargs: Any
    ) -> None:
        """Batches of the experience's rows and of drawn ones, from the second experience on."""
        self.recorder.task = strategy.clock.train_exp_counter
        buffer = self.storage_policy.buffer
        self._rows = min(self.batch_size_mem or strategy.train_mb_size, len(buffer))
        if not self._rows:
            return
        self._labels = torch.as_tensor(list(buffer.targets))
        data = strategy.adapted_dataset
        order = RandomSampler(data, generator=self.generator) if shuffle else SequentialSampler(data)
        batches = BatchSampler(order, self.batch_size or strategy.train_mb_size, drop_last)
        strategy.dataloader = DataLoader(
            ConcatDataset([data, buffer]),
            batch_sampler=_WithReplay(batches, len(data), self),
            num_workers=num_workers,
            collate_fn=data.collate_fn,
        )

    def before_training_epoch(self, strategy: Any, **kwargs: Any) -> None:
        """Follow the trend."""
        if self._rows and self.trend is not None:
            wanted = self.trend.probabilities(self.history, task=self.recorder.task)
            missed = int(self._labels.max()) + 1 - len(wanted)
            self._wanted = torch.nn.functional.pad(wanted, (0, max(missed, 0)))

    def draw(self) -> Tensor:
        """Slots of the buffer for one batch."""
        if self.trend is None:
            return draw_uniform(len(self._labels), self._rows, self.generator)
        return draw_by_class(self._labels, self._rows, self._wanted, self.generator)

    def after_forward(self, strategy: Any, **kwargs: Any) -> None:
        """Measure the replayed rows."""
        if not self._rows:
            return
        logits, labels = strategy.mb_output.detach()[-self._rows :], strategy.mb_y[-self._rows :]
        self._scored = signals(logits, labels)
        self.recorder.update(labels=labels, scored=self._scored, classes=logits.shape[-1])

    def before_backward(self, strategy: Any, **kwargs: Any) -> None:
        """Weigh them: the mean over all rows was taken already, so what the weights change is added to it."""
        if self.weights is None or self._scored is None:
            return
        criterion = strategy._criterion
        if getattr(criterion, "reduction", None) != "mean" or getattr(criterion, "weight", None) is not None:
            raise ValueError(
                "loss weights need a criterion that is a plain mean over rows, such as CrossEntropyLoss(), "
                f"not {criterion!r}"
            )
        by_row = copy.copy(criterion)
        by_row.reduction = "none"
        losses = by_row(strategy.mb_output[-self._rows :], strategy.mb_y[-self._rows :])
        strategy.loss = strategy.loss + ((self.weights(self._scored) - 1) * losses).sum() / len(strategy.mb_y)

    def after_training_epoch(self, strategy: Any, **kwargs: Any) -> None:
        """Record what the epoch measured."""
        self._scored = None
        self.recorder.finish(split="replay", step=self._epochs)
        self._epochs += 1


class _WithReplay:
    """Indices of the experience's rows, then those of a draw, batch by batch; the draw follows the trend as it goes."""

    def __init__(self, batches: BatchSampler, first: int, replay: TrendReplay) -> None:
        self.batches, self.first, self.replay = batches, first, replay

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[list[int]]:
        for batch in self.batches:
            yield [*batch, *(self.first + self.replay.draw()).tolist()]
