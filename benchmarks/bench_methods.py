"""A step of each method against the bare passes that it cannot do without, on preloaded tensors of the same shapes.

    python -m benchmarks.bench_methods [--setup small] [--batch 64] [--rounds 7] [--csv FILE] [METHOD ...]

CPU time, step by step in turn within one process, in the second task with a full memory. A step of wane includes the
gather, augmentation, replay, memory, signals and all that the method adds. The bare passes, with one step of SGD, are
those of `PASSES` (n new rows, r replayed ones of each draw; F forward, B backward). Set-ups: the small scale of the
recipes (the CNN on images of 16 x 16), and a ResNet-18 of width 16 on images of 32 x 32, which HAT and progressive
networks do not know. Target: at most 1.05. What a step has only at times (GEM's programme, where gradients disagree),
and what comes at the end of a task (herding, Fisher information), is timed apart, in units of F B n.
"""

import argparse
import copy
import csv
import time
from pathlib import Path

import torch
import torch.nn.functional as F

from benchmarks.timing import table
from wane.learners.fisher import empirical_fisher
from wane.learners.gem import multipliers
from wane.learners.gradients import gradient_of, set_gradient, trained
from wane.memory import herding_ranks
from wane.runs.config import build_config
from wane.streams import from_arrays, make_stream
from wane.training.batches import make_scene, task_batches
from wane.training.events import Events, Listener
from wane.training.loop import train_epoch
from wane.training.session import Session
from wane.training.state import Position, build_state, make_optimiser
from wane.training.team import ALONE

ONE, TWO, OLD = "F B n", "F B n; F B r", "F B n; F n of the old network"
PASSES = {
    "finetune": ONE,
    "joint": ONE,
    "er": "F B (n + r)",
    "er_ace": TWO,
    "der": TWO,
    "derpp": "F B n; F B r; F B r",
    "xder": "F B n; F B (r + r / past tasks); F B r; F B views x (n + 2 r)",
    "gem": "F B n; F B of each past task's memory; F of the present one's",
    "agem": "F B n; F B r",
    "icarl": "F B n, exemplars among them; F n of the old network",
    "lwf": OLD,
    "lwf_mc": OLD,
    "ewc": ONE,
    "online_ewc": ONE,
    "si": ONE,
    "hat": "F B n, through the gates",
    "pnn": "F B n of the new column with its adapters; F n of the old columns",
}
SETUPS = {
    "small": {"model": {"name": "cnn", "width": 32}, "size": 16, "padding": 2, "steps": 20},
    "resnet18": {"model": {"name": "resnet18", "width": 16}, "size": 32, "padding": 4, "steps": 5},
}
CLASSES, TASKS = 100, 5
SLOTS = {"gem": 500}  # as in the recipes; the others have 2,000


def stream_of(setup, batch):
    g = torch.Generator().manual_seed(0)
    labels = torch.arange(SETUPS[setup]["steps"] * batch * TASKS) % CLASSES
    shape = (len(labels), 3, SETUPS[setup]["size"], SETUPS[setup]["size"])
    images = torch.randint(256, shape, dtype=torch.uint8, generator=g)
    return make_stream(from_arrays(images, labels, images[:CLASSES], labels[:CLASSES], layout="NCHW"), tasks=TASKS)


def cpu(function):
    start = time.process_time()
    function()
    return time.process_time() - start


class Beside(Listener):
    """Does the bare step after every step of wane, and adds up its time."""

    def __init__(self):
        self.bare, self.spent = None, 0.0

    def step_done(self, session, rows):
        self.spent += cpu(self.bare)


def prepared(name, setup, batch, stream):
    """A run in its second task, with a memory of the first."""
    chosen = SETUPS[setup]
    config = build_config({
        "device": "cpu", "model": chosen["model"], "memory": {"capacity": SLOTS.get(name, 2000)},
        "data": {"padding": chosen["padding"]},
        "learner": {"name": name, "batch_size": batch, "replay_size": batch, "epochs": 50, "lr": 0.01},
    })  # fmt: skip
    state = build_state(config, stream, None, torch.device("cpu"))
    beside = Beside()
    session = Session(config, stream, state, ALONE, Path("unused"), Events([beside]))
    for k in range(2):
        state.learner.begin_task(make_scene(session, stream[k]))
        state.optimiser = make_optimiser(config, state.learner)
        state.position = Position(k, 0, 0)
        if k == 0:
            beside.bare = lambda: None
            for epoch in range(2):
                train_epoch(session, stream[0], epoch)
            state.learner.eval()
            state.learner.end_task(make_scene(session, stream[0]))
    return session, beside


