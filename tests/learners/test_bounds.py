"""The three methods of the lab on a problem that a small network learns almost perfectly."""

import pytest
from training.tiny_problem import tiny_config, tiny_dataset

from wane.measures.history import History
from wane.training.run import run


@pytest.fixture(scope="module")
def matrices(tmp_path_factory):
    """Accuracy, task x task, of each method."""
    found = {}
    for name in ("finetune", "er", "joint"):
        folder = tmp_path_factory.mktemp("bounds") / name
        learner = {"name": name, "epochs": 8, "lr": 0.3, "replay_size": 10}
        config = tiny_config(learner=learner, memory={"capacity": 8}, data={"flip": False, "padding": 0})
        run(config, folder, dataset=tiny_dataset(noise=0.7, test=50))
        found[name] = History.read(folder / "history.parquet").matrix("accuracy")
    return found


def test_every_method_learns_the_task_at_hand(matrices):
    for matrix in matrices.values():
        assert matrix[0, 0] > 0.9
        assert matrix[1, 1] > 0.75


def test_finetune_forgets(matrices):
    assert matrices["finetune"][1, 0] < 0.3


def test_joint_does_not(matrices):
    assert matrices["joint"][1, 0] > 0.8


def test_replay_is_in_between(matrices):
    finetune, er, joint = (matrices[name][1, 0] for name in ("finetune", "er", "joint"))
    assert finetune + 0.2 < er < joint - 0.1


def test_the_first_task_is_the_same_for_finetune_and_joint(matrices):
    assert matrices["finetune"][0, 0] == matrices["joint"][0, 0]
