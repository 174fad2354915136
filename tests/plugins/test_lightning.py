"""The callback in real fits: digits, one task after the other."""

import re
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from plugins.digits import CLASS_TO_TASK, digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import wane
from wane.measures.summaries import summarise

L = pytest.importorskip("lightning")
from wane.plugins.lightning import HistoryCallback, read_outputs  # noqa: E402


class Net(L.LightningModule):
    """Keeps the logits of every validation, to compute everything from anew."""

    def __init__(self, answer=lambda loss, logits, labels: {"loss": loss, "logits": logits}):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
        self.answer, self.kept, self.passes = answer, [], []

    def training_step(self, batch, _):
        return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

    def validation_step(self, batch, _, dataloader_idx=0):
        logits = self.net(batch[0])
        self.kept.append((logits, batch[1], dataloader_idx))
        return self.answer(nn.functional.cross_entropy(logits, batch[1]), logits, batch[1])

    def on_validation_epoch_end(self):
        if not self.trainer.sanity_checking:
            self.passes.append([torch.cat(part) for part in list(zip(*self.kept, strict=True))[:2]])
        self.kept.clear()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.5)


def loader(*classes, test=False, batch_size=64):
    return DataLoader(TensorDataset(*digits(classes or range(10), test=test)), batch_size=batch_size)


def trainer(tmp_path, callback, **options):
    quiet = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    options = {"enable_checkpointing": False, "max_epochs": 2} | quiet | options
    return L.Trainer(callbacks=[callback, *options.pop("more", ())], default_root_dir=tmp_path, **options)


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*does not have many workers")
        warnings.filterwarnings("ignore", message=".*The number of training batches")
        yield


def expected(logits, labels):
    """Means by class, straight from the logits."""
    scored = wane.signals(logits.double(), labels)
    return {int(c): {name: scored[name][labels == c].mean().item() for name in wane.SIGNALS} for c in labels.unique()}


def test_a_stream_of_tasks(tmp_path):
    callback = HistoryCallback(wane.History(class_to_task=CLASS_TO_TASK), folder=tmp_path / "run")
    net = Net()
    for task in range(2):
        callback.task = task
        train, test = loader(2 * task, 2 * task + 1), loader(*range(2 * task + 2), test=True)
        fit = trainer(tmp_path, callback)
        fit.fit(net, train, test)
    history = callback.history
    assert [(e.step, e.task) for e in history.evaluations] == [(0, 0), (1, 0), (2, 1), (3, 1)]  # no sanity check
    for evaluation, (logits, labels) in zip(history.evaluations, net.passes, strict=True):
        wanted = expected(logits, labels)
        assert evaluation.classes.tolist() == sorted(wanted)
        assert evaluation.n.tolist() == [(labels == c).sum().item() for c in sorted(wanted)]
        rows = [[wanted[c][name] for name in history.signals] for c in sorted(wanted)]
        np.testing.assert_allclose(evaluation.values, rows, atol=1e-6)
    logits, labels = net.passes[-1]
    for name in wane.SIGNALS:
        value = fit.callback_metrics[f"wane/{name}"].item()
        assert value == pytest.approx(wane.signals(logits, labels)[name].mean().item(), abs=1e-5), name
    assert summarise(history)["accuracy"]["forgetting"] > 0.5  # a plain network forgets
    assert wane.History.read(tmp_path / "run" / "history.parquet").frame.equals(history.frame)


def test_resumed_from_a_checkpoint_the_history_is_the_same(tmp_path):
    def fit(epochs, resume=None):
        L.seed_everything(0, verbose=False)
        history = wane.History(class_to_task=CLASS_TO_TASK)
        callback = HistoryCallback(history)
        callback.task = 3
        keep = L.pytorch.callbacks.ModelCheckpoint(dirpath=tmp_path, filename=f"{epochs}")
        fitted = trainer(tmp_path, callback, max_epochs=epochs, enable_checkpointing=True, more=[keep])
        fitted.fit(Net(), loader(), loader(test=True), ckpt_path=resume)
        return history

    whole = fit(4)
    fit(2)
    resumed = fit(4, resume=tmp_path / "2.ckpt")
    assert [e.step for e in resumed.evaluations] == [0, 1, 2, 3]
    assert resumed.frame.equals(whole.frame)
    assert set(resumed.frame["task"]) == {3}


