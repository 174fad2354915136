"""What the ladder costs: its share of the CPU time of a run that records it at every end of a task.

    python -m benchmarks.bench_ladder [--recipe diagnostics] [--scale small] [--set data.name=cifar100] [--rounds 1]

Target: at most 10 % of a small run. Time is measured within the run, so that a busy machine slows both alike: the share
is that of `record_ladder` in all of `train`, in CPU time of one thread.
"""

import argparse
import tempfile
import time
from pathlib import Path

from benchmarks.timing import table
from wane.runs.config import parse_setting
from wane.runs.recipes import load_recipe
from wane.training import loop
from wane.training.run import run


def measure(config):
    """(seconds of the ladder, seconds of the whole run), CPU time."""
    spent, plain = [], loop.record_ladder

    def timed(*given):
        start = time.process_time()
        found = plain(*given)
        spent.append(time.process_time() - start)
        return found

    loop.record_ladder = timed
    try:
        with tempfile.TemporaryDirectory() as folder:
            start = time.process_time()
            run(config, Path(folder) / "run")
            return sum(spent), time.process_time() - start
    finally:
        loop.record_ladder = plain


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="diagnostics")
    parser.add_argument("--scale", default="demo")
    parser.add_argument("--set", action="append", default=[], dest="settings")
    parser.add_argument("--rounds", type=int, default=1)
    given = parser.parse_args()
    layers = [parse_setting(text) for text in ("record.ladder=true", "threads=1", *given.settings)]
    config = load_recipe(given.recipe, scale=given.scale, settings=tuple(layers))
    rows = []
    for _ in range(given.rounds):
        ladder, whole = measure(config)
        rows.append([f"{given.recipe}-{given.scale}", f"{ladder:.1f}", f"{whole:.1f}", f"{100 * ladder / whole:.1f} %"])
    table("the ladder in a run", ["run", "ladder (s)", "whole run (s)", "share"], rows)


if __name__ == "__main__":
    main()
