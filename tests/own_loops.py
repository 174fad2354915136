"""A training loop that knows nothing of the lab: digits, five tasks of two, plain torch, with and without replay."""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from torch.nn import functional as F

import wane

TASKS = [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]
NAMES = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
EPOCHS = 3


def digits():
    """Training rows and labels, test rows and labels."""
    images, labels = load_digits(return_X_y=True)
    rows, labels = torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels)
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))
    train, test = order[:900], order[1300:]
    return rows[train], labels[train], rows[test], labels[test]


def train(method, seed, *, everything=False, split="test"):
    """The history of a run, and the logits of its last evaluation with their labels.

    Args:
        method: "plain", or "rehearsal" with a memory of 20 rows a task, drawn by a trend sampler without any guard.
        seed: of weights and order.
        everything: whether classes that were not taught yet are recorded, too.
        split: under which name the test rows are recorded.
    """
    train_rows, train_labels, test_rows, test_labels = digits()
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(64, 48), torch.nn.ReLU(), torch.nn.Linear(48, 10))
    history = wane.History(
        class_to_task=[c // 2 for c in range(10)], names=NAMES, method=method, seed=seed, data="digits"
    )
    sampler, memory = wane.TrendSampler("ctl", window=3), torch.empty(0, dtype=torch.long)
    for task, classes in enumerate(TASKS):
        optimiser = torch.optim.SGD(model.parameters(), lr=0.2)
        mine = torch.isin(train_labels, torch.tensor(classes)).nonzero()[:, 0]
        for epoch in range(EPOCHS):
            replayed = wane.ClassMetrics(10)
            if method == "rehearsal":
                draw = sampler.probabilities(history, task=task)
            for rows in mine[torch.randperm(len(mine), generator=generator)].split(32):
                chosen = rows
                if method == "rehearsal" and len(memory):
                    weights = draw[train_labels[memory]]
                    picked = torch.multinomial(weights, 32, replacement=True, generator=generator)
                    chosen = torch.cat([rows, memory[picked]])
                logits = model(train_rows[chosen])
                optimiser.zero_grad()
                F.cross_entropy(logits, train_labels[chosen]).backward()
                optimiser.step()
                replayed.update(logits[len(rows) :].detach(), train_labels[chosen[len(rows) :]])
            if len(memory) and method == "rehearsal":
                history.record(replayed, step=epoch, task=task, split="replay")
            there = test_labels >= 0 if everything else test_labels <= max(classes)
            with torch.no_grad():
                logits, labels = model(test_rows[there]), test_labels[there]
            metrics = wane.ClassMetrics(10)
            metrics.update(logits, labels)
            history.record(metrics, step=epoch, task=task, split=split)  # steps begin anew with every task
        memory = torch.cat([memory, mine[torch.randperm(len(mine), generator=generator)[:20]]])
    return history, logits, labels
