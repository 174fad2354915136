"""The recovery of lost classes: against a loop written out by hand, and without a trace in the run."""

import numpy as np
import polars as pl
import pytest
import torch
from torch import nn
from training.tiny_problem import BASE, Keeper, dropout_net, results, stop, tiny_config, tiny_dataset

from wane.learners import ER, Learner
from wane.runs.config import ConfigError, build_config
from wane.runs.identity import fingerprint
from wane.softmax.signals import SIGNALS
from wane.training.recovery import fine_tune
from wane.training.run import run

RECOVERY = {"below": 0.95, "samples": 3, "steps": 4, "lr": 0.05}


def recorded(folder):
    return pl.read_parquet(folder / "recovery.parquet")


def test_fine_tune_is_plain_sgd_on_the_mean_cross_entropy():
    """A linear model: the gradient of the cross-entropy is (softmax - onehot) x, by hand in float64."""
    torch.manual_seed(3)
    learner = Learner(nn.Linear(4, 3).double(), 3)
    x, others = torch.randn(5, 4, dtype=torch.float64), torch.randn(2, 4, dtype=torch.float64)
    y, theirs = torch.full((5,), 2), torch.tensor([0, 1])
    w, b = (p.detach().clone() for p in learner.model.parameters())
    before = w.clone()
    beside = iter([(others, theirs)] * 3)
    count = 0
    for tuned in fine_tune(learner, x, y, steps=3, lr=0.2, beside=beside):
        count += 1
        np.testing.assert_allclose(tuned.model.weight.detach(), w, atol=1e-12)
        np.testing.assert_allclose(tuned.model.bias.detach(), b, atol=1e-12)
        gw, gb = torch.zeros_like(w), torch.zeros_like(b)
        for rows, labels in ((x, y), (others, theirs)):  # each with a mean of its own
            for row, label in zip(rows, labels, strict=True):
                p = (w @ row + b).softmax(0)
                p[label] -= 1
                gw += p[:, None] * row / len(rows)
                gb += p / len(rows)
        w, b = w - 0.2 * gw, b - 0.2 * gb
    assert count == 4  # before, and after each step
    assert torch.equal(learner.model.weight, before)  # the model of the run is left alone


def test_batch_norm_and_dropout_stand_still():
    learner = ER(dropout_net(), 4).train()
    state = {name: value.clone() for name, value in learner.state_dict().items()}
    images = torch.randn(3, 1, 6, 6)
    generator = torch.get_rng_state()
    *_, tuned = fine_tune(learner, images, torch.tensor([1, 1, 1]), steps=5, lr=0.5)
    assert torch.equal(torch.get_rng_state(), generator)
    norm = tuned.model.body[2]
    assert torch.equal(norm.running_mean, state["model.body.2.running_mean"])
    assert not torch.equal(norm.weight, state["model.body.2.weight"])  # but it learns
    assert learner.training
    assert all(torch.equal(value, state[name]) for name, value in learner.state_dict().items())


class ByRule(Learner):
    """Answers without its model."""

    def predict(self, images):
        return images.flatten(1)[:, :3]


def test_a_learner_whose_answers_cannot_be_tuned_is_named():
    tuning = fine_tune(ByRule(nn.Linear(4, 3), 3), torch.ones(2, 4), torch.tensor([0, 0]), steps=1, lr=0.1)
    next(tuning)
    with pytest.raises(ValueError, match=r"what ByRule predicts has no gradient.*leave record\.recovery out"):
        next(tuning)


def by_hand(learner, dataset, c, *, seed, seen):
    """The curve of a class alone, one image at a time."""
    generator = torch.Generator().manual_seed(int(np.random.SeedSequence([seed, c]).generate_state(1)[0]))
    rows = (dataset.train.labels == c).nonzero()[:, 0]
    handful = rows[torch.randperm(len(rows), generator=generator)[:3]]
    mine = (dataset.test.labels == c).nonzero()[:, 0]
    rest = ((dataset.test.labels != c) & torch.isin(dataset.test.labels, torch.tensor(seen))).nonzero()[:, 0]
    rest = rest[torch.randperm(len(rest), generator=generator)[: len(mine)]]

    def image(split, row):
        mean, std = (torch.tensor(v).view(-1, 1, 1) for v in (dataset.mean, dataset.std))
        return ((split.images[row].float() / 255 - mean) / std)[None]

    model = learner.model.eval()
    saved = {name: value.clone() for name, value in model.state_dict().items()}
    curve = []
    for k in range(5):
        with torch.no_grad():
            said = [[int(model(image(dataset.test, r)).argmax()) == c for r in part] for part in (mine, rest)]
        curve.append([np.mean(part) for part in said])
        if k < 4:
            model.zero_grad()
            for row in handful:
                (nn.functional.cross_entropy(model(image(dataset.train, row)), torch.tensor([c])) / 3).backward()
            with torch.no_grad():
                for p in model.parameters():
                    p -= 0.05 * p.grad
    model.load_state_dict(saved)
    return curve


