"""Hugging Face's Trainer: signals instead of logits, and a history by class or by evaluation set.

The Trainer keeps whatever it is given until an evaluation ends: 500 texts of 1,024 tokens and 128,256 words are 245 GiB
of logits, but 18 MB of signals.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from wane.measures.group_metrics import ClassMetrics, GroupMetrics
from wane.measures.history import History
from wane.plugins import missing
from wane.plugins.recorder import Recorder, new_history
from wane.softmax.registry import SIGNALS
from wane.softmax.signals import Signals, signals

try:
    from transformers import TrainerCallback
except ModuleNotFoundError as error:
    raise missing("transformers", error) from None

__all__ = ["HistoryCallback", "token_signals"]

#: Of labels that do not count, and what the Trainer fills up arrays of different lengths with.
PADDING = -100
#: In a checkpoint of the Trainer.
FILE = "wane_history.parquet"
#: The Trainer has an `eval_loss` of its own, a mean over batches; this one is over samples, or tokens.
LOSS = "mean_loss"


def token_signals(logits: Any, labels: Tensor, *, shift: bool) -> Tensor:
    """(..., signals and rank) in the shape of the labels; rank 0 where there is nothing to predict, or padding.

    Args:
        logits: (N, C) or (B, T, V); of a tuple, the first, as models put further outputs behind.
        labels: (N,) or (B, T), -100 for padding.
        shift: whether logits at t are for the label at t + 1, as in a causal language model.

    >>> logits = torch.tensor([[[3.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]])
    >>> token_signals(logits, torch.tensor([[2, 0, 2]]), shift=True)[..., -1]  # the rank; nothing predicts the first
    tensor([[0., 1., 2.]])
    """
    scores = logits[0] if isinstance(logits, tuple | list) else logits
    if not isinstance(labels, Tensor):
        raise TypeError(f"labels are a {type(labels).__name__}: give the Trainer one label_names, that of the classes")
    wanted = torch.cat([labels[:, 1:], torch.full_like(labels[:, :1], PADDING)], dim=1) if shift else labels
    scored = torch.stack([value.float() for value in signals(scores, wanted, ignore_index=PADDING)], dim=-1)
    return scored.roll(1, dims=1) if shift else scored


class HistoryCallback(TrainerCallback):
    """Every evaluation of a Trainer becomes one of a history.

    The Trainer is given it three times: `callbacks=[callback]`, `preprocess_logits_for_metrics=callback.preprocess` and
    `compute_metrics=callback.compute_metrics`. Without the last the Trainer looks at the loss alone, and asks for
    neither of the others.

    Args:
        history: where to record; default: a new one, by class. With a history by domain, say
            `History(names=["code", "prose"], kind="domain")`, the domains are the names of a dict of evaluation sets.
            With a dict and a history by class, these names are the splits.
        shift: whether logits at t are for the label at t + 1; default: as the model is, True for causal ones.
        split: what to call the evaluation data in the history, unless they have names of their own.
        folder: if given, it becomes a run folder, as of `wane.save_run`, with the report of every training's end.

    Attributes:
        history: what was recorded. A checkpoint of the Trainer has a copy, from which a resumed training goes on.
        task: the task that is being learnt; set it before the `train` of each.
    """

    def __init__(
        self,
        history: History | None = None,
        *,
        shift: bool | None = None,
        split: str = "test",
        folder: str | os.PathLike[str] | None = None,
    ) -> None:
        self.recorder = Recorder(new_history(history), ignore_index=PADDING, folder=folder)
        self.shift, self.split = shift, split
        self._classes = 0
        self._metrics: GroupMetrics | None = None  # of the evaluation set that is being looked at
        self._domains: dict[int, GroupMetrics] = {}  # those of this evaluation that were
        self._at = -1

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

    def preprocess(self, logits: Any, labels: Tensor) -> Tensor:
        """For `preprocess_logits_for_metrics`: the signals in place of the logits."""
        if self.shift is None:
            raise ValueError(
                "the callback has not seen the model: give it to the Trainer, callbacks=[callback], or say "
                "HistoryCallback(shift=True) for a causal language model, else shift=False"
            )
        self._classes = (logits[0] if isinstance(logits, tuple | list) else logits).shape[-1]
        return token_signals(logits, labels, shift=self.shift)

    def compute_metrics(self, prediction: Any, compute_result: bool = True) -> dict[str, float]:
        """The means over samples, or tokens; the loss is called ``mean_loss``. With `batch_eval_metrics` too."""
        rows, labels = torch.as_tensor(prediction.predictions), torch.as_tensor(prediction.label_ids)
        if rows.shape[-1] != len(SIGNALS) + 1 or rows.shape[:-1] != labels.shape:
            raise ValueError(
                f"predictions have shape {tuple(rows.shape)} and labels {tuple(labels.shape)}: these are not the "
                "signals; give the Trainer preprocess_logits_for_metrics=callback.preprocess as well"
            )
        counted = rows[..., -1] > 0  # neither padding, nor what a causal model does not predict
        scored = Signals(*rows[counted][:, :-1].unbind(1), rows[counted][:, -1].long())
        if self._metrics is None:
            # the Trainer has gathered the samples of all processes: nothing is left to sum
            by_class = self.recorder.by_class
            size = self._classes if by_class else 1
            self._metrics = (ClassMetrics if by_class else GroupMetrics)(size, sync_on_compute=False).to(rows.device)
        if isinstance(self._metrics, ClassMetrics):
            self._metrics.update(labels=labels[counted], scored=scored)
        else:
            self._metrics.update(groups=torch.zeros_like(scored.rank), scored=scored)
        if not compute_result:
            return {}
        totals = self._metrics.sums.sum(0) / self._metrics.counts.sum()
        return {LOSS if name == "loss" else name: value for name, value in zip(SIGNALS, totals.tolist(), strict=True)}

    def on_init_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """See from the model whether it is causal."""
        if self.shift is None:
            model = kwargs["model"]
            generates = getattr(model, "can_generate", lambda: False)
            self.shift = bool(generates()) and not getattr(model.config, "is_encoder_decoder", False)

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Record an evaluation set, or wait for the others of the same evaluation."""
        metrics, self._metrics = self._metrics, None
        if metrics is None:
            return
        domains = () if self.recorder.by_class else self.history.names or ()
        name = _evaluation_set(kwargs["metrics"], domains)
        if self.recorder.by_class:
            self.recorder.record(metrics, split=name or self.split)
            return
        group = self.recorder.group_of(name)
        if group in self._domains or state.global_step != self._at:
            self._flush()
        self._domains[group], self._at = metrics, state.global_step
        if len(self._domains) == len(domains):
            self._flush()

    def on_predict(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """`predict` is no evaluation: what it measured is dropped."""
        self._metrics = None

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Put the history into the checkpoint."""
        self._flush()
        if state.is_world_process_zero:
            self.history.write(_checkpoint(args, state) / FILE)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Where training is resumed, go on with the history of the checkpoint."""
        if state.global_step and (_checkpoint(args, state) / FILE).exists():
            vars(self.history).update(vars(History.read(_checkpoint(args, state) / FILE)))

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Record what is left of an evaluation of some domains only, and write the report."""
        self._flush()
        self.recorder.report()

    def _flush(self) -> None:
        domains, self._domains = self._domains, {}
        if not domains:
            return
        sums = np.zeros((len(self.history.names or ()), len(SIGNALS)))
        n = np.zeros(len(sums), dtype=np.int64)
        for group, metrics in domains.items():
            sums[group], n[group] = metrics.sums[0].cpu().numpy(), int(metrics.counts[0])
        with np.errstate(invalid="ignore"):
            means = dict(zip(SIGNALS, (sums / n[:, None]).T, strict=True))
        self.recorder.record({"n": n, **means}, split=self.split)


def _evaluation_set(metrics: Mapping[str, Any], names: Sequence[str]) -> str:
    """The name of the evaluation set that these metrics are of, which is only in their prefix; empty if it has none.

    >>> _evaluation_set({"eval_code_mean_loss": 1.0, "eval_code_runtime": 2.0}, ["code", "prose"])
    'code'
    >>> _evaluation_set({"eval_mean_loss": 1.0}, [])
    ''
    """
    prefix = next(key for key in metrics if key.endswith(f"_{LOSS}")).removesuffix(f"_{LOSS}")
    known = [name for name in names if prefix.endswith(f"_{name}")]
    return max(known, key=len) if known else prefix.partition("_")[2]


def _checkpoint(args: Any, state: Any) -> Path:
    return Path(args.output_dir) / f"checkpoint-{state.global_step}"
