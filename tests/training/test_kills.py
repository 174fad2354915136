"""Real kills. A run that is SIGKILLed at any moment and started again ends as one that never was."""

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from training.tiny_problem import results, tiny_config, tiny_dataset

from wane.training.run import run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

CONFIG = tiny_config(learner={"epochs": 8, "momentum": 0.9}, record={"samples": "tasks", "flow": True, "eval_every": 3})
SHORT = tiny_config(learner={"epochs": 1}, record={"samples": "tasks", "flow": True})

#: Says when it begins, and writes slowly, a piece at a time, so that kills hit the writing too.
CHILD = """
import os, pathlib, sys, time
sys.path.insert(0, sys.argv[2])
import torch
torch.set_num_threads(1)
from training.test_kills import CONFIG
from training.tiny_problem import tiny_dataset
from wane.training import progress
from wane.training.run import run

class Slow:
    def __init__(self, file):
        self.file = file
    def write(self, data):
        for start in range(0, len(data), 4096):
            self.file.write(data[start:start + 4096])
            self.file.flush()
            time.sleep(0.005)
    def __getattr__(self, name):
        return getattr(self.file, name)
    def __enter__(self):
        return self
    def __exit__(self, *_):
        self.file.close()

def slowly(function):
    def slow(*args):
        time.sleep(0.004)
        done = function(*args)
        time.sleep(0.004)
        return done
    return slow

real_open = pathlib.Path.open

def open_slowly(path, *args, **kwargs):
    file = real_open(path, *args, **kwargs)
    return Slow(file) if path.suffix == ".tmp" else file

pathlib.Path.open = open_slowly
os.fsync, os.replace = slowly(os.fsync), slowly(os.replace)

class Spoken(progress.Progress):
    def run_started(self, session):
        super().run_started(session)
        print("begins", flush=True)

run(CONFIG, sys.argv[1], dataset=tiny_dataset(), listeners=[Spoken(quiet=True)])
"""


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    run(CONFIG, folder / "long", dataset=tiny_dataset())
    run(SHORT, folder / "short", dataset=tiny_dataset())
    return {"long": results(folder / "long"), "short": results(folder / "short")}


def begin(folder):
    """The same command every time; returns once it trains, or is done."""
    command = [sys.executable, "-c", CHILD, str(folder), str(Path(__file__).parents[1])]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    child.stdout.readline()
    return child


def wait_for(folder, pattern):
    until = time.monotonic() + 120
    while not list(folder.glob(pattern)):
        assert time.monotonic() < until, f"no {pattern} was ever written"
        time.sleep(0.0005)


def test_killed_at_random_moments_and_started_again(tmp_path, uninterrupted):
    folder, moments = tmp_path / "run", random.Random(0)
    killed_while = []
    for attempt in range(12):
        child = begin(folder)
        if attempt % 2:  # at any moment, or once a checkpoint is being written
            time.sleep(moments.uniform(0, 0.6))
        else:
            wait_for(folder, ".writing-*/checkpoint.pt.tmp")
        child.kill()
        child.communicate()
        if child.returncode == -signal.SIGKILL:
            killed_while.append(sorted(path.name for path in folder.rglob("*")))
        if (folder / "summary.json").exists():
            break
    child = begin(folder)
    _, errors = child.communicate()
    assert child.returncode == 0, errors
    assert len(killed_while) >= 10
    inside = [names for names in killed_while if "checkpoint.pt.tmp" in names]
    assert len(inside) >= 3  # the kill came while the checkpoint was being written
    assert results(folder) == uninterrupted["long"]
    assert not list(folder.glob(".*"))


def test_ctrl_c_stops_cleanly(tmp_path, uninterrupted):
    folder, moments = tmp_path / "run", random.Random(1)
    for _ in range(4):
        child = begin(folder)
        time.sleep(moments.uniform(0.1, 0.5))
        child.send_signal(signal.SIGINT)
        _, errors = child.communicate(timeout=60)
        assert child.returncode == -signal.SIGINT
        assert "KeyboardInterrupt" in errors
        assert not list(folder.glob(".*")), "a scratch file was left"
    child = begin(folder)
    assert child.wait() == 0
    assert results(folder) == uninterrupted["long"]


def run_until(folder, fatal):
    """In a process of its own: run, and be killed before (or after) the call of number `fatal // 2`."""
    calls = 0

    def counted(function):
        def call(*args):
            nonlocal calls
            if calls == fatal:
                os.kill(os.getpid(), signal.SIGKILL)
            calls += 1
            done = function(*args)
            if calls == fatal:
                os.kill(os.getpid(), signal.SIGKILL)
            calls += 1
            return done

        return call

    os.fsync, os.replace = counted(os.fsync), counted(os.replace)
    run(SHORT, folder, dataset=tiny_dataset())


def test_killed_before_and_after_every_single_step_of_the_writing(tmp_path, uninterrupted, monkeypatch):
    """Every flush and every move of every file of a run, two tasks of one epoch, each a kill of its own."""
    context = multiprocessing.get_context("forkserver")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))  # for the preload, which makes a child cheap
    context.set_forkserver_preload(["training.tiny_problem", "wane.training.loop", "polars", "torch._dynamo"])
    for fatal in range(1000):
        folder = tmp_path / str(fatal)
        child = context.Process(target=run_until, args=(folder, fatal))
        child.start()
        child.join()
        if child.exitcode == 0:
            break
        assert child.exitcode == -signal.SIGKILL
        run(SHORT, folder, dataset=tiny_dataset())
        assert results(folder) == uninterrupted["short"], f"killed at {fatal}"
        assert not list(folder.glob(".*"))
    assert fatal > 40
    assert results(folder) == uninterrupted["short"]


def test_bfloat16_resumes_too(tmp_path):
    """In a process of its own, because an emulated processor may claim instructions that it does not have."""
    code = """
import sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from training.tiny_problem import *
config, folder = tiny_config(precision="bf16", record={"samples": "tasks"}), Path(sys.argv[1])
run(config, folder / "whole", dataset=tiny_dataset())
stop(config, folder / "cut", dataset=tiny_dataset(), epochs=2)
stop(config, folder / "cut", dataset=tiny_dataset(), steps=6)
run(config, folder / "cut", dataset=tiny_dataset())
assert results(folder / "whole") == results(folder / "cut")
run(tiny_config(record={"samples": "tasks"}), folder / "float32", dataset=tiny_dataset())
assert results(folder / "whole") != results(folder / "float32")
"""
    command = [sys.executable, "-c", code, str(tmp_path), str(Path(__file__).parents[1])]
    subprocess.run(command, check=True, env={**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2"})
