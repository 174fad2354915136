"""The ladder of a run: each rung against something independent, and without a trace in the run."""

import json

import numpy as np
import polars as pl
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import nn
from training.test_domains import config as domain_config
from training.test_domains import domain_dataset
from training.tiny_problem import BASE, Keeper, dropout_net, results, stop, tiny_config, tiny_dataset

from wane.measures.ladder import RUNGS
from wane.runs.archive import archive
from wane.runs.config import ConfigError, build_config
from wane.runs.folder import RunFolder
from wane.runs.identity import fingerprint
from wane.training.run import run

LADDER = {"ladder": True}


def ladder_of(folder):
    return RunFolder(folder).ladder


def notes(folder):
    return json.loads((folder / "about.json").read_text())["ladder_notes"]


def through(learner, dataset, images):
    """Features and logits one row at a time, in float64."""
    mean, std = (torch.tensor(v).view(-1, 1, 1) for v in (dataset.mean, dataset.std))
    model = learner.model.eval()
    with torch.no_grad():
        features = torch.cat([model.features(((row.float() / 255 - mean) / std)[None]) for row in images])
        return features.double().numpy(), model.head(features).double().numpy()


def test_every_rung_of_the_final_model(tmp_path):
    """Now and the oracle by brute force, the head on all rows by scikit-learn, the rest above chance."""
    keeper, dataset = Keeper(), tiny_dataset(classes=6, noise=0.75, train=30)
    config = tiny_config(data={"tasks": 3}, record={"ladder": {"strengths": [30.0]}}, seed=1)
    summary = run(config, tmp_path / "run", dataset=dataset, listeners=[keeper])
    ladder = ladder_of(tmp_path / "run")
    assert ladder.end == 2
    assert ladder.rungs == ("now", "bias_memory", "bias_oracle", "head_memory", "head_all")
    history = pl.read_parquet(tmp_path / "run" / "history.parquet").filter(split="test")
    recorded = history.filter(pl.col("step") == history["step"].max())["accuracy"].to_numpy()
    np.testing.assert_array_equal(ladder.by_class("now")[1], recorded)
    np.testing.assert_allclose(ladder.learnt(), np.diagonal(np.array(summary["accuracy_matrix"], dtype=float)))

    features, logits = through(keeper.learners[0], dataset, dataset.test.images)
    labels = dataset.test.labels.numpy()
    newest = np.isin(np.arange(6), [4, 5])
    best = max(np.mean((logits + shift * newest).argmax(1) == labels) for shift in np.linspace(-20, 20, 8001))
    assert ladder.average("bias_oracle") == pytest.approx(best)
    offsets = ladder.frame.filter(pl.col("task") == 2, pl.col("rung") == "bias_oracle").sort("class")["offset"]
    assert offsets[:4].to_list() == [0.0] * 4
    assert np.mean((logits + offsets.to_numpy()).argmax(1) == labels) == pytest.approx(best)

    trained, _ = through(keeper.learners[0], dataset, dataset.train.images)
    scale = trained.std(0)
    scale = np.sqrt((scale**2).mean())
    peer = LogisticRegression(C=1 / 30, tol=1e-9, max_iter=10_000)
    peer.fit((trained - trained.mean(0)) / scale, dataset.train.labels.numpy())
    said = peer.predict((features - trained.mean(0)) / scale)
    expected = [np.mean(said[labels == c] == c) for c in range(6)]
    np.testing.assert_allclose(ladder.by_class("head_all")[1], expected, atol=0.1001)  # one row of ten may tip over
    assert ladder.average("head_all") == pytest.approx(np.mean(expected), abs=0.02)

    metrics = summary["metrics"]["accuracy"]
    assert metrics["head_all"] == ladder.average("head_all")
    assert metrics["bias_oracle"] == ladder.average("bias_oracle") >= metrics["average"]
    assert metrics["bias_holdout"] is None
    assert summary["metrics"]["nkl"]["head_all"] is None
    assert notes(tmp_path / "run") == ["No training rows were held out (data.holdout and memory.holdout are not set)."]


