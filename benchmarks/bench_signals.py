"""All eight signals of a batch of logits, relative to `cross_entropy` alone, and how much memory they need beyond it.

    python -m benchmarks.bench_signals [--threads 1] [--rounds 15]

Targets: at most 1.0 x cross_entropy for C >= 1000 and 1.3 x for C = 100 with the compiled kernel (warm), at most 2.5 x
without a compiler; at most 10 % extra memory at C >= 1000 either way.
"""

import argparse
import math

import torch
import torch.nn.functional as F

import wane
from benchmarks.timing import interleaved, ratio, table

SHAPES = [(8192, 100), (8192, 1000), (2048, 32_000), (512, 128_000)]


def sorting(z, y):
    """The way most people would write it: softmax, argsort, look up."""
    p = z.softmax(1)
    rank = (p.argsort(1, descending=True) == y[:, None]).nonzero()[:, 1] + 1
    return finish(p.gather(1, y[:, None])[:, 0], p.amax(1), rank, z.shape[1])


def keeping_softmax(z, y):
    """Without the sort, but with the whole softmax and an int64 count."""
    p = z.softmax(1)
    label = p.gather(1, y[:, None])
    return finish(label[:, 0], p.amax(1), (p > label).sum(1) + 1, z.shape[1])


def finish(p, top, rank, c):
    loss = -p.log()
    return (
        (rank == 1).float(), loss, 1 + p - top, 1 - (rank - 1) / (c - 1), 1 - rank.log() / math.log(c),
        (c - rank) / ((c - 1) * rank), p, 1 - loss.clamp(max=math.log(c)) / math.log(c),
    )  # fmt: skip


def extra_memory(function, logits):
    """Peak of the memory allocated during the call, as a share of the logits; the inputs are not counted."""
    function()  # what compiling needs once is not counted
    with torch.profiler.profile(profile_memory=True) as profile:
        function()
    held = peak = 0
    for event in profile.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            peak = max(peak, held)
    return peak / (logits.numel() * logits.element_size())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows = []
    for n, c in SHAPES:
        z, y = torch.randn(n, c) * 3, torch.randint(c, (n,))
        candidates = {
            "cross_entropy": lambda z=z, y=y: F.cross_entropy(z, y),
            "compiled": lambda z=z, y=y: wane.signals(z, y, compiled=True),
            "eager": lambda z=z, y=y: wane.signals(z, y, compiled=False),
            "default": lambda z=z, y=y: wane.signals(z, y),
            "softmax": lambda z=z, y=y: keeping_softmax(z, y),
            "sort": lambda z=z, y=y: sorting(z, y),
            "read": lambda z=z: z.sum(),
        }

        def against(name, base, rounds=options.rounds, candidates=candidates):
            """Only the two alternate: a third would decide which of them finds the logits in the cache."""
            pair = {k: candidates[k] for k in (name, base)}
            return ratio(interleaved(pair, rounds=rounds, warm=min(2, rounds)), name, base)

        memory = {k: extra_memory(candidates[k], z) for k in ("compiled", "eager")}
        rows.append([
            f"({n}, {c})",
            *(f"{against(k, 'cross_entropy'):.2f}" for k in ("compiled", "eager", "default", "softmax")),
            f"{against('sort', 'cross_entropy', 1):.1f}",
            f"{against('default', 'read'):.1f}",
            *(f"{share:.1%}" for share in memory.values()),
        ])  # fmt: skip
    header = [
        "logits (float32)",
        "compiled",
        "eager",
        "default",
        "softmax kept",
        "sort",
        "default / read",
        "memory, compiled",
        "memory, eager",
    ]
    table(f"All eight signals relative to cross_entropy, {options.threads} thread(s)", header, rows)


if __name__ == "__main__":
    main()
