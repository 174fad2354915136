"""Draws: exact probabilities, no replacement, equal probabilities to the bit, errors that quote."""

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from wane.memory import Memory, class_uniform, draw_by_class, draw_uniform
from wane.memory.draw import _weights


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def filled(labels, num_classes=10, capacity=None):
    labels = torch.tensor(labels)
    memory = Memory(capacity or len(labels), (1, 1, 1), num_classes)
    images = torch.zeros(len(labels), 1, 1, 1, dtype=torch.uint8)
    memory.offer(images, labels, task=0, step=0, generator=seeded(0))
    return memory


@given(st.integers(0, 50), st.integers(0, 80), st.integers(0, 2**32))
def test_uniform_draws_distinct_filled_slots_or_all(count, n, seed):
    slots = draw_uniform(count, n, seeded(seed)).tolist()
    assert len(slots) == len(set(slots)) == min(n, count)
    assert set(slots) <= set(range(count))


def test_uniform_draws_every_slot_equally_often():
    generator, counts, runs = seeded(0), np.zeros(20), 5_000
    for _ in range(runs):
        counts[draw_uniform(20, 6, generator).numpy()] += 1
    p = 6 / 20
    statistic = ((counts - runs * p) ** 2 / (runs * p)).sum() * 19 / (20 * (1 - p))
    assert 0.001 < stats.chi2.sf(statistic, 19) < 0.999


LABELS = torch.tensor([3, 0, 1, 0, 3, 3, 1, 0, 3, 3, 5])  # counts: 0 three, 1 two, 3 five, 5 one
P = torch.tensor([0.1, 0.4, 9.0, 0.2, 7.0, 0.3])  # classes 2 and 4 are absent


def test_any_one_row_has_exactly_the_probability_of_its_class_over_its_count():
    present = torch.tensor([0.1, 0.4, 0.0, 0.2, 0.0, 0.3]).double()
    expected = (present / torch.bincount(LABELS, minlength=6).clamp(min=1))[LABELS]
    generator, runs = seeded(1), 20_000
    draws = torch.stack([draw_by_class(LABELS, 7, P, generator) for _ in range(runs)])
    for column in (0, 3, 6):  # rows of different steps are independent, so the plain test is exact
        counts = np.bincount(draws[:, column], minlength=len(LABELS))
        assert stats.chisquare(counts, runs * expected.numpy() / expected.sum().item()).pvalue > 0.001
    # classes of two rows of a step are independent
    pairs = np.zeros((6, 6))
    np.add.at(pairs, (LABELS[draws[:, 0]].numpy(), LABELS[draws[:, 6]].numpy()), 1)
    pairs = pairs[np.ix_([0, 1, 3, 5], [0, 1, 3, 5])]
    assert stats.chi2_contingency(pairs).pvalue > 0.001


def test_two_slots_of_a_class_drawn_twice_are_every_pair_equally_often():
    generator, labels = seeded(2), torch.tensor([1, 0, 0, 0, 0, 1])
    pairs = Counter(
        tuple(draw_by_class(labels, 2, torch.tensor([1.0, 0.0]), generator).tolist()) for _ in range(12_000)
    )
    assert set(pairs) == {(a, b) for a in range(1, 5) for b in range(1, 5) if a != b}
    assert stats.chisquare(list(pairs.values())).pvalue > 0.001


@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=40),
    st.lists(st.floats(0.01, 5), min_size=6, max_size=6),
    st.integers(0, 60),
    st.integers(0, 2**32),
)
def test_no_slot_comes_twice_before_its_class_is_used_up(labels, weights, n, seed):
    labels = torch.tensor(labels)
    slots = draw_by_class(labels, n, torch.tensor(weights), seeded(seed))
    assert len(slots) == n
    for c in labels.unique():
        times = torch.bincount(slots[labels[slots] == c], minlength=len(labels))[labels == c]
        assert times.max() - times.min() <= 1