@pytest.mark.parametrize("learner", ["er", "finetune"])
def test_the_run_does_not_know_that_it_was_recorded(learner, tmp_path):
    found = []
    for name, record in (("without", {}), ("with", LADDER)):
        config = tiny_config(record=record, learner={"name": learner})
        run(config, tmp_path / name, dataset=tiny_dataset(noise=0.8), model=dropout_net())
        files = results(tmp_path / name)
        assert ("ladder" in files) == (name == "with")
        files.pop("ladder", None)
        for values in (files["summary"]["metrics"][signal] for signal in files["summary"]["metrics"]):
            for rung in RUNGS:
                values.pop(rung, None)
        found.append((files, torch.load(tmp_path / name / "checkpoint.pt", weights_only=True)))
    (files, before), (same_files, after) = found
    assert files == same_files
    assert all(torch.equal(value, after["learner"][name]) for name, value in before["learner"].items())
    assert all(torch.equal(value, after["generators"][name]) for name, value in before["generators"].items())
    assert torch.equal(before["global_generator"], after["global_generator"])


def test_a_run_stopped_and_taken_up_has_the_same_bytes(tmp_path, monkeypatch):
    config = tiny_config(data={"tasks": 4}, record=LADDER, learner={"epochs": 1})
    data = tiny_dataset(noise=0.8)
    run(config, tmp_path / "whole", dataset=data)
    with monkeypatch.context() as killed:  # after ladder.parquet of task 3, before its checkpoint

        def full(folder, state):
            if state["position"]["task"] == 3:
                raise OSError("No space")
            real(folder, state)

        from wane.training.checkpoint import save_checkpoint as real

        killed.setattr("wane.training.loop.save_checkpoint", full)
        with pytest.raises(OSError, match="No space"):
            run(config, tmp_path / "torn", dataset=data)
    assert ladder_of(tmp_path / "torn").end == 2
    stop(config, tmp_path / "torn", dataset=data, steps=1)
    run(config, tmp_path / "torn", dataset=data)
    assert results(tmp_path / "torn") == results(tmp_path / "whole")
    frame = ladder_of(tmp_path / "torn").frame
    assert not frame.select("task", "class", "rung").is_duplicated().any()


@pytest.mark.parametrize(
    ("learner", "rungs", "said"),
    [
        ("finetune", {"now", "bias_holdout", "bias_oracle", "head_all"}, "has no memory to fit a correction"),
        ("icarl", set(RUNGS), None),
        ("hat", {"now"}, "HAT is told the task of every row"),
        ("pnn", {"now"}, "Progressive networks is told the task of every row"),
    ],
)
def test_what_a_method_cannot_have_is_left_out_with_a_sentence(learner, rungs, said, tmp_path):
    config = tiny_config(record=LADDER, learner={"name": learner, "epochs": 1}, data={"holdout": 2})
    run(config, tmp_path / "run", dataset=tiny_dataset(noise=0.8))
    assert set(ladder_of(tmp_path / "run").rungs) == rungs
    assert [sentence for sentence in notes(tmp_path / "run") if said and said in sentence] or said is None
    assert len(notes(tmp_path / "run")) == (said is not None)


class Headless(nn.Module):
    """A network of the user's own, in one piece."""

    def __init__(self):
        super().__init__()
        self.whole = nn.Sequential(nn.Flatten(), nn.Linear(36, 4))

    def forward(self, x):
        return self.whole(x)


def test_a_network_without_a_head_has_the_rungs_of_the_bias(tmp_path):
    run(tiny_config(record=LADDER), tmp_path / "run", dataset=tiny_dataset(), model=Headless())
    assert ladder_of(tmp_path / "run").rungs == ("now", "bias_memory", "bias_oracle")
    assert any("Headless has no linear layer `head`" in sentence for sentence in notes(tmp_path / "run"))


def test_a_stream_of_domains_has_one_number_a_class(tmp_path):
    run(domain_config(record=LADDER), tmp_path / "run", dataset=domain_dataset())
    ladder = ladder_of(tmp_path / "run")
    assert ladder.rungs == ("now", "bias_memory", "bias_oracle", "head_memory", "head_all")
    last = ladder.frame.filter(pl.col("task") == 2, pl.col("rung") == "bias_oracle").sort("class")
    assert last["class"].to_list() == [0, 1, 2, 3, 4, 5]
    assert last["class_task"].to_list() == [0, 0, 1, 1, 2, 2]
    assert last["offset"].to_list()[:2] * 3 == last["offset"].to_list()
    assert any("one number for each class" in sentence for sentence in notes(tmp_path / "run"))


