"""How long `wane.load_runs` takes for a store of 2,000 runs: one small run, copied under 2,000 names and seeds.

Run `python benchmarks/bench_store.py [RUNS]`. Ratio: against reading the same bytes and doing nothing with them.
"""

import json
import sys
import tempfile
import time
from pathlib import Path

from wane.runs.config import build_config, to_toml
from wane.runs.identity import run_name
from wane.runs.store import load_runs, statuses

SIGNALS = ("accuracy", "loss", "cm", "tlr", "log_tlr", "rtlr", "ctl", "nkl")


def make_store(root: Path, runs: int) -> None:
    """Nine runs of ten are done, one failed; each with the files that a run has."""
    for seed in range(runs):
        config = build_config({"seed": seed, "learner": {"trend": {"window": 2 + seed % 20}}})
        folder = root / run_name(config)
        folder.mkdir()
        (folder / "config.toml").write_text(to_toml(config))
        for name, size in {"history.parquet": 50_000, "replay.parquet": 5_000, "log.txt": 2_000}.items():
            (folder / name).write_bytes(bytes(size))
        if seed % 10 == 0:
            (folder / "failed.json").write_text(json.dumps({"error": "the loss became nan"}))
            continue
        metrics = {s: dict.fromkeys(("average", "forgetting", "retention", "plasticity"), seed / runs) for s in SIGNALS}
        summary = {"metrics": metrics, "steps": 1000, "seconds": 12.5, "class_names": [str(c) for c in range(100)],
                   "accuracy_matrix": [[0.5] * 5] * 5}  # fmt: skip
        (folder / "summary.json").write_text(json.dumps(summary, indent=2))


def main(runs: int = 2000) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        make_store(root, runs)
        times = {}
        for _ in range(3):
            for what, function in {
                "read the bytes only": lambda: [
                    p.read_bytes() for n in ("config.toml", "summary.json") for p in root.glob(f"*/{n}")
                ],
                "statuses": lambda: statuses(root),
                "load_runs": lambda: load_runs(root),
            }.items():
                began = time.perf_counter()
                result = function()
                times[what] = min(times.get(what, 1e9), time.perf_counter() - began)
        assert result.height == runs
        for what, seconds in times.items():
            print(f"{runs} runs, {what}: {seconds:.2f} s ({seconds / times['read the bytes only']:.1f} x reading)")
        print(f"{result.width} columns")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
