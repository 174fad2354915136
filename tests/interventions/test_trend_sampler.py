"""Trend sampling against numpy.polyfit, a literal transcription, and what it is for."""

import math
import time

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import wane
from wane.interventions.trend_sampler import effective_classes, least_squares_slopes
from wane.memory import Memory, class_uniform, draw_by_class


def history_of(values, *, split="replay", class_to_task=None, tasks=None, signal="cm"):
    """A history in which `signal` has these values, (epochs, classes), NaN where not observed."""
    values = np.asarray(values, dtype=np.float64)
    history = wane.History(class_to_task)
    for epoch, row in enumerate(values):
        seen = ~np.isnan(row)
        rows = {name: np.where(seen, row if name == signal else 0.5, np.nan) for name in wane.SIGNALS}
        history.record(
            {"n": seen.astype(int), **rows}, step=epoch, task=0 if tasks is None else tasks[epoch], split=split
        )
    return history


gappy = st.lists(
    st.lists(st.one_of(st.just(math.nan), st.floats(0, 1)), min_size=4, max_size=4), min_size=1, max_size=25
)


@given(gappy)
@settings(max_examples=200)
def test_slopes_are_polyfit_on_the_epochs_observed(rows):
    values = np.array(rows)
    slopes = least_squares_slopes(values)
    for c in range(values.shape[1]):
        at = np.flatnonzero(~np.isnan(values[:, c]))
        if len(at) < 2:
            assert np.isnan(slopes[c])
        else:
            assert slopes[c] == pytest.approx(np.polyfit(at, values[at, c], 1)[0], abs=1e-9)


@pytest.mark.parametrize("signal", ["cm", "loss", "accuracy"])
@pytest.mark.parametrize("slope", ["raw", "standardised"])
@pytest.mark.parametrize("window", [3, 5, 20])
def test_probabilities_are_the_literal_transcription(signal, slope, window):
    rng = np.random.default_rng(0)
    values = rng.random((12, 6))
    sampler = wane.TrendSampler(signal, window=window, gamma=1.5, slope=slope)
    p = sampler.probabilities(history_of(values, signal=signal))
    recent = values[-window:]
    decline = []
    for c in range(6):
        b = np.polyfit(range(len(recent)), recent[:, c], 1)[0]
        decline.append(b if signal == "loss" else -b)
    if slope == "standardised":
        decline = [(d - np.mean(decline)) / np.std(decline) for d in decline]
    e = [math.exp(1.5 * d) for d in decline]
    np.testing.assert_allclose(p.numpy(), np.array(e) / sum(e), atol=1e-12)


def test_a_class_that_declines_is_drawn_more_and_one_that_recovers_less():
    falling, steady, rising = np.linspace(0.9, 0.3, 10), np.full(10, 0.2), np.linspace(0.3, 0.9, 10)
    values = np.stack([falling, steady, rising], axis=1)
    for slope in ("raw", "standardised"):
        for signal in ("cm", "tlr", "accuracy"):
            p = wane.TrendSampler(signal, slope=slope).probabilities(history_of(values, signal=signal))
            assert p[0] > p[1] > p[2]
            printed = wane.TrendSampler(signal, slope=slope, literal=True).probabilities(
                history_of(values, signal=signal)
            )
            assert printed[0] < printed[1] < printed[2]
        loss = wane.TrendSampler("loss", slope=slope).probabilities(history_of(values, signal="loss"))
        assert loss[0] < loss[1] < loss[2]


