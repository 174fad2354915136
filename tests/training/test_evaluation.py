"""What is recorded, against the same thing computed one sample at a time, or by hand."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
import torch
from torch import nn
from training.tiny_problem import Keeper, dropout_net, tiny_config, tiny_dataset

import wane
from wane.learners import ER, LEARNERS
from wane.measures.history import History
from wane.softmax.signals import SIGNALS
from wane.streams import DataError, Split, make_stream
from wane.training.evaluation import BATCH, evaluate
from wane.training.events import Events
from wane.training.groups import new_history
from wane.training.run import reduced, run
from wane.training.session import Session
from wane.training.state import Position, State
from wane.training.team import ALONE

ALL = {"record": {"samples": "tasks", "flow": True}}


def literal(learner, dataset, split, rows, classes=None):
    """Signals and softmax of each row, one forward pass a row, in float64."""
    learner = learner.eval()
    found = []
    for row in rows.tolist():
        pixels = split.images[row].double() / 255
        mean, std = (torch.tensor(values, dtype=torch.float64).view(-1, 1, 1) for values in (dataset.mean, dataset.std))
        with torch.no_grad():
            logits = learner.predict(((pixels - mean) / std).float()[None])[0].double()
        label = int(split.labels[row])
        chosen = list(range(len(logits))) if classes is None else list(classes)
        p = logits[chosen].softmax(0)
        p_y = float(p[chosen.index(label)])
        rank, size = 1 + int((p > p_y).sum()), len(chosen)
        loss = -np.log(p_y)
        signals = {
            "accuracy": float(rank == 1),
            "loss": loss,
            "cm": 1 + p_y - float(p.max()),
            "tlr": 1 - (rank - 1) / (size - 1),
            "log_tlr": 1 - np.log(rank) / np.log(size),
            "rtlr": (size - rank) / ((size - 1) * rank),
            "ctl": p_y,
            "nkl": 1 - min(loss, np.log(size)) / np.log(size),
            "rank": rank,
        }
        found.append((row, label, signals, logits.softmax(0).numpy()))
    return found


@pytest.fixture
def made(monkeypatch):
    """The learners that runs made."""
    kept = []

    class Kept(ER):
        def __init__(self, *args):
            super().__init__(*args)
            kept.append(self)

    monkeypatch.setitem(LEARNERS, "er", Kept)
    return kept


def session_of(learner, dataset):
    """A session that has only what an evaluation needs."""
    stream = make_stream(dataset, 2)
    state = State(learner, None, new_history(stream), {}, None, Position(), channels_last=False)
    return Session(tiny_config(), stream, state, ALONE, None, Events())


@pytest.mark.parametrize("classes", [None, range(3), [3, 0, 1]])
@pytest.mark.parametrize("batch", [1, 7, 128])
def test_evaluate_against_a_loop_over_samples(classes, batch, monkeypatch):
    monkeypatch.setitem(BATCH, "cpu", batch)
    dataset = tiny_dataset()
    learner = ER(dropout_net(), 4).train()
    allowed = torch.tensor(list(range(4) if classes is None else classes))
    rows = torch.isin(dataset.test.labels, allowed).nonzero()[:, 0].flip(0)
    before = torch.get_rng_state()
    session, tasks = session_of(learner, dataset), dataset.test.labels // 2
    found = evaluate(session, dataset.test, rows, tasks, classes=classes, flow=True, samples=True)
    assert learner.training
    assert learner.model.body.training
    assert torch.equal(torch.get_rng_state(), before)
    expected = literal(learner, dataset, dataset.test, rows, classes)
    means = found.metrics.compute()
    for c in range(4):
        mine = [(signals, softmax) for _, label, signals, softmax in expected if label == c]
        assert int(found.metrics.counts[c]) == len(mine)
        for name in SIGNALS:
            mean = np.mean([signals[name] for signals, _ in mine]) if mine else np.nan
            np.testing.assert_allclose(float(means[name][c]), mean, atol=1e-5)
        flow = np.mean([softmax for _, softmax in mine], axis=0) if mine else np.full(4, np.nan)
        np.testing.assert_allclose(means["flow"][c].numpy(), flow, atol=1e-5)
    assert found.samples["sample"].tolist() == [row for row, *_ in expected]
    assert found.samples["class"].tolist() == [label for _, label, *_ in expected]
    for name in (*SIGNALS, "rank"):
        np.testing.assert_allclose(found.samples[name], [signals[name] for *_, signals, _ in expected], atol=1e-5)


@pytest.mark.parametrize("scope", ["all", "seen"])
def test_history_samples_and_flow_are_those_of_the_final_model(scope, tmp_path, made):
    dataset = tiny_dataset(holdout=4)
    config = tiny_config(record={**ALL["record"], "classes": scope}, data={"class_order": "shuffled"}, seed=2)
    run(config, tmp_path / "run", dataset=dataset)
    frame = pl.read_parquet(tmp_path / "run" / "history.parquet")
    for split, data in (("test", dataset.test), ("holdout", dataset.holdout)):
        expected = literal(made[0], dataset, data, torch.arange(len(data)))
        last = frame.filter(split=split, step=24)
        assert last["class"].to_list() == [0, 1, 2, 3]
        for c in range(4):
            mine = [signals for _, label, signals, _ in expected if label == c]
            assert last["n"][c] == len(mine)
            for name in SIGNALS:
                assert last[name][c] == pytest.approx(np.mean([signals[name] for signals in mine]), abs=1e-5)
    samples = pl.read_parquet(tmp_path / "run" / "samples.parquet")
    last = samples.filter(step=24)
    assert last["sample"].to_list() == list(range(40))
    assert last["class"].to_list() == dataset.test.labels.tolist()
    expected = literal(made[0], dataset, dataset.test, torch.arange(40))
    for name in (*SIGNALS, "rank"):
        np.testing.assert_allclose(last[name].to_numpy(), [signals[name] for *_, signals, _ in expected], atol=1e-5)
    with np.load(tmp_path / "run" / "flow.npz") as parts:
        assert parts["step"].tolist() == [12, 24]
        assert parts["task"].tolist() == [0, 1]
        for c in range(4):
            mean = np.mean([softmax for _, label, _, softmax in expected if label == c], axis=0)
            np.testing.assert_allclose(parts["flow"][1, c], mean, atol=1e-5)


def test_samples_equal_the_public_function_to_the_bit(tmp_path, made):
    """`wane.signals` on the logits of the final model; the means in the history are those of the samples."""
    dataset = tiny_dataset()
    run(tiny_config(**ALL), tmp_path / "run", dataset=dataset)
    samples = pl.read_parquet(tmp_path / "run" / "samples.parquet").filter(step=24)
    with torch.no_grad():
        images = wane_images(dataset.test.images, dataset)
        scored = wane.signals(made[0].eval().predict(images), dataset.test.labels)
    for name in (*SIGNALS, "rank"):
        np.testing.assert_array_equal(samples[name].to_numpy(), getattr(scored, name).numpy())
    history = pl.read_parquet(tmp_path / "run" / "history.parquet").filter(split="test", step=24)
    means = samples.group_by("class").agg(pl.col(*SIGNALS).cast(pl.Float64).mean()).sort("class")
    for name in SIGNALS:
        np.testing.assert_allclose(history[name].to_numpy(), means[name].to_numpy(), atol=1e-9)


def wane_images(images, dataset):
    from wane.streams import normalise

    return normalise(images, dataset.mean, dataset.std)


def test_sample_ids_are_rows_of_the_test_split_at_every_time(tmp_path):
    dataset = tiny_dataset()
    run(tiny_config(record={"samples": [1, 4, 6]}), tmp_path / "run", dataset=dataset)
    samples = pl.read_parquet(tmp_path / "run" / "samples.parquet")
    assert samples["step"].unique().to_list() == [4, 16, 24]
    assert samples["task"].unique().to_list() == [0, 1]
    assert samples["split"].unique().to_list() == ["test"]
    for step, task in ((4, 0), (16, 1), (24, 1)):
        at = samples.filter(step=step)
        rows = (dataset.test.labels < 2 * (task + 1)).nonzero()[:, 0].tolist()
        assert at["sample"].to_list() == rows
        assert at["class"].to_list() == dataset.test.labels[rows].tolist()


def test_rows_of_the_flow_sum_to_one_and_classes_not_seen_have_none(tmp_path):
    run(tiny_config(**ALL), tmp_path / "run", dataset=tiny_dataset())
    with np.load(tmp_path / "run" / "flow.npz", allow_pickle=False) as parts:
        flow = parts["flow"]
    assert flow.shape == (2, 4, 4)
    np.testing.assert_allclose(flow[1].sum(1), 1, atol=1e-6)
    np.testing.assert_allclose(flow[0, :2].sum(1), 1, atol=1e-6)
    assert np.isnan(flow[0, 2:]).all()


class Watched(ER):
    """Logs the logits of the passes that train."""

    def __init__(self, *args):
        super().__init__(*args)
        self.log = []

    def observe(self, batch):
        observed = super().observe(batch)
        self.log.append((batch, observed.logits.detach()))
        return observed


@pytest.mark.parametrize("weights", [None, {"rows": "replay"}, {"rows": "all"}])
@pytest.mark.parametrize("scope", ["all", "seen"])
def test_the_replay_split_is_what_the_training_passes_said(scope, weights, tmp_path, monkeypatch):
    monkeypatch.setitem(LEARNERS, "er", Watched)
    keeper = Keeper()
    learner = {} if weights is None else {"weights": weights}
    run(tiny_config(record={"classes": scope}, learner=learner), tmp_path / "run", dataset=tiny_dataset(),
        listeners=[keeper])  # fmt: skip
    frame = pl.read_parquet(tmp_path / "run" / "history.parquet").filter(split="replay")
    assert frame["step"].unique().to_list() == [4, 8, 12, 16, 20, 24]
    for epoch in range(6):
        steps = keeper.learners[0].log[4 * epoch : 4 * epoch + 4]
        logits = torch.cat([logits[batch.replayed] for batch, logits in steps])
        labels = torch.cat([batch.labels[batch.replayed] for batch, _ in steps])
        assert len(labels) == (18 if epoch == 0 else 24)  # the memory is empty at the very first step
        scored = wane.signals(logits, labels, classes=range(2) if scope == "seen" and epoch < 3 else None)
        rows = frame.filter(step=4 * (epoch + 1))
        assert rows["class"].to_list() == labels.unique().tolist()
        for c, n, *values in rows.select("class", "n", *SIGNALS).iter_rows():
            assert n == int((labels == c).sum())
            assert values == pytest.approx([float(s[labels == c].double().mean()) for s in scored[:8]], abs=1e-8)


class Constant(nn.Module):
    """Answers with the mean of the image's rows, so that what it says is known: nothing is learnt."""

    def __init__(self):
        super().__init__()
        self.nothing = nn.Parameter(torch.zeros(()))

    def forward(self, x):
        return x[:, 0, :4, :4].mean(2) + 0 * self.nothing


