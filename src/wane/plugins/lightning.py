"""Lightning: a callback that follows validation, by class or by data set, and keeps the history in the checkpoint."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from wane.measures.history import History
from wane.plugins import missing
from wane.plugins.recorder import Recorder, new_history
from wane.softmax.registry import SIGNALS

try:
    from lightning.pytorch.callbacks import Callback
except ModuleNotFoundError as error:
    try:
        from pytorch_lightning.callbacks import Callback
    except ModuleNotFoundError:
        raise missing("lightning", error) from None

__all__ = ["HistoryCallback", "read_outputs"]


def read_outputs(outputs: Any, batch: Any) -> tuple[Any, Any]:
    """Logits and labels by convention: `validation_step` returns a dict with ``logits``, and ``labels`` if need be.

    Without ``labels`` they are the second part of the batch, as in `(images, labels)`, or its entry ``labels``.

    >>> read_outputs({"loss": 0.7, "logits": [[0.1, 0.2]]}, ("images", [1]))
    ([[0.1, 0.2]], [1])
    >>> read_outputs(0.7, ("images", [1]))
    Traceback (most recent call last):
    ...
    ValueError: validation_step returned a float without "logits": return {"loss": loss, "logits": logits, ...
    """
    if not isinstance(outputs, Mapping) or outputs.get("logits") is None:
        found = f"a dict with {', '.join(map(str, outputs))}" if isinstance(outputs, Mapping) else _name(outputs)
        raise ValueError(
            f'validation_step returned {found} without "logits": return {{"loss": loss, "logits": logits, "labels": '
            "labels}, or give HistoryCallback(read=...), a function of outputs and batch that finds logits and labels"
        )
    if outputs.get("labels") is not None:
        return outputs["logits"], outputs["labels"]
    if isinstance(batch, Mapping) and "labels" in batch:
        return outputs["logits"], batch["labels"]
    if isinstance(batch, Sequence) and not isinstance(batch, str) and len(batch) >= 2:
        return outputs["logits"], batch[1]
    raise ValueError(
        f'there are no labels in what validation_step returned, nor in the batch, {_name(batch)}: return "labels" '
        "beside the logits, or give HistoryCallback(read=...), a function of outputs and batch"
    )


class HistoryCallback(Callback):
    """Every validation becomes an evaluation of a history, and its means are logged as ``wane/accuracy``, ``wane/ctl``.

    The sanity check is left out. The history is part of the checkpoint: a fit that is resumed ends with the same one.
    With several processes it holds the samples of all; `DistributedSampler` may show a few of them twice.

    Args:
        history: where to record; default: a new one, by class. With a history by domain, say
            `History(names=["code", "prose"], kind="domain")`, the domains are the validation data loaders, in order.
        read: finds `(logits, labels)` in what `validation_step` returned and in the batch; see `read_outputs`.
        log: the signals to log, as means over samples. `EarlyStopping(monitor="wane/ctl", mode="max")` works.
        split: what to call the validation data in the history.
        ignore_index: the label of padding.
        folder: if given, it becomes a run folder, as of `wane.save_run`, with the report of every fit's end.

    Attributes:
        history: what was recorded.
        task: the task that is being learnt; set it before the `fit` of each.
    """

    def __init__(
        self,
        history: History | None = None,
        *,
        read: Callable[[Any, Any], tuple[Any, Any]] = read_outputs,
        log: Sequence[str] = tuple(SIGNALS),
        split: str = "test",
        ignore_index: int | None = -100,
        folder: str | os.PathLike[str] | None = None,
    ) -> None:
        super().__init__()
        for signal in log:
            SIGNALS[signal]  # an unknown name fails here, with the nearest one
        self.recorder = Recorder(new_history(history), ignore_index=ignore_index, folder=folder)
        self.read, self.logged, self.split = read, tuple(log), split

    @property
    def history(self) -> History:
        """What was recorded."""
        return self.recorder.history

    @property
    def task(self) -> int:
        """The task that is being learnt."""
        return self.recorder.task

    @task.setter
    def task(self, task: int) -> None:
        self.recorder.task = task

    @property
    def state_key(self) -> str:
        """Two callbacks of different splits have different places in a checkpoint."""
        return str(self._generate_state_key(split=self.split))

    def on_validation_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        """Begin an evaluation: what an interrupted one left is dropped."""
        self.recorder.drop()

    def on_validation_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        """Score the batch; of the sanity check, see only whether logits and labels are there."""
        logits, labels = self.read(outputs, batch)
        if not trainer.sanity_checking:
            self.recorder.update(logits, labels, group=dataloader_idx)

    def on_validation_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Record the evaluation, and log its means."""
        if trainer.sanity_checking:
            return
        means = self.recorder.finish(split=self.split)
        if means:
            # the same in all processes: nothing is left to reduce, which is what Lightning warns of otherwise
            pl_module.log_dict({f"wane/{name}": means[name] for name in self.logged}, sync_dist=True)

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        """Write the report."""
        self.recorder.report()

    def state_dict(self) -> dict[str, Any]:
        """What the checkpoint keeps."""
        return self.recorder.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on where the checkpoint was written."""
        self.recorder.load_state_dict(state_dict)


def _name(value: Any) -> str:
    kind = type(value).__name__
    article = "an" if kind[0] in "aeiou" else "a"
    return "None" if value is None else f"{article} {kind}"
