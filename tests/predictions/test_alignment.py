"""The same samples of two files, by ids or by order, and the same classes, by name or by number."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from wane.predictions.alignment import align
from wane.predictions.predictions import Predictions, PredictionsError
from wane.predictions.samples import measure

LOGITS = np.array([[2.0, -1.0, 0.5], [0.0, 1.5, -2.0], [0.3, 0.2, 0.1], [3.0, 1.0, 2.0]], dtype=np.float32)
PROBABILITIES = np.array([[0.7, 0.2, 0.1], [0.1, 0.85, 0.05], [0.3, 0.3, 0.4], [0.25, 0.5, 0.25]])
LABELS, NAMES, IDS = np.array([0, 1, 2, 1]), ["ant", "bee", "cat"], list("abcd")


def one_sentence(text):
    assert "\n" not in text
    assert ": " in text  # what is wrong: what to do
    assert not text.endswith(".")
    return text


def predictions(order=(0, 1, 2, 3), kind="logits", **more):
    rows = list(order)
    values = torch.tensor(LOGITS if kind == "logits" else PROBABILITIES)[rows]
    return Predictions(torch.tensor(LABELS)[rows], **{kind: values}, **more)


def test_align_by_ids():
    before = predictions(ids=tuple(IDS))
    for kind in ("logits", "probabilities"):
        shuffled = predictions((2, 0, 3, 1), kind, ids=("c", "a", "d", "b"), path=Path("after.npz"))
        pair = align(before, shuffled)
        assert pair.after.keys["id"].equals(pair.before.keys["id"])
        assert pair.after.path == Path("after.npz")
        assert pair.after.labels.tolist() == LABELS.tolist()
        same = measure(predictions(kind=kind))
        for name in same.values:
            np.testing.assert_array_equal(pair.after.values[name], same.values[name])
        np.testing.assert_array_equal(pair.after.values["answer"], same.values["answer"])


def test_align_by_order():
    for ids in (None, tuple(IDS)):  # ids on one side are no help
        pair = align(predictions(ids=ids), predictions(class_names=tuple(NAMES)))
        assert pair.before.class_names == pair.after.class_names == tuple(NAMES)
        assert pair.same_head


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ({}, {"order": (0, 1, 2)}, "have 4 and 3 rows: save the same samples, or ids"),
        ({}, {"order": (0, 2, 1, 3)}, "row 1 has label 1 in one and 2 in the other: .*with ids"),
        (
            {"class_names": ("a", "b", "b")},
            {"class_names": ("a", "c", "b")},
            "call class 1 'b' and 'c', and some",
        ),
        ({"class_names": tuple("abc")}, {"class_names": tuple("xyz")}, "no class in common, as 'a' and 'x'"),
        (
            {"class_names": tuple("abc")},
            {"class_names": tuple("acb")},
            "row 1 has label 'b' in one and 'c'",
        ),
        (
            {"ids": tuple("abcd")},
            {"ids": tuple("abyz")},
            "2 ids are only in the first and 2 only in .* as 'c'",
        ),
        ({"ids": tuple("abc"), "order": (0, 1, 2)}, {"ids": tuple("abcd")}, "0 ids .* and 1 only .*as 'd'"),
        ({"ids": (1, 2, 3, 4)}, {"ids": tuple("1234")}, "id is a number in one and text in the other"),
        ({"ids": tuple("abcd")}, {"ids": tuple("badc")}, "id 'a' has label 0 in one and 1 in the other"),
    ],
)
def test_not_the_same_samples(before, after, message):
    with pytest.raises(PredictionsError, match=message) as caught:
        align(predictions(**before, path=Path("x.npz")), predictions(**after, path=Path("y.csv")))
    assert one_sentence(str(caught.value)).startswith("x.npz and y.csv ")


def test_common_ids_only():
    before = predictions((0, 1, 2), ids=("a", "b", "c"))
    after = predictions((3, 2, 0), ids=("d", "c", "a"))
    pair = align(before, after, common=True)
    assert pair.before.keys["id"].to_list() == pair.after.keys["id"].to_list() == ["a", "c"]
    whole = measure(predictions())
    for samples in (pair.before, pair.after):
        np.testing.assert_array_equal(samples.values["loss"], whole.values["loss"][[0, 2]])
        np.testing.assert_array_equal(samples.within([0, 1, 2], np.array([1]))["loss"], whole.values["loss"][[2]])
        assert samples.within([0, 2], None)["loss"].shape == (2,)  # the row of class 1 was left out
    assert pair.notes == ("2 samples are in both files; 1 only in the first and 1 only in the second are left out.",)
    with pytest.raises(PredictionsError, match="with --common"):
        align(before, after)
    with pytest.raises(PredictionsError, match="not both have ids"):
        align(before, predictions(), common=True)
    with pytest.raises(PredictionsError, match="3 ids are only in the first and 1 only in the second"):
        align(before, predictions((3,), ids=("d",)), common=True)


def test_classes_are_matched_by_name():
    order = [2, 0, 1]  # of the second file's columns
    names = tuple(NAMES[i] for i in order)
    labels = torch.tensor([order.index(label) for label in LABELS])
    moved = Predictions(labels, logits=torch.tensor(LOGITS)[:, order], class_names=names)
    pair = align(predictions(class_names=tuple(NAMES)), moved)
    assert pair.same_head
    assert pair.common == (0, 1, 2)
    same = measure(predictions())
    np.testing.assert_array_equal(pair.after.labels, LABELS)
    np.testing.assert_array_equal(pair.after.values["answer"], same.values["answer"])
    for name in same.values:
        np.testing.assert_allclose(pair.after.values[name], same.values[name], rtol=1e-6)
    np.testing.assert_allclose(pair.after.within([0, 1, 2], None)["nkl"], same.values["nkl"], rtol=1e-6)


@pytest.mark.parametrize("named", [True, False])
def test_a_head_that_grew(named):
    """Two new classes, in front of the old ones where names tell which is which."""
    new = torch.full((4, 2), 0.5)
    old = torch.tensor(LOGITS)
    first = predictions(class_names=tuple(NAMES) if named else None)
    if named:
        names = ("x", "y", *NAMES)
        second = Predictions(torch.tensor(LABELS) + 2, logits=torch.cat([new, old], 1), class_names=names)
    else:
        second = Predictions(torch.tensor(LABELS), logits=torch.cat([old, new], 1))
    pair = align(first, second)
    assert (pair.before.num_classes, pair.after.num_classes, pair.common) == (3, 5, (0, 1, 2))
    assert pair.after.class_names == ((*NAMES, "x", "y") if named else None)
    alike = pair.restricted()
    for name in pair.before.values:
        np.testing.assert_allclose(alike[1].values[name], alike[0].values[name], rtol=1e-6)
    assert (pair.after.values["loss"] > pair.before.values["loss"]).all()


def test_ids_of_any_kind():
    for ids in [((0, "a"), (0, "b"), (1, "a"), (1, "b")), (1, "1", 2.5, None), (True, 2, 3, 4)]:
        pair = align(predictions(ids=ids), predictions((3, 2, 1, 0), ids=ids[::-1]))
        np.testing.assert_array_equal(pair.before.values["loss"], pair.after.values["loss"])


@given(st.permutations(range(4)), st.sets(st.integers(0, 3), min_size=1), st.sets(st.integers(0, 3), min_size=1))
def test_alignment_is_that_of_a_dictionary(order, first, second):
    if not first & second:
        return
    a = predictions(sorted(first), ids=tuple(IDS[i] for i in sorted(first)))
    rows = [i for i in order if i in second]
    b = predictions(rows, ids=tuple(IDS[i] for i in rows))
    pair = align(a, b, common=True)
    whole = measure(predictions()).values["ctl"]
    np.testing.assert_array_equal(pair.after.values["ctl"], whole[sorted(first & second)])
    np.testing.assert_array_equal(pair.before.values["ctl"], whole[sorted(first & second)])
