"""What comparing two files costs: logits, relative to scoring them; signals, in seconds and bytes of memory a row.

    python -m benchmarks.bench_compare [--rows 1000000] [--classes 1000]

Targets: two files of signals take at most 100 bytes of memory a row, two of logits at most a tenth of one file. Beyond
scoring, logits cost a fixed time for each class: its tests.
"""

import argparse
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import torch

import wane
from benchmarks.timing import table

GROUPS = 16
TOKENS = 500  # of a document


def write_signals(path, rows, seed):
    """A file of tokens: documents whose tokens move together, in groups."""
    rng, noise = np.random.default_rng(0), np.random.default_rng(seed)
    with wane.SignalWriter(path, num_classes=50_000, by=["kind"]) as writer:
        for start in range(0, rows, 100_000):
            n = min(100_000, rows - start)
            document = np.arange(start, start + n) // TOKENS
            z = rng.normal(size=n) + noise.normal(size=document[-1] + 1)[document] * 0.1
            logits = torch.tensor(np.stack([z, np.zeros(n), np.full(n, -1.0)], 1), dtype=torch.float32)
            labels = torch.zeros(n, dtype=torch.int64)
            kind = np.char.add("kind ", rng.integers(GROUPS, size=n).astype(str))
            writer.write(wane.signals(logits, labels), labels, document=document, position=np.arange(n), kind=kind)


def write_logits(path, labels, classes, seed):
    rng = np.random.default_rng(seed)
    out = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(len(labels), classes))
    for start in range(0, len(labels), 10_000):
        part = labels[start : start + 10_000]
        rows = rng.standard_normal((len(part), classes), dtype=np.float32)
        rows[np.arange(len(part)), part] += 4
        out[start : start + len(part)] = rows


def most_memory(function):
    """Bytes of the process's own memory at its peak, beyond what it had before."""

    def now():
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("RssAnon"))

    before, peak, done = now(), [0], threading.Event()

    def watch():
        while not done.wait(0.005):
            peak[0] = max(peak[0], now())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        function()
    finally:
        done.set()
        watcher.join()
    return max(0, peak[0] - before)


def seconds(function):
    start = time.process_time()
    function()
    return time.process_time() - start


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--classes", type=int, default=1000)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        files = [place / f"{i}.parquet" for i in range(2)]
        wrote = most_memory(lambda: [write_signals(file, arguments.rows, i) for i, file in enumerate(files)])
        wane.compare(*map(wane.read_samples, files))  # imports
        spent = seconds(lambda: wane.compare(*map(wane.read_samples, files)))
        needs = most_memory(lambda: wane.compare(*map(wane.read_samples, files)))
        table(f"Two files of signals, {arguments.rows:,} rows, {GROUPS} groups, {TOKENS} tokens a document",
              ["", "value"], [["written: memory, MB", f"{wrote / 1e6:.0f}"], ["compared: CPU, s", f"{spent:.2f}"],
                              ["compared: bytes a row", f"{needs / arguments.rows:.0f}"]])  # fmt: skip

        labels = np.random.default_rng(0).integers(arguments.classes, size=arguments.rows // 10)
        np.save(place / "labels.npy", labels)
        files = [place / f"{i}_logits.npy" for i in range(2)]
        for i, file in enumerate(files):
            write_logits(file, labels, arguments.classes, i)
        scored = min(
            seconds(lambda: [wane.signals(wane.read_predictions(f).logits, labels) for f in files]) for _ in range(3)
        )
        spent = min(seconds(lambda: wane.compare(*map(wane.read_samples, files))) for _ in range(3))
        needs = most_memory(lambda: wane.compare(*map(wane.read_samples, files)))
        table(f"Two files of logits, {len(labels):,} x {arguments.classes:,}", ["", "value"],
              [["read, checked and scored: CPU, s", f"{scored:.2f}"], ["compared: CPU, s", f"{spent:.2f}"],
               ["memory, share of one file", f"{needs / files[0].stat().st_size:.1%}"]])  # fmt: skip


if __name__ == "__main__":
    main()