def test_what_is_recorded_is_the_recovery_of_the_final_model(tmp_path):
    keeper = Keeper()
    dataset = tiny_dataset(noise=0.8)
    config = tiny_config(record={"recovery": RECOVERY}, seed=2, learner={"name": "er", "lr": 0.05})
    run(config, tmp_path / "run", dataset=dataset, listeners=[keeper])
    frame = recorded(tmp_path / "run")
    history = pl.read_parquet(tmp_path / "run" / "history.parquet").filter(split="test", step=24)
    lost = history.filter(pl.col("class") < 2, pl.col("accuracy") <= 0.95)["class"].to_list()
    assert lost
    assert frame["class"].unique(maintain_order=True).to_list() == lost
    assert frame.select("step", "task", "class_task", "n", "beside").unique().rows() == [(24, 1, 0, 10, 0)]
    for c in lost:
        mine = frame.filter(pl.col("class") == c)
        assert mine["k"].to_list() == [0, 1, 2, 3, 4]
        expected = by_hand(keeper.learners[0], dataset, c, seed=2, seen=[0, 1, 2, 3])
        np.testing.assert_allclose(mine.select("recovered", "taken").to_numpy(), expected, atol=1e-9)
        before = history.filter(pl.col("class") == c).select(*SIGNALS).row(0)
        assert mine.select(*SIGNALS).unique().rows() == [before]
        assert mine["recovered"][0] == before[0]


@pytest.mark.parametrize("learner", ["er", "finetune"])
def test_the_run_does_not_know_that_it_was_recorded(learner, tmp_path):
    found = []
    for name, record in (("without", {}), ("with", {"recovery": {**RECOVERY, "beside": [0, 4]}})):
        config = tiny_config(record=record, learner={"name": learner})
        run(config, tmp_path / name, dataset=tiny_dataset(noise=0.8), model=dropout_net())
        files = results(tmp_path / name)
        assert ("recovery" in files) == (name == "with")
        files.pop("recovery", None)
        checkpoint = torch.load(tmp_path / name / "checkpoint.pt", weights_only=True)
        found.append((files, checkpoint))
    (files, before), (same_files, after) = found
    assert files == same_files
    assert all(torch.equal(value, after["learner"][name]) for name, value in before["learner"].items())
    assert all(torch.equal(value, after["generators"][name]) for name, value in before["generators"].items())
    assert torch.equal(before["global_generator"], after["global_generator"])
    modes = recorded(tmp_path / "with")["beside"].unique().sort().to_list()
    assert modes == ([0, 4] if learner == "er" else [0])  # without a memory there is nothing to put beside


def test_a_run_stopped_and_taken_up_has_each_row_once(tmp_path, monkeypatch):
    config = tiny_config(data={"tasks": 4}, record={"recovery": RECOVERY}, learner={"epochs": 1})
    data = tiny_dataset(noise=0.8)
    run(config, tmp_path / "whole", dataset=data)
    with monkeypatch.context() as killed:  # after recovery.parquet of task 3, before its checkpoint

        def full(folder, state):
            if state["position"]["task"] == 3:
                raise OSError("No space")
            real(folder, state)

        from wane.training.checkpoint import save_checkpoint as real

        killed.setattr("wane.training.loop.save_checkpoint", full)
        with pytest.raises(OSError, match="No space"):
            run(config, tmp_path / "torn", dataset=data)
    assert recorded(tmp_path / "torn")["task"].max() == 2
    stop(config, tmp_path / "torn", dataset=data, steps=1)
    run(config, tmp_path / "torn", dataset=data)
    frame = recorded(tmp_path / "torn")
    assert frame.equals(recorded(tmp_path / "whole"))
    assert not frame.select("task", "class", "beside", "k").is_duplicated().any()
    assert set(frame["task"]) == {1, 2, 3}
    assert (frame["class_task"] < frame["task"]).all()


def test_no_class_lost_is_a_table_without_rows(tmp_path):
    config = tiny_config(record={"recovery": {"below": 0.0}}, learner={"name": "joint", "epochs": 12})
    run(config, tmp_path / "run", dataset=tiny_dataset(noise=0.1))
    frame = recorded(tmp_path / "run")
    assert frame.is_empty()
    assert {"class", "recovered", "taken", *SIGNALS} <= {*frame.columns}


def test_the_signals_before_are_among_the_seen_classes_if_asked(tmp_path):
    config = tiny_config(record={"recovery": {**RECOVERY, "below": 0.99}, "classes": "seen"}, data={"tasks": 4})
    run(config, tmp_path / "run", dataset=tiny_dataset(classes=8, noise=0.9))
    frame = recorded(tmp_path / "run").filter(pl.col("k") == 0)
    assert len(frame) > 3
    assert (frame["recovered"] == frame["accuracy"]).all()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"samples": 0}, r"record\.recovery\.samples = 0 is invalid"),
        ({"below": 1.0}, r"record\.recovery\.below = 1\.0 is invalid"),
        ({"beside": []}, r"record\.recovery\.beside = \[\] is invalid"),
        ({"beside": [-1]}, r"record\.recovery\.beside.*-1 is invalid"),
        ({"step": 3}, r"unknown setting record\.recovery\.step; did you mean record\.recovery\.steps\?"),
    ],
)
def test_settings_that_cannot_be(wrong, message):
    with pytest.raises(ConfigError, match=message):
        build_config(BASE, {"record": {"recovery": wrong}})


def test_older_runs_keep_their_names():
    assert "recovery" not in tiny_config().model_dump(exclude_none=True)["record"]
    assert fingerprint(tiny_config()) != fingerprint(tiny_config(record={"recovery": {}}))
