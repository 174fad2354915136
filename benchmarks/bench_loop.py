"""A whole wane epoch against a bare forward-backward-step of the same network on preloaded tensors of the same shapes.

    python -m benchmarks.bench_loop [--threads 1] [--rounds 3] [--widths 8 20] [--batches 32 128]

CPU time, interleaved step by step within one process. wane's step includes the gather, augmentation, replay, reservoir
and signals; `+ both` adds loss weights and the trend. Targets: epoch at most 1.05 x (width 8) and 1.02 x (width 20) the
bare loop in the same memory format, and below 0.9 x the bare loop in eager NCHW; evaluation with all signals at most
1.05 x the bare forward pass; weights and trend at most 1.02 x the step without them.
"""

import argparse
import statistics
import time

import torch
import torch.nn.functional as F

from benchmarks.timing import table
from wane import ClassMetrics, History, LossWeights, TrendSampler, signals
from wane.lab.config import build_config
from wane.lab.evaluation import BATCH, record_split
from wane.lab.loop import make_scene, train_epoch
from wane.lab.progress import Progress
from wane.lab.state import Position, build_state, make_optimiser
from wane.lab.steps import weighted_mean
from wane.models import resnet18
from wane.streams import ClassIncremental, from_arrays
from wane.weighting import weight_statistics

ROWS = 1280  # of a task: 10 to 40 steps an epoch


def stream_of(classes=100, tasks=5):
    g = torch.Generator().manual_seed(0)
    labels = torch.arange(ROWS * tasks) % classes
    images = torch.randint(256, (len(labels), 3, 32, 32), dtype=torch.uint8, generator=g)
    test = images[: 50 * classes], labels[: 50 * classes]  # 2,000 rows of the two tasks so far are evaluated
    return ClassIncremental(from_arrays(images, labels, *test, layout="NCHW"), tasks=tasks)


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
    state.learner.begin_task(make_scene(state, config, stream, stream[1]))
    state.optimiser = make_optimiser(config, state.learner)
    state.position = Position(1, 0, 0)
    return config, state


def bare_epoch(model, optimiser, batches):
    model.train()
    for images, labels in batches:
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
    state = run[1]
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
        "weighted mean": lambda: weighted_mean(losses, weigh(scored)),
        "draw": lambda: state.memory.draw(batch, generator=generator, class_probabilities=p),
        "uniform draw": lambda: state.memory.draw(batch, generator=generator),
    }
    a_step = {name: min(cpu(lambda f=f: [f() for _ in range(50)]) for _ in range(9)) / 50 for name, f in each.items()}
    an_epoch = min(cpu(lambda: [trend.probabilities(history) for _ in range(20)]) for _ in range(9)) / 20
    steps = len(torch.split(stream[1].train, batch))
    return a_step["weights"] + a_step["weighted mean"] + a_step["draw"] - a_step["uniform draw"] + an_epoch / steps


def measure(width, batch, rounds, stream):
    sizes = [len(part) + batch for part in torch.split(stream[1].train, batch)]
    batches = [(torch.randn(n, 3, 32, 32), torch.randint(100, (n,))) for n in sizes]
    last = [(x.contiguous(memory_format=torch.channels_last), y) for x, y in batches]
    nchw, nhwc = resnet18(100, width=width), resnet18(100, width=width).to(memory_format=torch.channels_last)
    sgd = {id(m): torch.optim.SGD(m.parameters(), lr=0.03) for m in (nchw, nhwc)}
    plain, both = prepared(width, batch, stream), prepared(
        width, batch, stream, weights={"signal": "log_tlr"}, trend={"signal": "log_tlr"})  # fmt: skip
    progress = Progress("bench", epochs_per_task=50, quiet=True)

    def wane_epoch(run):
        config, state = run
        replayed = train_epoch(state, config, stream, stream[1], 0, progress)
        state.history.record(replayed, step=state.position.step, task=1, split="replay")

    eval_rows = (stream.class_to_task[stream.dataset.test.labels] <= 1).nonzero()[:, 0]
    test_images = torch.randn(len(eval_rows), 3, 32, 32).contiguous(memory_format=torch.channels_last)

    def bare_eval():
        nhwc.eval()
        with torch.inference_mode():
            for part in torch.split(test_images, BATCH["cpu"]):
                nhwc(part)

    candidates = {
        "bare nhwc": lambda: bare_epoch(nhwc, sgd[id(nhwc)], last),
        "wane": lambda: wane_epoch(plain),
        "wane + both": lambda: wane_epoch(both),
        "bare nchw": lambda: bare_epoch(nchw, sgd[id(nchw)], batches),
        "bare eval": bare_eval,
        "wane eval": lambda: record_split(plain[1], plain[0], stream, stream[1], "test"),
    }
    times = {name: [] for name in candidates}
    for _ in range(rounds + 1):
        for name, function in candidates.items():
            times[name].append(cpu(function))

    def ratio(a, b):  # without the first round, which warms up
        return statistics.median(x / y for x, y in zip(times[a][1:], times[b][1:], strict=True))

    return [
        f"width {width}, {batch}+{batch}",
        *(f"{ratio(a, b):.3f}" for a, b in (
            ("wane", "bare nhwc"), ("wane", "bare nchw"), ("wane + both", "wane"), ("wane eval", "bare eval"))),
        f"{1 + intervention_cost(batch, plain, stream) * len(sizes) / statistics.median(times['wane'][1:]):.4f}",
    ]  # fmt: skip


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
        "weights + trend / without",
        "evaluation / bare forward",
        "1 + cost of weights and trend / step",
    ]
    table(f"The loop, CPU time, {options.threads} thread(s)", header, rows)


if __name__ == "__main__":
    main()
