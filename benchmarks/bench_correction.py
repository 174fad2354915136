"""Fitting `wane.LogitCorrection`: CPU time of one thread, and memory beyond the logits.

    python -m benchmarks.bench_correction [--rounds 5] [--large]

Target: at most 50 ms for 2,000 rows of 100 classes by any signal, with one offset a group and one a class; seconds for
100,000 rows of 1,000 (--large: some minutes, 1 GB); beyond the logits, at most as much memory again. Times are the
least of the rounds, beside one pass of `wane.signals` over the same logits.
"""

import argparse
import re
import time
from pathlib import Path

import torch

import wane
from benchmarks.timing import interleaved, table


def problem(rows, classes, tasks):
    g = torch.Generator().manual_seed(0)
    labels = torch.arange(rows) % classes
    logits = torch.randn(rows, classes, generator=g).mul_(1.5)
    logits[torch.arange(rows), labels] += 4
    members = torch.arange(classes) * tasks // classes
    logits[:, members == tasks - 1] += 3
    return logits, labels, members


def small(rounds):
    logits, labels, members = problem(2000, 100, 5)
    candidates = {("wane.signals", ""): lambda: wane.signals(logits, labels, compiled=False)}
    for groups, by in [(members, by) for by in wane.SIGNALS] + [(None, by) for by in wane.SIGNALS]:
        name = (by, "5 groups" if groups is not None else "one a class")
        candidates[name] = lambda by=by, groups=groups: wane.LogitCorrection(by, groups).fit(logits, labels)
    times = interleaved(candidates, rounds=rounds, clock=time.process_time, warm=1)
    base = min(times["wane.signals", ""])
    rows = [[*name, f"{min(t) * 1e3:.1f}", f"{min(t) / base:.0f}"] for name, t in times.items()]
    table("2,000 rows of 100 classes", ["by", "offsets", "ms", "x signals"], rows)


def large():
    logits, labels, members = problem(100_000, 1000, 10)
    size = logits.numel() * logits.element_size()
    wane.signals(logits[:1000], labels[:1000], compiled=False)
    rows = []
    for groups in (members, None):
        for by in wane.SIGNALS:
            before, start = reset_peak(), time.process_time()
            wane.LogitCorrection(by, groups).fit(logits, labels)
            seconds, more = time.process_time() - start, (peak() - before) / size
            rows.append([by, "10 groups" if groups is not None else "one a class", f"{seconds:.1f}", f"{more:.2f}"])
            print(*rows[-1], flush=True)
    table("100,000 rows of 1,000 classes", ["by", "offsets", "s", "peak beyond the logits, x logits"], rows)


def reset_peak():
    """Forget the greatest memory of this process so far (Linux); what it holds now, in bytes."""
    Path("/proc/self/clear_refs").write_text("5")
    return peak()


def peak():
    status = Path("/proc/self/status").read_text()
    return 1024 * int(re.search(r"VmHWM:\s+(\d+)", status)[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--large", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    small(options.rounds)
    if options.large:
        large()


if __name__ == "__main__":
    main()
