"""Summaries checked against values worked out by hand, brute force over pairs, and properties."""

import copy
import itertools
import json
import math
import pickle

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from wane.measures import transfer
from wane.measures.transfer import (
    average,
    backward_transfer,
    forgetting,
    forward_transfer,
    min_acc,
    plasticity,
    retention,
    wc_acc,
    windowed_forgetting,
    windowed_plasticity,
)

DESIGN = [[80], [70, 82], [84, 60, 78], [50, 66, 30, 81]]
SUMMARIES = [average, retention, plasticity, forgetting, backward_transfer]
NAN = np.nan


def test_matrix_of_the_design():
    # columns since learnt: 80 70 84 50 | 82 60 66 | 78 30
    assert forgetting(DESIGN, "peak") == pytest.approx((34 + 16 + 48) / 3)  # 32.67
    assert forgetting(DESIGN, "past_peak") == pytest.approx((34 + 16 + 48) / 3)
    assert forgetting(DESIGN, "first") == pytest.approx((30 + 16 + 48) / 3)  # 31.33
    assert backward_transfer(DESIGN) == pytest.approx(-(30 + 16 + 48) / 3)
    assert average(DESIGN) == pytest.approx((50 + 66 + 30 + 81) / 4)
    assert retention(DESIGN) == pytest.approx((50 + 66 + 30) / 3)
    assert plasticity(DESIGN) == pytest.approx((80 + 82 + 78 + 81) / 4)
    np.testing.assert_array_equal(forgetting(DESIGN).per_task, [34, 16, 48])


def test_matrix_with_gains_and_a_filled_upper_triangle():
    matrix = [[0.6, 0.2, 0.3], [0.5, 0.8, 0.1], [0.9, 0.7, 0.4]]
    # columns since learnt: .6 .5 .9 | .8 .7
    assert forgetting(matrix, "peak") == pytest.approx((0.0 + 0.1) / 2)
    assert forgetting(matrix, "past_peak") == pytest.approx((-0.3 + 0.1) / 2)
    assert forgetting(matrix, "first") == pytest.approx((-0.3 + 0.1) / 2)
    assert backward_transfer(matrix) == pytest.approx((0.3 - 0.1) / 2)
    assert average(matrix) == pytest.approx(2.0 / 3)
    assert retention(matrix) == pytest.approx(0.8)
    assert plasticity(matrix) == pytest.approx(0.6)
    # R[0, 1] - b_1 = .2 - .25, R[1, 2] - b_2 = .1 - .05
    assert forward_transfer(matrix, [NAN, 0.25, 0.05]) == pytest.approx(0.0)
    assert forward_transfer(matrix, 0.1) == pytest.approx((0.1 + 0.0) / 2)


def test_matrix_of_losses():
    matrix = [[0.4, 2.5, 2.0], [1.0, 0.2, 3.0], [0.7, 0.9, 0.3]]
    # columns since learnt, lower is better: .4 1. .7 | .2 .9
    np.testing.assert_allclose(forgetting(matrix, signal="loss").per_task, [0.3, 0.7])
    np.testing.assert_allclose(forgetting(matrix, "past_peak", signal="loss").per_task, [0.3, 0.7])
    np.testing.assert_allclose(backward_transfer(matrix, signal="loss").per_task, [-0.3, -0.7])
    # the untrained model loses 2.3 on every task: task 1 started worse by .2, task 2 by .7
    np.testing.assert_allclose(forward_transfer(matrix, 2.3, signal="loss").per_task, [-0.2, -0.7])
    assert average(matrix, signal="loss") == pytest.approx(1.9 / 3)  # the mean itself has no orientation
    assert retention(matrix, signal="loss") == pytest.approx(0.8)
    assert plasticity(matrix, signal="loss") == pytest.approx(0.3)


def test_first_needs_neither_peak_nor_middle():
    assert forgetting([[80], [NAN, 82], [70, 60, 78]], "first") == pytest.approx((10 + 22) / 2)


@pytest.mark.parametrize("summary", [retention, forgetting, backward_transfer])
def test_one_task_has_no_old_one(summary):
    assert math.isnan(summary([[80]]))
    assert summary([[80]]).per_task.shape == (0,)


def test_one_task_otherwise():
    assert average([[80]]) == plasticity([[80]]) == 80
    assert math.isnan(forward_transfer([[80]], 10))
    assert math.isnan(min_acc([1], [0], [[80]]))
    assert wc_acc([1], [0], [[80]]) == 80


@pytest.mark.parametrize("make", [np.array, pl.DataFrame, lambda rows: tuple(map(tuple, rows))])
def test_kinds_of_matrix(make):
    full = [[80.0, NAN, NAN], [70.0, 82.0, NAN], [50.0, 60.0, 78.0]]
    matrix = pl.DataFrame(full, orient="row") if make is pl.DataFrame else make(full)
    assert forgetting(matrix) == pytest.approx((30 + 22) / 2)


