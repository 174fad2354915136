"""What every test shares: one thread a process (two run side by side), patience, and no window for figures."""

import os
import signal
import socket

import matplotlib as mpl
import pytest
import torch
from hypothesis import HealthCheck, settings

os.environ["OMP_NUM_THREADS"] = "1"  # for the commands that tests start
# a shell's background jobs ignore Ctrl-C, and so would all that tests start, to stop it by just that signal
signal.signal(signal.SIGINT, signal.default_int_handler)
mpl.use("agg")
torch.set_num_threads(1)
# a busy machine is slow, and that is no failure: of no example, and of no drawing of examples
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")
collect_ignore = [  # scripts: for a machine that has Mammoth, and for a process of its own
    "learners/record_peers.py",
    "plugins/lightning_ddp.py",
    "plugins/transformers_ddp.py",
]


@pytest.fixture
def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def pytest_runtest_setup():
    torch.manual_seed(0)  # what a test draws without a seed is the same alone and after others
