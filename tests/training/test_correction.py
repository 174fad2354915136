"""Corrected logits and clean slots in the lab: beside the plain evaluation, never instead of it."""

import json

import numpy as np
import polars as pl
import pytest
import torch
from training.tiny_problem import EPOCHS, results, stop, tiny_config, tiny_dataset

import wane
from wane.memory import rows_set_aside
from wane.runs.config import ConfigError
from wane.runs.identity import method_title, run_name
from wane.streams import normalise
from wane.training.checkpoint import load_checkpoint
from wane.training.correction import exposure
from wane.training.events import Listener
from wane.training.run import run


def history(folder):
    return pl.read_parquet(folder / "history.parquet")


class Watch(Listener):
    """Keeps the session, and what it was at the end of each task."""

    def run_started(self, session):
        self.session, self.exposures = session, []

    def epoch_done(self, session, task, epoch):
        if epoch + 1 == session.config.learner.epochs:
            self.exposures.append(exposure(session, session.stream[task]))


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plain")
    run(tiny_config(), folder, dataset=tiny_dataset(noise=0.8))
    return folder


@pytest.mark.parametrize("by", ["nkl", "accuracy", "prior"])
@pytest.mark.parametrize("groups", ["task", "newest", "class"])
def test_a_correction_changes_nothing_but_its_own_split(plain, tmp_path, by, groups):
    dataset, watch = tiny_dataset(noise=0.8), Watch()
    config = tiny_config(record={"correction": {"by": by, "groups": groups}})
    summary = run(config, tmp_path, dataset=dataset, listeners=[watch])
    found = history(tmp_path)
    assert found.filter(pl.col("split") != "test_corrected").equals(history(plain))
    corrected = found.filter(split="test_corrected")
    assert corrected.group_by("task").len().sort("task")["len"].to_list() == [2, 4]  # at the ends of both tasks
    before, after = (load_checkpoint(folder) for folder in (plain, tmp_path))
    assert all(torch.equal(before["learner"][name], after["learner"][name]) for name in before["learner"])
    assert summary["corrected"]["accuracy"]["average"] == pytest.approx(
        corrected.filter(task=1)["accuracy"].mean(), abs=1e-6
    )
    # the same by hand, from the model and the memory as they are at the end
    memory, learner = watch.session.memory, watch.session.learner.eval()
    logits = lambda images: learner.predict(normalise(images, dataset.mean, dataset.std)).detach()  # noqa: E731
    tasks = torch.tensor([0, 0, 1, 1])
    by_hand = wane.LogitCorrection(by, None if groups == "class" else tasks)
    if by == "prior":
        by_hand.fit(counts=watch.exposures[-1])
    else:
        n = len(memory)
        by_hand.fit(logits(memory.images[:n]), memory.labels[:n])
    wanted = wane.signals(by_hand.apply(logits(dataset.test.images)), dataset.test.labels)
    got = corrected.filter(task=1).sort("class")
    for c in range(4):
        assert got["nkl"][c] == pytest.approx(wanted.nkl[dataset.test.labels == c].mean().item(), abs=1e-5)


def test_exposure_counts_every_row_trained_on(tmp_path):
    watch = Watch()
    run(tiny_config(), tmp_path, dataset=tiny_dataset(), listeners=[watch])
    first, second = watch.exposures
    drawn = pl.read_parquet(tmp_path / "replay.parquet").filter(task=1)["drawn"].to_list()
    np.testing.assert_array_equal(second, np.array([0, 0, 60, 60]) + np.sum(drawn, axis=0))
    assert first[2:].sum() == 0


@pytest.mark.parametrize(
    ("learner", "policy"),
    [("er", "class_balanced"), *((name, "reservoir") for name in ("er", "derpp", "icarl", "gem", "er_ace", "xder"))],
)
def test_clean_slots_are_never_seen_in_training(learner, policy, tmp_path, monkeypatch):
    dataset, watch, seen = tiny_dataset(noise=0.8), Watch(), set()
    from wane.training import loop

    def noting(make):
        def made(session, task, rows, *args, **kwargs):
            seen.update(row.item() for row in rows if row >= 0)
            return make(session, task, rows, *args, **kwargs)

        return made

    monkeypatch.setattr(loop, "make_batch", noting(loop.make_batch))
    config = tiny_config(learner={"name": learner}, memory={"holdout": 0.35, "policy": policy})
    run(config, tmp_path, dataset=dataset, listeners=[watch])
    first, second = (set(rows.tolist()) for rows in watch.session.set_aside)
    assert len(first) == len(second) == 4  # 0.35 of 12 slots
    assert not seen & (first | second)
    assert seen == set(range(80)) - first - second
    assert watch.session.memory.capacity == 8
    kept = {tuple(image.flatten().tolist()) for image in watch.session.memory.images[: len(watch.session.memory)]}
    assert not kept & {tuple(dataset.train.images[row].flatten().tolist()) for row in first | second}
    clean = history(tmp_path).filter(split="memory_holdout")
    assert clean["step"].n_unique() == EPOCHS
    assert clean.filter(task=1).group_by("step").agg(pl.col("n").sum())["n"].unique().to_list() == [4]


