"""Every method of the lab on two devices, and killed in the midst of its work."""

import multiprocessing
import os
import signal
from pathlib import Path

import numpy as np
import polars as pl
import polars.selectors as cs
import pytest
import torch
from learners.test_methods import config_of, problem
from training.tiny_problem import results

from wane.learners import LEARNERS
from wane.runs.config import ConfigError
from wane.training.checkpoint import load_checkpoint
from wane.training.events import Listener
from wane.training.run import run

OWN = tuple(LEARNERS)
#: Take several gradients in a step, which DDP cannot share out.
ONE_DEVICE = {"gem", "agem"}
#: Have a loss that compares the rows of a process with each other: like, but not equal to, that of one process.
OF_THEIR_OWN_ROWS = {"xder"}


@pytest.mark.parametrize("name", sorted(ONE_DEVICE))
def test_methods_of_several_gradients_refuse_two_devices_in_a_sentence(name, tmp_path):
    with pytest.raises(ConfigError, match=rf"^devices = 2, but learner {name} takes several gradients in a step: set"):
        run(config_of(name, devices=2), tmp_path / "run", dataset=problem())


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", sorted(set(OWN) - ONE_DEVICE))
def test_two_devices_do_what_one_does(name, tmp_path):
    """Shares of 4 and 3 rows, draws of 3 and 2; a network without batch norm, so equal to rounding."""
    layers = {"learner": {"batch_size": 7, "replay_size": 5, "epochs": 1}}
    for folder, devices in (("one", None), ("two", 2)):
        run(config_of(name, devices=devices, **layers), tmp_path / folder, dataset=problem())
    one, two = (pl.read_parquet(tmp_path / folder / "history.parquet") for folder in ("one", "two"))
    assert one.select(~cs.float()).equals(two.select(~cs.float()))
    numbers = [frame.select(cs.float()).to_numpy() for frame in (one, two)]
    assert np.nanstd(numbers[0]) > 0.1
    saved, wanted = (load_checkpoint(tmp_path / folder) for folder in ("two", "one"))
    for kind, state in wanted["generators"].items():
        assert torch.equal(saved["generators"][kind], state), kind
    near = 0.3 if name in OF_THEIR_OWN_ROWS else 2e-5
    np.testing.assert_allclose(numbers[1], numbers[0], atol=near)
    assert saved["learner"].keys() == wanted["learner"].keys()
    for key, value in wanted["learner"].items():
        torch.testing.assert_close(saved["learner"][key], value, atol=near, rtol=1e-4)


class KillAt(Listener):
    """SIGKILL in this step of the sitting, or while the files of this epoch are being written."""

    def __init__(self, step=None, epoch=None):
        self.step, self.epoch, self.steps, self.epochs = step, epoch, 0, 0

    def step_done(self, session, rows):
        self.steps += 1
        if self.steps == self.step:
            os.kill(os.getpid(), signal.SIGKILL)

    def epoch_done(self, session, task, epoch):
        self.epochs += 1
        if self.epochs + 1 == self.epoch:  # the next one
            real = os.replace

            def replace(source, target):
                if Path(target).name == "checkpoint.pt":
                    os.kill(os.getpid(), signal.SIGKILL)
                real(source, target)

            os.replace = replace


def killed(name, folder, when):
    """In a process of its own."""
    torch.set_num_threads(1)
    run(config_of(name), folder, dataset=problem(), listeners=[KillAt(**when)])


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", OWN)
def test_killed_in_a_step_and_while_a_checkpoint_is_written(name, tmp_path, monkeypatch):
    """In the first task, in the second, and in the last step of a task, whose end may fill memory or importances."""
    run(config_of(name), tmp_path / "whole", dataset=problem())
    context = multiprocessing.get_context("forkserver")
    paths = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    context.set_forkserver_preload(["learners.test_methods", "wane.training.loop", "torch._dynamo"])
    for when in ({"step": 3}, {"epoch": 2}, {"step": 5}, {"epoch": 2}, {"step": 1}):
        child = context.Process(target=killed, args=(name, tmp_path / "cut", when))
        child.start()
        child.join()
        assert child.exitcode == -signal.SIGKILL, when
    run(config_of(name), tmp_path / "cut", dataset=problem())
    assert results(tmp_path / "cut") == results(tmp_path / "whole")
    whole, cut = (load_checkpoint(tmp_path / folder)["learner"] for folder in ("whole", "cut"))
    assert whole.keys() == cut.keys()
    assert all(torch.equal(whole[key], cut[key]) for key in whole)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_hat_refuses_weight_decay_when_the_run_starts(momentum, tmp_path):
    said = r"^learner\.weight_decay = 0\.1 would move weights that learner hat promises to leave alone: set it to 0$"
    with pytest.raises(ConfigError, match=said):
        run(config_of("hat", learner={"weight_decay": 0.1, "momentum": momentum}), tmp_path / "run", dataset=problem())
    assert not (tmp_path / "run" / "checkpoint.pt").exists()
