"""Tiny sweeps on scikit-learn's digits: a run takes a fraction of a second, once everything is imported."""

import subprocess
import sys
import time
from pathlib import Path

from training.tiny_problem import results

from wane.sweeps.plan import expand
from wane.training.run import run

RECIPE = """
data = { name = "digits", per_class = 10, tasks = 2, padding = 1, flip = false }
model = { name = "mlp", hidden = [16] }
learner = { name = "er", epochs = 2, batch_size = 10, replay_size = 10, lr = 0.1 }
memory = { capacity = 20 }
"""
#: Runs long enough to be killed in the middle: 60 epochs.
LONG = ({"learner": {"epochs": 30}},)
#: Takes some seconds, so that whoever waits for its middle may be starved for as long: 160 epochs.
LONGER = ({"learner": {"epochs": 80}},)

DRIVER = """
import sys, torch
from wane.cli import app
from wane.cli.sweep import sweep
if "sweep" not in [c.name or c.callback.__name__ for c in app.registered_commands]:
    app.command()(sweep)
if __name__ == "__main__":
    app()
"""


def recipe(folder):
    path = Path(folder) / "tiny.toml"
    path.write_text(RECIPE)
    return str(path)


def planned(folder, *settings, **over):
    return expand(recipe(folder), settings=settings, over={"seed": [0, 1], **over})


def driver(folder, *arguments, **options):
    """`wane` in a process of its own, in a session of its own."""
    script = Path(folder) / "driver.py"
    script.write_text(DRIVER)
    command = [sys.executable, str(script), *map(str, arguments)]
    options = {"text": True, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, **options}
    return subprocess.Popen(command, start_new_session=True, **options)


def alone(runs, folder):
    """Each run by itself, in this process: what the runs of a sweep must be equal to."""
    found = {}
    for plan in runs:
        run(plan.config, Path(folder) / plan.name)
        found[plan.name] = results(Path(folder) / plan.name)
    return found


def all_results(root, runs):
    return {plan.name: results(Path(root) / plan.name) for plan in runs}


def attempts(folder):
    """How often a run was begun or gone on with."""
    return (Path(folder) / "log.txt").read_text().count(" process ")


def wait_for(condition, seconds=120):
    until = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < until, "it did not happen"
        time.sleep(0.02)
    return found