@given(gappy, st.sampled_from(["raw", "standardised"]), st.sampled_from(["seen", "past"]))
@settings(max_examples=100)
def test_probabilities_are_always_probabilities(rows, slope, scope):
    history = history_of(rows, class_to_task=[0, 0, 1, 1], tasks=[int(i > len(rows) // 2) for i in range(len(rows))])
    p = wane.TrendSampler("cm", window=5, slope=slope, scope=scope).probabilities(history)
    assert p.shape == (4,)
    assert p.sum().item() == pytest.approx(1)
    assert (p >= 0).all()
    uniform = wane.TrendSampler("cm", window=5, slope=slope, scope=scope, gamma=0).probabilities(history)
    assert len(set(uniform[uniform > 0].tolist())) == 1


def test_fewer_than_two_epochs_constants_and_one_class_are_class_uniform():
    for values in ([[0.3, 0.9, 0.5]], [[0.5, 0.5, 0.5]] * 6):
        for slope in ("raw", "standardised"):
            p = wane.TrendSampler("cm", slope=slope).probabilities(history_of(values))
            assert p.tolist() == pytest.approx([1 / 3] * 3)
    assert wane.TrendSampler("cm").probabilities(history_of([[0.1], [0.9], [0.2]])).tolist() == [1]


def test_a_class_without_a_trend_yet_counts_as_steady():
    values = [[0.9, math.nan], [0.5, math.nan], [0.1, 0.3]]
    p = wane.TrendSampler("cm", gamma=1).probabilities(history_of(values))
    assert p.tolist() == pytest.approx([math.exp(0.4) / (math.exp(0.4) + 1), 1 / (math.exp(0.4) + 1)])


def test_scope_and_source():
    values = np.linspace(0.9, 0.1, 6)[:, None].repeat(4, 1)
    history = history_of(values, class_to_task=[0, 0, 1, 2], tasks=[0, 0, 0, 1, 1, 1], split="test")
    seen = wane.TrendSampler("cm", source="test").probabilities(history)
    assert (seen > 0).tolist() == [True, True, True, False]
    past = wane.TrendSampler("cm", source="test", scope="past").probabilities(history)
    assert (past > 0).tolist() == [True, True, False, False]
    next_task = wane.TrendSampler("cm", source="test", scope="past").probabilities(history, task=2)
    assert (next_task > 0).tolist() == [True, True, True, False]
    first = wane.TrendSampler("cm", source="test", scope="past").probabilities(history, task=0)
    assert (first > 0).tolist() == [True, True, False, False]


def test_an_infinite_loss_is_no_observation():
    history = history_of([[1.0, math.inf], [2.0, 1.0], [3.0, 2.0]], signal="loss")
    assert wane.TrendSampler("loss").slopes(history).tolist() == pytest.approx([1, 1])


def test_draws_follow_the_probabilities():
    labels = torch.tensor([0] * 5 + [1] * 10 + [2] * 35)
    values = np.stack([np.linspace(0.9, 0.1, 5), np.full(5, 0.5), np.linspace(0.1, 0.9, 5)], axis=1)
    p = wane.TrendSampler("cm", slope="standardised", gamma=1).probabilities(history_of(values))
    g = torch.Generator().manual_seed(0)
    drawn = torch.cat([labels[draw_by_class(labels, 32, p, g)] for _ in range(400)])
    counts = torch.bincount(drawn, minlength=3).numpy()
    assert stats.chisquare(counts, p.numpy() * counts.sum()).pvalue > 1e-3


def test_gamma_0_draws_the_bits_of_class_uniform():
    memory = Memory(60, (1, 4, 4), num_classes=5)
    g = torch.Generator().manual_seed(0)
    memory.offer(torch.zeros(90, 1, 4, 4, dtype=torch.uint8), torch.arange(90) % 4, task=0, step=0, generator=g)
    history = history_of(np.random.default_rng(0).random((7, 5)))
    for slope in ("raw", "standardised"):
        p = wane.TrendSampler("cm", gamma=0, slope=slope).probabilities(history)
        a = memory.draw(40, generator=torch.Generator().manual_seed(1), class_probabilities=p)
        control = class_uniform(memory.class_counts())
        b = memory.draw(40, generator=torch.Generator().manual_seed(1), class_probabilities=control)
        assert torch.equal(a, b)


def test_the_history_is_only_read():
    history = history_of(np.random.default_rng(0).random((7, 5)))
    before = history.frame.clone()
    wane.TrendSampler("cm").probabilities(history)
    assert history.frame.equals(before)


def test_the_cost_does_not_grow_with_the_run():
    values = np.random.default_rng(0).random((4000, 50))
    long, short = history_of(values), history_of(values[:50])
    sampler = wane.TrendSampler("cm", window=10)

    def cost(history):
        times = []
        for _ in range(30):
            start = time.perf_counter()
            sampler.probabilities(history)
            times.append(time.perf_counter() - start)
        return min(times)

    assert cost(long) < 3 * cost(short)


def test_effective_classes():
    assert effective_classes(torch.ones(100)) == pytest.approx(100)
    p = torch.tensor([0.7, 0.2, 0.1, 0.0])
    assert effective_classes(p) == pytest.approx(math.exp(-sum(x * math.log(x) for x in (0.7, 0.2, 0.1))), rel=1e-6)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"signal": "acc"}, "unknown signal 'acc'"),
        ({"window": 1}, "window is 1: .* at least 2"),
        ({"gamma": -1}, "gamma is -1: .* at least 0"),
        ({"gamma": math.nan}, "gamma is nan"),
        ({"slope": "z"}, "unknown slope 'z': choose raw or standardised"),
        ({"scope": "all"}, "unknown scope 'all': choose seen or past"),
        ({"source": "train"}, "unknown source 'train'"),
    ],
)
def test_errors(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        wane.TrendSampler(**options)


def test_errors_of_the_history():
    with pytest.raises(ValueError, match="the history knows no class yet"):
        wane.TrendSampler().probabilities(wane.History())
    with pytest.raises(ValueError, match="scope='past' needs the task of each class"):
        wane.TrendSampler(scope="past").probabilities(history_of([[0.5, 0.5]]))


@pytest.mark.filterwarnings("error")
def test_a_loop_needs_no_guard_the_draw_is_uniform_until_there_is_a_trend():
    history, sampler = wane.History([0, 0, 1]), wane.TrendSampler("cm")
    assert sampler.probabilities(history).tolist() == [0.5, 0.5, 0]
    assert sampler.probabilities(wane.History(names="abcd")).tolist() == [0.25] * 4
    rows = {name: np.array([0.5, 0.6, 0.7]) for name in wane.SIGNALS} | {"n": np.array([5, 5, 0])}
    history.record(rows, step=0, task=0)  # test data, and nothing was replayed yet
    assert sampler.probabilities(history, task=1).tolist() == pytest.approx([1 / 3] * 3)
    assert wane.TrendSampler("cm", scope="past").probabilities(history, task=1).tolist() == [0.5, 0.5, 0]
    for step, falling in enumerate([0.9, 0.1], 1):
        history.record(rows | {"cm": np.array([falling, 0.5, 0.5])}, step=step, task=1, split="replay")
    assert sampler.probabilities(history)[0] > 0.6


def test_a_head_that_grew_has_probabilities_for_all_that_was_recorded():
    history = wane.History([0, 0])
    history.record({"n": [5, 5, 0, 5], "cm": [0.5] * 4}, step=0, task=1, split="replay")
    p = wane.TrendSampler("cm").probabilities(history)
    assert p.tolist() == pytest.approx([1 / 3, 1 / 3, 0, 1 / 3])


def test_a_source_that_is_never_recorded_is_warned_of():
    sampler = wane.TrendSampler()
    for tasks in (None, [0, 0]):
        history = history_of([[0.5, 0.5], [0.4, 0.6]], split="test", class_to_task=tasks, tasks=[0, 1])
        with pytest.warns(UserWarning, match=r"source 'replay', only for test: the draw stays uniform; record with"):
            assert sampler.probabilities(history).tolist() == [0.5, 0.5]
        assert np.isnan(sampler.slopes(history)).all()
        assert sampler.decline(history).tolist() == [0, 0]
        assert wane.TrendSampler("cm", source="test").slopes(history).tolist() == pytest.approx([-0.1, 0.1])


@pytest.mark.parametrize("read", [False, True])
def test_without_tasks_the_vector_covers_all_classes_and_unseen_ones_are_not_drawn(read, tmp_path):
    history = wane.History()
    for epoch in range(4):
        m = wane.ClassMetrics(6)
        m.update(torch.randn(40, 6), torch.tensor([1, 3]).repeat(20))
        history.record(m, step=epoch, task=0, split="replay")
    if read:
        history.write(tmp_path / "h.parquet")
        history = wane.History.read(tmp_path / "h.parquet")
    p = wane.TrendSampler("cm").probabilities(history)
    assert (p > 0).tolist() == [False, True, False, True, False, False]
    assert p.sum().item() == pytest.approx(1)


def test_groups_of_another_kind():
    history = wane.History(names=["news", "code", "law"], kind="domain")
    for epoch, falling in enumerate([0.9, 0.6, 0.3]):
        rows = {name: np.array([falling, 0.5]) for name in wane.SIGNALS}
        history.record({**rows, "n": np.array([5, 5])}, step=epoch, task=0, split="replay")
    p = wane.TrendSampler("cm").probabilities(history)
    assert p.shape == (3,)
    assert p[0] > p[1] > p[2] == 0


def test_a_task_without_classes_in_scope_is_an_error():
    history = history_of([[0.5, 0.5], [0.4, 0.6]], class_to_task=[0, 1])
    with pytest.raises(ValueError, match="task is -1: give a whole number"):
        wane.TrendSampler("cm").probabilities(history, task=-1)


def test_a_fractional_window_is_an_error():
    with pytest.raises(ValueError, match=r"window is 2.5: .* a whole number"):
        wane.TrendSampler(window=2.5)
