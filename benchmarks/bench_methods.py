"""A step of each method against the bare passes that it cannot do without, on preloaded tensors of the same shapes.

    python -m benchmarks.bench_methods [--threads 1] [--rounds 3] [--width 16] [--batch 32] [METHOD ...]

CPU time, step by step in turn within one process, in the second task with a full memory. A step of wane includes the
gather, augmentation, replay, memory, signals and all that the method adds. The bare passes, with one step of SGD, are
(n new rows, r replayed ones of each draw; F forward, B backward):

    finetune, joint, ewc, online_ewc, si        F B n
    er                                          F B (n + r)
    der, er_ace                                 F B n, F B r
    derpp                                       F B n, F B r, F B r
    xder                                        F B n, F B (r + r / past tasks), F B r, F B views x (n + 2 r)
    gem                                         F B n, F B of each past task's memory, F of the present one's
    agem                                        F B n, F B r, B one by one
    icarl                                       F B n (exemplars among them), F n of the old network
    lwf, lwf_mc                                 F B n, F n of the old network
    hat                                         F B n, through the gates
    pnn                                         F n of the old columns, F B n of the new one with its adapters

With a star on the CNN, the others on ResNet-18. Target: at most 1.05. What a step has only at times (GEM's programme,
where gradients disagree), and what comes at the end of a task (herding, Fisher information), is timed apart.
"""

import argparse
import copy
import statistics
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

#: A name ending in a star is on the CNN, as hat and pnn are.
METHODS = ("finetune", "er", "der", "er_ace", "derpp", "xder", "gem", "agem", "icarl", "lwf", "lwf_mc", "ewc",
           "online_ewc", "si", "finetune*", "hat*", "pnn*")  # fmt: skip
CLASSES, TASKS, ROWS, SLOTS = 100, 5, 320, 100  # rows of a task


def stream_of():
    g = torch.Generator().manual_seed(0)
    labels = torch.arange(ROWS * TASKS) % CLASSES
    images = torch.randint(256, (len(labels), 3, 32, 32), dtype=torch.uint8, generator=g)
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


def prepared(name, width, batch, stream):
    """A run at the start of its second task, with a memory of the first."""
    small, name = name.endswith("*"), name.removesuffix("*")
    model = {"name": "cnn", "width": 2 * width} if small else {"name": "resnet18", "width": width}
    config = build_config({
        "device": "cpu", "model": model, "memory": {"capacity": SLOTS},
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
            train_epoch(session, stream[0], 0)
            state.learner.eval()
            state.learner.end_task(make_scene(session, stream[0]))
    return session, beside


def bare_step(name, session, batch):
    """The passes of the table above, on random tensors, with a network and an optimiser of their own."""
    learner = copy.deepcopy(session.learner).train()
    model, layout = learner.model, torch.channels_last if session.state.channels_last else torch.contiguous_format
    optimiser = torch.optim.SGD(trained(learner), lr=1e-4)
    rows = 1 + learner.views() if name == "xder" else 1
    images = torch.randn(max(3 * batch * rows, SLOTS), 3, 32, 32).contiguous(memory_format=layout)
    labels = torch.randint(CLASSES, (len(images),))
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


def ratio_of(name, width, batch, rounds, stream):
    session, beside = prepared(name, width, batch, stream)
    beside.bare = bare_step(name.removesuffix("*"), session, batch)
    found, steps = [], []
    for _ in range(rounds + 1):
        beside.spent, done = 0.0, session.state.position.step
        total = cpu(lambda: train_epoch(session, stream[1], 0))
        found.append((total - beside.spent) / beside.spent)
        steps.append(beside.spent / (session.state.position.step - done))
    return statistics.median(found[1:]), statistics.median(steps[1:])  # the first round warms up


def apart(width, batch, stream):
    """What happens beside the passes of a step, in units of F B n, or of F B of the task's rows."""
    session, _ = prepared("er", width, batch, stream)
    model, layout = session.learner.model, torch.channels_last
    images = torch.randn(batch, 3, 32, 32).contiguous(memory_format=layout)
    labels = torch.randint(CLASSES, (batch,))

    def both():
        F.cross_entropy(model(images), labels).backward()

    step = min(cpu(both) for _ in range(7))
    count = sum(p.numel() for p in model.parameters())
    past, now = torch.randn(TASKS - 1, count), torch.randn(count)
    features, classes = torch.randn(20 * 500, 8 * width), torch.arange(20 * 500) % 20

    def programme():
        inner = (past @ now).double().numpy()
        v = multipliers((past.double() @ past.double().T).numpy(), inner, 0.5)
        return now + past.T @ torch.from_numpy(v).float()

    def epoch():
        for batch_, _ in task_batches(session, stream[1]):
            F.cross_entropy(model(batch_.images), batch_.labels).backward()

    herding = cpu(lambda: herding_ranks(features, classes, torch.full((20,), 20)))
    fisher = cpu(lambda: empirical_fisher(model, (b for b, _ in task_batches(session, stream[1]))))
    return [
        ["GEM's programme and projection, 4 past tasks", f"{min(cpu(programme) for _ in range(7)) / step:.3f} steps"],
        ["herding, 20 exemplars of each of 20 classes x 500", f"{herding / step:.2f} steps"],
        ["Fisher information of a task's rows", f"{fisher / min(cpu(epoch) for _ in range(3)):.2f} epochs of F B"],
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("methods", nargs="*", default=METHODS)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--batch", type=int, default=32)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    stream, rows = stream_of(), []
    for name in options.methods:
        ratio, seconds = ratio_of(name, options.width, options.batch, options.rounds, stream)
        rows.append([name, f"{ratio:.3f}", f"{1000 * seconds:.1f}"])
        print(*rows[-1], flush=True)
    header = ["method", "step / bare passes", "bare, ms"]
    table(f"Methods, CPU time, {options.threads} thread(s), {options.batch} rows", header, rows)
    table("Apart", ["what", "costs"], apart(options.width, options.batch, stream))


if __name__ == "__main__":
    main()
