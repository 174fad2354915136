"""The constants of docs/scale.md: what 10,000 runs cost their driver, and a vocabulary of 128,000 words its metrics.

    python -m benchmarks.bench_scale [--runs 10000] [--words 128000] [--tokens 512]

CPU seconds of one thread, the least of several repetitions; bytes as they are on the disk.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl
import torch
import torch.nn.functional as F

import wane
from benchmarks.bench_store import make_store
from benchmarks.timing import table
from wane.runs.store import load_runs, statuses
from wane.sweeps.execute import plan_jobs, to_toml_of, write_config
from wane.sweeps.plan import expand


def cpu(function, repeat=3):
    best = float("inf")
    for _ in range(repeat):
        began = time.process_time()
        function()
        best = min(best, time.process_time() - began)
    return best


def of_runs(runs):
    """A sweep's driver: expand, write configs, look at the store, load it."""
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        rows = []
        planned = []
        seconds = cpu(lambda: planned.extend(expand("table2", scale="small", over={"seed": list(range(100))})), 1)
        rows.append(("expand a recipe", f"{1e3 * seconds / len(planned):.2f} ms a run"))
        jobs = plan_jobs(planned[:500], root / "configs")
        seconds = cpu(lambda: [write_config(job.place, to_toml_of(job)) for job in jobs], 1)
        rows.append(("write the config where it will run", f"{1e3 * seconds / len(jobs):.2f} ms a run"))
        (root / "runs").mkdir()
        make_store(root / "runs", runs)
        rows.append((f"one look at {runs} runs (statuses)", f"{cpu(lambda: statuses(root / 'runs'), 2):.2f} s"))
        rows.append((f"load_runs of {runs}", f"{cpu(lambda: load_runs(root / 'runs'), 1):.2f} s"))
    return rows


def of_words(words, tokens, width=256):
    """Signals and metrics of a language model's vocabulary."""
    z, y = torch.randn(tokens, words) * 3, torch.randint(words, (tokens,))
    hidden, weight = torch.randn(tokens, width), torch.randn(words, width) / width**0.5
    scored = wane.signals(z, y)
    metrics = wane.ClassMetrics(words)
    metrics.update(scored=scored, labels=y)
    history = wane.History()

    def each(function):
        return f"{1e6 * cpu(function) / tokens:.0f} us a token"

    def record():
        history.record(everything, step=len(history.evaluations), task=0, split="test")

    random = np.random.default_rng(0)
    everything = {name: random.random(words) for name in wane.SIGNALS} | {"n": np.ones(words, int)}
    rows = [
        ("signals of logits", each(lambda: wane.signals(z, y))),
        ("cross_entropy of the same", each(lambda: F.cross_entropy(z, y))),
        (f"linear_signals, {width} features", each(lambda: wane.linear_signals(hidden, weight, y))),
        ("its matrix product alone", each(lambda: hidden @ weight.T)),
        ("ClassMetrics.update of scored tokens", each(lambda: metrics.update(scored=scored, labels=y))),
        ("ClassMetrics, state", f"{(metrics.sums.nbytes + metrics.counts.nbytes) / 1e6:.1f} MB"),
        ("History.record of every word", f"{1e3 * cpu(record):.0f} ms"),
    ]
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "history.parquet"
        history.write(path)
        rows.append(
            ("history on the disk", f"{path.stat().st_size / len(history.evaluations) / 1e6:.1f} MB an evaluation")
        )
        many = 1_000_000
        kept = {"position": np.arange(many), "word": random.integers(words, size=many, dtype=np.int32)}
        kept |= {name: random.random(many, dtype=np.float32) for name in wane.SIGNALS}
        pl.DataFrame(kept).write_parquet(Path(scratch) / "tokens.parquet")
        size = (Path(scratch) / "tokens.parquet").stat().st_size
        rows.append(("signals of every token kept, Parquet", f"{size / many:.0f} bytes a token"))
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--words", type=int, default=128_000)
    parser.add_argument("--tokens", type=int, default=512)
    options = parser.parse_args()
    torch.set_num_threads(1)
    table("Scale", ["what", "CPU, one thread"], of_runs(options.runs) + of_words(options.words, options.tokens))


if __name__ == "__main__":
    main()
