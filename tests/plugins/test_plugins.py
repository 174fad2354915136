"""What all plugins share: the recorder, and that nobody imports a framework that is not used."""

import importlib
import subprocess
import sys

import numpy as np
import pytest
import torch

import wane
from wane.plugins.recorder import Recorder

FRAMEWORKS = ("lightning", "pytorch_lightning", "transformers", "accelerate", "avalanche", "keras", "sklearn")


def test_no_framework_is_imported_before_it_is_used():
    code = f"import sys, wane, wane.plugins; print([x for x in {FRAMEWORKS} if x in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("plugin", ["lightning", "transformers", "avalanche"])
def test_a_framework_that_is_not_installed(plugin, monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] in FRAMEWORKS]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, f"wane.plugins.{plugin}", raising=False)
    for name in FRAMEWORKS:
        monkeypatch.setitem(sys.modules, name, None)
    sentence = rf"^wane.plugins.{plugin} needs the package {plugin}: pip install 'wane\[{plugin}\]'$"
    with pytest.raises(ModuleNotFoundError, match=sentence):
        importlib.import_module(f"wane.plugins.{plugin}")


def test_a_head_that_grows():
    recorder = Recorder(wane.History())
    for classes in (2, 4):
        labels = torch.arange(classes)
        recorder.update(torch.eye(classes), labels)
        recorder.finish()
    frame = recorder.history.frame
    assert frame["step"].to_list() == [0, 0, 1, 1, 1, 1]
    assert frame["accuracy"].to_list() == [1.0] * 6


def test_signals_that_are_there_already():
    logits, labels = torch.randn(20, 5), torch.randint(5, (20,))
    plain, scored = Recorder(wane.History()), Recorder(wane.History())
    plain.update(logits, labels)
    scored.update(labels=labels, scored=wane.signals(logits, labels), classes=5)
    assert plain.finish() == scored.finish()
    assert plain.history.frame.equals(scored.history.frame)


def test_padding_counts_nowhere():
    recorder = Recorder(wane.History(names=["a", "b"], kind="domain"))
    recorder.update(torch.randn(2, 3, 7), torch.tensor([[1, 2, -100], [3, -100, -100]]), group=1)
    recorder.finish()
    assert recorder.history.frame.select("domain", "n").rows() == [(1, 3)]


def test_an_evaluation_without_batches_is_none():
    recorder = Recorder(wane.History())
    assert recorder.finish() == {}
    recorder.update(torch.eye(2), torch.arange(2))
    recorder.drop()
    assert recorder.finish() == {}
    assert not recorder.history.evaluations


def test_the_state_goes_on_in_the_same_history():
    one, other = (Recorder(wane.History(class_to_task=[0, 1], names=["a", "b"])) for _ in range(2))
    one.task = 1
    one.update(torch.eye(2), torch.arange(2))
    one.finish()
    held = other.history
    other.load_state_dict(one.state_dict())
    assert other.history is held
    assert held.frame.equals(one.history.frame)
    assert (other.task, held.names) == (1, ("a", "b"))
    other.update(torch.eye(2), torch.arange(2))
    other.finish()
    assert [e.step for e in held.evaluations] == [0, 1]


def test_means_are_over_samples():
    recorder = Recorder(wane.History())
    labels = torch.tensor([0, 0, 0, 1])
    logits = torch.tensor([[1.0, 0.0]]).expand(4, 2)
    recorder.update(logits, labels)
    means = recorder.finish()
    for name in wane.SIGNALS:
        np.testing.assert_allclose(means[name], wane.signals(logits, labels)[name].mean(), rtol=1e-6)


def test_a_folder_is_a_run_like_others(tmp_path):
    history = wane.History(class_to_task=[0, 1], method="mine", seed=3, data="pairs")
    recorder = Recorder(history, folder=tmp_path / "runs" / "mine")
    for task in range(2):
        recorder.task = task
        recorder.update(torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.arange(2))
        recorder.finish()
    recorder.report()
    run = wane.load_runs(tmp_path / "runs")
    assert run.select("name", "state", "title").rows() == [("mine", "done", "mine")]
    assert (tmp_path / "runs" / "mine" / "report.html").stat().st_size > 10_000
    (tmp_path / "notes.txt").write_text("something else")
    with pytest.raises(ValueError, match="is not empty and holds no run"):  # said before an epoch was spent
        Recorder(wane.History(), folder=tmp_path)


def test_names_of_domains():
    recorder = Recorder(wane.History(names=["code", "prose"], kind="domain"))
    assert recorder.group_of("prose") == 1
    with pytest.raises(ValueError, match="no domain 'poems', only code, prose: name every data set"):
        recorder.group_of("poems")
    with pytest.raises(ValueError, match="is by domain and has no names"):
        Recorder(wane.History(kind="domain"))
