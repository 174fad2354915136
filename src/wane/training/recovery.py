"""How fast a lost class comes back: a copy of the model is fine-tuned on a handful of its images, step by step.

At the end of a task, every class of an earlier task whose test accuracy is at most `record.recovery.below` gets a copy
of its own; the run itself is not affected. The copy stays in eval mode: batch norm keeps the
statistics that it is evaluated with, since those of five images of one class would replace what the stream left there,
and the recovery would then be that of the statistics. So nothing in it is random but which images it sees, and those
come from a generator of the class's own. Images are not augmented.

Alone with one class, every step also makes the model answer with that class whatever it sees. So a second number is
noted beside the class's accuracy: how many images of *other* classes are answered with it. And with `beside` the loss
of rows of other classes from the memory is added, which holds the others in place.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from wane.learners import Learner
from wane.runs.sections import RecoverySettings
from wane.softmax.signals import signals
from wane.streams import Task, eval_batch
from wane.training.groups import score_within
from wane.training.session import Session, answers

if TYPE_CHECKING:
    import polars

__all__ = ["fine_tune", "record_recovery"]


def record_recovery(session: Session, task: Task) -> polars.DataFrame:
    """The recovery of every lost class, from the model as it is and the evaluation that was recorded last.

    A row for each class, number of rows `beside` it, and step k of its fine-tune, k = 0 being before: step, task,
    class, class_task, n (its test images), the eight signals *before*, beside, k, `recovered` (the class's accuracy)
    and `taken` (the share of as many images of other seen classes that are answered with it).
    """
    import polars as pl

    settings, stream = session.config.record.recovery, session.stream
    assert settings is not None
    (before,) = session.state.history.tail(1, split=session.split)
    recorded = session.state.history.signals
    columns = {"step": pl.Int64, "task": pl.Int64, "class": pl.Int64, "class_task": pl.Int64, "n": pl.Int64,
               **dict.fromkeys(recorded, pl.Float64), "beside": pl.Int64, "k": pl.Int64, "recovered": pl.Float64,
               "taken": pl.Float64}  # fmt: skip
    rows: list[tuple[Any, ...]] = []
    signals_before = np.stack([session.state.history.column(before, name) for name in recorded], axis=1).tolist()
    accuracy = session.state.history.column(before, "accuracy").tolist()
    for c, n, right, values in zip(before.classes.tolist(), before.n.tolist(), accuracy, signals_before, strict=True):
        class_task = int(stream.class_to_task[c])
        if class_task == task.index or right > settings.below:
            continue
        for beside in settings.beside:
            if beside and session.memory is None:
                continue  # a learner without memory has nothing to put beside
            curve = _curve(session, settings, task, c, beside)
            rows += [(before.step, task.index, c, class_task, n, *values, beside, k, *at) for k, at in enumerate(curve)]
    return pl.DataFrame(rows, schema=columns, orient="row")


def fine_tune(
    learner: Learner, images: Tensor, labels: Tensor, *, steps: int, lr: float, class_to_task: Tensor | None = None,
    beside: Iterator[tuple[Tensor, Tensor]] | None = None,
) -> Iterator[Learner]:  # fmt: skip
    """A copy of the learner in eval mode, before and after each step of plain SGD on all `images` at once.

    The loss is the mean cross-entropy of the images, plus that of the next batch `beside`; gradients go through
    `predict`, since that is what answers. The learner itself is left alone. One that must be told the task of each row
    needs `class_to_task`.

    >>> learner = Learner(torch.nn.Linear(2, 3), 3)
    >>> len([*fine_tune(learner, torch.ones(5, 2), torch.zeros(5, dtype=torch.int64), steps=20, lr=0.1)])
    21
    """
    tuned = copy.deepcopy(learner).eval()

    def logits_of(rows: Tensor, classes: Tensor) -> Tensor:
        return answers(tuned, rows, classes if class_to_task is None else class_to_task[classes])

    optimiser = torch.optim.SGD([p for p in tuned.parameters() if p.requires_grad], lr=lr)
    yield tuned
    for _ in range(steps):
        optimiser.zero_grad()
        logits = logits_of(images, labels)
        if not logits.requires_grad:
            raise ValueError(f"what {type(learner).__name__} predicts has no gradient, so it cannot be fine-tuned: "
                             "leave record.recovery out for it")  # fmt: skip
        loss = F.cross_entropy(logits, labels)
        if beside is not None:
            others, their_labels = next(beside)
            loss = loss + F.cross_entropy(logits_of(others, their_labels), their_labels)
        torch.autograd.backward(loss)
        optimiser.step()
        yield tuned


def _curve(session: Session, settings: RecoverySettings, task: Task, c: int, beside: int) -> list[tuple[float, float]]:
    """(accuracy of the class, share of other images answered with it) before and after each step."""
    config, stream, dataset, memory = session.config, session.stream, session.dataset, session.memory
    look: Any = {"mean": dataset.mean, "std": dataset.std, "channels_last": session.state.channels_last}
    seed = int(np.random.SeedSequence([config.seed, c]).generate_state(1)[0])
    generator = torch.Generator().manual_seed(seed)  # the same images at the end of every task

    def some(of: Tensor, count: int) -> Tensor:
        return of[torch.randperm(len(of), generator=generator)[:count].to(of.device)]

    labels, tested = dataset.train.labels, dataset.test.labels
    handful = some((labels == c).nonzero()[:, 0], settings.samples)
    own = (tested == c).nonzero()[:, 0]
    seen = stream.class_to_task[tested] <= task.index
    probe = torch.cat([own, some((seen & (tested != c)).nonzero()[:, 0], len(own))])
    shown = eval_batch(dataset.test.images, probe, **look)

    def replayed() -> Iterator[tuple[Tensor, Tensor]]:
        assert memory is not None
        slots = (memory.labels[: len(memory)] != c).nonzero()[:, 0]
        while True:
            drawn = some(slots, beside)
            yield eval_batch(memory.images, drawn, **look), memory.labels[drawn]

    classes = session.competing_classes(task)
    curve = []
    images = eval_batch(dataset.train.images, handful, **look)
    lr = config.learner.lr / 50 if settings.lr is None else settings.lr
    shown_tasks = stream.class_to_task[tested[probe]]
    for tuned in fine_tune(session.learner, images, labels[handful], steps=settings.steps, lr=lr,
                           class_to_task=stream.class_to_task, beside=replayed() if beside else None):  # fmt: skip
        with torch.inference_mode():
            logits = answers(tuned, shown, shown_tasks).float()
            # "is it right" of the label c asks of any image whether it is answered with c
            asked = torch.full_like(probe, c)
            if session.learner.needs_task:
                said = score_within(stream, logits, asked).accuracy
            else:
                said = signals(logits, asked, classes=classes, validate=False).accuracy
        curve.append((float(said[: len(own)].double().mean()), float(said[len(own) :].double().mean())))
    return curve
