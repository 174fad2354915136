"""Four classes of 6 x 6 images in two tasks: a whole run of the lab in a fraction of a second."""

import io
import json

import numpy as np
import polars as pl
import torch
from torch import nn

from wane.runs.config import build_config
from wane.streams import from_arrays, with_holdout
from wane.training.events import Listener
from wane.training.run import run

BASE = {
    "data": {"tasks": 2, "padding": 1, "flip": True},
    "model": {"name": "mlp", "hidden": [16]},
    "learner": {"name": "er", "epochs": 3, "batch_size": 10, "replay_size": 6, "lr": 0.1},
    "memory": {"capacity": 12},
}
EPOCHS, STEPS = 6, 24  # of the whole run: 2 tasks x 3 epochs x 4 batches


def tiny_config(**layers):
    return build_config(BASE, layers)


def tiny_dataset(*, classes=4, train=20, test=10, noise=0.5, holdout=0, class_names=None):
    """Each class is a fixed pattern under noise; separable, also by a linear model."""
    generator = torch.Generator().manual_seed(0)
    patterns = torch.rand(classes, 1, 6, 6, generator=generator)

    def split(n):
        labels = torch.arange(classes).repeat(n)  # not sorted by class
        pixels = (1 - noise) * patterns[labels] + noise * torch.rand(len(labels), 1, 6, 6, generator=generator)
        return (pixels * 255).to(torch.uint8), labels

    dataset = from_arrays(*split(train), *split(test), layout="NCHW", class_names=class_names, name="tiny")
    return with_holdout(dataset, holdout) if holdout else dataset


class DropoutNet(nn.Module):
    """Random numbers of the global generator in every training pass, and buffers that change (batch norm)."""

    def __init__(self, classes=4):
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(36, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.5))
        self.head = nn.Linear(16, classes)

    def features(self, x):
        return self.body(x)

    def forward(self, x):
        return self.head(self.body(x))


def dropout_net():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        return DropoutNet()


class StoppedError(Exception):
    """The run is torn down from outside."""


class Stopper(Listener):
    """Ends the run after so many epochs, or so many steps, of this sitting."""

    def __init__(self, *, epochs=None, steps=None):
        self.left = {"epochs": epochs, "steps": steps}

    def step_done(self, session, rows):
        self._count("steps")

    def epoch_done(self, session, task, epoch):
        self._count("epochs")

    def _count(self, what):
        if self.left[what] is not None:
            self.left[what] -= 1
            if self.left[what] == 0:
                raise StoppedError


class Keeper(Listener):
    """Keeps the learners that runs made, in order."""

    def __init__(self):
        self.learners = []

    def run_started(self, session):
        self.learners.append(session.learner)


def stop(config, folder, *, model=None, dataset=None, listeners=(), **when):
    """A sitting that is stopped; fails if it was not."""
    try:
        run(config, folder, dataset=dataset, model=model, listeners=[*listeners, Stopper(**when)])
    except StoppedError:
        return
    raise AssertionError("the run ended before it could be stopped")


def results(folder):
    """Everything that must not depend on how a run was interrupted, to the byte where it is written at once."""
    summary = json.loads((folder / "summary.json").read_text())
    for irrelevant in ("seconds", "machine", "versions"):
        del summary[irrelevant]
    found = {"history": (folder / "history.parquet").read_bytes(), "summary": summary}
    for name in ("samples", "recovery"):
        if (folder / f"{name}.parquet").exists():
            found[name] = pl.read_parquet(folder / f"{name}.parquet", glob=False).serialize(format="json")
    if (folder / "flow.npz").exists():
        with np.load(folder / "flow.npz") as flow:
            found["flow"] = {name: flow[name].tobytes() for name in flow.files}
    for name in ("replay", "ladder"):
        if (folder / f"{name}.parquet").exists():
            found[name] = (folder / f"{name}.parquet").read_bytes()
    return found


def damaged(data, kind):
    """What may become of a file."""
    return {"empty": b"", "half": data[: len(data) // 2], "noise": bytes(len(data)), "tail": data[:-1]}[kind]


def saved_tensor_bytes(value):
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()