@pytest.mark.parametrize("groups", ["task", "class"])
def test_other_numbers_of_offsets(groups, tmp_path):
    config = tiny_config(data={"tasks": 3}, record={"ladder": {"groups": groups, "by": "loss"}})
    run(config, tmp_path / "run", dataset=tiny_dataset(classes=6, noise=0.8))
    frame = ladder_of(tmp_path / "run").frame.filter(pl.col("task") == 2, pl.col("rung") == "bias_memory")
    assert frame["offset"].n_unique() == (3 if groups == "task" else 6)


def test_a_memory_that_has_lost_classes_still_has_a_head(tmp_path):
    """Three slots for six classes: those without a row keep the old head; no group is without a row or it is left."""
    config = tiny_config(data={"tasks": 3}, memory={"capacity": 3}, record=LADDER)
    run(config, tmp_path / "run", dataset=tiny_dataset(classes=6))
    frame = ladder_of(tmp_path / "run").frame.filter(pl.col("task") == 2)
    assert frame.filter(pl.col("rung") == "head_memory")["accuracy"].is_between(0, 1).all()


def test_a_first_task_of_one_class_has_nothing_to_correct(tmp_path):
    config = tiny_config(data={"tasks": [[0], [1, 2, 3]]}, record=LADDER)
    run(config, tmp_path / "run", dataset=tiny_dataset())
    frame = ladder_of(tmp_path / "run").frame
    assert frame.filter(pl.col("task") == 0)["rung"].to_list() == ["now"]
    assert "head_all" in frame.filter(pl.col("task") == 1)["rung"].to_list()


def test_clean_slots_of_the_memory_are_held_out_rows(tmp_path):
    config = tiny_config(memory={"capacity": 40, "holdout": 0.2}, record=LADDER)
    run(config, tmp_path / "run", dataset=tiny_dataset())
    assert "bias_holdout" in ladder_of(tmp_path / "run").rungs
    assert notes(tmp_path / "run") == []


def test_fits_at_the_last_end_only_are_those_of_every_end(tmp_path):
    for at in (None, "last"):
        run(tiny_config(record={"ladder": {"at": at}}), tmp_path / str(at), dataset=tiny_dataset())
    every, last = (pl.read_parquet(tmp_path / at / "ladder.parquet") for at in ("None", "last"))
    assert last.filter(task=1).equals(every.filter(task=1))
    assert last.filter(task=0).equals(every.filter(task=0, rung="now"))
    assert every.filter(task=0)["rung"].n_unique() > 1
    summaries = [json.loads((tmp_path / at / "summary.json").read_text())["metrics"] for at in ("None", "last")]
    assert summaries[0] == summaries[1]


def test_it_is_archived(tmp_path):
    run(tiny_config(record=LADDER), tmp_path / "run", dataset=tiny_dataset())
    (kept,) = archive([RunFolder(tmp_path / "run")], tmp_path / "kept")
    assert ladder_of(kept).frame.equals(ladder_of(tmp_path / "run").frame)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"by": "nlk"}, r"record\.ladder\.by = 'nlk' is invalid: unknown signal 'nlk'; did you mean 'nkl'\?"),
        ({"groups": "all"}, r"record\.ladder\.groups = 'all' is invalid"),
        ({"folds": 1}, r"record\.ladder\.folds = 1 is invalid"),
        ({"fold": 3}, r"unknown setting record\.ladder\.fold; did you mean record\.ladder\.folds\?"),
        (3, r"record\.ladder = 3 is invalid"),
    ],
)
def test_settings_that_cannot_be(wrong, message):
    with pytest.raises(ConfigError, match=message):
        build_config(BASE, {"record": {"ladder": wrong}})


def test_a_flag_is_the_section_with_its_defaults_and_older_runs_keep_their_names():
    assert tiny_config(record={"ladder": True}) == tiny_config(record={"ladder": {}})
    assert tiny_config(record={"ladder": False}) == tiny_config()
    assert "ladder" not in tiny_config().model_dump(exclude_none=True)["record"]
    assert fingerprint(tiny_config()) != fingerprint(tiny_config(record=LADDER))