@given(
    st.lists(st.integers(0, 7), min_size=1, max_size=40),
    st.sampled_from([1.0, 1 / 3, 0.1, 1e-30, 7e20, 1 / 49]),
    st.sampled_from([torch.float32, torch.float64]),
    st.integers(0, 2**32),
)
def test_equal_probabilities_are_class_uniform_to_the_bit(labels, value, dtype, seed):
    memory = filled(labels, 8)
    uniform = class_uniform(memory.class_counts())
    equal = torch.full((8,), value, dtype=dtype)
    only_present = torch.where(memory.class_counts() > 0, equal, 0)
    a, b, c = (memory.draw(33, generator=seeded(seed), class_probabilities=p) for p in (uniform, equal, only_present))
    assert torch.equal(a, b)
    assert torch.equal(a, c)


@given(st.floats(1e-300, 1e300), st.integers(1, 300))
def test_equal_weights_become_exactly_one(value, classes):
    # an error of one unit in the last place would show in a draw about once in 10^16: look at the weights themselves
    assert (_weights(np.full(classes, value), np.ones(classes, dtype=np.int64)) == 1.0).all()


@pytest.mark.parametrize("point", [0.0, 0.5, 1 - 2**-53])
def test_a_class_of_probability_zero_is_not_drawn_even_at_an_edge(point, monkeypatch):
    monkeypatch.setattr(torch, "rand", lambda n, **_: torch.full((n,), point, dtype=torch.float64))
    p = torch.tensor([0.0, 0.3, 0.0, 0.3, 0.0])
    slots = draw_by_class(torch.arange(5), 4, p, seeded(0))
    assert set(slots.tolist()) == {1 if point < 0.5 else 3}


def test_softmax_of_gamma_zero_is_class_uniform_to_the_bit():
    memory = filled([i % 7 for i in range(100)])
    slopes = torch.randn(10, generator=seeded(0))
    p = torch.softmax(0.0 * slopes, 0)
    uniform = class_uniform(memory.class_counts())
    assert torch.equal(
        memory.draw(64, generator=seeded(1), class_probabilities=p),
        memory.draw(64, generator=seeded(1), class_probabilities=uniform),
    )


def test_scope_past_draws_no_current_class_and_absent_classes_may_be_nan():
    memory = filled([0, 0, 1, 2, 2, 2, 3] * 5)
    p = class_uniform(memory.class_counts())
    p[[2, 3]] = 0
    p[9] = torch.nan
    slots = memory.draw(200, generator=seeded(0), class_probabilities=p)
    counts = torch.bincount(memory.labels[slots], minlength=10)
    assert counts[:2].sum() == 200
    assert stats.binomtest(int(counts[0]), 200).pvalue > 0.001


def test_two_draws_in_a_step_differ_and_the_first_does_not_depend_on_the_second():
    memory = filled([i % 5 for i in range(50)])
    p = torch.ones(10)
    for options in ({}, {"class_probabilities": p}):
        generator = seeded(3)
        first, second = (memory.draw(20, generator=generator, **options) for _ in range(2))
        assert torch.equal(first, memory.draw(20, generator=seeded(3), **options))
        assert not torch.equal(first, second)


def test_more_rows_than_slots_and_an_empty_memory():
    memory = filled([0, 1, 1], capacity=9)
    assert memory.draw(8, generator=seeded(0)).sort().values.tolist() == [0, 1, 2]
    assert len(memory.draw(8, generator=seeded(0), class_probabilities=torch.ones(10))) == 8
    empty = Memory(4, (1, 1, 1), 2)
    assert empty.draw(3, generator=seeded(0)).shape == (0,)
    assert empty.draw(3, generator=seeded(0), class_probabilities=torch.ones(2)).shape == (0,)
    assert empty.images[empty.draw(3, generator=seeded(0))].shape == (0, 1, 1, 1)


def test_more_than_32767_classes():
    labels = torch.tensor([40_000, 3, 40_000])
    slots = draw_by_class(labels, 4, torch.ones(50_000), seeded(0))
    assert set(slots.tolist()) <= {0, 1, 2}


