"""Our methods against their peers' own code: the same weights after every task, to 1e-5.

`peers.json` holds what Mammoth's code made of `parity_problem`, recorded by `record_peers.py`.
"""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from learners.parity_problem import (
    CLASSES,
    LOT,
    RATE,
    TASKS,
    Network,
    Step,
    known_logits,
    problem,
    views_of,
    weights_of,
)

from wane.learners import Batch, Scene, build_learner
from wane.learners.gradients import trained
from wane.memory import Memory
from wane.streams import Task

PEERS = json.loads(Path(__file__).with_name("peers.json").read_text(encoding="utf-8"))
#: Our names of their arguments.
OPTIONS = {
    "er_ace": {},
    "der": {"alpha": 0.3},
    "derpp": {"alpha": 0.3, "beta": 0.5},
    "xder": {
        "alpha": 0.6,
        "beta": 0.9,
        "gamma": 0.85,
        "views": 3,
        "contrast": 0.5,
        "eta": 0.3,
        "margin": 0.5,
        "align_bn": False,
    },
    "agem": {},
    "gem": {"gamma": 0.5},
    "si": {"c": 0.5, "xi": 1.0},
    "lwf": {"alpha": 1.0, "temperature": 2.0},
    "lwf_mc": {"weight_decay": 1e-5},
    "icarl": {"weight_decay": 1e-5},
}


def batch_of(step: Step, task: int, learner: object, stored: dict[str, torch.Tensor]) -> Batch:
    """The rows of a step as the loop would put them together for this method."""
    p = problem()
    draws = [step.first, step.second][: learner.draws or learner.has_memory()] if task >= learner.first_replay else []
    if learner.replay == "whole" and draws:
        draws = [torch.arange(12 * task)]
    draws = [slots for slots in draws if len(slots)]
    images = torch.cat([step.rows, *(p.memory[slots] for slots in draws)])
    labels = torch.cat([step.labels, *(p.labels[slots] for slots in draws)])
    slots = torch.cat([torch.full_like(step.labels, -1), *draws])
    tasks = torch.cat([torch.full_like(step.labels, task), *(p.tasks[s] for s in draws)])
    draw = torch.cat([torch.full_like(s, k) for k, s in enumerate([step.labels, *draws])])
    sizes = [len(step.rows), *map(len, draws)] if learner.means == "draw" else [len(step.rows), *[12] * task]
    edges = torch.tensor([0, *sizes]).cumsum(0).tolist()
    parts = [slice(a, b) for a, b in pairwise(edges)] if learner.means != "one" and draws else ()
    extras = {name: torch.cat([column.new_zeros(len(step.rows), *column.shape[1:]), *(column[s] for s in draws)])
              for name, column in stored.items()}  # fmt: skip
    views = views_of(images, learner.views()) if learner.views() else None
    return Batch(images, labels, tasks, draw, slots, len(step.rows), extras, parts=tuple(parts), views=views)


def weights_after_each_task(name: str) -> list[torch.Tensor]:
    learner = build_learner(name, Network(), CLASSES, OPTIONS[name])
    memory = Memory(24, (1,), CLASSES, extras={"logits": (CLASSES,), "drawn": ()})
    memory.extras["logits"].copy_(known_logits() if name == "xder" else problem().logits)
    found = []
    for index, classes in enumerate(TASKS):
        empty = torch.empty(0, dtype=torch.int64)
        task = Task(index=index, name=f"task {index + 1}", classes=classes, train=empty, test=empty)
        seen = tuple(c for own in TASKS[: index + 1] for c in own)
        scene = Scene(task, 0, seen, None, batches=lambda: iter(()), remembered=lambda: iter(()), classes=TASKS)
        learner.begin_task(scene)
        memory.extras["drawn"].zero_()
        learner.train()
        optimiser = torch.optim.SGD(trained(learner), lr=RATE)
        for step in problem().steps[index]:
            batch = batch_of(step, index, learner, memory.extras)
            observed = learner.observe(batch)
            optimiser.zero_grad()
            learner.backward([observed.losses[part].mean() for part in batch.parts], observed.penalty, batch)
            learner.after_backward(batch)
            optimiser.step()
            learner.after_step(batch)
            if learner.rewrites:
                extras = learner.extras_of(batch, observed)
                memory.rewrite(batch.slots[batch.new :], {k: v[batch.new :] for k, v in extras.items()})
        if name == "si":
            learner.end_task(scene)
        found.append(weights_of(learner.model))
    return found


@pytest.mark.parametrize("name", OPTIONS)
def test_the_same_weights_as_the_peers_own_code(name, monkeypatch):
    if name == "xder":
        monkeypatch.setattr(torch, "rand", lambda n, generator: torch.full((n,), LOT))
    ours = weights_after_each_task(name)
    theirs = torch.tensor(PEERS["weights"][name])
    start = weights_of(Network())
    for task, (mine, peer) in enumerate(zip(ours, theirs, strict=True)):
        assert (mine - peer).abs().max() < 1e-5, f"{name} departs from the peer in task {task + 1}"
        assert (peer - start).abs().max() > 1e-2  # it has learnt something
