"""Reservoir and class-balanced choice against literal one-by-one algorithms."""

import random
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from wane.memory import Memory, balanced_slots, random_integers, reservoir_slots, shares


def vitter(capacity, stream, draw):
    """Algorithm R, one row at a time; draw(t) is uniform over 0 to t."""
    slots = []
    for t, item in enumerate(stream):
        d = draw(t)
        if t < capacity:
            slots.append(item)
        elif d < capacity:
            slots[d] = item
    return slots


def ids(memory):
    """The numbers of the rows kept, slot after slot."""
    return memory.extras["id"][: len(memory), 0].long().tolist()


def offer_ids(memory, first, n, generator, labels=None, task=0):
    numbers = torch.arange(first, first + n)
    images = (numbers % 256).to(torch.uint8).view(n, 1, 1, 1)
    labels = torch.zeros(n, dtype=torch.int64) if labels is None else labels
    return memory.offer(
        images,
        labels,
        task=task,
        step=first,
        generator=generator,
        extras={"id": numbers.float().unsqueeze(1)},
    )


@given(st.data())
def test_reservoir_is_the_literal_algorithm_slot_by_slot(data):
    capacity = data.draw(st.integers(1, 12))
    batches = data.draw(st.lists(st.integers(0, 20), max_size=8))
    draws = [data.draw(st.integers(0, t)) for t in range(sum(batches))]
    kept: dict[int, int] = {}
    seen = 0
    for n in batches:
        slots = reservoir_slots(np.array(draws[seen : seen + n], dtype=np.int64), seen, capacity)
        used = slots[slots >= 0]
        assert len(set(used.tolist())) == len(used)
        kept |= {int(s): seen + i for i, s in enumerate(slots) if s >= 0}
        seen += n
    assert [kept[s] for s in range(len(kept))] == vitter(capacity, range(seen), lambda t: draws[t])


def test_reservoir_keeps_every_subset_equally_often():
    n, capacity, runs = 7, 3, 8_000
    generator = torch.Generator().manual_seed(0)
    counts = dict.fromkeys(combinations(range(n), capacity), 0)
    for run in range(runs):
        memory = Memory(capacity, (1, 1, 1), 1, extras={"id": (1,)})
        cut = run % (n + 1)  # one batch, or two, cut anywhere: before, in and after the filling
        offer_ids(memory, 0, cut, generator)
        offer_ids(memory, cut, n - cut, generator)
        counts[tuple(sorted(ids(memory)))] += 1
    assert stats.chisquare(list(counts.values())).pvalue > 0.001


def test_reservoir_joint_slot_counts_match_the_one_by_one_algorithm():
    n, capacity, runs = 30, 4, 4_000
    generator, rng = torch.Generator().manual_seed(1), random.Random(1)
    table = np.zeros((2, capacity, n), dtype=int)
    for _ in range(runs):
        memory = Memory(capacity, (1, 1, 1), 1, extras={"id": (1,)})
        for first in range(0, n, 8):
            offer_ids(memory, first, min(8, n - first), generator)
        table[0, range(capacity), ids(memory)] += 1
        table[1, range(capacity), vitter(capacity, range(n), lambda t: rng.randint(0, t))] += 1
    for slot in range(capacity):
        both = table[:, slot]
        assert stats.chi2_contingency(both[:, both.sum(0) > 0]).pvalue > 0.001
    # inclusion: every row with probability capacity / n; counts of a run sum to capacity, hence the factor
    p = capacity / n
    statistic = ((table[0].sum(0) - runs * p) ** 2 / (runs * p)).sum() * (n - 1) / (n * (1 - p))
    assert 0.001 < stats.chi2.sf(statistic, n - 1) < 0.999


def test_share_of_the_current_task_matches_the_theory_and_a_simulation():
    images, epochs, capacity = 10_000, 50, 2_000
    memory = Memory(capacity, (1, 1, 1), 2, extras={"id": (1,)})
    generator, rng = torch.Generator().manual_seed(2), np.random.default_rng(2)
    measured, simulated, slots = {}, {}, np.zeros(capacity, dtype=int)
    for task in range(2):
        for epoch in range(1, epochs + 1):
            for first in range(0, images, 250):
                offer_ids(memory, first, 250, generator, torch.full((250,), task), task=task)
            # the literal algorithm, a Python loop over the rows that are kept
            times = np.arange(task * epochs * images + (epoch - 1) * images, (task * epochs + epoch) * images)
            draws = rng.integers(0, times + 1)
            for t, d in zip(times[draws < capacity], draws[draws < capacity], strict=True):
                slots[t if t < capacity else d] = task
            measured[task, epoch] = (memory.tasks == task).double().mean().item()
            simulated[task, epoch] = (slots == task).mean()
    assert memory.seen == 1_000_000
    for epoch, expected in ((1, 0.02), (10, 0.16), (25, 0.33), (50, 0.50)):
        theory = epoch / (epochs + epoch)
        assert theory == pytest.approx(expected, abs=0.007)
        deviation = 4 * (theory * (1 - theory) / capacity) ** 0.5
        assert measured[1, epoch] == pytest.approx(theory, abs=deviation)
        assert simulated[1, epoch] == pytest.approx(theory, abs=deviation)


