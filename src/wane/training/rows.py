"""The rows of a split, wherever they are kept, and the logits that the learner gives them."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from wane.memory import rows_set_aside
from wane.streams import Split, Task, eval_batch
from wane.training.session import Session, answers

__all__ = ["BATCH", "logits_of", "rows_of"]

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


def logits_of(session: Session, data: Split, rows: Tensor, tasks: Tensor) -> Tensor:
    """(n, C) float32 logits of some rows; in eval mode, and without gradients, if that is how it is called."""
    dataset, layout = session.dataset, session.state.channels_last
    parts = [
        answers(
            session.learner,
            eval_batch(data.images, part, dataset.mean, dataset.std, channels_last=layout),
            tasks[part],
        ).float()
        for part in torch.split(rows, BATCH.get(session.device.type, 1024))
    ]
    return torch.cat(parts)