def bare_step(name, session, batch):
    """The passes of the table above, on random tensors, with a network and an optimiser of their own."""
    learner = copy.deepcopy(session.learner).train()
    model, layout = learner.model, torch.channels_last if session.state.channels_last else torch.contiguous_format
    optimiser = torch.optim.SGD(trained(learner), lr=1e-4)
    rows = 1 + learner.views() if name == "xder" else 1
    many = max(3 * batch * rows, session.config.memory.capacity if name == "gem" else 0)
    images = torch.randn(many, *session.dataset.row_shape).contiguous(memory_format=layout)
    labels = torch.randint(CLASSES, (many,))
    forward = {
        "pnn": lambda x: learner._pass(x, len(learner.columns) - 1),
        "hat": lambda x: learner._pass(x, learner.task, 1.0)[0],
    }.get(name, model)
    parameters = trained(learner)

    def loss(n):
        return F.cross_entropy(forward(images[:n]), labels[:n])

    def old(n):
        with torch.no_grad():
            learner.teacher(images[:n])

    sizes = {"er": [2 * batch], "der": [batch] * 2, "er_ace": [batch] * 2, "derpp": [batch] * 3, "agem": [batch] * 2,
             "xder": [batch, 2 * batch, batch, 3 * batch * (rows - 1)]}.get(name, [batch])  # fmt: skip

    def passes():
        if name in ("gem", "agem"):
            past, *present = session.memory.tasks[: len(session.memory)].bincount().tolist()
            gradients = [gradient_of(loss(n), parameters) for n in ([batch, past] if name == "gem" else sizes)]
            if name == "gem" and present:
                with torch.no_grad():
                    loss(*present)
            set_gradient(parameters, gradients[0])
        else:
            if name in ("icarl", "lwf", "lwf_mc"):
                old(batch)
            optimiser.zero_grad()
            sum(loss(n) for n in sizes).backward()
        optimiser.step()

    return passes


def step_of(name, setup, batch, rounds, stream):
    """CPU seconds of a step and of its bare passes: each the least of all rounds, as what else runs can only add."""
    session, beside = prepared(name, setup, batch, stream)
    beside.bare = bare_step(name, session, batch)
    whole, bare = [], []
    for _ in range(rounds + 1):  # the first one warms up
        beside.spent, done = 0.0, session.state.position.step
        total = cpu(lambda: train_epoch(session, stream[1], 1))
        steps = session.state.position.step - done
        whole.append((total - beside.spent) / steps)
        bare.append(beside.spent / steps)
    return min(whole[1:]), min(bare[1:])


def apart(setup, batch, stream, rounds):
    """What happens beside the passes of a step, in units of F B n, and of F B of all rows of a task."""
    session, _ = prepared("er", setup, batch, stream)
    model, layout = session.learner.model, torch.channels_last
    images = torch.randn(batch, *session.dataset.row_shape).contiguous(memory_format=layout)
    labels = torch.randint(CLASSES, (batch,))
    count = sum(p.numel() for p in model.parameters())
    past, now = torch.randn(TASKS - 1, count), torch.randn(count)
    features = torch.randn(20 * 250, model.head.in_features)
    classes, wanted = torch.arange(len(features)) % 20, torch.full((20,), 20)

    def both():
        F.cross_entropy(model(images), labels).backward()

    def programme():
        inner = (past @ now).double().numpy()
        v = multipliers((past.double() @ past.double().T).numpy(), inner, 0.5)
        return now + past.T @ torch.from_numpy(v).float()

    step = min(cpu(both) for _ in range(10))
    each = {
        "GEM's programme and projection, 4 past tasks": (programme, 1),
        "herding 20 exemplars of each of 20 classes of 250 rows": (
            lambda: herding_ranks(features, classes, wanted), 1,
        ),
        "Fisher information, for each n rows": (
            lambda: empirical_fisher(model, (b for b, _ in task_batches(session, stream[1]))),
            SETUPS[setup]["steps"],
        ),
    }  # fmt: skip
    return [
        [what, f"{min(cpu(function) for _ in range(rounds + 1)) / step / times:.2f}"]
        for what, (function, times) in each.items()
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("methods", nargs="*", default=[*PASSES])
    parser.add_argument("--setup", choices=SETUPS, default="small")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--csv", type=Path, help="where to write method, passes and ratio")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    stream, rows = stream_of(options.setup, options.batch), []
    for name in options.methods:
        if options.setup == "resnet18" and name in ("hat", "pnn"):
            continue
        whole, bare = step_of(name, options.setup, options.batch, options.rounds, stream)
        rows.append([name, f"{whole / bare:.3f}", f"{1000 * bare:.2f}", f"{1000 * (whole - bare):.2f}"])
        print(*rows[-1], flush=True)
    header = ["method", "step / bare passes", "bare, ms", "beside them, ms"]
    table(f"{options.setup}, {options.batch} rows, CPU time, {options.threads} thread(s)", header, rows)
    if options.csv is not None:
        with options.csv.open("w", newline="") as file:
            lines = csv.writer(file, lineterminator="\n")
            lines.writerow(["method", "passes", "ratio", "bare_ms", "beside_ms"])
            lines.writerows([name, PASSES[name], *figures] for name, *figures in rows)
    table("Apart, in units of F B n", ["what", "costs"], apart(options.setup, options.batch, stream, options.rounds))


if __name__ == "__main__":
    main()
