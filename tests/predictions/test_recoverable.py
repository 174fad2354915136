"""What a correction would bring back: about nothing of a model without bias, what a bias took of one with it."""

import numpy as np
import polars as pl
import pytest
import torch
from typer.testing import CliRunner

import wane
from wane.cli import app
from wane.predictions.files import PredictionsError
from wane.predictions.predictions import Predictions, read_predictions
from wane.predictions.recoverable import class_groups, correct, recoverable


def rows(seed, n=300, c=10, bias=0.0, shares=None):
    g = torch.Generator().manual_seed(seed)
    shares = torch.ones(c) if shares is None else torch.tensor(shares)
    labels = torch.multinomial(shares, n, replacement=True, generator=g)
    logits = torch.randn(n, c, generator=g)
    logits[torch.arange(n), labels] += 1.5
    logits = 1.5 * logits + shares.log()  # Bayes' rule: no answers are better on average
    logits[:, c // 2 :] += bias
    return Predictions(labels, logits=logits)


@pytest.mark.parametrize("groups", [None, [0] * 5 + [1] * 5])
@pytest.mark.parametrize("shares", [None, [8.0, 8, 8, 8, 8, 1, 1, 1, 1, 1]])
def test_models_without_bias_have_nothing_to_recover(groups, shares):
    found = [recoverable(rows(seed, shares=shares), groups=groups) for seed in range(25)]
    points = np.array([one.points for one in found])
    assert abs(points.mean()) < 0.35  # of which half a row is 0.17
    assert sum(one.low > 0 for one in found) <= 3  # 2.5 % of 25 are one at most


def test_its_own_rows_would_fool_it():
    """Judged on the rows that it was fitted on, the same correction of the same models seems to help."""
    gains = []
    for seed in range(8):
        p = rows(seed, n=60)
        fitted = wane.LogitCorrection("accuracy", ridge=1e-6).fit(p.logits, p.labels).apply(p.logits)
        gains.append([
            100 * float((wane.signals(fitted, p.labels).accuracy - wane.signals(p.logits, p.labels).accuracy).mean()),
            recoverable(p, by="accuracy").points,
        ])  # fmt: skip
    fooled, honest = np.mean(gains, axis=0)
    assert fooled > 5
    assert honest < fooled / 3


@pytest.mark.parametrize("groups", [None, [0] * 5 + [1] * 5])
def test_what_a_bias_took_comes_back(groups):
    biased, fair = (rows(3, n=2000, bias=bias) for bias in (2.5, 0.0))
    lost = 100 * float(wane.signals(fair.logits, fair.labels).accuracy.mean()
                        - wane.signals(biased.logits, biased.labels).accuracy.mean())  # fmt: skip
    found = recoverable(biased, groups=groups)
    assert found.points == pytest.approx(lost, abs=1.5)
    assert found.low < lost < found.high
    assert "would bring back" in found.sentence


def test_the_interval_covers_what_unseen_rows_gain():
    """The gain of the correction fitted on all rows, measured on very many others, lies inside nearly always."""
    inside = 0
    for seed in range(40):
        few, many = rows(seed, n=400, bias=1.5), rows(seed + 1000, n=20_000, bias=1.5)
        found = recoverable(few, groups=[0] * 5 + [1] * 5)
        fixed, _ = correct(many, few, groups=[0] * 5 + [1] * 5, by="loss")
        gain = wane.signals(fixed.logits, many.labels).accuracy - wane.signals(many.logits, many.labels).accuracy
        inside += found.low <= 100 * float(gain.mean()) <= found.high
    assert inside >= 35  # 38 are expected of 95 %


def test_probabilities_are_as_good_as_logits():
    p = rows(0, bias=2.0)
    q = Predictions(p.labels, probabilities=p.logits.double().softmax(1))
    a, b = recoverable(p), recoverable(q)
    assert (a.accuracy, a.corrected) == (b.accuracy, b.corrected)
    q.probabilities[0] = torch.eye(10)[(p.labels[0] + 1) % 10]  # a label of probability 0
    assert recoverable(q).rows == 300


def test_large_files_are_sampled(monkeypatch):
    monkeypatch.setattr("wane.predictions.recoverable.LARGEST", 1000)
    assert recoverable(rows(0, bias=2.0)).rows == 100


def test_groups_of_classes_from_a_column():
    labels = torch.tensor([0, 0, 1, 2])
    p = Predictions(labels, logits=torch.zeros(4, 4), columns={
        "task": pl.Series(["a", "a", "a", "b"]), "day": pl.Series([1, 2, 1, 1]), "one": pl.Series([1, 1, 1, 1]),
    })  # fmt: skip
    assert class_groups(p, ["task"]) == [0, 0, 1, -1]
    assert class_groups(p, ["day"]) is class_groups(p, ["one"]) is class_groups(p, ["no"]) is None


def test_too_small_files_say_so():
    with pytest.raises(PredictionsError, match="too small to correct by its own rows, as all"):
        recoverable(Predictions(torch.zeros(9, dtype=torch.int64), logits=torch.randn(9, 3)))
    with pytest.raises(ValueError, match="folds=5 for 3 rows"):
        recoverable(Predictions(torch.tensor([0, 1, 2]), logits=torch.randn(3, 3)))
    with pytest.raises(PredictionsError, match="fit on rows of the same model"):
        correct(rows(0), rows(0, c=9))
    with pytest.raises(PredictionsError, match="cannot be fitted on, as all 20 rows are of class 0"):
        correct(rows(0), rows(0, n=20, shares=[1.0] + [1e-30] * 9))


def run(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


def save(path, p, **more):
    np.savez(path, logits=p.logits.numpy(), labels=p.labels.numpy(), **more)
    return path


def test_the_command_corrects_a_file(tmp_path):
    names = np.array([f"c{i}" for i in range(10)])
    many, few = rows(0, n=500, bias=2.5), rows(1, n=60, bias=2.5)
    save(tmp_path / "many.npz", many, class_names=names, ids=np.arange(500))
    save(tmp_path / "few.npz", few, task=(few.labels >= 5).long().numpy())
    done = run(
        "correct", tmp_path / "many.npz", "--fit", tmp_path / "few.npz", "-o", tmp_path / "out.npz", "--by", "task"
    )
    assert done.exit_code == 0, done.output
    assert "fitted on 60 rows" in done.output
    fixed = read_predictions(tmp_path / "out.npz")
    wanted = wane.LogitCorrection("nkl", [0] * 5 + [1] * 5).fit(few.logits, few.labels)
    np.testing.assert_allclose(fixed.logits, wanted.apply(many.logits), rtol=1e-6)
    np.testing.assert_allclose(np.load(tmp_path / "out.npz")["offsets"], wanted.offsets)
    assert (fixed.class_names, fixed.ids) == (tuple(names), tuple(range(500)))
    cross = run("correct", tmp_path / "many.npz", "-o", tmp_path / "cross.npz")
    assert "cross-fitted" in cross.output
    for arguments in (
        ("correct", tmp_path / "many.npz", "-o", tmp_path / "out.csv"),
        ("correct", tmp_path / "many.npz", "-o", tmp_path / "out.npz", "--by", "task"),
        ("correct", tmp_path / "many.npz", "-o", tmp_path / "out.npz", "--signal", "nkk"),
        ("correct", tmp_path / "none.npz", "-o", tmp_path / "out.npz"),
    ):
        failed = run(*arguments)
        assert failed.exit_code == 2
        assert len(failed.output.strip().splitlines()) == 1


def test_classes_without_rows_to_fit_on_are_named(tmp_path):
    many, few = rows(0, n=500, bias=2.5), rows(1, n=200, bias=2.5)
    save(tmp_path / "many.npz", many)
    kept = few.labels < 8
    np.savez(tmp_path / "few.npz", logits=few.logits[kept].numpy(), labels=few.labels[kept].numpy())
    done = run("correct", tmp_path / "many.npz", "--fit", tmp_path / "few.npz", "-o", tmp_path / "out.npz")
    assert "has no row of 2 of 10 classes (8, 9): their logits are as they were." in " ".join(done.output.split())
    fixed = read_predictions(tmp_path / "out.npz")
    np.testing.assert_array_equal(fixed.logits[:, 8:], many.logits[:, 8:])


def test_score_and_compare_say_it():
    import json

    for command in (("score", "example:digits_after"), ("compare", "example:digits_before", "example:digits_after")):
        assert "would bring back 21.2 points" in run(*command).output
        said = json.loads(run(*command, "--json").output)["recoverable"]
        assert said["points"] == pytest.approx(21.2, abs=0.05)
        assert said["low"] < said["points"] < said["high"]
