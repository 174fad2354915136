"""Whole runs of Mammoth's own methods and buffers: `python record_runs.py MAMMOTH_CHECKOUT whole_runs.json`.

Mammoth's `observe`, `begin_task`, `end_task`, buffers and answers are driven by a loop of our own, with the images,
the initial weights and the augmentation of `whole_runs`; its data sets and its command line are not used. Then wane
does the same runs. Nothing of Mammoth is kept but accuracies. It needs Mammoth's own packages (torchvision, kornia),
and the real CIFAR-100 in WANE_DATA.
"""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from pathlib import Path
from unittest.mock import MagicMock

import numpy as np
import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).parent))
from whole_runs import (
    BATCH,
    CAPACITY,
    EPOCHS,
    METHODS,
    OPTIONS,
    PADDING,
    PER_CLASS,
    RATES,
    REPLAY,
    RESOLUTION,
    SEEDS,
    TASKS,
    WIDTH,
    config_of,
)

from wane.models import build_model
from wane.runs.config import build_config
from wane.streams import load_dataset
from wane.training.events import Listener
from wane.training.run import run

KINDS = {"er": "Er", "er_ace": "ErACE", "derpp": "Derpp", "icarl": "ICarl"}
ARGUMENTS = {
    "er_ace": {"use_custom_classifier": False, "task_free": False},
    "derpp": OPTIONS["derpp"],
    "icarl": {"opt_wd": OPTIONS["icarl"]["weight_decay"], "use_original_icarl_transform": 0,
              "compute_theoretical_best": 0},
}  # fmt: skip
CLASSES = 100


class Rows:
    """What Mammoth calls the data set of a loader: images as bytes, height x width x channels."""

    not_aug_transform = None

    def __init__(self, images: torch.Tensor, labels: torch.Tensor) -> None:
        self.data, self.targets = images.permute(0, 2, 3, 1).numpy(), labels.numpy()


class Loader:
    """Batches of augmented images, labels and plain images between 0 and 1, in a new random order each time."""

    def __init__(self, rows: Rows, augment) -> None:
        self.dataset, self.augment = rows, augment

    def __iter__(self):
        images = torch.from_numpy(np.ascontiguousarray(self.dataset.data)).permute(0, 3, 1, 2).float() / 255
        labels = torch.from_numpy(np.ascontiguousarray(self.dataset.targets))
        for rows in torch.randperm(len(labels)).split(BATCH):
            yield self.augment(images[rows]), labels[rows], images[rows]


class Data:
    """What Mammoth calls a data set, as far as these four methods look at it."""

    N_CLASSES, N_TASKS, N_CLASSES_PER_TASK, SETTING = CLASSES, TASKS, CLASSES // TASKS, "class-il"
    SIZE = (RESOLUTION, RESOLUTION)
    args = Namespace(buffer_size=CAPACITY)
    train_loader: Loader

    def __init__(self, normalise) -> None:
        self.normalise = normalise

    def get_offsets(self, task: int) -> tuple[int, int]:
        return task * self.N_CLASSES_PER_TASK, (task + 1) * self.N_CLASSES_PER_TASK

    def get_normalization_transform(self):
        return self.normalise


def mammoths(name: str, seed: int, data: Data):
    """Mammoth's method, with our network."""
    from backbone import MammothBackbone

    class Net(MammothBackbone):
        def __init__(self) -> None:
            super().__init__()
            self.inner = build_model("cnn", CLASSES, (3, RESOLUTION, RESOLUTION), seed=seed, width=WIDTH)
            self.classifier = self.inner.head

        def forward(self, x: torch.Tensor, returnt: str = "out") -> torch.Tensor:
            return self.inner.features(x) if returnt == "features" else self.inner(x)

        def parameters(self, recurse: bool = True):
            return self.inner.parameters(recurse)

    args = Namespace(
        lr=RATES[name], optimizer="sgd", optim_wd=0.0, optim_mom=0.0, optim_nesterov=False, optim_kwargs={},
        label_perc=1, batch_size=BATCH, minibatch_size=REPLAY, buffer_size=CAPACITY, device="cpu", dataset="none",
        debug_mode=0, nowand=1, **ARGUMENTS.get(name, {}),
    )  # fmt: skip
    kind = getattr(__import__(f"models.{name}", fromlist=["x"]), KINDS[name])
    return kind(Net(), F.cross_entropy, args, None, dataset=data)


