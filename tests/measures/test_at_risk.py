"""The list of classes at risk, and its record, on histories where it is known who is lost."""

import numpy as np
import pytest

from wane.measures.at_risk import at_risk, check_at_risk
from wane.measures.history import History
from wane.softmax.signals import SIGNALS


def simulated(tasks=4, per_task=20, *, noise=0.0, epochs=2, seed=0, kind="class"):
    """Classes with a hidden firmness: after the next task a class keeps that share of its accuracy.

    CTL shows the firmness, accuracy only a noisy version of it.
    """
    rng = np.random.default_rng(seed)
    size = tasks * per_task
    task_of = np.repeat(np.arange(tasks), per_task)
    firm = rng.uniform(0, 1, size)
    history = History(class_to_task=task_of, kind=kind)
    for task in range(tasks):
        for epoch in range(epochs):
            accuracy = np.where(task_of == task, 0.8 + 0.1 * rng.normal(size=size) * noise, 0.8 * firm)
            rows = dict.fromkeys(SIGNALS, 0.5 * np.ones(size)) | {
                "accuracy": accuracy,
                "ctl": 0.9 * firm,
                "loss": 1 - firm,
            }
            rows["n"] = np.where(task_of <= task, 50, 0)
            history.record(rows, step=task * epochs + epoch, task=task)
    return history, firm


def test_the_latest_task_is_ranked_lowest_confidence_first():
    history, firm = simulated()
    listed = at_risk(history)
    assert listed["class_task"].to_list() == [3] * 5
    assert listed["class"].to_list() == (60 + np.argsort(firm[60:])[:5]).tolist()
    assert at_risk(history, by="loss", count=7)["class"].to_list() == (60 + np.argsort(firm[60:])[:7]).tolist()
    assert len(at_risk(history, count=99)) == 20


def test_the_record_is_what_a_count_by_hand_gives():
    history, firm = simulated(noise=1.0, seed=1)
    matrix = history.trajectory("accuracy").values
    listed = true = lost = 0
    for task in range(3):
        mine = np.arange(task * 20, task * 20 + 20)
        gone = matrix[2 * task + 3, mine] <= 0.5 * matrix[2 * task + 1, mine]
        chosen = np.argsort(firm[mine])[:5]
        listed, true, lost = listed + 5, true + gone[chosen].sum(), lost + gone.sum()
    found = check_at_risk(history)
    assert (found.tasks, found.listed, found.lost) == (3, listed, lost)
    assert found.precision == pytest.approx(true / listed)
    assert found.recall == pytest.approx(true / lost)
    assert found.chance == pytest.approx(lost / 60)


def test_a_signal_that_knows_beats_one_that_does_not():
    history, _ = simulated(noise=1.0)
    assert check_at_risk(history).precision == 1
    assert check_at_risk(history, by="accuracy").precision == pytest.approx(check_at_risk(history).chance, abs=0.25)
    whole = check_at_risk(history, count=20)
    assert whole.precision == whole.chance
    assert whole.recall == 1


def test_the_list_uses_nothing_but_the_past():
    history, _ = simulated(noise=1.0)
    past = History(class_to_task=history.class_to_task)
    past.evaluations = [e for e in history.evaluations if e.task <= 1]
    future, _ = simulated(noise=1.0)
    future.evaluations = [e if e.task <= 1 else e._replace(values=0 * e.values) for e in future.evaluations]
    for each in (history, future):
        each.evaluations = [e for e in each.evaluations if e.task <= 1]
        assert at_risk(each).equals(at_risk(past))


def test_classes_with_nothing_to_lose_are_not_listed():
    history = History(class_to_task=[0, 0, 0])
    history.record({"n": [9] * 3, "accuracy": [0.0, 0.5, 0.6], "ctl": [0.01, 0.4, 0.3]}, step=0, task=0)
    assert at_risk(history, count=3)["class"].to_list() == [2, 1]


def test_why_there_is_no_list():
    def history(class_to_task, **columns):
        made = History(class_to_task)
        made.record({"n": [9, 9], "accuracy": [0.5, 0.5], **columns}, step=0, task=0)
        return made

    for made, why in (
        (history(None, ctl=[0.1, 0.2]), "does not know the task of each class"),
        (history([0, 1], ctl=[0.1, 0.2]), "there is nothing to rank: 1 class was evaluated at the end of task 1"),
        (history([1, 1], ctl=[0.1, 0.2]), "no class of that task was evaluated"),
        (history([0, 0]), "ctl was not recorded"),
        (history([0, 0], accuracy=[0.0, 0.0], ctl=[0.1, 0.2]), "no class has any accuracy to lose"),
        (History([0, 0]), "nothing was recorded for split 'test'"),
    ):
        with pytest.raises(ValueError, match=why):
            at_risk(made)


def test_one_task_has_no_record_yet():
    found = check_at_risk(simulated(tasks=1)[0])
    assert found[:2] == (0, 0)
    assert np.isnan(found.precision)


@pytest.mark.parametrize(
    ("options", "said"),
    [({"by": "clt"}, "did you mean 'ctl'"), ({"count": 0}, "count is 0"), ({"count": 1.5}, "count is 1.5")],
)
def test_bad_arguments_are_quoted(options, said):
    history, _ = simulated()
    with pytest.raises(ValueError, match=said):
        at_risk(history, **options)
    with pytest.raises(ValueError, match=said):
        check_at_risk(history, **options)
    with pytest.raises(ValueError, match="keep is 1"):
        check_at_risk(history, keep=1)
