"""Rows that are not images, through a whole run."""

import pytest
import torch
from training.tiny_problem import results, stop, tiny_config

from wane.streams import from_arrays
from wane.training.checkpoint import load_checkpoint
from wane.training.run import run


def table(*, classes=4, features=7, seed=0):
    """Each class is a point with noise around it; the columns have very different scales."""
    generator = torch.Generator().manual_seed(seed)
    scales = torch.logspace(-3, 4, features)
    points = torch.randn(classes, features, generator=generator)

    def split(n):
        labels = torch.arange(classes).repeat(n)
        rows = points[labels] + 0.3 * torch.randn(len(labels), features, generator=generator)
        return (rows * scales + 100).double().numpy(), labels

    return from_arrays(*split(20), *split(10), layout="ND", name="table")


def test_a_table_is_learnt_with_replay(tmp_path):
    """The default config asks for crops and flips, which tables do not have."""
    summary = run(tiny_config(data={"padding": 4, "flip": True}), tmp_path / "run", dataset=table())
    assert summary["metrics"]["accuracy"]["average"] > 0.6
    memory = load_checkpoint(tmp_path / "run")["memory"]
    assert memory["images"].dtype == torch.float32
    assert memory["images"].shape == (12, 7)
    stored = {row.numpy().tobytes() for row in table().train.images}
    assert all(row.numpy().tobytes() in stored for row in memory["images"])


@pytest.mark.parametrize("when", [{"epochs": 1}, {"epochs": 4}, {"steps": 15}])
def test_a_run_on_a_table_resumes_to_the_same_bytes(when, tmp_path):
    config = tiny_config(memory={"policy": "class_balanced"}, data={"holdout": 2})
    run(config, tmp_path / "whole", dataset=table())
    stop(config, tmp_path / "stopped", dataset=table(), **when)
    run(config, tmp_path / "stopped", dataset=table())
    assert results(tmp_path / "stopped") == results(tmp_path / "whole")


def test_float_images_run_through_the_cnn(tmp_path):
    generator = torch.Generator().manual_seed(0)
    images, labels = torch.randn(40, 2, 8, 8, generator=generator), torch.arange(40) % 4
    data = from_arrays(images, labels, images, labels, layout="NCHW")
    config = tiny_config(model={"name": "cnn", "width": 4, "hidden": None})
    assert run(config, tmp_path / "run", dataset=data)["steps"] > 0


def test_a_convolutional_network_on_a_table_says_what_to_do(tmp_path):
    config = tiny_config(model={"name": "cnn", "hidden": None})
    with pytest.raises(ValueError, match=r"cnn is for images .* image_shape=\(7,\): use the mlp"):
        run(config, tmp_path / "run", dataset=table())


def test_uneven_tasks_run(tmp_path):
    summary = run(tiny_config(data={"tasks": 3}), tmp_path / "run", dataset=table())
    assert len(summary["accuracy_matrix"]) == 3