def test_matrix_and_summary_by_hand(tmp_path):
    """ER on a model whose accuracies are known: from the history to the last number of the summary."""
    dataset = tiny_dataset()
    summary = run(tiny_config(), tmp_path / "run", dataset=dataset)
    frame = pl.read_parquet(tmp_path / "run" / "history.parquet").filter(split="test")
    for signal, sign in (("accuracy", 1), ("loss", -1)):
        rows = {(step, c): value for step, c, value in frame.select("step", "class", signal).iter_rows()}
        a00 = (rows[12, 0] + rows[12, 1]) / 2
        a10, a11 = ((rows[24, c] + rows[24, c + 1]) / 2 for c in (0, 2))
        matrix = History.read(tmp_path / "run" / "history.parquet").matrix(signal)
        np.testing.assert_allclose(matrix[np.tril_indices(2)], [a00, a10, a11])
        found = summary["metrics"][signal]
        assert found["average"] == pytest.approx((a10 + a11) / 2)
        assert found["forgetting"] == pytest.approx(max(0, sign * (a00 - a10)), abs=1e-12)
        assert found["retention"] == pytest.approx(a10)
        assert found["plasticity"] == pytest.approx((a00 + a11) / 2)
    accuracy = summary["accuracy_matrix"]
    assert accuracy[1][1] == pytest.approx(a11_accuracy(frame))
    assert summary["steps"] == 24
    assert summary["class_names"] == ["0", "1", "2", "3"]


