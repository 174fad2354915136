"""Against scipy and numbers worked out by hand; and how often chance alone makes it speak."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from scipy import stats

from wane.predictions.comparison import EVIDENCE, VERDICTS, compare, score
from wane.predictions.paired_tests import answers_p
from wane.predictions.predictions import Predictions, PredictionsError, read_predictions
from wane.predictions.samples import measure
from wane.softmax.signals import SIGNALS, signals
from wane.views.compare.sentences import sentences

BEFORE, AFTER = (read_predictions(f"example:digits_{when}") for when in ("before", "after"))


def predictions(logits, labels, **more):
    return Predictions(torch.as_tensor(labels), logits=torch.as_tensor(logits, dtype=torch.float64), **more)


def row(result, index):
    return result.groups.filter(pl.col("class") == index).row(0, named=True)


def test_score_by_hand():
    p = torch.tensor([[0.48, 0.49, 0.02, 0.01], [0.05, 0.10, 0.70, 0.15], [0.1, 0.2, 0.3, 0.4]])
    scores = score(Predictions(torch.tensor([0, 0, 3]), probabilities=p, class_names=("a", "b", "c", "d")))
    assert scores.groups["name"].to_list() == ["a", "d"]  # worst first; b and c have no samples
    worst = scores.groups.row(0, named=True)
    assert (worst["n"], worst["accuracy"], worst["median_rank"], worst["infinite"]) == (2, 0, 3, 0)
    assert worst["cm"] == pytest.approx((0.99 + 0.35) / 2)
    assert worst["log_tlr"] == pytest.approx(0.25)
    assert worst["loss"] == pytest.approx(-(np.log(0.48) + np.log(0.05)) / 2)
    assert scores.overall["accuracy"] == pytest.approx(1 / 3)
    assert scores.notes[0] == "Of 4 classes, 2 without samples are left out."


def test_score_is_the_mean_of_the_signals():
    scores, each = score(AFTER), signals(AFTER.logits, AFTER.labels)
    for name in SIGNALS:
        values = getattr(each, name).double()
        assert scores.overall[name] == pytest.approx(float(values.mean()), rel=1e-9)
        for line in scores.groups.iter_rows(named=True):
            assert line[name] == pytest.approx(float(values[AFTER.labels == line["class"]].mean()), rel=1e-9)
    accuracy = scores.groups["accuracy"].to_list()
    assert accuracy == sorted(accuracy)


def test_changes_are_those_of_scipy():
    result = compare(BEFORE, AFTER, alpha=0.1)
    old, new = (signals(p.logits, p.labels) for p in (BEFORE, AFTER))
    for line in result.groups.iter_rows(named=True):
        mine = BEFORE.labels == line["class"]
        for name in SIGNALS:
            a, b = (getattr(s, name)[mine].double().numpy() for s in (old, new))
            assert line[f"{name}_before"] == pytest.approx(a.mean(), abs=1e-9)
            assert line[f"{name}_after"] == pytest.approx(b.mean(), abs=1e-9)
            assert line[f"{name}_change"] == pytest.approx((b - a).mean(), abs=1e-9)
            if (a != b).any() and name != "accuracy":  # whose intervals are tested with `paired_interval`
                interval = stats.ttest_rel(b, a).confidence_interval(result.interval)
                most = np.inf if name == "loss" else 1
                assert line[f"{name}_low"] == pytest.approx(max(interval.low, -most), abs=1e-9)
                assert line[f"{name}_high"] == pytest.approx(min(interval.high, most), abs=1e-9)


def test_intervals_are_corrected_for_what_stands_out():
    result = compare(BEFORE, AFTER, alpha=0.1)
    stand_out = len(result.groups) - len(result.having("steady", "too few"))
    assert result.interval == pytest.approx(1 - 0.1 * stand_out / 10)


def test_accuracy_verdicts_are_those_of_the_exact_test():
    result = compare(BEFORE, AFTER)
    right = [p.logits.argmax(1) == p.labels for p in (BEFORE, AFTER)]
    raw = []
    for line in result.groups.iter_rows(named=True):
        mine = BEFORE.labels == line["class"]
        lost, gained = int((right[0] & ~right[1] & mine).sum()), int((~right[0] & right[1] & mine).sum())
        assert (line["right_to_wrong"], line["wrong_to_right"]) == (lost, gained)
        raw.append(answers_p(lost, gained, int(mine.sum()), direction="either"))
        conditional = stats.binomtest(lost, lost + gained).pvalue if lost + gained else 1.0
        assert raw[-1] <= conditional + 3e-6  # it finds what the conditional test finds
    np.testing.assert_allclose(result.groups["accuracy_p"], stats.false_discovery_control(raw), rtol=1e-9)
    for line in result.groups.iter_rows(named=True):
        assert (line["verdict"] in ("lost", "gained")) == (line["accuracy_p"] <= 0.05)


def test_hidden_decline_follows_the_rule_of_the_docstring():
    result = compare(BEFORE, AFTER)
    old, new = (signals(p.logits, p.labels) for p in (BEFORE, AFTER))
    still = result.groups.filter(~pl.col("verdict").is_in(["lost", "gained"]))
    raw = []
    for line in still.iter_rows(named=True):
        mine = BEFORE.labels == line["class"]
        drift = np.mean([(getattr(new, name) - getattr(old, name))[mine].double().numpy() for name in EVIDENCE], axis=0)
        assert line["drift"] == pytest.approx(drift.mean(), abs=1e-7)
        exact = stats.wilcoxon(drift, alternative="less", method="exact").pvalue
        raw.append(min(1, 2 * exact) if drift.mean() <= -0.01 else 1.0)
    np.testing.assert_allclose(still["decline_p"], stats.false_discovery_control(raw), rtol=1e-5)
    assert (
        still.filter(pl.col("decline_p") <= 0.05)["name"].to_list() == result.having("hidden decline")["name"].to_list()
    )


def test_the_example_has_one_of_each():
    result = compare(BEFORE, AFTER)
    assert {*result.groups["verdict"]} == {"lost", "hidden decline", "steady", "hidden gain", "gained"}
    assert result.at_zero["name"].to_list() == ["digit 1", "digit 3"]
    assert result.at_zero["gap_after"].is_sorted()
    for name in ("digits_before", "digits_after"):
        assert Path(f"{BEFORE.path.parent}/{name}.npz").stat().st_size < 30_000


def test_the_same_model_is_steady():
    result = compare(AFTER, AFTER)
    assert {*result.groups["verdict"]} == {"steady"}
    assert result.overall["drift"] == 0
    assert -0.01 < result.overall["accuracy_low"] == -result.overall["accuracy_high"] < 0
    assert result.overall["ctl_low"] == result.overall["ctl_high"] == 0


def test_backwards_it_is_the_other_way_round():
    there, back = compare(BEFORE, AFTER), compare(AFTER, BEFORE)
    opposite = {"lost": "gained", "gained": "lost", "hidden decline": "hidden gain", "hidden gain": "hidden decline"}
    for index in range(10):
        verdict = row(there, index)["verdict"]
        assert row(back, index)["verdict"] == opposite.get(verdict, verdict)


def test_gap_is_what_the_label_lacks():
    labels = np.zeros(5, dtype=int)
    after = predictions([[1.0, 3.0, 0.0]] * 3 + [[0.0, 1.0, 0.5]] * 2, labels)
    result = compare(predictions([[3.0, 0.0, 0.0]] * 5, labels), after)
    assert row(result, 0)["gap_after"] == pytest.approx((3 * 2 + 2 * 1) / 5)
    soft = Predictions(after.labels, probabilities=after.logits.softmax(1))
    assert row(compare(after, soft), 0)["gap_after"] == pytest.approx(1.6)
    assert result.at_zero["median_rank_after"].to_list() == [2]


def simulated(rng, *, classes=5, n=40, shift=0.0, noise=0.5):
    """Two models that differ by chance alone; in the second the labels of class 0 have lost `shift`."""
    labels = np.repeat(np.arange(classes), n)
    base = rng.normal(size=(len(labels), classes))
    base[np.arange(len(labels)), labels] += rng.normal(6, 1.5, len(labels))
    first, second = (base + noise * rng.standard_t(4, size=base.shape) for _ in range(2))
    second[labels == 0, 0] -= shift
    return compare(predictions(first, labels), predictions(second, labels), smallest=0.0)


def test_false_alarms_are_rare():
    rng, runs = np.random.default_rng(0), 200
    alarms = {"accuracy": 0, "signals": 0}
    for _ in range(runs):
        verdicts = {*simulated(rng).groups["verdict"]}
        alarms["accuracy"] += bool(verdicts & {"lost", "gained"})
        alarms["signals"] += bool(verdicts & {"hidden decline", "hidden gain", "mixed"})
    for count in alarms.values():  # at most 5 %: even if exactly that, more than this happens once in 10,000 times
        assert count <= stats.binom.ppf(0.9999, runs, 0.05)


def test_a_decline_that_leaves_accuracy_alone_is_found():
    rng, found = np.random.default_rng(1), []
    for _ in range(20):
        result = simulated(rng, shift=1.5)
        found.append(row(result, 0)["verdict"])
        assert len(result.having("hidden decline")) <= 2
    assert found.count("hidden decline") >= 18


def test_signals_that_disagree_are_mixed():
    right = torch.tensor([[0.7, 0.1, 0.1, 0.1]]).expand(5, 4)  # in both: a class that is never right is no such case
    before = torch.cat([right, torch.tensor([[0.30, 0.35, 0.34, 0.01]]).expand(20, 4)])
    # less sure of the label, but it ranks higher
    after = torch.cat([right, torch.tensor([[0.20, 0.79, 0.005, 0.005]]).expand(20, 4)])
    labels = torch.zeros(25, dtype=torch.int64)
    result = compare(Predictions(labels, probabilities=before), Predictions(labels, probabilities=after))
    found = row(result, 0)
    assert found["verdict"] == "mixed"
    assert (found["fallen"], found["risen"]) == (["cm", "ctl", "nkl"], ["tlr", "log_tlr", "rtlr"])
    assert "1 class moved both ways while accuracy held (0)." in sentences(result)


def at_zero(*, label_before, label_after, n=20):
    """A class that is never right: its label has these probabilities, another class all but all of the rest."""
    p = torch.tensor([[[x, 0.9 - x, 0.05, 0.05]] * n for x in (label_before, label_after)])
    labels = torch.zeros(n, dtype=torch.int64)
    return compare(*(Predictions(labels, probabilities=q) for q in p))


def test_a_class_that_was_never_right_is_in_no_hidden_decline():
    result = at_zero(label_before=0.4, label_after=0.1)
    assert row(result, 0)["verdict"] == "never right"
    assert len(row(result, 0)["fallen"]) >= 2
    assert row(result, 0)["decline_p"] is None
    assert "1 class was at 0 % before and after while signals fell: with no accuracy to hold" in " ".join(result.notes)
    assert not any("hidden decline" in sentence for sentence in sentences(result))


def test_a_class_that_was_never_right_can_still_improve_or_stay():
    assert row(at_zero(label_before=0.1, label_after=0.1), 0)["verdict"] == "steady"
    assert row(at_zero(label_before=0.1, label_after=0.4), 0)["verdict"] == "hidden gain"


def test_duplicate_ids_are_an_error():
    logits = torch.tensor([[2.0, 1.0], [0.0, 3.0]])
    with pytest.raises(PredictionsError, match="<memory> has id 'a' in rows 0 and 1: make the ids unique"):
        Predictions(torch.tensor([0, 1]), logits=logits, ids=("a", "a"))
    once = measure(Predictions(torch.tensor([0, 1]), logits=logits, ids=("a", "b")))
    twice = replace(once, keys={"id": pl.Series(["a", "a"])})  # as a file of signals may have them
    for pair in ((twice, once), (once, twice)):
        with pytest.raises(PredictionsError, match="id 'a' occurs more than once: make the ids unique"):
            compare(*pair)


def test_trifles_do_not_count():
    rng = np.random.default_rng(2)
    labels = np.repeat([0, 1], 2000)
    base = rng.normal(size=(4000, 2))
    worse = base.copy()
    worse[np.arange(4000), labels] -= 0.001  # certain, and tiny
    result = compare(predictions(base, labels), predictions(worse, labels), smallest=0.0)
    assert {*result.groups["verdict"]} == {"hidden decline"}
    assert {*compare(predictions(base, labels), predictions(worse, labels)).groups["verdict"]} == {"steady"}


@pytest.mark.parametrize("n", [1, 2, 4])
def test_few_samples_are_not_judged(n):
    labels = np.array([0] * n + [1] * 50)
    good, bad = np.eye(2)[labels] * 5, np.eye(2)[1 - labels] * 5
    result = compare(predictions(good, labels), predictions(bad, labels))
    few = row(result, 0)
    assert few["verdict"] == "too few"
    assert few["accuracy_low"] is few["accuracy_high"] is few["accuracy_p"] is None
    assert few["accuracy_change"] == -1
    assert result.at_zero["class"].to_list() == [1]
    assert result.notes == ("Of 2 classes, 1 with fewer than 5 samples cannot be judged.",)
    assert compare(predictions(good[:n], labels[:n]), predictions(bad[:n], labels[:n])).overall["n"] == n


def test_infinite_losses_do_not_poison():
    labels = torch.tensor([0] * 10 + [1] * 10)
    p = torch.full((20, 2), 0.2)
    p[torch.arange(20), labels] = 0.8
    broken = p.clone()
    broken[0] = torch.tensor([0.0, 1.0])
    scores = score(Predictions(labels, probabilities=broken))
    assert scores.overall["loss"] == pytest.approx(-np.log(0.8))
    assert scores.overall["infinite"] == 1
    assert scores.overall["ctl"] == pytest.approx(0.8 * 19 / 20)
    assert "In 1 of 20 samples the model gives the label probability 0" in scores.notes[0]
    result = compare(Predictions(labels, probabilities=p), Predictions(labels, probabilities=broken))
    first = row(result, 0)
    assert first["loss_change"] == pytest.approx(0, abs=1e-6)
    assert first["loss_before"] == pytest.approx(-np.log(0.8))
    assert first["ctl_change"] == pytest.approx(-0.08)
    assert "the second model" in result.notes[0]
    none = Predictions(labels, probabilities=1 - torch.nn.functional.one_hot(labels).float())
    gone = compare(none, none)
    assert gone.groups["loss_after"].to_list() == [None, None]
    assert gone.overall["loss_after"] is score(none).overall["loss"] is None
    assert len(gone.at_zero) == 2
    far = none.probabilities.clone()
    far[10:] = torch.tensor([0.999, 0.001])  # class 1 is far, class 0 infinitely so
    infinite = Predictions(labels, probabilities=far)
    assert compare(infinite, infinite).at_zero["class"].to_list() == [1, 0]


def test_tables_are_plain_data():
    result = compare(BEFORE, AFTER)
    json.dumps(result.groups.to_dicts(), allow_nan=False)
    json.dumps(result.overall, allow_nan=False)
    assert not [name for name, dtype in result.groups.schema.items() if dtype == pl.Object]
    with pytest.raises(KeyError, match="did you mean 'lost'"):
        result.having("lots")
    order = [list(VERDICTS).index(v) for v in result.groups["verdict"]]
    assert order == sorted(order)


def test_what_cannot_be_compared():
    with pytest.raises(ValueError, match="alpha is 5"):
        compare(BEFORE, AFTER, alpha=5)
    with pytest.raises(PredictionsError, match="no column 'domain' to group by: choose from class"):
        compare(BEFORE, AFTER, by=["domain"])
