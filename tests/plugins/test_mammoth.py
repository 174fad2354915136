"""The wrapper around an evaluation that does what Mammoth's does: masks logits in place, and checks a signature.

Mammoth is no package, so its own code does not run here; docs/plugins/mammoth.md says what was run by hand.
"""

import inspect

import numpy as np
import pytest
import torch
from plugins.digits import CLASS_TO_TASK, digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import wane
from wane.plugins.mammoth import record_evaluations


class Model(nn.Module):
    """Its head may be shorter than the number of classes, as iCaRL's answers are."""

    def __init__(self, width=10):
        super().__init__()
        torch.manual_seed(0)
        self.net, self.width = nn.Linear(64, 10), width

    def forward(self, x):
        return self.net(x)[:, : self.width].clone()


class Dataset:
    SETTING, N_TASKS, N_CLASSES = "class-il", 5, 10

    def __init__(self, tasks):
        self.eval_fn = evaluate
        self.test_loaders = [
            DataLoader(TensorDataset(*digits((2 * k, 2 * k + 1), test=True)), batch_size=20) for k in range(tasks)
        ]

    def get_offsets(self, task=None):
        task = len(self.test_loaders) - 1 if task is None else task
        return 2 * task, 2 * task + 2


@torch.no_grad()
def evaluate(model: "ContinualModel", dataset: "ContinualDataset", last=False, return_loss=False):  # noqa: F821
    accuracies, masked = [], []
    seen = dataset.get_offsets()[1]
    for k, loader in enumerate(dataset.test_loaders):
        if last and k < len(dataset.test_loaders) - 1:
            continue
        right = right_masked = total = 0
        for x, y in loader:
            z = model(x)
            right += int((z[:, :seen].argmax(1) == y).sum())
            start, end = dataset.get_offsets(k)
            z[:, :start] = -torch.inf
            z[:, end:] = -torch.inf
            right_masked += int((z.argmax(1) == y).sum())
            total += len(y)
        accuracies.append(100 * right / total)
        masked.append(100 * right_masked / total)
    return (accuracies, masked, 0.5) if return_loss else (accuracies, masked)


@pytest.mark.parametrize("width", [10, 6])
def test_what_is_recorded_is_what_the_model_said_before_it_was_masked(width, tmp_path):
    dataset, model = Dataset(tasks=3), Model(width)
    loaders, plain = dataset.test_loaders, dataset.eval_fn(model, dataset)
    recorder = record_evaluations(dataset, folder=tmp_path)
    assert dataset.eval_fn(model, dataset) == plain
    assert dataset.test_loaders is loaders
    assert not model._forward_hooks
    history = recorder.history
    assert history.class_to_task.tolist() == CLASS_TO_TASK
    assert [(e.step, e.task, e.classes.tolist()) for e in history.evaluations] == [(0, 2, [*range(6)])]
    images, labels = digits(range(6), test=True)
    scored = wane.signals(model(images).detach().double(), labels)
    wanted = [[scored[name][labels == c].mean() for name in wane.SIGNALS] for c in range(6)]
    np.testing.assert_allclose(history.evaluations[0].values, wanted, atol=1e-6)
    assert wane.History.read(tmp_path / "history.parquet").frame.equals(history.frame)


def test_among_the_seen_classes_accuracy_is_mammoths():
    dataset, model = Dataset(tasks=2), Model()
    recorder = record_evaluations(dataset, seen_only=True)
    accuracies, _ = dataset.eval_fn(model, dataset)
    row = recorder.history.matrix("accuracy")[1, :2]
    np.testing.assert_allclose(np.asarray(row) * 100, accuracies, rtol=1e-12)
    assert recorder.history.frame["log_tlr"].min() >= 0


def test_the_last_task_alone_is_not_an_evaluation():
    dataset = Dataset(tasks=2)
    recorder = record_evaluations(dataset)
    accuracies, _, loss = dataset.eval_fn(Model(), dataset, last=True, return_loss=True)
    assert (len(accuracies), loss) == (1, 0.5)
    assert not recorder.history.evaluations


def test_the_signature_that_mammoth_checks():
    dataset = Dataset(tasks=1)
    record_evaluations(dataset)
    assert inspect.signature(dataset.eval_fn) == inspect.signature(evaluate)


def test_an_evaluation_that_fails_leaves_everything_as_it_was():
    dataset, model = Dataset(tasks=1), Model()
    loaders = dataset.test_loaders
    recorder = record_evaluations(dataset)
    model.width = 1
    with pytest.raises(ValueError, match="from 2 to"):
        dataset.eval_fn(model, dataset)
    assert dataset.test_loaders is loaders
    assert not model._forward_hooks
    model.width = 10
    dataset.eval_fn(model, dataset)
    assert recorder.history.frame["n"].sum() == len(loaders[0].dataset)


def test_tasks_that_share_their_classes():
    dataset = Dataset(tasks=1)
    dataset.SETTING = "domain-il"
    assert record_evaluations(dataset).history.class_to_task.tolist() == []
