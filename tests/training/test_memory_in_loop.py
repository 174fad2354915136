"""The memory as the loop uses it: offered every row of every epoch, drawn as the config says."""

import numpy as np
import polars as pl
import pytest
import torch
from training.tiny_problem import tiny_config, tiny_dataset

from wane.learners import ER, LEARNERS
from wane.training.checkpoint import load_checkpoint
from wane.training.run import run


@pytest.fixture
def batches(monkeypatch):
    """Every batch that a learner was given."""
    seen = []

    class Watched(ER):
        def observe(self, batch):
            seen.append(batch)
            return super().observe(batch)

    monkeypatch.setitem(LEARNERS, "er", Watched)
    return seen


def replayed_by_epoch(batches, steps=4):
    """(epochs, classes) how often each class was replayed."""
    counts = [batch.labels[batch.replayed].bincount(minlength=4) for batch in batches]
    return torch.stack(counts).view(-1, steps, 4).sum(1).numpy()


def test_the_share_of_the_current_task_is_that_of_a_reservoir(tmp_path, batches):
    """During epoch e of task 2 of equal size, a reservoir fed every epoch of E holds about e / (E + e) current rows."""
    shares = []
    for seed in range(6):
        batches.clear()
        config = tiny_config(learner={"epochs": 4, "replay_size": 24}, memory={"capacity": 24}, seed=seed)
        run(config, tmp_path / str(seed), dataset=tiny_dataset())
        state = load_checkpoint(tmp_path / str(seed))["memory"]
        assert int(state["seen"]) == 2 * 4 * 40
        assert torch.equal(state["tasks"], state["labels"] // 2)
        counts = replayed_by_epoch(batches)
        shares.append(counts[4:, 2:].sum(1) / counts[4:].sum(1))
        logged = pl.read_parquet(tmp_path / str(seed) / "replay.parquet")
        np.testing.assert_allclose(logged["current_share"].to_numpy()[4:], shares[-1])
        assert logged["drawn"].to_list() == counts.tolist()
    # rows of a step are drawn before its own are offered: k of 40 rows x epoch, at the steps' starts
    expected = [np.mean([(40 * e + 10 * s) / (160 + 40 * e + 10 * s) for s in range(4)]) for e in range(4)]
    np.testing.assert_allclose(np.mean(shares, axis=0), expected, atol=0.08)


def test_the_memory_holds_raw_rows_of_the_data_set(tmp_path):
    dataset = tiny_dataset()
    run(tiny_config(), tmp_path / "run", dataset=dataset)
    memory = load_checkpoint(tmp_path / "run")["memory"]
    rows = zip(dataset.train.images, dataset.train.labels, strict=True)
    images = {image.numpy().tobytes(): int(label) for image, label in rows}
    assert len(images) == 80
    for image, label, step, task in zip(*(memory[k] for k in ("images", "labels", "steps", "tasks")), strict=True):
        assert images[image.numpy().tobytes()] == int(label)
        assert (int(step) - 1) // 12 == int(task)


def test_a_batch_is_new_rows_then_drawn_rows(tmp_path, batches):
    run(tiny_config(), tmp_path / "run", dataset=tiny_dataset())
    assert [len(batch.labels) for batch in batches] == [10] + [16] * 23  # nothing to replay at the first step
    for i, batch in enumerate(batches):
        assert batch.new == 10
        assert (batch.labels[:10] // 2 == i // 12).all()
        assert torch.equal(batch.replayed, torch.arange(len(batch.labels)) >= 10)
        assert torch.equal(batch.tasks, batch.labels // 2)
        assert (batch.slots[:10] == -1).all()
        drawn = batch.slots[10:]
        assert len(drawn.unique()) == len(drawn)
        assert ((drawn >= 0) & (drawn < 12)).all()


def test_every_row_of_a_task_is_seen_once_an_epoch(tmp_path, batches):
    dataset = tiny_dataset()
    run(tiny_config(data={"padding": 0, "flip": False}), tmp_path / "run", dataset=dataset)
    mean, std = dataset.mean[0], dataset.std[0]
    for epoch in range(6):
        parts = [batch.images[:10] for batch in batches[4 * epoch : 4 * epoch + 4]]
        pixels = ((torch.cat(parts) * std + mean) * 255).round().to(torch.uint8)
        wanted = dataset.train.images[dataset.train.labels // 2 == epoch // 3]
        assert sorted(p.numpy().tobytes() for p in pixels) == sorted(w.numpy().tobytes() for w in wanted)
    orders = {tuple(torch.cat([b.labels[:10] for b in batches[4 * e : 4 * e + 4]]).tolist()) for e in range(3)}
    assert len(orders) == 3


@pytest.mark.parametrize("policy", ["reservoir", "class_balanced"])
def test_past_never_draws_the_current_task_after_the_first(policy, tmp_path, batches):
    config = tiny_config(memory={"policy": policy, "draw": "class_uniform", "scope": "past"})
    run(config, tmp_path / "run", dataset=tiny_dataset())
    counts = replayed_by_epoch(batches)
    assert (counts[:3, :2].sum(1) >= 18).all()
    assert (counts[3:, 2:] == 0).all()
    assert (counts[3:, :2] > 0).all()


def test_past_holds_for_a_uniform_draw_too(tmp_path, batches):
    """It was accepted and ignored: then nearly half of the rows drawn are of the current task."""
    config = tiny_config(memory={"draw": "uniform", "scope": "past", "capacity": 30})
    run(config, tmp_path / "run", dataset=tiny_dataset())
    counts = replayed_by_epoch(batches)
    assert (counts[:3, :2].sum(1) >= 18).all()  # no past in the first task: all slots
    assert (counts[3:, 2:] == 0).all()
    for batch in batches[12:]:
        drawn = batch.slots[batch.replayed]
        assert len(drawn.unique()) == len(drawn)  # without replacement


def test_past_of_a_uniform_draw_is_uniform_over_slots(tmp_path, batches):
    """A draw as large as the memory brings every past slot exactly once."""
    config = tiny_config(memory={"scope": "past"}, learner={"replay_size": 12})
    run(config, tmp_path / "run", dataset=tiny_dataset())
    sizes = [int(batch.replayed.sum()) for batch in batches[12:]]
    assert sizes == sorted(sizes, reverse=True)  # the current task takes slots from the past one
    assert 0 < sizes[-1] < sizes[0] <= 12


def test_past_of_a_uniform_draw_with_a_memory_that_has_lost_it(tmp_path, batches):
    config = tiny_config(memory={"capacity": 1, "scope": "past"}, learner={"epochs": 4})
    for seed in range(8):
        run(config.model_copy(update={"seed": seed}), tmp_path / str(seed), dataset=tiny_dataset())
        if any((batch.labels[batch.replayed] >= 2).any() for batch in batches):
            return
    pytest.fail("no run lost its past: the test tested nothing")


def test_past_with_a_memory_that_has_lost_it(tmp_path, batches):
    """A single slot soon holds a row of the current task: it is replayed, the run does not end."""
    config = tiny_config(memory={"capacity": 1, "draw": "class_uniform", "scope": "past"}, learner={"epochs": 4})
    for seed in range(8):
        run(config.model_copy(update={"seed": seed}), tmp_path / str(seed), dataset=tiny_dataset())
        if any((batch.labels[batch.replayed] >= 2).any() for batch in batches):
            return
    pytest.fail("no run lost its past: the test tested nothing")


def test_class_uniform_draws_every_class_alike_whatever_the_memory_holds(tmp_path, batches):
    counts = np.zeros(4)
    for seed in range(4):
        batches.clear()
        config = tiny_config(memory={"draw": "class_uniform", "capacity": 30}, learner={"replay_size": 40}, seed=seed)
        run(config, tmp_path / str(seed), dataset=tiny_dataset())
        for batch in batches[16:]:  # from the second epoch of task 2 on every class is in memory
            counts += batch.labels[batch.replayed].bincount(minlength=4).numpy()
    n = counts.sum()
    assert n == 4 * 8 * 40
    chi_square = ((counts - n / 4) ** 2 / (n / 4)).sum()
    assert chi_square < 16.3  # 3 degrees of freedom, 1 in 1,000


def test_uniform_draws_follow_the_memory(tmp_path, batches):
    """With a draw as large as the memory, what is replayed is exactly what is held."""
    run(tiny_config(learner={"replay_size": 12}), tmp_path / "run", dataset=tiny_dataset())
    for batch in batches[2:]:
        assert sorted(batch.slots[batch.replayed].tolist()) == list(range(12))


def test_a_method_without_memory_has_none(tmp_path):
    run(tiny_config(learner={"name": "finetune"}), tmp_path / "run", dataset=tiny_dataset())
    assert load_checkpoint(tmp_path / "run")["memory"] is None
    assert set(pl.read_parquet(tmp_path / "run" / "history.parquet")["split"]) == {
        f"{split}{setting}" for split in ("test", "future", "untrained") for setting in ("", "_task")
    }
    assert not (tmp_path / "run" / "replay.parquet").exists()


def test_replayed_rows_scored_together_or_step_by_step_give_the_same_history(tmp_path, monkeypatch):
    histories = {}
    for waiting in (1, 40, 2**17):  # logits: every step, every other step, once an epoch
        monkeypatch.setattr("wane.training.losses.WAITING", waiting)
        run(tiny_config(), tmp_path / str(waiting), dataset=tiny_dataset())
        histories[waiting] = (tmp_path / str(waiting) / "history.parquet").read_bytes()
    assert len(set(histories.values())) == 1
    assert "replay" in pl.read_parquet(tmp_path / "1" / "history.parquet")["split"].unique()
