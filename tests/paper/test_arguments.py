"""What follows from the formulas alone, against brute force and against every run that is kept."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import wane
from wane.interventions.trend_sampler import effective_classes, least_squares_slopes
from wane.paper.arguments import fewest_effective_classes, largest_ratio, observations, steepest_slope
from wane.runs.folder import find_runs

RUNS = Path(__file__).parents[2] / "results" / "runs"


@given(st.integers(2, 25), st.integers(0, 999))
def test_no_signal_between_0_and_1_has_a_steeper_slope(window, seed):
    g = np.random.default_rng(seed)
    values = np.concatenate([g.random((window, 50)), g.integers(0, 2, (window, 50)).astype(float)], axis=1)
    assert np.abs(least_squares_slopes(values)).max() <= steepest_slope(window) + 1e-12
    step = np.zeros((window, 1))
    step[(window + 1) // 2 :] = 1
    assert least_squares_slopes(step)[0] == pytest.approx(steepest_slope(window))


@given(st.integers(2, 20), st.floats(0.1, 5.0), st.integers(2, 60), st.integers(0, 999))
def test_no_draw_is_over_fewer_classes(window, gamma, classes, seed):
    g = np.random.default_rng(seed)
    steepest = steepest_slope(window)
    fewest = fewest_effective_classes(window, gamma, classes)
    for slopes in (g.uniform(-steepest, steepest, classes), g.choice([-steepest, steepest], classes)):
        p = torch.softmax(torch.from_numpy(gamma * slopes), 0)
        assert effective_classes(p) / classes >= fewest - 1e-9
        assert float(p.max() / p.min()) <= largest_ratio(window, gamma) * (1 + 1e-9)


def test_every_run_that_drew_as_printed_keeps_to_it():
    """Once the window is full; while a task is young its classes have fewer epochs, and so steeper slopes."""
    judged = 0
    for run in find_runs(RUNS):
        trend = run.config.learner.trend
        if trend is None or trend.slope != "raw" or trend.signal == "loss" or run.replay is None:
            continue
        tasks = run.replay["task"].to_numpy()
        epoch = np.arange(len(tasks)) % run.config.learner.epochs  # evaluations of the current task before this draw
        of_task = len(run.about.class_names) // run.config.num_tasks
        classes = np.maximum(1, tasks + (trend.scope == "seen")) * of_task
        share = run.replay["effective_classes"].to_numpy() / classes
        for window in (2, trend.window):
            full = epoch >= window
            least = np.array([fewest_effective_classes(window, trend.gamma, int(c)) for c in np.unique(classes)])
            bound = least[np.searchsorted(np.unique(classes), classes)]
            assert (share >= bound - 1e-6)[full].all(), run.name
            judged += int(full.sum())
    assert judged > 1000


def test_the_confusion_margin_of_a_lost_class_is_the_confidence_of_the_winner():
    logits = torch.randn(500, 30, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 3
    s = wane.signals(logits, torch.zeros(500, dtype=torch.int64))
    torch.testing.assert_close(s.cm - s.ctl, 1 - logits.softmax(1).amax(1))


@given(st.integers(2, 500), st.floats(0, 1))
def test_nkl_is_0_for_every_probability_up_to_1_of_c(classes, share):
    p = share / classes
    rest = (1 - p) / (classes - 1)
    probabilities = torch.full((1, classes), rest, dtype=torch.float64)
    probabilities[0, 0] = p
    assert float(wane.signals(probabilities=probabilities, labels=[0]).nkl) == pytest.approx(0, abs=1e-9)


def test_the_papers_own_count_contradicts_saturation():
    """31 observations at 0 % accuracy, of which the paper says that accuracy has saturated for most classes."""
    assert 31 / observations(5, 20, 50) == pytest.approx(0.0021, abs=1e-4)
    assert math.isclose(observations(5, 20, 50), sum(20 * 50 * (k + 1) for k in range(5)))