def test_data_loaders_as_domains(tmp_path):
    callback = HistoryCallback(wane.History(names=["low", "high"], kind="domain"), log=["ctl"])
    fit = trainer(tmp_path, callback, max_epochs=1)
    net = Net()
    low, high = loader(0, 1, 2, test=True), loader(3, 4, 5, 6, 7, 8, 9, test=True)
    fit.fit(net, loader(), [low, high])
    frame = callback.history.frame
    assert frame["n"].to_list() == [len(low.dataset), len(high.dataset)]
    logits, labels = net.passes[0]
    scored = wane.signals(logits, labels)
    np.testing.assert_allclose(frame["ctl"], [scored.ctl[labels < 3].mean(), scored.ctl[labels > 2].mean()], rtol=1e-5)
    assert [name for name in fit.callback_metrics if name.startswith("wane/")] == ["wane/ctl"]


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (lambda loss, z, y: loss, 'validation_step returned a Tensor without "logits": return {"loss"'),
        (lambda loss, z, y: None, 'validation_step returned None without "logits"'),
        (lambda loss, z, y: {"loss": loss}, 'returned a dict with loss without "logits"'),
    ],
)
def test_logits_that_are_not_there(answer, sentence, tmp_path):
    """Found by the sanity check already, before an epoch has been spent."""
    with pytest.raises(ValueError, match=re.escape(sentence)):
        trainer(tmp_path, HistoryCallback()).fit(Net(answer), loader(), loader(test=True))


def test_a_function_finds_logits_anywhere(tmp_path):
    callback = HistoryCallback(read=lambda outputs, batch: (outputs, batch[1]))
    net = Net(lambda loss, logits, labels: logits)
    trainer(tmp_path, callback, max_epochs=1).fit(net, loader(), loader(test=True))
    assert callback.history.frame["n"].sum() == len(net.passes[0][1])


def test_where_labels_are_found():
    assert read_outputs({"logits": 1, "labels": 2}, None) == (1, 2)
    assert read_outputs({"logits": 1}, {"labels": 3}) == (1, 3)
    assert read_outputs({"logits": 1}, ["x", 4]) == (1, 4)
    with pytest.raises(ValueError, match="no labels in what validation_step returned, nor in the batch, a Tensor"):
        read_outputs({"logits": 1}, torch.zeros(3))


def test_an_unknown_signal():
    with pytest.raises(KeyError, match="log_tlr"):
        HistoryCallback(log=["log_tl"])


@pytest.mark.slow
def test_two_processes_record_the_samples_of_both(tmp_path):
    """Each process sees half of the test data; what is recorded is what one process computes from the weights."""
    script = Path(__file__).with_name("lightning_ddp.py")
    done = subprocess.run([sys.executable, str(script), str(tmp_path)], capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    history = wane.History.read(tmp_path / "run" / "history.parquet")
    images, labels = digits(test=True)
    labels = labels[: len(labels) // 2 * 2]
    net = Net()
    net.load_state_dict(torch.load(tmp_path / "weights.pt", weights_only=True))
    with torch.no_grad():
        wanted = expected(net.net(images[: len(labels)]), labels)
    for evaluation in history.evaluations:
        assert evaluation.n.tolist() == torch.bincount(labels).tolist()
    rows = [[wanted[c][name] for name in history.signals] for c in range(10)]
    np.testing.assert_allclose(history.evaluations[-1].values, rows, atol=1e-6)
    halves = [wane.History.read(tmp_path / f"history{rank}.parquet").frame for rank in range(2)]
    assert halves[0].equals(halves[1])
    assert halves[0].equals(history.frame)
