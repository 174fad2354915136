"""One run on two processes (gloo, on the CPU): equal to one process where the maths says so, and as hard to break."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import polars as pl
import polars.selectors as cs
import pytest
import torch
from training.device_learners import METHODS
from training.tiny_problem import dropout_net, results, stop, tiny_config, tiny_dataset
from typer.testing import CliRunner

from wane.cli import app
from wane.errors import CheckpointError
from wane.learners import LEARNERS
from wane.measures.history import History
from wane.runs.config import ConfigError, build_config
from wane.runs.identity import fingerprint
from wane.training import launch as devices
from wane.training import loop
from wane.training.checkpoint import load_checkpoint
from wane.training.loop import DivergedError
from wane.training.run import run
from wane.training.team import TeamError

pytestmark = pytest.mark.timeout(240)

BOTH = {"weights": {"signal": "ctl"}, "trend": {"signal": "log_tlr", "window": 2, "gamma": 20.0}}

#: Settings of runs whose network has no batch norm and no dropout. A task has 32 rows.
EQUAL = {
    "interventions": {"learner": BOTH, "record": {"eval_every": 3, "samples": "tasks", "flow": True, "ladder": True}},
    "uneven": {  # batches of 7 and one of 4, shares of 4 and 3, of the replay 3 and 2; weights over all rows
        "learner": {"batch_size": 7, "replay_size": 5, "momentum": 0.9, "weights": {"signal": "loss", "rows": "all"}},
        "memory": {"policy": "class_balanced", "draw": "class_uniform"},
    },
    "a row for one": {"learner": {"name": "finetune", "batch_size": 31, "epochs": 2, "weight_decay": 0.01}},
    "three": {"learner": {"batch_size": 7, "replay_size": 4, "epochs": 1}, "devices": 3},
    "stored logits": {"learner": {"name": "dark", "batch_size": 8, "epochs": 2}},
    "an unused head": {"learner": {"name": "heads", "batch_size": 8, "momentum": 0.5, "weight_decay": 0.1}},
    "joint": {"learner": {"name": "joint"}},
    "parts": {  # a mean for the new rows and for each draw, shares uneven; in other processes by its reference
        "learner": {"name": "learners.own_methods:DERpp", "batch_size": 7, "replay_size": 5, "epochs": 2,
                    "options": {"alpha": 0.3}, "weights": {"signal": "ctl"}},
    },
    "a part for each task": {"learner": {"name": "learners.own_methods:ByTask", "batch_size": 7, "replay_size": 5}},
    "clean slots": {"memory": {"holdout": 0.35}, "record": {"correction": {"by": "loss", "source": "memory_holdout"}}},
    "task and memory": {"learner": {"name": "learners.own_methods:ICaRL", "epochs": 2, "batch_size": 7}},
}  # fmt: skip
SLOW = {"three", "clean slots", "stored logits", "an unused head", "joint", "a part for each task", "task and memory"}


@pytest.fixture(autouse=True)
def methods(monkeypatch):
    for name, cls in METHODS.items():
        monkeypatch.setitem(LEARNERS, name, cls)


def table(folder, name="history.parquet"):
    return pl.read_parquet(folder / name)


def numbers(frame):
    return frame.select(cs.float()).to_numpy()


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow if n in SLOW else ()) for n in EQUAL])
def test_without_batch_norm_it_is_the_run_of_one_process(name, tmp_path):
    dataset = tiny_dataset(holdout=4)
    several = tiny_config(**{"devices": 2, **EQUAL[name]})
    one = several.model_copy(update={"devices": None})
    for config, folder in ((several, "several"), (one, "one")):
        run(config, tmp_path / folder, dataset=dataset)
    history, expected = (table(tmp_path / folder) for folder in ("several", "one"))
    assert history.select(~cs.float()).equals(expected.select(~cs.float()))  # rows, classes, counts: of all samples
    np.testing.assert_allclose(numbers(history), numbers(expected), atol=2e-5)
    assert numbers(expected).std() > 0.1

    saved, wanted = (load_checkpoint(tmp_path / folder) for folder in ("several", "one"))
    for key, column in (wanted["memory"] or {}).items():
        if key.startswith("extras"):
            torch.testing.assert_close(saved["memory"][key], column, atol=2e-5, rtol=0)
        else:
            assert torch.equal(saved["memory"][key], column), key
    for key, weights in wanted["learner"].items():
        torch.testing.assert_close(saved["learner"][key], weights, atol=2e-5, rtol=0)
    assert saved["learner"].keys() == wanted["learner"].keys()
    for name, state in wanted["generators"].items():
        assert torch.equal(saved["generators"][name], state), name
    if wanted["memory"] is not None:
        log, other = (table(tmp_path / folder, "replay.parquet") for folder in ("several", "one"))
        assert log["drawn"].to_list() == other["drawn"].to_list()
        np.testing.assert_allclose(np.stack(log["probabilities"]), np.stack(other["probabilities"]), atol=1e-3)
        np.testing.assert_allclose(numbers(log), numbers(other), atol=1e-3)
    if several.record.flow:
        samples, others = (table(tmp_path / folder, "samples.parquet") for folder in ("several", "one"))
        assert samples.select("step", "sample", "class").equals(others.select("step", "sample", "class"))
        np.testing.assert_allclose(numbers(samples), numbers(others), atol=1e-4)
        with np.load(tmp_path / "several" / "flow.npz") as flow, np.load(tmp_path / "one" / "flow.npz") as other:
            np.testing.assert_allclose(flow["flow"], other["flow"], atol=1e-5)
        ladder, other = (table(tmp_path / folder, "ladder.parquet") for folder in ("several", "one"))
        same = ["step", "class", "n", "rung"]
        assert ladder.select(same).equals(other.select(same))  # the first process had every row, in order
        np.testing.assert_allclose(ladder["accuracy"], other["accuracy"], atol=1e-9)


def test_stopped_and_gone_on_with_batch_norm_and_dropout(tmp_path):
    """To the byte that of two processes which never were; and not that of one, as batch norm sees half the rows."""
    config = tiny_config(devices=2, learner=BOTH, record={"eval_every": 3})
    run(config, tmp_path / "whole", dataset=tiny_dataset(), model=dropout_net())
    for when in ({"epochs": 1}, {"steps": 6}, {"epochs": 2}):
        stop(config, tmp_path / "cut", dataset=tiny_dataset(), model=dropout_net(), **when)
    run(config, tmp_path / "cut", dataset=tiny_dataset(), model=dropout_net())
    assert results(tmp_path / "cut") == results(tmp_path / "whole")
    run(tiny_config(learner=BOTH), tmp_path / "one", dataset=tiny_dataset(), model=dropout_net())
    assert results(tmp_path / "cut")["history"] != results(tmp_path / "one")["history"]
    steps, epochs = (table(tmp_path / "cut").filter(split=split) for split in ("test_steps", "test"))
    at = set(steps["step"]) & set(epochs["step"])
    same = pl.col("step").is_in(list(at))
    assert steps.filter(same).drop("split").equals(epochs.filter(same).drop("split"))


def test_nan_stops_all_with_the_sentence_of_one(tmp_path):
    for devices_, folder in ((2, "two"), (None, "one")):
        config = tiny_config(devices=devices_, learner={"lr": 1e30})
        with pytest.raises(DivergedError) as error:
            run(config, tmp_path / folder, dataset=tiny_dataset())
        (tmp_path / f"{folder}.txt").write_text(str(error.value))
    assert (tmp_path / "two.txt").read_text() == (tmp_path / "one.txt").read_text()
    assert not torch.distributed.is_initialized()


@pytest.mark.parametrize(
    ("classes", "sentence"),
    [(4, "process 2 of 2 failed: ValueError: the second process has had enough"), (6, "process 2 of 2 was killed by")],
)
def test_another_process_that_fails_ends_the_run_with_its_reason(classes, sentence, tmp_path):
    config = tiny_config(devices=2, learner={"name": "breaking"})
    with pytest.raises(TeamError, match=sentence):
        run(config, tmp_path / "run", dataset=tiny_dataset(classes=classes))
    assert time.time() - (tmp_path / "run" / "checkpoint.pt").stat().st_mtime < 60  # soon after the last whole epoch
    assert load_checkpoint(tmp_path / "run")["position"]["task"] == 1
    assert not torch.distributed.is_initialized()


def test_what_the_first_process_fails_of_is_not_blamed_on_others(tmp_path, monkeypatch):
    def full(*_):
        raise CheckpointError("the disk is full")

    monkeypatch.setattr(loop, "save_checkpoint", full)
    with pytest.raises(CheckpointError, match="the disk is full"):
        run(tiny_config(devices=2), tmp_path / "run", dataset=tiny_dataset())


@pytest.mark.slow
def test_random_numbers_of_a_forward_pass_are_a_process_s_own(tmp_path):
    config = tiny_config(devices=2, learner={"name": "noisy"}, memory={"capacity": 200})
    run(config, tmp_path / "run", dataset=tiny_dataset())
    memory = load_checkpoint(tmp_path / "run")["memory"]
    drawn = memory["extras.logits"][(memory["steps"] > 1)]
    assert len(drawn) > 100
    assert len(drawn[:, 0].unique()) == len(drawn)  # over all steps, epochs and both processes


@pytest.mark.slow
def test_a_learner_that_differs_between_processes_is_found_out(tmp_path):
    with pytest.raises(RuntimeError, match="no longer agree on weights or memory: Disloyal changes them"):
        run(tiny_config(devices=2, learner={"name": "disloyal"}), tmp_path / "run", dataset=tiny_dataset())


def test_what_cannot_be_is_said_at_once(tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match="devices is 2, but device is cuda:1: set it to auto, cpu or cuda"):
        tiny_config(devices=2, device="cuda:1")

    class Inner(METHODS["dark"]):
        """Not to be found by its name."""

    monkeypatch.setitem(LEARNERS, "inner", Inner)
    config = tiny_config(devices=2, learner={"name": "inner"})
    with pytest.raises(ConfigError, match="cannot be sent to other processes"):
        run(config, tmp_path / "inner", dataset=tiny_dataset())
    config = tiny_config(devices=2, learner={"name": "learners.own_methods:AGEM"})
    sentence = "learner learners.own_methods:AGEM takes several gradients in a step: set devices to 1"
    with pytest.raises(ConfigError, match=sentence):
        run(config, tmp_path / "several", dataset=tiny_dataset())
    monkeypatch.setattr(devices.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"devices = 2 needs the package lightning-fabric: pip install 'wane\[ddp\]'"):
        run(tiny_config(devices=2), tmp_path / "none", dataset=tiny_dataset())


def test_one_device_is_the_run_without_the_setting():
    names = [fingerprint(build_config(layer)) for layer in ({}, {"devices": 1}, {"devices": 2})]
    assert names[0] == names[1] != names[2]


#: Characters of 12 pixels in two tasks, six epochs: with holdouts of nothing, and batch norm (the model is a cnn).
RECIPE = """
recipe = "pair"
devices = 2
threads = 1
[data]
name = "glyphs"
per_class = 6
resolution = 12
tasks = 2
[model]
name = "cnn"
width = 4
[learner]
epochs = 3
batch_size = 32
replay_size = 32
[learner.trend]
window = 2
[memory]
capacity = 40
"""


def test_from_the_command_line(tmp_path):
    (tmp_path / "pair.toml").write_text(RECIPE.replace("devices = 2", "").replace("epochs = 3", "epochs = 1"))
    said = CliRunner().invoke(app, ["run", str(tmp_path / "pair.toml"), "--devices", "2", "--out", str(tmp_path / "r")])
    assert said.exit_code == 0, said.output
    assert "done in" in said.output
    assert "task 2 epoch 1/1" in said.stderr
    assert "devices = 2" in (tmp_path / "r" / "config.toml").read_text()
    assert table(tmp_path / "r").filter(split="test", step=20)["class"].n_unique() == 100


def begin(folder):
    (folder.parent / "pair.toml").write_text(RECIPE)
    command = [sys.executable, "-m", "wane.cli", "run", str(folder.parent / "pair.toml"), "--out", str(folder)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


def wait_for(condition, seconds=240):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def processes_of(session):
    """All that live in the session of a command that was started."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, sid = stat.read_text().rsplit(")", 1)[1].split()[:4]
        except OSError:
            continue
        if int(sid) == session and state not in "ZX":
            found.append(int(stat.parent.name))
    return found


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pair") / "whole"
    whole = begin(folder)
    assert whole.wait(300) == 0, whole.stderr.read()
    return results(folder)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("means", "epochs"), [("kill", [1, 4]), ("interrupt", [2]), ("interrupt all", [2])])
def test_ended_from_outside_nothing_stays_and_the_same_command_goes_on(means, epochs, tmp_path, uninterrupted):
    folder = tmp_path / "cut"

    def done():
        path = folder / "history.parquet"
        return History.read(path).frame.filter(split="test")["step"].n_unique() if path.exists() else 0

    for wanted in epochs:
        child = begin(folder)
        wait_for(lambda wanted=wanted: done() >= wanted)
        assert len(processes_of(child.pid)) >= 3  # two that train, and the server that forked the second
        if means == "kill":
            child.kill()
        elif means == "interrupt":
            child.send_signal(signal.SIGINT)
        else:  # as a terminal does it
            os.killpg(child.pid, signal.SIGINT)
        code, said = child.wait(60), child.stderr.read()
        if means != "kill":
            assert code == 130
            assert "goes on from the last whole epoch" in said
        assert "Traceback" not in said
        assert "Warning" not in said
        wait_for(lambda pid=child.pid: not processes_of(pid), 30)
    last = begin(folder)
    assert last.wait(300) == 0, last.stderr.read()
    assert results(folder) == uninterrupted
