"""python -m tests.attack --cases 10000: attack wane, and say how often it failed."""

import argparse
import gc
import json
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random

os.environ["OMP_NUM_THREADS"] = os.environ["POLARS_MAX_THREADS"] = "1"
os.environ.setdefault("COLUMNS", "200")

from tests.attack.bench import Bench, make_bench, preload
from tests.attack.kinds import KINDS, attempt, cases_of

Case = tuple[str, int]


def main(arguments: Sequence[str] | None = None) -> int:
    """The number of failed cases, at most 1 as an exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.attack", description=__doc__)
    parser.add_argument("--cases", type=int, default=1000, help="in all")
    parser.add_argument("--kind", action="append", choices=[*KINDS], help="only these kinds; as often as needed")
    parser.add_argument("--seed", type=int, default=0, help="of what is random")
    parser.add_argument("--index", type=int, help="only this case, of one kind")
    parser.add_argument("--minutes", type=float, default=1e9, help="begin no case after so many")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="cases at a time")
    given = parser.parse_args(arguments)
    if given.index is not None and len(given.kind or ()) != 1:
        parser.error("--index is of one --kind")
    preload()
    gc.collect()
    gc.freeze()  # or every forked process would touch, and so copy, every object
    memory = Path("/dev/shm")
    root = Path(tempfile.mkdtemp(prefix="wane-attack-", dir=memory if os.access(memory, os.W_OK) else None))
    try:
        began = time.monotonic()
        names = given.kind or [*KINDS]
        bench = make_bench(root, names)
        todo = [(names[0], given.index)] if given.index is not None else _plan(bench, names, given.cases)
        Random(given.seed).shuffle(todo)  # should the time not be enough, every kind has had its share
        tried, failed = _attack(bench, todo, given.seed, given.jobs, until=began + 60 * given.minutes)
        _tell(tried, failed, time.monotonic() - began)
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return int(bool(failed))


def _plan(bench: Bench, names: Sequence[str], cases: int) -> list[Case]:
    whole = sum(KINDS[name].share for name in names)
    counts = [round(cases * KINDS[name].share / whole) for name in names]
    counts[-1] += cases - sum(counts)
    return [(name, i) for name, n in zip(names, counts, strict=True) for i in cases_of(KINDS[name], bench, max(1, n))]


def _attack(bench: Bench, todo: Sequence[Case], seed: int, jobs: int, *, until: float) -> tuple[list[Case], list[Case]]:
    """Do the cases in so many processes; those that were tried, and those that failed, each said as it happens."""
    pids, notes = [], [bench.root / f"tried.{job}" for job in range(jobs)]
    sys.stdout.flush()
    for job, note in enumerate(notes):
        if pid := os.fork():
            pids.append(pid)
            continue
        code = 1
        try:
            with note.open("w", buffering=1) as file:
                for name, index in todo[job::jobs]:
                    if time.monotonic() > until:
                        break
                    wrong = _attempt(bench, name, index, seed)
                    file.write(json.dumps([name, index, wrong is not None]) + "\n")
                    if wrong is not None:
                        print(f"FAILED python -m tests.attack --kind {name} --index {index} --seed {seed}\n  {wrong}")
                        sys.stdout.flush()
            code = 0
        finally:
            os._exit(code)
    ended = [os.waitpid(pid, 0)[1] for pid in pids]  # all of them, also after one that failed
    if any(ended):
        raise RuntimeError("a process of the harness itself failed")
    lines = [json.loads(line) for note in notes for line in note.read_text().splitlines()]
    return [(name, i) for name, i, _ in lines], [(name, i) for name, i, wrong in lines if wrong]


def _attempt(bench: Bench, name: str, index: int, seed: int) -> str | None:
    try:
        return attempt(name, bench, index, seed)
    except Exception as error:
        return f"the harness failed: {type(error).__name__}: {error}"


def _tell(done: Sequence[Case], failed: Sequence[Case], seconds: float) -> None:
    tried, wrong = Counter(name for name, _ in done), Counter(name for name, _ in failed)
    print(f"{'kind':12}{'cases':>7}{'failed':>8}")
    for name, kind in KINDS.items():
        if tried[name]:
            print(f"{name:12}{tried[name]:7}{wrong[name]:8}  {kind.title}")
    spent = sum(os.times()[:4])
    print(f"{'all':12}{len(done):7}{len(failed):8}  {spent / 60:.1f} core-minutes, {seconds / 60:.1f} minutes")


if __name__ == "__main__":
    sys.exit(main())
