"""What every view reads: only what was taught, and steps that only grow; nothing is lost and nothing changes."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import wane
from wane.measures.history import History
from wane.measures.normal_form import normal_form


def recorded(rows, class_to_task=(0, 0, 1, 2), splits=("test",)):
    """A history of (step, task) with every class; accuracy is a number of its own everywhere."""
    history = History(class_to_task)
    for i, (step, task) in enumerate(rows):
        for j, split in enumerate(splits):
            values = 0.001 * (1 + np.arange(4) + 10 * i + 100 * j)
            history.record({"n": [3, 4, 5, 6], "accuracy": values}, step=step, task=task, split=split)
    return history


@given(st.lists(st.integers(0, 5), min_size=1, max_size=3), st.booleans())
def test_steps_only_grow_and_every_value_is_there_once(lengths, anew):
    rows, total = [], 0
    for task, length in enumerate(lengths):
        rows += [((0 if anew else total) + step, task) for step in range(length)]
        total += length
    if not rows:
        return
    history = recorded(rows)
    found = normal_form(history)
    frame = found.frame
    assert set(frame["split"]) <= {"test", "future"}
    assert (np.diff([e.step for e in found.evaluations]) >= 0).all()
    ahead = frame["class_task"] > frame["task"]
    assert (frame["split"] == "future").to_list() == ahead.to_list()
    assert sorted(frame["accuracy"]) == sorted(history.frame["accuracy"])
    assert normal_form(found) is found
    if not anew:
        assert [e.step for e in found.evaluations if e.split == "test"] == [e.step for e in history.evaluations]


def test_every_split_is_kept_and_only_tests_have_a_future():
    found = normal_form(recorded([(0, 0), (1, 1), (2, 2)], splits=("test", "test_task", "val", "replay")))
    assert set(found.splits) == {"test", "future", "test_task", "future_task", "val", "replay"}
    assert len([e for e in found.evaluations if e.split == "val"]) == 3
    assert max(int(e.classes[-1]) for e in found.evaluations if e.split == "val" and e.task == 0) == 1


def test_what_belongs_together_stays_together():
    history = recorded([(0, 0), (1, 1), (2, 2)])
    bins = np.arange(4 * 2 * 3, dtype=float).reshape(4, 2, 3)
    history.evaluations = [e._replace(bins=bins) for e in history.evaluations]
    for e in normal_form(history).evaluations:
        np.testing.assert_array_equal(e.bins, bins[e.classes])
    assert all(e.bins.shape == bins.shape for e in history.evaluations)
    for of in (history, normal_form(history)):
        assert wane.forgetting(of.matrix("accuracy")) == wane.forgetting(history.matrix("accuracy"))
        np.testing.assert_allclose(of.matrix("accuracy"), history.matrix("accuracy"))


def test_without_tasks_nothing_is_known_to_be_untaught():
    history = recorded([(0, 0), (1, 1)], class_to_task=None)
    assert normal_form(history) is history