def test_the_clean_split_is_measured_on_the_clean_rows(tmp_path):
    dataset, watch = tiny_dataset(noise=0.8), Watch()
    run(tiny_config(memory={"holdout": 0.35}), tmp_path, dataset=dataset, listeners=[watch])
    rows = watch.session.set_aside[1]
    with torch.no_grad():
        logits = watch.session.learner.eval().predict(normalise(dataset.train.images[rows], dataset.mean, dataset.std))
    wanted = wane.signals(logits, dataset.train.labels[rows])
    last = history(tmp_path).filter(split="memory_holdout").filter(pl.col("step") == pl.col("step").max()).sort("class")
    for c, value in zip(last["class"], last["ctl"], strict=True):
        assert value == pytest.approx(wanted.ctl[dataset.train.labels[rows] == c].mean().item(), abs=1e-6)


def test_a_run_with_clean_slots_goes_on_to_the_same_bytes(tmp_path):
    extra = {
        "memory": {"holdout": 0.35},
        "record": {"correction": {"source": "memory_holdout"}},
        "learner": {"trend": {"signal": "ctl", "window": 2, "source": "memory_holdout"}},
    }
    config, dataset = tiny_config(**extra), tiny_dataset(noise=0.8)
    run(config, tmp_path / "whole", dataset=dataset)
    for epochs in (1, 3, 4):
        stop(config, tmp_path / f"stopped{epochs}", dataset=dataset, epochs=epochs)
        run(config, tmp_path / f"stopped{epochs}", dataset=dataset)
        assert results(tmp_path / f"stopped{epochs}") == results(tmp_path / "whole")


def test_the_control_replays_the_same_number_of_slots(plain, tmp_path):
    control = tiny_config(memory={"holdout": 0.35, "holdout_replayed": True})
    run(control, tmp_path, dataset=tiny_dataset(noise=0.8))
    found = history(tmp_path)
    assert found.filter(pl.col("split") != "memory_holdout").equals(history(plain))  # the run of 12 replayed slots
    assert found.filter(split="memory_holdout").group_by("step").agg(pl.col("n").sum())["n"].max() <= 4
    assert method_title(control) == "er, holdout 0.35 replayed"
    assert run_name(tiny_config(memory={"holdout": 0.1})) != run_name(tiny_config())


def test_which_rows_are_set_aside_is_random_with_respect_to_the_stream():
    """Over many seeds each row of a class is as likely as any other, wherever in the stream it stands."""
    groups, tasks, runs = np.arange(120) // 20, np.arange(120) // 40, 3000
    hits = np.zeros((3, 120))
    for seed in range(runs):
        for task, rows in enumerate(rows_set_aside(groups, tasks, 12, torch.Generator().manual_seed(seed))):
            hits[task, rows] += 1
    for task, share in enumerate((6, 3, 2)):  # of 20 rows of each of 2, 4 and 6 classes
        p = share / 20
        expected = runs * p
        part = hits[task, : 40 * (task + 1)]
        assert (hits[task, 40 * (task + 1) :] == 0).all()
        # chi-square of each class has 19 degrees of freedom: 5 deviations
        chi = ((part - expected) ** 2 / (runs * p * (1 - p))).reshape(-1, 20).sum(1)
        assert (np.abs(chi - 20) < 5 * np.sqrt(40)).all()
        # and early rows are no more likely than late ones
        early, late = part.reshape(-1, 2, 10).sum((0, 2))
        assert abs(early - late) < 5 * np.sqrt(early + late)


def test_a_small_class_keeps_half_of_its_rows_for_training():
    rows = rows_set_aside(np.array([0, 0, 0, 1, 1]), np.zeros(5, int), 100, torch.Generator().manual_seed(0))
    assert np.bincount(np.array([0, 0, 0, 1, 1])[rows[0]]).tolist() == [1, 1]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"record": {"correction": {"by": "nkk"}}}, "did you mean 'nkl'"),
        ({"record": {"correction": {"source": "memory_holdout"}}}, "memory.holdout is not set"),
        ({"record": {"correction": {"source": "holdout"}}}, "data.holdout is 0"),
        ({"learner": {"trend": {"source": "memory_holdout"}}}, "learner.trend.source is memory_holdout"),
        ({"memory": {"holdout": 0.01}}, "leaves one side without a slot"),
        ({"memory": {"holdout": 1.5}}, "memory.holdout"),
        ({"memory": {"holdout_replayed": True}}, "control of memory.holdout"),
        ({"learner": {"name": "hat"}, "record": {"correction": {}}}, "is told the task"),
        ({"learner": {"name": "finetune"}, "record": {"correction": {}}}, "has no memory"),
    ],
)
def test_impossible_settings(settings, sentence, tmp_path):
    with pytest.raises(ConfigError, match=sentence):
        run(tiny_config(**settings), tmp_path, dataset=tiny_dataset())


def test_a_corrected_table_stands_beside_the_plain_one(tmp_path):
    from wane.runs.folder import RunFolder
    from wane.views.summaries import accuracy_measures

    run(tiny_config(record={"correction": {}}), tmp_path, dataset=tiny_dataset(noise=0.8))
    found = accuracy_measures(RunFolder(tmp_path))
    assert {"accuracy", "task_accuracy", "corrected_accuracy", "corrected_forgetting"} <= set(found)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert found["corrected_accuracy"] == pytest.approx(100 * summary["corrected"]["accuracy"]["average"])
