"""The rows of a split, wherever they are kept, and what they become on their way through the network."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from wane.learners import Learner
from wane.memory import rows_set_aside
from wane.models import Classifier
from wane.models.blocks import features_of, has_features, head_of
from wane.streams import Split, Task, eval_batch
from wane.training.session import Session, answers

__all__ = ["BATCH", "Passed", "answers_its_own_way", "pass_rows", "rows_of"]

#: The fastest batch of a forward pass on a CPU, where larger ones outgrow the caches; an accelerator wants more.
BATCH = {"cpu": 128}


def rows_of(session: Session, task: Task, split: str) -> tuple[Split, Tensor, Tensor]:
    """Where the rows of a split are, which of them are asked for while `task` is learnt, and the task of every row.

    Of ``"memory"`` these are all slots that are replayed, of ``"memory_holdout"`` those that are not, of the others the
    rows of the tasks so far, of ``"future"`` those of the others and of ``"untrained"`` all.
    """
    dataset, stream = session.dataset, session.stream
    if split == "memory" or (split == "memory_holdout" and session.config.memory.holdout_replayed):
        memory = session.memory
        assert memory is not None
        kept, tasks = Split(memory.images, memory.labels), memory.tasks
        slots = torch.arange(len(memory), device=session.device)
        return kept, slots if split == "memory" else _some_slots(session), tasks
    if split == "memory_holdout":
        return dataset.train, session.set_aside[task.index], stream.tasks_of("train")
    data, name = (dataset.holdout, "holdout") if split == "holdout" else (dataset.test, "test")
    assert data is not None
    tasks = stream.tasks_of(name)
    last = len(stream) if split == "untrained" else task.index
    return data, (tasks > task.index if split == "future" else tasks <= last).nonzero()[:, 0], tasks


def _some_slots(session: Session) -> Tensor:
    """As many slots as would be set aside, chosen likewise, but among those that are replayed."""
    memory, config = session.memory, session.config
    assert memory is not None
    assert config.memory.holdout is not None
    filled = len(memory)
    wanted = round(config.memory.capacity * config.memory.holdout)
    seed = int(np.random.SeedSequence([config.seed, session.state.position.step]).generate_state(1)[0])
    groups = session.stream.groups(memory.labels[:filled], memory.tasks[:filled]).cpu().numpy()
    (slots,) = rows_set_aside(groups, np.zeros_like(groups), wanted, torch.Generator().manual_seed(seed))
    return torch.from_numpy(slots).to(session.device)


class Passed(NamedTuple):
    """What some rows became on their way through the network."""

    features: Tensor | None  # (n, d) float32; None if not asked for, or for a network without a linear head
    logits: Tensor  # (n, C) float32 as the learner answers; empty if not asked for
    labels: Tensor  # (n,)


def pass_rows(
    session: Session, data: Split, rows: Tensor, tasks: Tensor, *, features: bool = False, logits: bool = True
) -> Passed:
    """Some rows of a split through the network, in eval mode and without gradients.

    `tasks` holds the task of every row of the split. The learner is back in its mode afterwards, no generator is
    touched.
    """
    learner, dataset, layout = session.learner, session.dataset, session.state.channels_last
    model, device, reduced = learner.model, session.device, session.config.precision == "bf16"
    features = features and has_features(model)
    # one pass gives both, unless the learner or its network answers in a way of its own
    through_head = features and isinstance(model, Classifier) and not answers_its_own_way(learner)
    kept: list[Tensor] = []
    said: list[Tensor] = []
    was_training = learner.training
    learner.eval()
    with torch.inference_mode(), torch.autocast(device.type, torch.bfloat16, enabled=reduced):
        for part in torch.split(rows, BATCH.get(device.type, 1024)):
            batch = eval_batch(data.images, part, dataset.mean, dataset.std, channels_last=layout)
            if features:
                kept.append(features_of(model, batch))
            if logits:
                said.append(head_of(model)(kept[-1]) if through_head else answers(learner, batch, tasks[part]))
        found = Passed(
            torch.cat(kept).float() if features else None,
            torch.cat(said).float() if logits else torch.empty(0, device=device),
            data.labels[rows],
        )
    learner.train(was_training)
    return found


def answers_its_own_way(learner: Learner) -> bool:
    """Whether a learner says something else than its network."""
    return type(learner).predict is not Learner.predict
