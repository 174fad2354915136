"""Loss weights and trend sampling inside the loop: switched on, compared with their controls, resumed, logged."""

import numpy as np
import polars as pl
import pytest
from training.tiny_problem import results, stop, tiny_config, tiny_dataset

import wane
from wane.runs.config import ConfigError
from wane.training.run import run

BOTH = {"weights": {"signal": "nkl", "epsilon": 0.2}, "trend": {"signal": "cm", "window": 3, "slope": "standardised"}}


@pytest.fixture(scope="module")
def dataset():
    return tiny_dataset(holdout=2)


@pytest.fixture(scope="module")
def plain(dataset, tmp_path_factory):
    folder = tmp_path_factory.mktemp("plain")
    run(tiny_config(), folder / "er", dataset=dataset)
    return results(folder / "er")


def test_uniform_weights_are_plain_replay_to_the_bit(dataset, plain, tmp_path):
    # so warm a softmax gives every row the same weight, whatever its score
    for rows in ("replay", "all"):
        weights = {"signal": "loss", "form": "softmax", "temperature": 1e12, "rows": rows}
        run(tiny_config(learner={"weights": weights}), tmp_path / rows, dataset=dataset)
        assert results(tmp_path / rows)["history"] == plain["history"]


@pytest.mark.parametrize("rows", ["replay", "all"])
@pytest.mark.parametrize("signal", wane.SIGNALS)
def test_weights_change_what_is_learnt(dataset, plain, tmp_path, signal, rows):
    run(tiny_config(learner={"weights": {"signal": signal, "rows": rows}}), tmp_path / "w", dataset=dataset)
    assert results(tmp_path / "w")["history"] != plain["history"]
    log = pl.read_parquet(tmp_path / "w" / "replay.parquet").drop_nans("current_share")
    assert (log["weight_min"] < 1).all()
    assert (log["weight_max"] > 1).all()
    assert log["weight_effective"].is_between(0, 1).all()


@pytest.mark.parametrize("scope", ["seen", "past"])
def test_gamma_0_is_the_class_uniform_control_to_the_bit(dataset, plain, tmp_path, scope):
    trend = {"signal": "cm", "gamma": 0.0, "scope": scope}
    run(tiny_config(learner={"trend": trend}), tmp_path / "trend", dataset=dataset)
    run(tiny_config(memory={"draw": "class_uniform", "scope": scope}), tmp_path / "control", dataset=dataset)
    assert results(tmp_path / "trend")["history"] == results(tmp_path / "control")["history"]
    assert results(tmp_path / "trend")["history"] != plain["history"]


@pytest.mark.parametrize("source", ["replay", "holdout", "test"])
def test_the_draw_of_an_epoch_is_that_of_the_history_before_it(dataset, tmp_path, source):
    trend = {"signal": "ctl", "gamma": 50.0, "window": 3, "source": source}
    config = tiny_config(learner={"trend": trend}, memory={"capacity": 40}, data={"holdout": 2})
    run(config, tmp_path / "t", dataset=dataset)
    history = wane.History.read(tmp_path / "t" / "history.parquet")
    log = pl.read_parquet(tmp_path / "t" / "replay.parquet")
    sampler = config.learner.trend
    steps = log["step"].to_list()
    for i in range(1, len(steps)):
        before = wane.History(history.class_to_task)
        before.evaluations = [e for e in history.evaluations if e.step <= steps[i - 1]]
        expected = sampler.probabilities(before, task=log["task"][i]).numpy()
        np.testing.assert_allclose(log["probabilities"][i].to_numpy(), expected, atol=1e-12)
    assert log["effective_classes"].min() < 0.98 * 4


def test_resume_is_exact_with_both_on(dataset, tmp_path):
    config = tiny_config(learner=BOTH)
    run(config, tmp_path / "whole", dataset=dataset)
    for i, when in enumerate([{"epochs": 1}, {"epochs": 4}, {"steps": 10}]):
        stop(config, tmp_path / f"{i}", dataset=dataset, **when)
        run(config, tmp_path / f"{i}", dataset=dataset)
        assert results(tmp_path / f"{i}") == results(tmp_path / "whole")


def test_every_run_logs_its_draw(dataset, tmp_path):
    run(tiny_config(memory={"draw": "class_uniform", "scope": "past"}), tmp_path / "r", dataset=dataset)
    log = pl.read_parquet(tmp_path / "r" / "replay.parquet")
    history = wane.History.read(tmp_path / "r" / "history.parquet")
    for row in log.iter_rows(named=True):
        e = next(e for e in history.evaluations if e.split == "replay" and e.step == row["step"])
        drawn = np.zeros(4, dtype=int)
        drawn[e.classes] = e.n
        assert row["drawn"] == drawn.tolist()
        current = history.class_to_task == row["task"]
        assert row["current_share"] == pytest.approx(drawn[current].sum() / drawn.sum())
        assert sum(row["probabilities"]) == pytest.approx(1)
    second = log.filter(task=1)
    assert (second["current_share"] == 0).all()
    assert (second["effective_classes"].round(6) == 2).all()
    assert log["weight_min"].is_nan().all()


def test_a_memory_that_lost_the_past_still_replays(dataset, tmp_path):
    trend = {"signal": "cm", "scope": "past"}
    lost = 0
    for seed in range(6):
        config = tiny_config(learner={"trend": trend}, memory={"capacity": 1}, seed=seed)
        run(config, tmp_path / f"{seed}", dataset=dataset)
        log = pl.read_parquet(tmp_path / f"{seed}" / "replay.parquet").filter(task=1)
        lost += (log["current_share"] > 0).any()
    assert lost > 0


@pytest.mark.parametrize("epochs", [1, 3])
def test_a_trend_waits_for_the_first_replay(tmp_path, epochs):
    # a first epoch of one step draws from an empty memory: tested, but nothing replayed yet
    trend = {"signal": "cm", "scope": "past"}
    config = tiny_config(learner={"trend": trend, "batch_size": 40, "epochs": epochs})
    run(config, tmp_path / "r", dataset=tiny_dataset())
    history = wane.History.read(tmp_path / "r" / "history.parquet")
    assert [e.step for e in history.evaluations if e.split == "replay"] == list(range(2, 2 * epochs + 1))
    log = pl.read_parquet(tmp_path / "r" / "replay.parquet")
    assert log["probabilities"][1].to_list() == pytest.approx([0.5, 0.5, 0, 0])
    assert (log.filter(task=1)["current_share"] == 0).all()


def test_a_trend_without_a_memory_changes_nothing(dataset, tmp_path):
    run(tiny_config(learner={"name": "finetune"}), tmp_path / "plain", dataset=dataset)
    run(tiny_config(learner={"name": "finetune", "trend": {}}), tmp_path / "trend", dataset=dataset)
    assert results(tmp_path / "trend")["history"] == results(tmp_path / "plain")["history"]


def test_impossible_settings():
    with pytest.raises(ConfigError, match=r"source is holdout, but data\.holdout is 0"):
        tiny_config(learner={"trend": {"source": "holdout"}})
    with pytest.raises(
        ConfigError, match=r"unknown setting learner\.trend\.windows; did you mean learner\.trend\.window"
    ):
        tiny_config(learner={"trend": {"windows": 3}})
    with pytest.raises(ConfigError, match=r"learner\.trend\.window = 1 is invalid"):
        tiny_config(learner={"trend": {"window": 1}})