def test_a_summary_is_a_float_that_keeps_its_terms():
    value = forgetting(DESIGN)
    assert isinstance(value, float)
    assert f"{value:.2f}" == "32.67"
    assert json.loads(json.dumps(value)) == value
    for twin in (pickle.loads(pickle.dumps(value)), copy.deepcopy(value)):
        assert twin == value
        np.testing.assert_array_equal(twin.per_task, value.per_task)


# A run of three tasks with two evaluations each; the stability gap is the dip right after each boundary.
STEPS = [10, 20, 30, 40, 50, 60]
TASKS = [0, 0, 1, 1, 2, 2]
VALUES = [
    [50.0, NAN, NAN],
    [90.0, NAN, NAN],
    [20.0, 60.0, NAN],
    [70.0, 80.0, NAN],
    [40.0, 10.0, 55.0],
    [65.0, 75.0, 85.0],
]


def test_stability_gap_by_hand():
    np.testing.assert_array_equal(min_acc(STEPS, TASKS, VALUES).per_task, [20, 10])
    assert min_acc(STEPS, TASKS, VALUES) == 15
    assert wc_acc(STEPS, TASKS, VALUES) == pytest.approx(85 / 3 + (1 - 1 / 3) * 15)
    # task 0: 90 -> 20; task 1: 80 -> 10; task 2 only rose
    np.testing.assert_array_equal(windowed_forgetting(STEPS, TASKS, VALUES, window=2).per_task, [70, 70, 0])
    # task 0: 20 -> 70; task 1: 10 -> 75; task 2: 55 -> 85
    np.testing.assert_array_equal(windowed_plasticity(STEPS, TASKS, VALUES, window=2).per_task, [50, 65, 30])


def test_stability_gap_of_losses_is_the_maximum():
    losses = 100 - np.array(VALUES)
    np.testing.assert_array_equal(min_acc(STEPS, TASKS, losses, signal="loss").per_task, [80, 90])
    assert wc_acc(STEPS, TASKS, losses, signal="loss") == pytest.approx((80 + 90 + 15) / 3)
    for windowed in (windowed_forgetting, windowed_plasticity):
        expected = windowed(STEPS, TASKS, VALUES, window=3)
        assert windowed(STEPS, TASKS, losses, window=3, signal="loss") == expected


def test_windows_span_consecutive_evaluations_of_the_task():
    # task 0 falls by 30 over three of its own evaluations, with rows between where it was not evaluated
    values = [[90.0, NAN], [NAN, 1.0], [80.0, NAN], [NAN, 1.0], [60.0, NAN]]
    series = [0, 1, 2, 3, 4], [0, 0, 0, 1, 1], values
    assert windowed_forgetting(*series, window=2).per_task[0] == 20
    assert windowed_forgetting(*series, window=3).per_task[0] == 30
    assert windowed_forgetting(*series, window=1000).per_task[0] == 30


def test_a_task_never_evaluated_is_left_out():
    values = [[80.0, NAN], [60.0, NAN]]
    np.testing.assert_array_equal(windowed_forgetting([0, 1], [0, 0], values, window=2).per_task, [20])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: forgetting([]), "no row"),
        (lambda: forgetting([80, 70]), r"row 0 of 2 rows has shape \(\)"),
        (lambda: forgetting([[80], [70]]), r"row 1 of 2 rows has shape \(1,\).*give it 2 values"),
        (lambda: average(np.ones((2, 3))), r"row 0 of 2 rows has shape \(3,\)"),
        (lambda: average(np.ones((3, 2))), r"row 2 of 3 rows has shape \(2,\)"),
        (lambda: average([[80], [NAN, 82]]), r"R\[1, 0\] is NaN: evaluate task 0 after learning task 1"),
        (lambda: plasticity([[NAN], [70, 82]]), r"R\[0, 0\] is NaN"),
        (lambda: forgetting([[80], [NAN, 82], [70, 60, 78]]), r"R\[1, 0\] is NaN"),
        (lambda: forward_transfer(DESIGN, 10), r"R\[0, 1\] is NaN: evaluate task 1 after learning task 0"),
        (lambda: forward_transfer([[80, 10], [70, 82]], [1, 2, 3]), r"shape \(3,\).*each of 2 tasks"),
        (lambda: forward_transfer([[80, 10], [70, 82]], [1, NAN]), r"baseline\[1\] is NaN"),
        (lambda: forgetting(DESIGN, "worst"), "'worst': choose one of peak, past_peak, first"),
        (lambda: forgetting(DESIGN, signal="acc"), r"unknown signal 'acc'\. Known: accuracy, loss, cm"),
        (lambda: average(DESIGN, signal="acc"), "unknown signal 'acc'"),
        (lambda: min_acc([1, 2], [0], [[1], [2]]), r"tasks \(1,\).*do not fit together"),
        (lambda: min_acc([], [], np.ones((0, 2))), "do not fit together"),
        (lambda: min_acc([1], [2], [[1, 2]]), "tasks run from 2 to 2 .* 2 columns"),
        (lambda: min_acc([1], [0.0], [[1, 2]]), "float64"),
        (lambda: min_acc([1, 3, 2], [0, 0, 0], np.ones((3, 1))), "steps go back from 3 to 2 in row 2"),
        (lambda: min_acc([1, 2, 3], [0, 1, 0], np.ones((3, 2))), "tasks go back from 1 to 0 in row 2"),
        (lambda: min_acc([1, 2], [0, 1], [[1, NAN], [NAN, 1]]), "task 0 has no value after it was learnt"),
        (lambda: wc_acc([1, 2], [0, 1], [[1, NAN], [1, NAN]]), "current task 1 is NaN in the last row"),
        (lambda: windowed_forgetting(STEPS, TASKS, VALUES, window=1), "window is 1: .*at least 2"),
        (lambda: windowed_plasticity(STEPS, TASKS, VALUES, window=0), "window is 0"),
    ],
)
def test_errors_quote_the_value(call, message):
    with pytest.raises(ValueError, match=message):
        call()