class Chosen(Listener):
    """All that wane's DER++ chose at random in a run, and the network's state after each step."""

    def __init__(self, steps: int) -> None:
        self.steps, self.batches, self.slots, self.states = steps, [], [], []

    def run_started(self, session) -> None:
        observe, offer = session.learner.observe, session.memory.offer

        def observed(batch):
            self.batches.append(batch)
            return observe(batch)

        def offered(*args, **kwargs):
            self.slots.append(offer(*args, **kwargs))
            return self.slots[-1]

        session.learner.observe, session.memory.offer = observed, offered

    def step_done(self, session, rows) -> None:
        self.states.append(state_of(session.learner.model))
        if len(self.states) == self.steps:
            raise KeyboardInterrupt


class Given:
    """A buffer that gives and keeps rows as they were chosen elsewhere; the logits are those it was given."""

    def __init__(self, slots: list[torch.Tensor]) -> None:
        self.logits, self.slots, self.draws = torch.zeros(CAPACITY, CLASSES), list(slots), []

    def is_empty(self) -> bool:
        return not self.draws

    def get_data(self, *args: object, **kwargs: object) -> tuple[torch.Tensor, ...]:
        batch = self.draws.pop(0)
        return batch.images, batch.labels, self.logits[batch.slots]

    def add_data(self, examples: torch.Tensor, labels: torch.Tensor, logits: torch.Tensor) -> None:
        slots = self.slots.pop(0)
        self.logits[slots[slots >= 0]] = logits[slots >= 0]


def state_of(network: torch.nn.Module) -> torch.Tensor:
    """Weights and running statistics."""
    return torch.cat([value.reshape(-1).double() for value in network.state_dict().values()]).clone()


def same_choices(steps: int = 80) -> dict[str, float]:
    """How long Mammoth's DER++, given the rows, draws and slots of a run of wane, has the same network state.

    Until rounding tips a tie in max pooling, which no two orders of additions would settle alike.
    """
    chosen = Chosen(steps)
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(KeyboardInterrupt):
        run(build_config(config_of("derpp", 0)), Path(folder) / "run", listeners=[chosen])
    method = mammoths("derpp", 0, Data(None))
    method.buffer = buffer = Given(chosen.slots)
    method.net.train()
    before = 0.0
    for step, (batch, state) in enumerate(zip(chosen.batches, chosen.states, strict=True)):
        buffer.draws = [batch.part(k) for k in range(1, len(batch.parts))]
        new = batch.part(0)
        method.observe(new.images, new.labels, new.images)
        apart = float((state_of(method.net.inner) - state).abs().max())
        if apart > 1e-5:
            return {"steps": step, "difference": before, "then": apart}
        before = max(before, apart)
    return {"steps": steps, "difference": before, "then": 0.0}


