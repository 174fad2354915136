"""A whole wane epoch against a bare forward-backward-step of the same network on preloaded tensors of the same shapes.

    python -m benchmarks.bench_loop [--threads 1] [--rounds 3] [--widths 8 20] [--batches 32 128]

CPU time, step by step in turn within one process. wane's step includes the gather, augmentation, replay, reservoir and
signals; what loss weights and the trend add is timed part by part. Targets: epoch at most 1.05 x (width 8) and 1.02 x
(width 20) the bare loop in the same memory format, and below 0.9 x the bare loop in eager NCHW; evaluation with all
signals at most 1.05 x the bare forward pass; weights and trend at most 1.02 x the step without them.
"""

import argparse
import itertools
import statistics
import time
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F

from benchmarks.timing import table
from wane import ClassMetrics, History, LossWeights, TrendSampler, signals
from wane.interventions.loss_weights import weight_statistics
from wane.models import resnet18
from wane.runs.config import build_config
from wane.streams import from_arrays, make_stream
from wane.training.batches import make_scene
from wane.training.evaluation import BATCH, record_split
from wane.training.events import Events
from wane.training.loop import train_epoch
from wane.training.losses import part_means
from wane.training.session import Session
from wane.training.state import Position, build_state, make_optimiser
from wane.training.team import ALONE

ROWS = 1280  # of a task: 10 to 40 steps an epoch


def stream_of(classes=100, tasks=5):
    g = torch.Generator().manual_seed(0)
    labels = torch.arange(ROWS * tasks) % classes
    images = torch.randint(256, (len(labels), 3, 32, 32), dtype=torch.uint8, generator=g)
    test = images[: 50 * classes], labels[: 50 * classes]  # 2,000 rows of the two tasks so far are evaluated
    return make_stream(from_arrays(images, labels, *test, layout="NCHW"), tasks=tasks)


def prepared(width, batch, stream, **learner):
    """A run that is in the middle of its second task, with a full memory."""
    settings = {"batch_size": batch, "replay_size": batch, "epochs": 50, **learner}
    config = build_config({"device": "cpu", "model": {"name": "resnet18", "width": width}, "learner": settings})
    state = build_state(config, stream, None, torch.device("cpu"))
    for k in range(2):
        rows = stream[k].train
        for _ in range(2):
            state.memory.offer(stream.dataset.train.images[rows], stream.dataset.train.labels[rows], task=k, step=0,
                               generator=state.generators["keep"])  # fmt: skip
    session = Session(config, stream, state, ALONE, Path("unused"), Events())
    state.learner.begin_task(make_scene(session, stream[1]))
    state.optimiser = make_optimiser(config, state.learner)
    state.position = Position(1, 0, 0)
    return session


def bare_step(model, optimiser, images, labels):
    loss = F.cross_entropy(model(images), labels)
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()


def cpu(function):
    start = time.process_time()
    function()
    return time.process_time() - start


def intervention_cost(batch, run, stream):
    """CPU seconds a step that weights and trend add, each part timed by itself: far below the noise of a whole step."""
    state = run.state
    logits, labels = torch.randn(batch, 100), torch.randint(100, (batch,))
    scored, losses, weigh = signals(logits, labels), torch.rand(2 * batch), LossWeights("log_tlr")
    history = History(stream.class_to_task.numpy())
    for epoch in range(10):
        metrics = ClassMetrics(100)
        metrics.update(torch.randn(2000, 100), torch.arange(2000) % 100)
        history.record(metrics, step=epoch, task=1, split="replay")
    trend, generator = TrendSampler("log_tlr", window=10), torch.Generator().manual_seed(0)
    p = trend.probabilities(history)
    each = {
        "weights": lambda: weight_statistics(weigh(scored)),
        "weighted mean": lambda: part_means(losses, weigh(scored), (slice(0, len(losses)),)),
        "draw": lambda: state.memory.draw(batch, generator=generator, class_probabilities=p),
        "uniform draw": lambda: state.memory.draw(batch, generator=generator),
    }
    a_step = {name: min(cpu(lambda f=f: [f() for _ in range(50)]) for _ in range(9)) / 50 for name, f in each.items()}
    an_epoch = min(cpu(lambda: [trend.probabilities(history) for _ in range(20)]) for _ in range(9)) / 20
    steps = len(torch.split(stream[1].train, batch))
    return a_step["weights"] + a_step["weighted mean"] + a_step["draw"] - a_step["uniform draw"] + an_epoch / steps


def against_bare(function, model, bare):
    """CPU seconds of `function`, and of each bare candidate, called before every forward pass on as many images.

    Step by step, because a shared machine's speed wanders from one epoch to the next by more than what is measured.
    """
    spent = dict.fromkeys(bare, 0.0)
    calls = itertools.count()

    def before(module, inputs):
        names = list(bare) if next(calls) % 2 else list(bare)[::-1]
        for name in names:
            spent[name] += cpu(partial(bare[name], len(inputs[0])))

    handle = model.register_forward_pre_hook(before)
    total = cpu(function)
    handle.remove()
    return total - sum(spent.values()), spent


def measure(width, batch, rounds, stream):
    nchw, nhwc = resnet18(100, width=width), resnet18(100, width=width).to(memory_format=torch.channels_last)
    sgd = {id(m): torch.optim.SGD(m.parameters(), lr=0.03) for m in (nchw, nhwc)}
    images, labels = torch.randn(max(2 * batch, BATCH["cpu"]), 3, 32, 32), torch.randint(100, (2 * batch,))
    last = images.contiguous(memory_format=torch.channels_last)
    plain = prepared(width, batch, stream)
    state = plain.state

    def epoch():
        replayed = train_epoch(plain, stream[1], 0)
        state.history.record(replayed, step=state.position.step, task=1, split="replay")

    def bare_forward(n):
        with torch.inference_mode():
            nhwc(last[:n])

    steps = {
        "nhwc": lambda n: bare_step(nhwc, sgd[id(nhwc)], last[:n], labels[:n]),
        "nchw": lambda n: bare_step(nchw, sgd[id(nchw)], images[:n], labels[:n]),
    }
    ratios, epochs = {"nhwc": [], "nchw": [], "evaluation": []}, []
    for _ in range(rounds + 1):
        nhwc.train()
        ours, bare = against_bare(epoch, state.learner.model, steps)
        epochs.append(ours)
        for name, seconds in bare.items():
            ratios[name].append(ours / seconds)
        nhwc.eval()
        ours, bare = against_bare(
            lambda: record_split(plain, stream[1], "test"), state.learner.model, {"": bare_forward}
        )
        ratios["evaluation"].append(ours / bare[""])
    cost = intervention_cost(batch, plain, stream) * len(torch.split(stream[1].train, batch))
    return [
        f"width {width}, {batch}+{batch}",
        *(f"{statistics.median(r[1:]):.3f}" for r in ratios.values()),  # the first round warms up
        f"{1 + cost / statistics.median(epochs[1:]):.4f}",
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--widths", type=int, nargs="+", default=[8, 20])
    parser.add_argument("--batches", type=int, nargs="+", default=[32, 128])
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    stream = stream_of()
    rows = [measure(w, b, options.rounds, stream) for w in options.widths for b in options.batches]
    header = [
        "ResNet-18, 32 x 32",
        "epoch / bare, same format",
        "epoch / bare NCHW",
        "evaluation / bare forward",
        "1 + cost of weights and trend / step",
    ]
    table(f"The loop, CPU time, {options.threads} thread(s)", header, rows)


if __name__ == "__main__":
    main()