unit = st.floats(0, 1, width=32)
matrices = st.integers(1, 6).flatmap(lambda t: arrays(np.float64, (t, t), elements=unit))


@given(matrices)
def test_definitions_are_ordered(matrix):
    peak, past, first = (forgetting(matrix, name).per_task for name in ("peak", "past_peak", "first"))
    assert (first <= past).all()
    np.testing.assert_array_equal(peak, np.maximum(past, 0))


@given(matrices)
def test_forgetting_is_what_was_learnt_and_not_kept(matrix):
    np.testing.assert_allclose(
        forgetting(matrix, "first").per_task,
        plasticity(matrix).per_task[:-1] - retention(matrix).per_task,
        atol=1e-12,
    )


@given(matrices, st.sampled_from(list(transfer.DEFINITIONS)))
def test_loss_is_negated_accuracy(matrix, definition):
    of_loss = forgetting(-matrix, definition, signal="loss")
    np.testing.assert_array_equal(of_loss.per_task, forgetting(matrix, definition).per_task)
    of_loss = forward_transfer(-matrix, -0.5, signal="loss")
    np.testing.assert_array_equal(of_loss.per_task, forward_transfer(matrix, 0.5).per_task)


@given(matrices)
def test_the_upper_triangle_is_not_looked_at(matrix):
    ragged = [row[: k + 1] for k, row in enumerate(matrix.tolist())]
    for summary in SUMMARIES:
        np.testing.assert_array_equal(summary(ragged).per_task, summary(matrix).per_task)


@st.composite
def series(draw):
    s, t = draw(st.integers(1, 12)), draw(st.integers(1, 4))
    tasks = sorted(draw(st.lists(st.integers(0, t - 1), min_size=s, max_size=s)))
    return np.arange(s), np.array(tasks), draw(arrays(np.float64, (s, t), elements=unit))


@given(series(), st.integers(2, 15))
def test_windows_against_every_pair(run, window):
    values = run[2]
    pairs = [(m, n) for m, n in itertools.combinations(range(len(values)), 2) if n - m < window]
    since = [
        int((run[1] < j).sum()) for j in range(values.shape[1])
    ]  # the first evaluation of each task or a later one
    falls = [
        max([0.0, *(a[m] - a[n] for m, n in pairs if m >= first)])
        for a, first in zip(values.T, since, strict=True)
        if first < len(values)
    ]
    rises = [max([0.0, *(a[n] - a[m] for m, n in pairs)]) for a in values.T]
    np.testing.assert_array_equal(windowed_forgetting(*run, window=window).per_task, falls)
    np.testing.assert_array_equal(windowed_plasticity(*run, window=window).per_task, rises)


@given(series())
def test_worst_case_bounds_the_average(run):
    _, tasks, values = run
    seen = tasks[-1] + 1
    assert wc_acc(*run) <= values[-1, :seen].mean() + 1e-12
    if seen > 1:
        weighted = values[-1, seen - 1] / seen + (1 - 1 / seen) * min_acc(*run)
        assert wc_acc(*run) == pytest.approx(weighted)


def test_what_was_never_taught_is_not_forgotten():
    """A task that is evaluated before it began stands at chance: a fall from there to 0 is no loss."""
    series = [1, 2, 3, 4], [0, 0, 1, 1], [[60, 25], [80, 0], [80, 50], [70, 90]]
    assert windowed_forgetting(*series, window=4).per_task.tolist() == [10, 0]
    assert windowed_plasticity(*series, window=4).per_task.tolist() == [20, 90]
