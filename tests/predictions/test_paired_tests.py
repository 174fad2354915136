"""Paired tests against scipy, brute force over all signs, and simulated nulls; intervals against counted misses."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from wane.predictions import paired_tests
from wane.predictions.paired_tests import adjusted, answers_p, interval_alpha, paired_interval, paired_p

few_changes = st.lists(st.sampled_from([-0.5, -0.25, -0.1, 0.0, 0.1, 0.25, 0.5]), min_size=0, max_size=9)


def brute_force(change, direction):
    """Every one of the 2^n ways the signs could have fallen."""
    moved = np.asarray(change)[np.asarray(change) != 0]
    if not len(moved):
        return 1.0
    weight = stats.rankdata(np.abs(moved))
    side = 1 if direction == "fell" else -1
    seen = side * (np.sign(moved) * weight).sum()
    sums = [side * (np.array(signs) * weight).sum() for signs in product([-1, 1], repeat=len(moved))]
    return float(np.mean(np.array(sums) <= seen + 1e-9))


@given(few_changes, st.sampled_from(["fell", "rose"]))
@settings(max_examples=100, deadline=None)
def test_it_is_the_share_of_all_signs_that_are_as_extreme_however_many_tie(change, direction):
    assert paired_p(np.array(change), direction=direction) == pytest.approx(brute_force(change, direction), abs=1e-12)


@pytest.mark.parametrize("n", [3, 10, 40])
def test_without_ties_it_is_scipys_wilcoxon(n):
    change = np.random.default_rng(n).normal(-0.2, 1, n)
    for direction, alternative in (("fell", "less"), ("rose", "greater"), ("either", "two-sided")):
        expected = stats.wilcoxon(change, alternative=alternative, method="exact").pvalue
        assert paired_p(change, direction=direction) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("lost", "gained"), [(0, 0), (5, 0), (9, 3), (3, 9), (30, 10), (90, 70)])
def test_of_answers_it_is_the_binomial_test_and_mid_p_halves_the_last_term(lost, gained):
    change = np.repeat([-1.0, 1.0, 0.0], [lost, gained, 7])
    exact = stats.binomtest(gained, lost + gained, alternative="less").pvalue if lost + gained else 1.0
    if lost + gained <= paired_tests.EXACT:
        assert paired_p(change) == pytest.approx(exact, rel=1e-9)
        halved = exact - 0.5 * float(stats.binom.pmf(gained, lost + gained, 0.5))
        assert paired_p(change, mid=True) == pytest.approx(halved, rel=1e-9)
    else:
        assert paired_p(change) == pytest.approx(exact, rel=0.02)


def test_beyond_the_exact_count_the_normal_curve_agrees_with_it(monkeypatch):
    rng = np.random.default_rng(1)
    for shift in (0.0, -0.2, -0.5):
        change = rng.normal(shift, 1, 100).round(1)  # ties, and zeros
        normal = paired_p(change)
        monkeypatch.setattr(paired_tests, "EXACT", 1000)
        exact = paired_p(change)
        monkeypatch.undo()
        assert normal == pytest.approx(exact, rel=0.05)


def brute_force_answers(lost, gained, n, share):
    """The chance, at a share of flips, of a table at least as extreme, over all tables of n rows."""
    least = (lost - gained) / np.sqrt(lost + gained)
    total = 0.0
    for a in range(n + 1):
        for b in range(n + 1 - a):
            if a + b and (a - b) / np.sqrt(a + b) >= least - 1e-9:
                total += stats.multinomial.pmf([a, b, n - a - b], n, [share / 2, share / 2, 1 - share])
    return total


@pytest.mark.parametrize(("lost", "gained", "n"), [(4, 0, 6), (5, 1, 8), (3, 0, 12), (7, 2, 12)])
def test_answers_against_all_tables(lost, gained, n):
    possible = stats.binomtest(lost + gained, n).proportion_ci(1 - 1e-6, method="exact")
    expected = max(brute_force_answers(lost, gained, n, share) for share in np.linspace(*possible, 201))
    assert answers_p(lost, gained, n) == pytest.approx(expected, rel=2e-3)
    assert answers_p(gained, lost, n, direction="rose") == answers_p(lost, gained, n)
    assert answers_p(lost, gained, n, direction="either") == min(1, 2 * answers_p(lost, gained, n))


@given(st.integers(1, 40), st.data())
@settings(max_examples=60, deadline=None)
def test_false_alarms_of_answers_are_at_most_the_level_at_any_share_of_flips(n, data):
    share = data.draw(st.floats(0.01, 1))
    level = data.draw(st.sampled_from([0.05, 0.025, 0.005]))
    alarms = sum(
        stats.multinomial.pmf([a, b, n - a - b], n, [share / 2, share / 2, 1 - share])
        for a in range(n + 1)
        for b in range(n + 1 - a)
        if answers_p(a, b, n) <= level
    )
    assert alarms <= level * 1.001


def test_the_unconditional_test_finds_more_than_the_conditional_one():
    rng = np.random.default_rng(3)
    tables = rng.multinomial(20, [0.3, 0.1, 0.6], 2000)
    ours = np.mean([answers_p(int(a), int(b), 20) <= 0.05 for a, b, _ in tables])
    conditional = np.mean(stats.binom.cdf(tables[:, 1], tables[:, :2].sum(1), 0.5) <= 0.05)
    assert ours > conditional + 0.05


@pytest.mark.parametrize("k", [3, 5, 10, 20, 50, 100])
def test_false_alarms_are_at_most_the_level_when_nothing_changed(k):
    """Skewed sizes, a third of the rows unmoved, fair signs: 600 simulated classes of each size."""
    rng = np.random.default_rng(k)
    size = np.exp(rng.normal(0, 2, (600, k))) * (rng.random((600, k)) > 1 / 3)
    p = np.array([paired_p(x) for x in size * rng.choice([-1, 1], (600, k))])
    for level in (0.05, 0.2):
        assert np.mean(p <= level) <= level + 2.6 * np.sqrt(level * (1 - level) / 600)


def test_adjusted_is_scipys_correction_among_the_judged():
    p = np.array([0.001, 0.2, 0.03, 0.04, 0.9])
    among = np.array([True, False, True, True, True])
    found = adjusted(p, among)
    assert np.isnan(found[1])
    assert found[among].tolist() == stats.false_discovery_control(p[among]).tolist()
    assert np.isnan(adjusted(p, np.zeros(5, bool))).all()


@pytest.mark.parametrize(("k", "flips"), [(5, 0.2), (10, 0.3), (20, 0.1), (50, 0.4)])
def test_intervals_of_answers_hold_what_they_promise(k, flips):
    rng = np.random.default_rng(k)
    truth = -0.1
    down = (flips - truth) / 2
    x = rng.choice([-1.0, 1.0, 0.0], (4000, k), p=[down, flips - down, 1 - flips])
    low, high = paired_interval(x.mean(1), x.std(1, ddof=1) / np.sqrt(k), np.full(4000, k), alpha=0.05, answers=True)
    assert np.mean((low > truth) | (high < truth)) <= 0.05 + 0.01
    lost, gained = (x == -1).sum(1), (x == 1).sum(1)  # the formula of Bonett and Price, from the counts
    p12, p21 = (lost + 1) / (k + 2), (gained + 1) / (k + 2)
    half = 1.959964 * np.sqrt((p12 + p21 - (p12 - p21) ** 2) / (k + 2))
    assert low == pytest.approx(p21 - p12 - half, abs=1e-6)
    assert high == pytest.approx(p21 - p12 + half, abs=1e-6)


def test_other_intervals_are_t_intervals():
    x = np.random.default_rng(0).normal(size=12)
    low, high = paired_interval(
        np.array([x.mean()] * 2), np.array([stats.sem(x), np.nan]), np.array([12, 1]), alpha=0.01
    )
    expected = stats.t.interval(0.99, 11, x.mean(), stats.sem(x))
    assert (low[0], high[0]) == pytest.approx(expected)
    assert np.isnan(low[1])


def test_intervals_of_the_classes_that_stand_out_miss_no_more_than_promised():
    """100 classes, 10 of which changed. Of the intervals that one looks at, plain 95 % ones miss far more."""
    rng = np.random.default_rng(0)
    misses = {"plain": [], "corrected": []}
    for _ in range(300):
        truth = np.where(np.arange(100) < 10, -0.3, 0.0)
        x = rng.normal(truth[:, None], 0.5, (100, 30))
        mean, error, n = x.mean(1), x.std(1, ddof=1) / np.sqrt(30), np.full(100, 30)
        p = adjusted(2 * stats.t.sf(np.abs(mean / error), 29), np.ones(100, bool))
        chosen = p <= 0.05
        if chosen.any():
            corrected = interval_alpha(0.05, chosen=int(chosen.sum()), judged=100)
            for name, alpha in (("plain", 0.05), ("corrected", corrected)):
                low, high = paired_interval(mean, error, n, alpha=alpha)
                misses[name].append(np.mean(((low > truth) | (high < truth))[chosen]))
    assert np.mean(misses["corrected"]) <= 0.05 + 0.01
    assert np.mean(misses["plain"]) > 0.08


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: paired_p(np.array([0.1, np.nan])), "a change is nan"),
        (lambda: paired_p(np.array([0.1]), direction="down"), "direction is 'down'"),
        (lambda: answers_p(5, 6, 10), "5 lost and 6 gained of 10"),
    ],
)
def test_bad_input_is_quoted(call, said):
    with pytest.raises(ValueError, match=said):
        call()
