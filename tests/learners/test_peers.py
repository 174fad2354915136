"""Our methods against their peers' own code: the same weights after every task, to 1e-5.

`peers.json` holds what Mammoth's code made of `parity_problem`, recorded by `record_peers.py`; `more_peers.json` what
the code of the authors of HAT and Avalanche's made of it, recorded by `record_more_peers.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from learners.parity_problem import (
    CLASSES,
    FEATURES,
    HIDDEN,
    LOT,
    RATE,
    STEPS,
    TASKS,
    Network,
    Step,
    columns,
    embeddings,
    known_logits,
    problem,
    views_of,
    weights_of,
)
from torch import nn

from wane.learners import Batch, Learner, Scene, build_learner
from wane.learners.ewc import EWC
from wane.learners.gradients import trained
from wane.learners.hat import HAT
from wane.learners.si import SI
from wane.memory import Memory
from wane.models import Classifier, mlp
from wane.streams import Task

PEERS, MORE = (
    json.loads(Path(__file__).with_name(name).read_text(encoding="utf-8")) for name in ("peers.json", "more_peers.json")
)
THEIRS = {"online_ewc": "ewc_on"}
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
    "online_ewc": {"strength": 30.0, "gamma": 0.7},  # Mammoth has no factor 1/2
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


def scene_of(index: int) -> Scene:
    """A task of the problem; its pass over the task's rows gives those of all its steps."""
    empty = torch.empty(0, dtype=torch.int64)
    task = Task(index=index, name=f"task {index + 1}", classes=TASKS[index], train=empty, test=empty)
    seen = tuple(c for own in TASKS[: index + 1] for c in own)
    steps = problem().steps[index]
    rows = [Batch(s.rows, s.labels, s.labels, s.labels * 0, s.labels * 0 - 1, len(s.rows)) for s in steps]
    return Scene(task, 0, seen, None, lambda: ((b, b.images) for b in rows), lambda: iter(()), classes=TASKS)


def weights_after_each_task(
    learner: Learner, prepare: Callable[[int], None], weights: Callable[[int], torch.Tensor], logits: torch.Tensor
) -> list[torch.Tensor]:
    """What `weights` says after each task; `prepare` is called when the learner has begun one."""
    memory = Memory(24, (1,), CLASSES, extras={"logits": (CLASSES,), "drawn": ()})
    memory.extras["logits"].copy_(logits)
    found = []
    for index in range(len(TASKS)):
        scene = scene_of(index)
        learner.begin_task(scene)
        prepare(index)
        memory.extras["drawn"].zero_()
        learner.train()
        optimiser = torch.optim.SGD(trained(learner), lr=RATE)
        for k, step in enumerate(problem().steps[index]):
            batch = replace(batch_of(step, index, learner, memory.extras), epoch_progress=k / STEPS)
            observed = learner.observe(batch)
            optimiser.zero_grad()
            learner.backward([observed.losses[part].mean() for part in batch.parts], observed.penalty, batch)
            learner.after_backward(batch)
            optimiser.step()
            learner.after_step(batch)
            if learner.rewrites:
                extras = learner.extras_of(batch, observed)
                memory.rewrite(batch.slots[batch.new :], {k: v[batch.new :] for k, v in extras.items()})
        if isinstance(learner, (SI, EWC, HAT)):
            learner.end_task(scene)
        found.append(weights(index))
    return found


def agree(ours: list[torch.Tensor], theirs: list[list[float]]) -> None:
    """To 1e-5 after each task."""
    for task, (mine, peer) in enumerate(zip(ours, map(torch.tensor, theirs), strict=True)):
        assert mine.shape == peer.shape
        assert (mine - peer).abs().max() < 1e-5, f"departs from the peer in task {task + 1}"


@pytest.mark.parametrize("name", OPTIONS)
def test_the_same_weights_as_mammoths_own_code(name, monkeypatch):
    logits = problem().logits
    if name == "xder":
        monkeypatch.setattr(torch, "rand", lambda n, generator: torch.full((n,), LOT))
        logits = known_logits()
    learner = build_learner(name, Network(), CLASSES, OPTIONS[name])
    ours = weights_after_each_task(learner, lambda task: None, lambda task: weights_of(learner.model), logits)
    theirs = PEERS["weights"][THEIRS.get(name, name)]
    agree(ours, theirs)
    assert all((a - b).abs().max() > 3e-3 for a, b in pairwise([weights_of(Network()), *ours]))


def test_ewc_has_the_weights_of_avalanches():
    learner = build_learner("ewc", Network(), CLASSES, {"strength": 30.0})  # which has no factor 1/2
    ours = weights_after_each_task(learner, lambda t: None, lambda t: weights_of(learner.model), problem().logits)
    agree(ours, MORE["weights"]["ewc"])
    plain = build_learner("finetune", Network(), CLASSES)
    free = weights_after_each_task(plain, lambda t: None, lambda t: weights_of(plain.model), problem().logits)
    assert (free[2] - ours[2]).abs().max() > 1e-2  # the penalty matters


def put(layer: nn.Linear, weights: tuple[torch.Tensor, torch.Tensor]) -> None:
    with torch.no_grad():
        layer.weight.copy_(weights[0])
        layer.bias.copy_(weights[1])


def two_layers() -> Classifier:
    model = mlp(CLASSES, FEATURES, (HIDDEN, HIDDEN))
    for layer, weights in zip((model.body[1], model.body[3], model.head), columns()[0][:3], strict=True):
        put(layer, weights)
    return model


def test_hat_has_the_weights_and_gates_of_its_authors_code():
    settings = MORE["settings"]["hat"]
    learner = build_learner("hat", two_layers(), CLASSES, {"s_max": settings["smax"], "c": settings["lamb"]})
    start = embeddings()

    def prepare(task: int) -> None:
        with torch.no_grad():
            for e, value in zip(learner._embeddings(task), start[task], strict=True):
                e.copy_(value)

    def weights(task: int) -> torch.Tensor:
        gates = start.clone()
        for k in range(task + 1):
            gates[k] = torch.stack(list(learner._embeddings(k))).detach()
        return torch.cat([weights_of(learner.model), gates.reshape(-1)])

    ours = weights_after_each_task(learner, prepare, weights, problem().logits)
    agree(ours, MORE["weights"]["hat"])
    used = torch.cat(learner._used())
    assert 0.2 < float((used > 0.9).float().mean()) < 0.9  # so that some weights were held, and some were free
    assert all((a - b).abs().max() > 1e-2 for a, b in pairwise(ours))


def test_progressive_networks_have_the_weights_of_avalanches():
    learner = build_learner("pnn", two_layers(), CLASSES)

    def prepare(task: int) -> None:
        column, given = learner.columns[task], columns()[task]
        for layer, weights in zip((*column.layers, column.head), given[:3], strict=True):
            put(layer, weights)
        if task:
            put(column.adapters[0].reduce, given.reduce)
            with torch.no_grad():
                column.adapters[0].expand.weight.copy_(given.expand)

    def weights(task: int) -> torch.Tensor:
        column, own = learner.columns[task], list(TASKS[task])
        found = [p for layer in column.layers for p in (layer.weight, layer.bias)]
        found += [column.head.weight[own], column.head.bias[own]]
        for adapter in column.adapters:
            found += [adapter.alpha, adapter.reduce.weight, adapter.reduce.bias, adapter.expand.weight]
        return torch.cat([p.detach().reshape(-1) for p in found])

    agree(weights_after_each_task(learner, prepare, weights, problem().logits), MORE["weights"]["pnn"])
