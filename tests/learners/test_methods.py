"""Every method of the lab: it runs in the settings that it claims, and resumes to the byte."""

import numpy as np
import polars as pl
import pytest
import torch
from training.tiny_problem import results, stop, tiny_config, tiny_dataset

from wane.learners import find_learner
from wane.measures.history import History
from wane.training.checkpoint import load_checkpoint
from wane.training.run import run

METHODS = (
    "er_ace", "der", "derpp", "gem", "agem", "icarl", "ewc", "online_ewc", "si", "lwf", "lwf_mc", "hat", "pnn",
)  # fmt: skip
MODELS = {"mlp": {"name": "mlp", "hidden": [16, 12]}, "cnn": {"name": "cnn", "width": 4, "hidden": None}}


def config_of(name, model="mlp", **layers):
    """Three tasks of two epochs."""
    learner = {"name": name, "epochs": 2, "momentum": 0.5, **layers.pop("learner", {})}
    return tiny_config(model=MODELS[model], data={"tasks": 3}, learner=learner, **layers)


def problem():
    return tiny_dataset(classes=6, train=10, test=5)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", METHODS)
def test_runs_and_resumes_to_the_byte(name, model, tmp_path):
    """Stopped amid the second task, after it, amid an epoch of the third, and after its first epoch."""
    config = config_of(name, model)
    run(config, tmp_path / "whole", dataset=problem())
    for when in ({"epochs": 3}, {"epochs": 1}, {"steps": 1}, {"epochs": 1}):
        stop(config, tmp_path / "cut", dataset=problem(), **when)
    run(config, tmp_path / "cut", dataset=problem())
    assert results(tmp_path / "cut") == results(tmp_path / "whole")
    whole, cut = (load_checkpoint(tmp_path / folder)["learner"] for folder in ("whole", "cut"))
    assert whole.keys() == cut.keys()
    assert all(torch.equal(whole[key], cut[key]) for key in whole)
    splits = set(History.read(tmp_path / "whole" / "history.parquet").frame["split"])
    assert "test_task" in splits
    assert ("test" in splits) != find_learner(name).needs_task
