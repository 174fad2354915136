"""A stream of domains, end to end: the same classes, new data in every task."""

import json

import pytest
import torch
from training.tiny_problem import results, stop

import wane
from wane.loggers.follow import send_run
from wane.runs.config import ConfigError, build_config
from wane.runs.folder import RunFolder
from wane.streams import from_arrays
from wane.training.run import run
from wane.views.report.page import report_page


def domain_dataset():
    """Two classes in three domains; each domain moves both classes to another place."""
    g = torch.Generator().manual_seed(0)
    labels = torch.arange(120) % 2
    domains = torch.arange(120) // 40
    rows = torch.randn(120, 6, generator=g) + 3 * torch.eye(6)[2 * domains + labels]
    return from_arrays(
        rows, labels, rows, labels, layout="ND", train_domains=domains, test_domains=domains,
        domain_names=["north", "east", "west"], class_names=["cat", "dog"],
    )  # fmt: skip


def config(**settings):
    base = {
        "data": {"stream": "domains", "tasks": 3},
        "model": {"name": "mlp", "hidden": [8]},
        "memory": {"capacity": 12},
        "learner": {"epochs": 2, "batch_size": 8, "replay_size": 8, "lr": 0.1},
    }
    return build_config(base, settings)


def test_clean_slots_are_shared_by_the_classes_of_all_domains(tmp_path):
    run(config(memory={"holdout": 0.5}), tmp_path / "run", dataset=domain_dataset())
    frame = RunFolder(tmp_path / "run").history.frame.filter(split="memory_holdout")
    last = frame.filter(step=frame["step"].max()).sort("class")
    assert (last["class"].to_list(), last["n"].to_list()) == ([0, 1, 2, 3, 4, 5], [1] * 6)
    with pytest.raises(ConfigError, match=r"record\.correction is about lost classes"):
        run(config(record={"correction": {}}), tmp_path / "no", dataset=domain_dataset())


def test_a_group_is_a_class_of_a_domain(tmp_path):
    summary = run(config(), tmp_path / "run", dataset=domain_dataset())
    history = RunFolder(tmp_path / "run").history
    assert history.names == ("north: cat", "north: dog", "east: cat", "east: dog", "west: cat", "west: dog")
    assert history.class_to_task.tolist() == [0, 0, 1, 1, 2, 2]
    matrix = history.matrix("accuracy")
    assert matrix.shape == (3, 3)
    assert wane.forgetting(matrix) == pytest.approx(summary["metrics"]["accuracy"]["forgetting"])
    assert summary["metrics"]["accuracy"]["plasticity"] > 0.7
    # every class is in every task, so telling the task rules out no class
    assert summary["task_incremental"]["accuracy"] == summary["metrics"]["accuracy"]
    assert json.loads((tmp_path / "run" / "about.json").read_text())["task_names"] == ["north", "east", "west"]
    assert "north: cat" in report_page([RunFolder(tmp_path / "run")])
    assert send_run(tmp_path / "run", "tensorboard") is not None


@pytest.mark.parametrize(
    "settings",
    [
        {"memory": {"draw": "class_uniform", "scope": "past"}},
        {"learner": {"trend": {"signal": "log_tlr", "slope": "standardised"}}},
        {"learner": {"weights": {"signal": "log_tlr"}}},
    ],
)
def test_interventions_work_on_domains_and_a_run_resumes(tmp_path, settings):
    wanted = config(**settings)
    run(wanted, tmp_path / "whole", dataset=domain_dataset())
    stop(wanted, tmp_path / "stopped", dataset=domain_dataset(), epochs=3)
    run(wanted, tmp_path / "stopped", dataset=domain_dataset())
    assert results(tmp_path / "stopped") == results(tmp_path / "whole")


@pytest.mark.parametrize("record", [{"flow": True}, {"recovery": {"steps": 1}}])
def test_what_is_about_classes_is_refused(tmp_path, record):
    with pytest.raises(ValueError, match=r"data\.stream is domains"):
        run(config(record=record), tmp_path / "run", dataset=domain_dataset())


def test_the_embedded_data_has_domains(tmp_path):
    settings = {"data": {"name": "glyphs", "per_class": 3, "padding": 0, "flip": False}, "learner": {"epochs": 1}}
    run(build_config(config().model_dump(), settings), tmp_path / "run")
    assert RunFolder(tmp_path / "run").history.matrix("tlr").shape == (3, 3)
