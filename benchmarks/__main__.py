"""Run every benchmark, each in its own process, with 1 and 2 threads where threads matter."""

import subprocess
import sys

RUNS = [
    ("benchmarks.bench_imports",),
    ("benchmarks.bench_signals", "--threads", "1"),
    ("benchmarks.bench_signals", "--threads", "2"),
    ("benchmarks.bench_correction", "--large"),
    ("benchmarks.bench_ladder",),
    ("benchmarks.bench_tokens", "--threads", "1"),
    ("benchmarks.bench_compare",),
    ("benchmarks.bench_store",),
    ("benchmarks.bench_data_path", "--threads", "1"),
    ("benchmarks.bench_loop", "--threads", "1"),
    ("benchmarks.bench_loop", "--threads", "2"),
    ("benchmarks.bench_methods",),
    ("benchmarks.bench_plugins",),
]

if __name__ == "__main__":
    failed = [run for run in RUNS if subprocess.run([sys.executable, "-m", *run], check=False).returncode]
    sys.exit(f"failed: {failed}" if failed else 0)
