"""Across a head that grew, classes in another order, groups; who took the answers, and which samples turned."""

import numpy as np
import polars as pl
import pytest
import torch

from wane.predictions.comparison import compare
from wane.predictions.predictions import Predictions, read_predictions
from wane.softmax.signals import signals
from wane.views.compare.sentences import sentences

BEFORE, AFTER = (read_predictions(f"example:digits_{when}") for when in ("before", "after"))
NAMES = BEFORE.class_names


def grown(*, first=False):
    """The second model with two new classes, "ten" and "eleven"; where digit 7 was right, ten is likelier."""
    new = torch.full((len(AFTER), 2), -9.0, dtype=AFTER.logits.dtype)
    sevens = AFTER.labels == 7
    new[sevens, 0] = AFTER.logits[sevens].amax(1) + 1
    parts, names = (
        ([new, AFTER.logits], ("ten", "eleven", *NAMES)) if first else ([AFTER.logits, new], (*NAMES, "ten", "eleven"))
    )
    return Predictions(AFTER.labels + 2 * first, logits=torch.cat(parts, 1), class_names=names, ids=AFTER.ids)


@pytest.mark.parametrize("first", [False, True])
def test_a_grown_head(first):
    second = grown(first=first)
    result, same = compare(BEFORE, second), compare(BEFORE, AFTER)
    assert result.heads == (10, 12, 10)
    row = result.groups.filter(pl.col("name") == "digit 7").row(0, named=True)
    assert row["verdict"] == "lost"
    assert row["accuracy_after"] == 0
    was = same.groups.filter(pl.col("name") == "digit 7").row(0, named=True)
    # among the classes that both know nothing changed for it
    for when in ("before", "after"):
        assert row[f"accuracy_common_{when}"] == pytest.approx(was[f"accuracy_{when}"])
        for name in ("cm", "log_tlr", "ctl", "nkl", "loss"):
            assert row[f"{name}_{when}"] == pytest.approx(was[f"{name}_{when}"], rel=1e-6)
    assert row["to_new"] == row["right_to_wrong"] > 0
    assert result.takers.filter(pl.col("name") == "digit 7").select("taker", "new").rows() == [("ten", True)]
    assert "The models know 10 and 12 classes, 10 of them in common" in result.notes[0]
    said = sentences(result)[1]
    assert said.startswith("Among the 10 classes that both know it went from 77.6 % to 70.0 %; ")
    lost, new = result.overall["right_to_wrong"], result.overall["to_new"]
    assert said.endswith(f"{new} of the {lost} answers lost went to new classes.")
    # the other classes are judged as before
    others = pl.col("name") != "digit 7"
    assert dict(result.groups.filter(others).select("name", "right_to_wrong").rows()) == dict(
        same.groups.filter(others).select("name", "right_to_wrong").rows()
    )


def test_classes_in_another_order_change_nothing():
    order = torch.randperm(10, generator=torch.Generator().manual_seed(0))
    place = torch.argsort(order)
    moved = Predictions(
        place[AFTER.labels], logits=AFTER.logits[:, order], class_names=tuple(NAMES[i] for i in order), ids=AFTER.ids
    )
    result, same = compare(BEFORE, moved), compare(BEFORE, AFTER)
    for name in ("name", "verdict", "right_to_wrong"):
        assert result.groups[name].equals(same.groups[name])
    for name in ("nkl_after", "gap_after"):  # sums in another order
        np.testing.assert_allclose(result.groups[name], same.groups[name], rtol=1e-5)
    assert result.takers.equals(same.takers)
    assert result.flips["id"].equals(same.flips["id"])


def test_takers_and_flips_are_counted_literally():
    result = compare(BEFORE, AFTER)
    old, new = (p.logits.argmax(1) for p in (BEFORE, AFTER))
    lost = [i for i in range(len(BEFORE)) if old[i] == BEFORE.labels[i] != new[i]]
    counts = {}
    for i in lost:
        pair = (NAMES[BEFORE.labels[i]], NAMES[new[i]])
        counts[pair] = counts.get(pair, 0) + 1
    assert {(name, taker): n for name, taker, n, _ in result.takers.rows()} == counts
    order = result.groups["name"].to_list()
    places = [(order.index(name), -n) for name, _, n, _ in result.takers.rows()]
    assert places == sorted(places)
    ctl = [signals(p.logits, p.labels).ctl for p in (BEFORE, AFTER)]
    worst = sorted(lost, key=lambda i: float(ctl[1][i] - ctl[0][i]))
    assert result.flips["id"].to_list()[:50] == [BEFORE.ids[i] for i in worst[:50]]
    assert len(result.flips) == len(lost) == result.overall["right_to_wrong"]
    first = result.flips.row(0, named=True)
    assert (first["label"], first["answer"]) == (NAMES[BEFORE.labels[worst[0]]], NAMES[new[worst[0]]])
    assert first["ctl_after"] == pytest.approx(float(ctl[1][worst[0]]))


def test_only_the_worst_flips_are_kept(monkeypatch):
    monkeypatch.setattr("wane.predictions.comparison.FLIPS", 7)
    result = compare(BEFORE, AFTER)
    assert len(result.flips) == 7
    assert result.overall["right_to_wrong"] == 229


def test_groups_of_any_column():
    light = pl.Series(["day" if i % 3 else "night" for i in range(len(BEFORE))])
    first, second = (
        Predictions(p.labels, logits=p.logits, class_names=NAMES, columns={"light": light}) for p in (BEFORE, AFTER)
    )
    result = compare(first, second, by=["light"])
    assert result.by == ("light",)
    assert {*result.groups["name"]} == {"day", "night"}
    day = result.groups.filter(pl.col("light") == "day").row(0, named=True)
    mine = np.array(light.to_list()) == "day"
    right = [(p.logits.argmax(1) == p.labels).numpy()[mine] for p in (BEFORE, AFTER)]
    assert (day["accuracy_before"], day["accuracy_after"]) == (right[0].mean(), right[1].mean())
    assert any("2 groups lost accuracy" in said or "2 of 2 groups lost" in said for said in sentences(result))
    crossed = compare(first, second, by=["class", "light"])
    assert len(crossed.groups) == 20
    assert "digit 1 · day" in crossed.groups["name"].to_list()
    assert result.flips["light"].to_list()[0] in ("day", "night")


def test_both_know_classes_that_the_other_lacks():
    rng = torch.Generator().manual_seed(0)
    labels = torch.tensor([0, 1] * 10)
    first = Predictions(labels, logits=torch.randn(20, 3, generator=rng), class_names=("a", "b", "old"))
    second = Predictions(labels + 1, logits=torch.randn(20, 3, generator=rng), class_names=("new", "a", "b"))
    result = compare(first, second)
    assert result.heads == (3, 3, 2)
    common = [p.logits[:, columns] for p, columns in ((first, [0, 1]), (second, [1, 2]))]
    for when, logits in zip(("before", "after"), common, strict=True):
        wanted = signals(logits, labels)
        assert result.overall[f"nkl_{when}"] == pytest.approx(float(wanted.nkl.mean()), rel=1e-5)
        assert result.overall[f"accuracy_common_{when}"] == pytest.approx(float(wanted.accuracy.mean()))
