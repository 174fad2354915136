"""Both settings from the same logits, the tasks ahead, and who is told how a run goes."""

import json

import numpy as np
import polars as pl
import pytest
import torch
from training.tiny_problem import Keeper, StoppedError, stop, tiny_config, tiny_dataset

import wane
from wane.errors import DamagedError
from wane.measures.history import History
from wane.softmax.signals import SIGNALS
from wane.streams import normalise
from wane.training.checkpoint import load_checkpoint, save_checkpoint
from wane.training.events import Listener
from wane.training.run import run


def frame_of(folder):
    return pl.read_parquet(folder / "history.parquet")


def test_the_task_incremental_rows_are_of_the_same_logits_among_the_task_s_own_classes(tmp_path):
    dataset, keeper = tiny_dataset(noise=0.8), Keeper()
    summary = run(tiny_config(), tmp_path / "run", dataset=dataset, listeners=[keeper])
    with torch.no_grad():
        images = normalise(dataset.test.images, dataset.mean, dataset.std)
        logits = keeper.learners[0].eval().predict(images)
    found = frame_of(tmp_path / "run").filter(split="test_task", step=24).sort("class")
    for c in range(4):
        rows, own = dataset.test.labels == c, range(2 * (c // 2), 2 * (c // 2) + 2)
        wanted = wane.signals(logits[rows], dataset.test.labels[rows], classes=own)
        for name in SIGNALS:
            assert found[name][c] == pytest.approx(float(getattr(wanted, name).double().mean()), abs=1e-6)
    both = {split: frame_of(tmp_path / "run").filter(split=split) for split in ("test", "test_task")}
    assert both["test"].select("step", "class", "n").equals(both["test_task"].select("step", "class", "n"))
    assert (both["test_task"]["accuracy"] >= both["test"]["accuracy"]).all()
    assert summary["schema"] == 2
    average = summary["task_incremental"]["accuracy"]["average"]
    assert average == pytest.approx(found["accuracy"].mean())
    assert average > summary["metrics"]["accuracy"]["average"]


def test_tasks_ahead_are_evaluated_at_the_start_and_at_the_ends_of_tasks(tmp_path):
    run(tiny_config(record={"classes": "seen"}), tmp_path / "run", dataset=tiny_dataset())
    frame = frame_of(tmp_path / "run")
    for setting in ("", "_task"):
        untrained = frame.filter(split=f"untrained{setting}")
        assert untrained.select("step", "task").unique().rows() == [(0, 0)]
        assert untrained["class"].to_list() == [0, 1, 2, 3]
        ahead = frame.filter(split=f"future{setting}")
        assert ahead.select("step", "task").unique().rows() == [(12, 0)]
        assert ahead["class"].to_list() == [2, 3]
        assert np.isfinite(ahead.select(*SIGNALS).to_numpy()).all()
    at_start = frame.filter(split="untrained")["loss"].mean()
    assert 1.0 < at_start < 2.0  # about ln 4


def test_a_task_of_a_single_class_has_no_task_incremental_signals(tmp_path):
    summary = run(tiny_config(data={"tasks": 4}), tmp_path / "run", dataset=tiny_dataset())
    assert frame_of(tmp_path / "run").filter(split="test_task")["accuracy"].is_nan().all()
    assert summary["task_incremental"]["accuracy"]["average"] is None
    assert summary["metrics"]["accuracy"]["average"] > 0


def test_what_a_run_is_stands_in_its_folder_from_the_start(tmp_path):
    stop(tiny_config(), tmp_path / "run", dataset=tiny_dataset(class_names=["a", "b", "c", "d"]), steps=1)
    about = json.loads((tmp_path / "run" / "about.json").read_text())
    assert about["has_memory"] is True
    assert about["settings"] == ["class", "task"]
    assert about["class_names"] == about["group_names"] == ["a", "b", "c", "d"]
    assert len(about["task_names"]) == 2
    assert about["learner_title"] == "Experience Replay"
    assert "Rolnick" in about["source"]


def test_past_holds_for_a_uniform_draw_too(tmp_path):
    """It was accepted and ignored."""
    config = tiny_config(memory={"draw": "uniform", "scope": "past"})
    run(config, tmp_path / "run", dataset=tiny_dataset())
    log = pl.read_parquet(tmp_path / "run" / "replay.parquet")
    drawn, probabilities = np.stack(log["drawn"]), np.stack(log["probabilities"])
    assert (drawn[3:, 2:] == 0).all()
    assert (drawn[3:, :2].sum(1) > 0).all()
    np.testing.assert_allclose(probabilities[3:].sum(1), 1)
    assert (probabilities[3:, 2:] == 0).all()


class Recorder(Listener):
    """Keeps what it was told."""

    def __init__(self):
        self.told = []

    def run_started(self, session):
        self.told.append(("started", session.state.position.step))

    def step_done(self, session, rows):
        self.told.append(("step", rows))

    def epoch_done(self, session, task, epoch):
        assert (session.folder / "checkpoint.pt").exists()
        self.told.append(("epoch", task, epoch))

    def run_ended(self, folder, summary):
        self.told.append(("ended", summary is not None))


class Broken(Recorder):
    def run_ended(self, folder, summary):
        raise ValueError("of my own")


def test_listeners_are_told_in_order_and_once_of_the_end(tmp_path):
    config, recorder = tiny_config(), Recorder()
    stop(config, tmp_path / "run", dataset=tiny_dataset(), epochs=1, listeners=[recorder])
    assert recorder.told == [
        ("started", 0), ("step", 10), ("step", 16), ("step", 16), ("step", 16), ("epoch", 0, 0), ("ended", False),
    ]  # fmt: skip
    going_on = Recorder()
    run(config, tmp_path / "run", dataset=tiny_dataset(), listeners=[going_on])
    assert going_on.told[0] == ("started", 4)
    assert going_on.told[-2:] == [("epoch", 1, 2), ("ended", True)]
    late = Recorder()
    run(config, tmp_path / "run", dataset=tiny_dataset(), listeners=[late])
    assert late.told == []
    late.hears_of_done_runs = True
    run(config, tmp_path / "run", dataset=tiny_dataset(), listeners=[late])
    assert late.told == [("ended", True)]


def test_all_listeners_hear_of_the_end_even_if_one_of_them_fails(tmp_path):
    recorder = Recorder()
    with pytest.raises(ValueError, match="of my own"):
        run(tiny_config(), tmp_path / "run", dataset=tiny_dataset(), listeners=[Broken(), recorder])
    assert recorder.told[-1] == ("ended", True)


def test_a_checkpoint_of_another_version_or_of_something_else_is_one_sentence(tmp_path):
    folder = tmp_path / "run"
    stop(tiny_config(), folder, dataset=tiny_dataset(), epochs=2)
    state = load_checkpoint(folder)
    old = {key: value for key, value in state.items() if key != "version"}
    foreign = {"weights": torch.zeros(3)}
    beyond = {**state, "position": {"task": -1, "epoch": 0, "step": 3}}
    for content, sentence in (
        (old, "was written by another version of wane"), (foreign, "is not that of a run"),
        (beyond, r"is at Position\(task=-1, epoch=0, step=3\), but the run has 2 tasks of 3 epochs"),
    ):  # fmt: skip
        save_checkpoint(folder, content)
        (folder / "checkpoint.previous.pt").unlink(missing_ok=True)
        with pytest.raises(DamagedError, match=sentence):
            run(tiny_config(), folder, dataset=tiny_dataset())


def test_a_flipped_bit_is_noticed_and_the_checkpoint_before_is_used(tmp_path):
    """torch.load looks at no checksum: the run went on from other numbers."""
    config = tiny_config()
    run(config, tmp_path / "whole", dataset=tiny_dataset())
    stop(config, tmp_path / "run", dataset=tiny_dataset(), epochs=2)
    data = bytearray((tmp_path / "run" / "checkpoint.pt").read_bytes())
    weights = max(load_checkpoint(tmp_path / "run")["learner"].values(), key=torch.Tensor.numel)
    at = data.find(weights.numpy().tobytes())
    assert at > 0
    data[at + 2] ^= 16  # of a weight
    (tmp_path / "run" / "checkpoint.pt").write_bytes(data)
    run(config, tmp_path / "run", dataset=tiny_dataset())
    whole, found = (History.read(tmp_path / name / "history.parquet").frame for name in ("whole", "run"))
    assert found.equals(whole)


def test_an_error_in_a_listener_stops_the_run(tmp_path):
    class Stopping(Listener):
        def step_done(self, session, rows):
            raise StoppedError

    with pytest.raises(StoppedError):
        run(tiny_config(), tmp_path / "run", dataset=tiny_dataset(), listeners=[Stopping()])
