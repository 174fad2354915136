"""What a method keeps of the past, in bytes: rows, what is stored with them, and state besides the network."""

from __future__ import annotations

from torch import Tensor, nn

from wane.training.session import Session

__all__ = ["kept_bytes"]


def kept_bytes(session: Session) -> dict[str, int]:
    """Bytes that a method keeps beside its network when a run ends; a table of methods compares them.

    ``rows``: the memory's slots, filled or not, with labels, tasks and steps; for a method that trains on all earlier
    tasks, their rows. ``extras``: what is stored with the slots, such as logits. ``state``: all tensors of the learner
    that are not the network: old networks, importances, further columns, embeddings, class means.
    """
    memory, learner = session.memory, session.learner
    rows = extras = 0
    if memory is not None:
        extras = sum(column.nbytes for column in memory.extras.values())
        rows = sum(column.nbytes for column in memory.state_dict().values()) - extras
    if learner.rows == "seen":
        images, labels = session.dataset.train.images, session.dataset.train.labels
        row = images[:1].nbytes + labels[:1].nbytes
        rows += row * sum(len(task.train) for task in list(session.stream)[:-1])
    return {"rows": rows, "extras": extras, "state": size_of(learner) - size_of(learner.model)}


def size_of(module: nn.Module) -> int:
    """Bytes of all parameters and buffers, each once, however often it is registered.

    >>> layer = nn.Linear(3, 2)
    >>> size_of(layer), size_of(nn.ModuleList([layer, layer]))
    (32, 32)
    """
    tensors: list[Tensor] = [*module.parameters(), *module.buffers()]
    return sum(tensor.nbytes for tensor in tensors)
