"""Early warning on simulated histories, where it is known who fades, and when."""

from itertools import pairwise

import numpy as np
import pytest

from wane.measures.early_warning import at_risk, check_at_risk
from wane.measures.history import History
from wane.softmax.signals import SIGNALS


def simulated(sure, *, right=None, tasks=None, class_to_task=None, split="test"):
    """A history of the confidences (S, K); accuracy equals them unless given; the loss is their -ln."""
    sure = np.asarray(sure, dtype=float)
    history = History(np.zeros(sure.shape[1], int) if class_to_task is None else class_to_task)
    for epoch, row in enumerate(sure):
        values = dict.fromkeys(SIGNALS, np.nan_to_num(row)) | {"loss": -np.log(np.clip(np.nan_to_num(row), 1e-6, 1))}
        values["accuracy"] = np.nan_to_num(row) if right is None else np.asarray(right)[epoch]
        n = np.where(np.isnan(row), 0, 50)
        history.record({**values, "n": n}, step=epoch, task=0 if tasks is None else tasks[epoch], split=split)
    return history


def learning_then(*courses, learning=(0.2, 0.4, 0.6, 0.8, 0.9)):
    """Some epochs of learning, alike for all classes, then a course for each."""
    return np.concatenate([np.repeat(np.array(learning)[:, None], len(courses), 1), np.stack(courses, 1)])


EPOCHS = np.arange(1, 7)
FADING, STEADY, RISING, FASTER = 0.9 - 0.03 * EPOCHS, 0.9 + 0 * EPOCHS, 0.9 + 0.01 * EPOCHS, 0.9 - 0.06 * EPOCHS


def test_only_what_fades_while_accuracy_holds_is_warned_of_and_the_faster_first():
    sure = learning_then(FADING, STEADY, RISING, FASTER)
    right = sure.copy()
    right[5:] = 0.9  # accuracy has not noticed
    history = simulated(sure, right=right)
    found = at_risk(history, horizon=20)
    assert found["class"].to_list() == [3, 0]
    assert found["ctl_slope"].to_list() == pytest.approx([-0.06, -0.03])
    assert found["accuracy"].to_list() == [0.9, 0.9]
    assert found["falls_below"].to_list() == pytest.approx([0.7, 0.7])
    assert found["epochs_left"].is_sorted()
    assert (found["expected_epoch"] > len(sure)).all()
    assert at_risk(history, signals=["accuracy"], horizon=20).is_empty()


def test_the_expected_epoch_is_when_the_line_gets_there():
    """Signal and accuracy are one: 0.05 an epoch, 0.2 below the median of the window, which is 2 epochs old."""
    sure = np.concatenate([[0.1, 0.9], 0.9 - 0.05 * np.arange(1, 6)])[:, None]
    row = at_risk(simulated(sure), signals=["ctl"], window=5, fall=0.2).row(0, named=True)
    assert row["epochs_left"] == pytest.approx(2, abs=0.05)
    assert row["expected_epoch"] == 9
    assert row["falls_below"] == pytest.approx(0.75 - 0.2)


def test_the_loss_counts_upwards():
    history = simulated(learning_then(FADING, STEADY))
    found = at_risk(history, signals=["loss"], horizon=20)
    assert found["class"].to_list() == [0]
    assert found["loss_slope"][0] < 0


@pytest.mark.parametrize("spoilt", [4, 5])
def test_one_wild_evaluation_neither_raises_nor_silences_a_warning(spoilt):
    sure = learning_then(FADING, STEADY)
    sure[5 + spoilt, 1] = 0.3
    right = np.maximum(sure, 0.85)
    right[:5] = sure[:5]
    found = at_risk(simulated(sure, right=right), signals=["ctl"], horizon=30)
    assert found["class"].to_list() == [0]


def test_who_cannot_be_judged_is_not_warned_of():
    fallen = learning_then(FASTER, STEADY)
    fallen[-1, 0] = 0.1  # has fallen already
    assert at_risk(simulated(fallen), horizon=50).is_empty()
    low = learning_then(0.15 - 0.02 * EPOCHS, STEADY)  # nothing left to lose
    assert at_risk(simulated(low), horizon=50).is_empty()
    new = learning_then(FADING, STEADY)
    new[:-3, 0] = np.nan  # too few evaluations
    assert at_risk(simulated(new), horizon=50).is_empty()
    flat = np.full((8, 2), 0.9) - 0.02 * np.arange(8)[:, None]  # accuracies that never differed: no line
    assert at_risk(simulated(flat, right=np.full((8, 2), 0.9)), horizon=50).is_empty()
    assert at_risk(simulated(learning_then(FADING, STEADY)[:2])).is_empty()


