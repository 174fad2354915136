"""What a run costs: counted by hand where that is possible, the same after a kill, and shown by CLScore."""

import json

import pytest
import torch
from training.tiny_problem import results, stop, tiny_config, tiny_dataset

import wane
from wane.runs.folder import RunFolder
from wane.training.costs import COSTS, Operations
from wane.training.run import run
from wane.views.tables.formats import to_text
from wane.views.tables.run_tables import run_table


def costs_of(folder, **layers):
    run(tiny_config(**layers), folder, dataset=tiny_dataset())
    return RunFolder(folder).history.costs


def test_a_run_of_a_small_mlp_by_hand(tmp_path):
    costs = costs_of(tmp_path / "er")
    assert tuple(costs) == COSTS
    # 36 -> 16 -> 4: both products forward, both again for the weights, and the second for the hidden units
    weights = 36 * 16 + 16 * 4
    forward_and_back = 2 * weights + 16 * 4
    rows = [3 * (40 + 6 * 4), 3 * (40 + 6 * 4)]  # three epochs of four steps, with six replayed rows each
    rows[0] -= 6  # the memory is empty in the very first step
    assert costs["parameters"] == [weights + 20] * 2
    assert costs["model_bytes"] == [4 * (weights + 20)] * 2
    assert costs["data_rows"] == [40, 40]
    assert costs["data_bytes"] == [40 * 36] * 2
    assert costs["memory_rows"] == [12, 12]
    assert costs["memory_bytes"] == [12 * 36] * 2
    assert costs["steps"] == [12, 12]
    assert costs["rows"] == rows
    assert costs["one_pass"] == [40 * forward_and_back] * 2
    assert costs["operations"] == [n * forward_and_back for n in rows]


@pytest.mark.parametrize(
    "learner", ["finetune", "joint", "derpp", "gem", "agem", "icarl", "ewc", "si", "lwf", "hat", "pnn"]
)
def test_every_method_is_counted(learner, tmp_path):
    costs = costs_of(tmp_path / learner, learner={"name": learner, "epochs": 2})
    assert all(len(values) == 2 and min(values) >= 0 for values in costs.values())
    assert min(*costs["operations"], *costs["one_pass"], *costs["model_bytes"]) > 0
    stores = {"finetune": [0, 0], "joint": [40, 80], "ewc": [0, 0], "derpp": [12, 12]}
    assert costs["memory_rows"] == stores.get(learner, costs["memory_rows"])
    if learner == "ewc":  # the Fisher information and where the parameters were, beside the parameters
        assert costs["model_bytes"][0] > 2.9 * 4 * costs["parameters"][0]
    if learner == "pnn":  # a column more
        assert costs["parameters"][1] == 2 * costs["parameters"][0]
    if learner == "derpp":  # logits are stored, too
        assert costs["memory_bytes"] == [12 * (36 + 4 * 4)] * 2
    if learner == "lwf":  # a teacher answers beside the student, from the second task on
        assert costs["operations"][1] > costs["operations"][0]


def test_the_score_of_a_run_and_where_it_is_shown(tmp_path):
    folder = tmp_path / "er"
    run(tiny_config(), folder, dataset=tiny_dataset())
    history, summary = RunFolder(folder).history, json.loads((folder / "summary.json").read_text())
    score = wane.cl_score(history)
    costs = history.costs
    assert score["SSS"] == pytest.approx(1 - 12 / 80)
    assert score["MS"] == 1
    assert score["CE"] == pytest.approx(
        sum(o / (1 + n) for o, n in zip(costs["one_pass"], costs["operations"], strict=True)) / 2
    )
    assert summary["metrics"]["accuracy"]["cl_score"] == score["CLscore"]
    assert summary["metrics"]["loss"]["cl_score"] is None
    assert summary["task_incremental"]["accuracy"]["cl_score"] == wane.cl_score(history, split="test_task")["CLscore"]
    text = to_text(run_table("auto", [RunFolder(folder)]))
    assert "CLScore" in text
    assert "CL-BWT+ ↑" in text


def test_a_stopped_run_costs_the_same(tmp_path):
    run(tiny_config(), tmp_path / "whole", dataset=tiny_dataset())
    for epochs in (1, 3):
        stop(tiny_config(), tmp_path / "run", dataset=tiny_dataset(), epochs=epochs)
    run(tiny_config(), tmp_path / "run", dataset=tiny_dataset())
    assert results(tmp_path / "run") == results(tmp_path / "whole")
    assert RunFolder(tmp_path / "run").history.costs == RunFolder(tmp_path / "whole").history.costs


def test_counting_changes_no_number():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.Flatten(),
                              torch.nn.Linear(8 * 36, 5))  # fmt: skip
    images = torch.randn(4, 3, 8, 8).to(memory_format=torch.channels_last)

    def gradients():
        net.zero_grad()
        net(images).logsumexp(1).sum().backward()
        return [parameter.grad.clone() for parameter in net.parameters()]

    plain = gradients()
    with Operations() as counted:
        seen = gradients()
    assert all(torch.equal(a, b) for a, b in zip(plain, seen, strict=True))
    convolution, linear = 4 * 36 * 8 * 27, 4 * 8 * 36 * 5
    assert counted.total == 2 * convolution + 3 * linear  # the images need no gradient