def test_random_integers_are_uniform_modulo_anything():
    draws = random_integers(60_000, torch.Generator().manual_seed(3))
    assert (draws >= 0).all()
    assert draws.max() > 2**62
    for modulus in (7, 10, 64):
        assert stats.chisquare(np.bincount(draws % modulus, minlength=modulus)).pvalue > 0.001


def deal(counts, capacity):
    """Shares by dealing slot after slot."""
    dealt = [0] * len(counts)
    while capacity > 0 and dealt != list(counts):
        for c, count in enumerate(counts):
            if dealt[c] < count and capacity > 0:
                dealt[c] += 1
                capacity -= 1
    return dealt


@given(st.lists(st.integers(0, 30), min_size=1, max_size=12), st.integers(1, 200))
def test_shares_are_those_dealt_one_by_one(counts, capacity):
    assert shares(np.array(counts), capacity).tolist() == deal(counts, capacity)


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 9)), min_size=1, max_size=8), st.integers(1, 100))
def test_a_share_once_cut_never_grows(pairs, capacity):
    before, more = np.array(pairs).T
    old, new = shares(before, capacity), shares(before + more, capacity)
    assert (new <= old)[old < before].all()


@given(st.data())
def test_balanced_keeps_the_lowest_priorities_of_each_class_however_batched(data):
    classes, capacity = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 15))
    labels = np.array(data.draw(st.lists(st.integers(0, classes - 1), min_size=1, max_size=60)))
    priority = np.array(data.draw(st.permutations(range(len(labels)))))
    slot_label, slot_priority = np.full(capacity, -1), np.full(capacity, -1)
    first = 0
    while first < len(labels):
        n = data.draw(st.integers(1, 20))
        batch = slice(first, first + n)
        held = slot_label >= 0
        assert held[: held.sum()].all()  # filled slots come first
        slots = balanced_slots(labels[batch], priority[batch], slot_label[held], slot_priority[held], capacity, classes)
        rows = slots >= 0
        assert len(set(slots[rows].tolist())) == rows.sum()
        slot_label[slots[rows]], slot_priority[slots[rows]] = labels[batch][rows], priority[batch][rows]
        first += n
        share = deal(np.bincount(labels[:first], minlength=classes), capacity)
        for c in range(classes):
            expected = np.sort(priority[:first][labels[:first] == c])[: share[c]]
            assert np.array_equal(np.sort(slot_priority[slot_label == c]), expected)


def test_balanced_gives_equal_shares_that_shrink():
    memory = Memory(100, (1, 1, 1), 10, policy="class_balanced", extras={"id": (1,)})
    generator = torch.Generator().manual_seed(0)
    for task in range(5):
        for first in range(0, 640, 64):
            labels = torch.randint(2 * task, 2 * task + 2, (64,), generator=generator)
            offer_ids(memory, first, 64, generator, labels, task)
        counts = memory.class_counts()[: 2 * task + 2]
        assert counts.sum() == len(memory) == 100
        assert counts.max() - counts.min() <= 1


@given(st.integers(1, 3))
def test_balanced_memory_smaller_than_the_number_of_classes(capacity):
    memory = Memory(capacity, (1, 1, 1), 10, policy="class_balanced", extras={"id": (1,)})
    offer_ids(memory, 0, 40, torch.Generator().manual_seed(0), torch.arange(40) % 10)
    assert memory.labels.sort().values.tolist() == list(range(capacity))


def test_balanced_is_a_uniform_sample_within_a_class_though_its_share_shrinks():
    runs, n = 4_000, 12
    generator = torch.Generator().manual_seed(4)
    counts = dict.fromkeys(combinations(range(n), 2), 0)
    for _ in range(runs):
        memory = Memory(4, (1, 1, 1), 2, policy="class_balanced", extras={"id": (1,)})
        offer_ids(memory, 0, 6, generator)  # class 0 alone: share 4
        offer_ids(memory, 100, 3, generator, torch.ones(3, dtype=torch.int64))  # and now 2
        offer_ids(memory, 6, 3, generator)
        offer_ids(memory, 9, 3, generator)
        kept = tuple(sorted(i for i in ids(memory) if i < 100))
        counts[kept] += 1
    assert stats.chisquare(list(counts.values())).pvalue > 0.001