def by_mammoth(name: str, seed: int, dataset) -> tuple[float, float]:
    """The mean over tasks of the final accuracy, class- and task-incremental, in percent."""
    from utils.kornia_utils import KorniaAugNoGrad

    mean, std = (torch.tensor(v).view(3, 1, 1) for v in (dataset.mean, dataset.std))

    def normalise(x: torch.Tensor) -> torch.Tensor:
        return (x - mean) / std

    class Augment(KorniaAugNoGrad):  # which Mammoth gives a whole batch at once
        def __init__(self) -> None:
            torch.nn.Module.__init__(self)

        def __call__(self, x: torch.Tensor) -> torch.Tensor:
            padded = F.pad(x, (PADDING,) * 4)
            top, left = torch.randint(2 * PADDING + 1, (2, len(x))).tolist()
            mirrored = (torch.rand(len(x)) < 0.5).tolist()
            cut = [p[:, t : t + RESOLUTION, s : s + RESOLUTION] for p, t, s in zip(padded, top, left, strict=True)]
            flipped = [c.flip(2) if m else c for c, m in zip(cut, mirrored, strict=True)]
            return normalise(torch.stack(flipped))

    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 which Mammoth draws from
    torch.manual_seed(seed)
    data, augment = Data(normalise), Augment()
    method = mammoths(name, seed, data)
    method.transform = augment
    for task in range(TASKS):
        low, high = data.get_offsets(task)
        own = (dataset.train.labels >= low) & (dataset.train.labels < high)
        data.train_loader = Loader(Rows(dataset.train.images[own], dataset.train.labels[own]), augment)
        method.net.train()
        method.meta_begin_task(data)
        for epoch in range(EPOCHS):
            for images, labels, plain in data.train_loader:
                method.meta_observe(images, labels, plain, epoch=epoch)
        method.meta_end_task(data)
    method.net.eval()
    right_of_all, right_of_own = [], []
    with torch.no_grad():
        images, labels = normalise(dataset.test.images.float() / 255), dataset.test.labels
        answers = torch.cat([method(some) for some in images.split(500)])
    for task in range(TASKS):
        low, high = data.get_offsets(task)
        own = (labels >= low) & (labels < high)
        right_of_all.append((answers[own].argmax(1) == labels[own]).double().mean())
        right_of_own.append((answers[own, low:high].argmax(1) + low == labels[own]).double().mean())
    return tuple(100 * float(torch.stack(column).mean()) for column in (right_of_all, right_of_own))


def by_wane(name: str, seed: int) -> tuple[float, float]:
    """The same two numbers."""
    with tempfile.TemporaryDirectory() as folder:
        summary = run(build_config(config_of(name, seed)), Path(folder) / "run")
    return tuple(100 * summary[key]["accuracy"]["average"] for key in ("metrics", "task_incremental"))


def main() -> None:
    checkout, out = sys.argv[1:3]
    torch.set_num_threads(1)
    here = Path(out).absolute()
    dataset = load_dataset("cifar100", per_class=PER_CLASS, resolution=RESOLUTION)
    commit = subprocess.run(["git", "-C", checkout, "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()
    sys.path.insert(0, checkout)
    import open_clip

    # some backbone, not used here, fetches weights when it is imported
    for name in ("create_model", "create_model_and_transforms", "create_model_from_pretrained"):
        setattr(open_clip, name, lambda *a, **k: (MagicMock(),) * 3)
    found: dict[str, dict[str, dict[str, list[float]]]] = {}
    for name in METHODS:
        found[name] = {}
        for who, done in (("mammoth", lambda n, s: by_mammoth(n, s, dataset)), ("wane", by_wane)):
            began = time.process_time()
            pairs = [done(name, seed) for seed in SEEDS]
            columns = zip(*pairs, strict=True)
            found[name][who] = {
                setting: [round(v, 2) for v in values]
                for setting, values in zip(("class", "task"), columns, strict=True)
            }
            print(
                name,
                who,
                found[name][who],
                f"{(time.process_time() - began) / len(SEEDS):.1f} s of CPU a run",
                flush=True,
            )
    document = {"peer": "aimagelab/mammoth", "commit": commit, "torch": torch.__version__, "seeds": list(SEEDS),
                "settings": {name: config_of(name, 0) for name in METHODS}, "arguments": ARGUMENTS,
                "same_choices": same_choices(), "accuracy": found}  # fmt: skip
    here.write_text(json.dumps(document, indent=1))


if __name__ == "__main__":
    main()