def a11_accuracy(frame):
    return float(frame.filter(pl.col("step") == 24, pl.col("class") >= 2)["accuracy"].mean())


def test_a_model_that_answers_the_same_is_evaluated_the_same(tmp_path):
    dataset = tiny_dataset()
    run(tiny_config(), tmp_path / "run", dataset=dataset, model=Constant())
    frame = pl.read_parquet(tmp_path / "run" / "history.parquet").filter(split="test")
    for c in range(4):
        mine = frame.filter(pl.col("class") == c).select(*SIGNALS)
        assert len(mine) == (6 if c < 2 else 3)
        assert len(mine.unique()) == 1
    right = Constant()(wane_images(dataset.test.images, dataset)).argmax(1) == dataset.test.labels
    expected = [float(right[dataset.test.labels == c].double().mean()) for c in range(4)]
    assert frame.filter(step=24)["accuracy"].to_list() == pytest.approx(expected)


def test_own_data_is_reduced_as_the_config_says(tmp_path):
    dataset = tiny_dataset()
    size = dataset.image_shape[1] // 2
    config = tiny_config(data={"per_class": 6, "holdout": 2, "resolution": size, "padding": 1})
    made = reduced(dataset, config)
    assert torch.bincount(made.train.labels).tolist() == [4] * dataset.num_classes
    assert torch.bincount(made.holdout.labels).tolist() == [2] * dataset.num_classes
    assert made.image_shape[1:] == made.test.images.shape[2:] == (size, size)
    assert reduced(made, tiny_config(data={"resolution": size})).image_shape == made.image_shape


def untested(*classes):
    """The tiny data set without test images of some classes."""
    dataset = tiny_dataset()
    keep = ~torch.isin(dataset.test.labels, torch.tensor(classes))
    return replace(dataset, test=Split(dataset.test.images[keep], dataset.test.labels[keep]))


@pytest.mark.parametrize(("classes", "task"), [((0, 1), 1), ((2, 3), 2)])
def test_a_task_without_test_images_is_refused_before_anything_is_trained(classes, task, tmp_path):
    with pytest.raises(DataError, match=rf"task {task} has no test image: .* \({classes[0]}, {classes[1]}\)"):
        run(tiny_config(), tmp_path, dataset=untested(*classes))
    assert not (tmp_path / "checkpoint.pt").exists()


def test_a_class_without_test_images_is_passed_over(tmp_path):
    run(tiny_config(**ALL), tmp_path, dataset=untested(0))
    assert set(pl.read_parquet(tmp_path / "samples.parquet")["class"]) == {1, 2, 3}
