"""Every method of the lab: it runs in the settings that it claims, and resumes to the byte."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from training.tiny_problem import results, stop, tiny_config, tiny_dataset
from typer.testing import CliRunner

from wane.cli import app
from wane.learners import LEARNERS, find_learner
from wane.learners.describe import describe_methods
from wane.measures.history import History
from wane.training.checkpoint import load_checkpoint
from wane.training.run import run

METHODS = (
    "er_ace", "der", "derpp", "xder", "gem", "agem", "icarl", "ewc", "online_ewc", "si", "lwf", "lwf_mc", "hat", "pnn",
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


@pytest.mark.parametrize("name", ["derpp", "icarl", "er_ace", "gem"])
def test_loss_weights_work_with_every_replay(name, tmp_path):
    run(config_of(name), tmp_path / "plain", dataset=problem())
    run(config_of(name, learner={"weights": {"signal": "loss"}}), tmp_path / "weighted", dataset=problem())
    assert results(tmp_path / "plain")["history"] != results(tmp_path / "weighted")["history"]
    log = pl.read_parquet(tmp_path / "weighted" / "replay.parquet").filter(task=2)
    assert (log["weight_min"] < 1).all()
    assert (log["weight_max"] > 1).all()


@pytest.mark.parametrize("name", ["derpp", "icarl", "er_ace", "gem"])
def test_a_trend_decides_the_draw_of_every_replay(name, tmp_path):
    """What the log says could be drawn is what was, and it is not what a draw by class would be."""
    trend = {"signal": "loss", "window": 4, "slope": "standardised", "gamma": 1.0, "scope": "past"}
    settings = {"memory": {"capacity": 24}, "learner": {"epochs": 4, "trend": trend}}
    run(config_of(name, **settings), tmp_path / "run", dataset=problem())
    log = pl.read_parquet(tmp_path / "run" / "replay.parquet").filter(task=2)
    shares, drawn = (np.array(log[column].to_list(), dtype=float) for column in ("probabilities", "drawn"))
    assert (drawn[:, 4:] == 0).all()  # the current task
    assert (drawn[shares == 0] == 0).all()
    assert shares[-1].max() > 1.5 * shares[-1][:4].mean()
    expected = shares * drawn.sum(1, keepdims=True)
    deviation = np.sqrt(expected * (1 - shares)) + 1
    assert (np.abs(drawn - expected) < 4 * deviation).all()


@pytest.mark.parametrize("name", METHODS)
def test_single_rows_and_half_precision(name, tmp_path):
    """A last step of one new row, a memory with one row of a class, batch norm over one pixel, and bfloat16."""
    data = tiny_dataset(classes=6, train=10, test=5)
    config = config_of(name, "cnn", memory={"capacity": 3}, precision="bf16", learner={"batch_size": 19, "epochs": 1})
    run(config, tmp_path / "run", dataset=data)


#: Weights and buffers of the network of these runs (mlp), in numbers, and bytes of a slot: image, and four of 8 bytes.
NETWORK, SLOT = 36 * 16 + 16 + 16 * 12 + 12 + 12 * 6 + 6, 36 + 32


@pytest.mark.parametrize(
    ("name", "rows", "extras", "state"),
    [
        ("finetune", 0, 0, 0),
        ("joint", 40 * (36 + 8), 0, 0),
        ("er", 12 * SLOT + 8, 0, 0),
        ("derpp", 12 * SLOT + 8, 12 * 6 * 4, 0),
        ("xder", 12 * SLOT + 8, 12 * 7 * 4, 0),
        ("lwf", 0, 0, 4 * NETWORK),
        ("icarl", 12 * SLOT + 8, 0, 4 * (NETWORK + 6 * 12)),
        ("ewc", 0, 0, 4 * (2 * NETWORK + 1)),
        ("online_ewc", 0, 0, 4 * (2 * NETWORK + 1)),
        ("si", 0, 0, 4 * 3 * NETWORK),
        ("hat", 0, 0, 4 * (3 + 1) * (16 + 12)),
        # two more networks, and in each an adapter of the second layer: a scale, a reduction and an expansion
        ("pnn", 0, 0, 4 * (2 * NETWORK + sum(k + (k * 16 * 16 + 16) + 16 * 12 for k in (1, 2)))),
    ],
)
def test_what_a_method_keeps(name, rows, extras, state, tmp_path):
    summary = run(config_of(name, learner={"epochs": 1}), tmp_path / "run", dataset=problem())
    assert summary["kept"] == {"rows": rows, "extras": extras, "state": state}


def test_every_method_is_described():
    """In `wane methods` with a word on each option, and in the table of the documentation."""
    page = Path(__file__).parents[2].joinpath("docs", "methods.md").read_text(encoding="utf-8")
    said = CliRunner().invoke(app, ["methods"]).output
    for method in describe_methods():
        assert f"\n| `{method.name}` | " in page
        assert f"{method.name}: {method.title} (" in said
        for option in method.options:
            assert option.text.endswith(".")
            assert f"learner.options.{option.name} = {option.default}  {option.text}" in said
    assert set(METHODS) | {"er", "finetune", "joint"} <= set(LEARNERS)