def test_the_global_generators_are_left_alone():
    before, numpy_before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    filled([0, 1, 1]).draw(2, generator=seeded(0), class_probabilities=torch.ones(10))
    assert torch.equal(torch.get_rng_state(), before)
    assert np.array_equal(np.random.get_state()[1], numpy_before)  # noqa: NPY002


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([0.5, float("nan"), 0.5], "0: 0.5, 1: nan"),
        ([0.5, -0.25, 0.5], "1: -0.25"),
        ([0.5, float("inf"), 0.5], "1: inf"),
        ([0.0, 0.0, 1.0], "0: 0, 1: 0.*one at least above 0.*None draws uniformly"),
        ([0.5, 0.5], r"shape \(2,\).*give \(3,\)"),
    ],
)
def test_bad_probabilities_are_quoted(values, message):
    memory = filled([0, 1, 1], num_classes=3)
    with pytest.raises(ValueError, match=message):
        memory.draw(4, generator=seeded(0), class_probabilities=torch.tensor(values))


def test_the_function_alone_refuses_labels_beyond_the_probabilities():
    with pytest.raises(ValueError, match=r"shape \(2,\), but the memory holds class 4"):
        draw_by_class(torch.tensor([0, 4]), 1, torch.ones(2), seeded(0))


def test_among_confines_a_uniform_draw_and_is_uniform_there():
    memory, generator = filled([0, 1, 2, 0, 1, 2, 0]), seeded(0)
    among = torch.tensor([True, False, True, True, False, False, True])
    counts = torch.zeros(7)
    for _ in range(3000):
        drawn = memory.draw(2, generator=generator, among=among)
        assert len(drawn.unique()) == 2
        counts[drawn] += 1
    assert counts[~among].sum() == 0
    expected = 6000 / 4
    assert ((counts[among] - expected) ** 2 / expected).sum() < 16.3  # 3 degrees of freedom, 1 in 1,000
    assert memory.draw(9, generator=generator, among=among).sort().values.tolist() == [0, 2, 3, 6]
    assert memory.draw(9, generator=generator, among=among & ~among).shape == (0,)


def test_among_everything_has_the_bits_of_a_plain_draw():
    memory = filled([0, 1, 2, 0, 1, 2, 0])
    every = torch.ones(7, dtype=torch.bool)
    for p in (None, torch.tensor([0.2, 0.5, 0.3] + [0.0] * 7)):
        options = {"class_probabilities": p}
        plain = memory.draw(5, generator=seeded(4), **options)
        assert torch.equal(plain, memory.draw(5, generator=seeded(4), among=every, **options))
        labels = memory.labels[:7]
        assert torch.equal(plain, memory.draw(5, generator=seeded(4), groups=labels, among=every, **options))


def test_among_confines_a_draw_by_class():
    memory = filled([0, 0, 1, 1])
    among = torch.tensor([True, False, False, True])
    drawn = memory.draw(50, generator=seeded(0), class_probabilities=torch.ones(10), among=among)
    assert set(drawn.tolist()) == {0, 3}


def test_probabilities_of_groups():
    """Ids of any number of groups, not the labels, choose the slots."""
    memory = filled([0, 0, 0, 1, 1])
    groups = torch.tensor([0, 11, 11, 12, 25])
    p = torch.zeros(30)
    p[[11, 25]] = torch.tensor([1.0, 3.0])
    counts = torch.zeros(5)
    for seed in range(400):
        counts += memory.draw(10, generator=seeded(seed), class_probabilities=p, groups=groups).bincount(minlength=5)
    assert counts[[0, 3]].sum() == 0
    np.testing.assert_allclose(counts[[1, 2, 4]] / 4000, [0.125, 0.125, 0.75], atol=0.03)


def test_groups_and_masks_of_another_length_are_quoted():
    memory = filled([0, 1, 1])
    with pytest.raises(ValueError, match=r"among has shape \(2,\): give \(3,\), one for each filled slot"):
        memory.draw(2, generator=seeded(0), among=torch.ones(2, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"groups has shape \(10,\): give \(3,\)"):
        memory.draw(2, generator=seeded(0), class_probabilities=torch.ones(10), groups=torch.zeros(10).long())
    with pytest.raises(ValueError, match=r"shape \(4,\), but the memory holds class 7"):
        memory.draw(2, generator=seeded(0), class_probabilities=torch.ones(4), groups=torch.tensor([0, 7, 1]))