def test_columns_are_the_same_when_nobody_is_at_risk():
    quiet, loud = (at_risk(simulated(learning_then(*c)), horizon=30) for c in ((STEADY,), (FADING,)))
    assert quiet.is_empty()
    assert len(loud) == 1
    assert quiet.schema == loud.schema


def test_the_future_does_not_change_what_was_said():
    rng = np.random.default_rng(0)
    sure = np.clip(0.7 + np.cumsum(rng.normal(0, 0.05, (30, 12)), 0), 0.01, 1)
    whole = check_at_risk(simulated(sure), signals=["ctl"], horizon=5)
    warned = sum(len(at_risk(simulated(sure[: t + 1]), signals=["ctl"], horizon=5)) for t in range(25))
    assert whole.warned == warned > 0


def test_check_counts_by_hand():
    """One class slides 0.1 an epoch from epoch 8 on; its median is 2 epochs behind, so 0.2 below it comes at once."""
    right = np.concatenate([[0.2, 0.6, 0.9], np.full(5, 0.9), 0.9 - 0.1 * np.arange(1, 7), np.full(6, 0.3)])[:, None]
    held = np.array([np.nan] * 4 + [np.median(right[t - 4 : t + 1]) for t in range(4, 20)])
    judged = [t for t in range(4, 15) if right[t, 0] >= held[t] - 0.1 and held[t] > 0.2]
    fell = [t for t in judged if (right[t + 1 : t + 6, 0] < held[t] - 0.2).any()]
    found = check_at_risk(simulated(right), signals=["accuracy"])
    assert found.judged == len(judged)
    assert found.base_rate == pytest.approx(len(fell) / len(judged))
    assert found.falls == 1 + sum(b - a > 1 for a, b in pairwise(fell))


@pytest.mark.parametrize("horizon", [8, 10, 12, 30])
def test_nothing_is_judged_whose_outcome_lies_beyond_the_end(horizon):
    assert check_at_risk(simulated(np.full((8, 2), 0.9)), horizon=horizon).judged == 0


def test_smooth_confidence_beats_noisy_accuracy():
    rng = np.random.default_rng(1)
    start = rng.uniform(5, 90, 40)
    sure = np.clip(0.95 - 0.04 * np.maximum(0, np.arange(80)[:, None] - start), 0, 1)
    sure[:5] *= np.arange(1, 6)[:, None] / 5
    history = simulated(sure, right=rng.binomial(30, sure) / 30)
    found, baseline = check_at_risk(history, signals=["ctl"]), check_at_risk(history, signals=["accuracy"])
    assert found.precision > 0.9 > baseline.precision + 0.1
    assert found.recall > 0.6
    assert 1 <= found.lead <= 5


def test_falls_at_a_boundary_can_be_left_out():
    """Nothing foretells a collapse that comes with the next task."""
    sure = np.concatenate([[[0.2] * 3, [0.6] * 3], np.full((18, 3), 0.9), np.full((20, 3), 0.1)])
    history = simulated(sure, tasks=[0] * 20 + [1] * 20)
    both, within = check_at_risk(history), check_at_risk(history, across_tasks=False)
    assert (both.falls, both.recall) == (3, 0)
    assert within.falls == 0
    assert np.isnan(within.recall)
    assert both.judged - within.judged == 3 * 5


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"window": 2}, "window is 2"),
        ({"fall": 0.0}, "fall is 0.0"),
        ({"signals": []}, "signals is empty"),
        ({"signals": ["clt"]}, "did you mean 'ctl'"),
        ({"split": "holdout"}, "holdout"),
    ],
)
def test_bad_arguments_are_quoted(options, said):
    history = simulated(learning_then(FADING))
    with pytest.raises(ValueError, match=said):
        at_risk(history, **options)
    with pytest.raises(ValueError, match=said):
        check_at_risk(history, **options)
    with pytest.raises(ValueError, match="horizon is 0"):
        check_at_risk(history, horizon=0)
