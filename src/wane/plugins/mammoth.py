"""Mammoth: follow the evaluations of a data set, from the very passes that Mammoth makes.

Mammoth is no package, so nothing of it is imported. Its one seam is a data set's `eval_fn`, which gives accuracies:
the logits are taken where the model returns them, before Mammoth masks other tasks' classes in place.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from wane.measures.history import History
from wane.plugins.recorder import Recorder

__all__ = ["record_evaluations"]


def record_evaluations(
    dataset: Any,
    history: History | None = None,
    *,
    seen_only: bool = False,
    folder: str | os.PathLike[str] | None = None,
) -> Recorder:
    """From now on, every evaluation of `dataset` that is of all tasks so far is also one of a history.

    Evaluations of the last task alone (early stopping, Mammoth's forward transfer) are not recorded, nor those of the
    second data set that Mammoth makes for `--eval_future` and `--validation`.

    Args:
        dataset: a `ContinualDataset` of Mammoth, before training begins.
        history: where to record; default: a new one with the data set's own tasks.
        seen_only: score among the classes of the tasks so far, as Mammoth's accuracy is; default: the whole head.
        folder: if given, it becomes a run folder, as of `wane.save_run`, up to date after every evaluation.

    Returns:
        What records; its `history` is what was recorded.
    """
    recorder = Recorder(History(_tasks(dataset)) if history is None else history, folder=folder)
    evaluate = dataset.eval_fn

    @functools.wraps(evaluate)  # Mammoth looks at the signature
    def eval_fn(model: Any, dataset: Any, last: bool = False, return_loss: bool = False) -> Any:
        if last:
            return evaluate(model, dataset, last=last, return_loss=return_loss)
        waiting: list[Any] = []  # the labels of a batch that the model has not answered yet

        def score(module: Any, inputs: Any, outputs: Any) -> None:
            if waiting:
                logits = outputs[:, : dataset.get_offsets()[1]] if seen_only else outputs
                recorder.update(logits, waiting.pop())

        loaders = dataset.test_loaders
        recorder.task = len(loaders) - 1
        recorder.drop()
        hook = model.register_forward_hook(score)
        dataset.test_loaders = [_Watched(loader, waiting) for loader in loaders]
        try:
            result = evaluate(model, dataset, last=last, return_loss=return_loss)
        finally:
            dataset.test_loaders = loaders
            hook.remove()
        recorder.finish()
        return result

    dataset.eval_fn = eval_fn
    return recorder


class _Watched:
    """A data loader that tells the labels of each batch as it gives it out."""

    def __init__(self, loader: Any, labels: list[Any]) -> None:
        self.loader, self.labels = loader, labels

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        for batch in self.loader:
            self.labels[:] = [batch[1]]
            yield batch


def _tasks(dataset: Any) -> np.ndarray[Any, Any]:
    """The task of each class; where tasks share their classes, nothing is known in advance."""
    if dataset.SETTING not in ("class-il", "task-il"):
        return np.empty(0, dtype=np.int64)
    bounds = [dataset.get_offsets(task) for task in range(dataset.N_TASKS)]
    return np.repeat(np.arange(len(bounds)), [end - start for start, end in bounds])
