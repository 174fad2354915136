"""Corrections against scikit-learn, scipy and brute force, in a bare loop, and with bad input."""

import itertools
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import differential_evolution, minimize
from sklearn.linear_model import LogisticRegression

import wane
from wane import LogitCorrection
from wane.interventions.group_rows import read_rows
from wane.interventions.margin_offsets import margin_lost

#: What may be missing to the best of a fine grid, where the search itself is on one.
SHORT = {"cm": 2e-3}


def biased(n=300, c=9, groups=3, bias=2.0, seed=0, noise=1.0):
    """Rows of a model that knows something, with the newest group's logits too high."""
    g = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % c
    logits = torch.randn(n, c, generator=g, dtype=torch.float64) * noise
    logits[torch.arange(n), labels] += 1.5
    members = torch.arange(c) * groups // c
    logits[:, members == groups - 1] += bias
    return logits, labels, members


def mean_signal(by, logits, labels, offsets, weights=None):
    """The objective, from the definition."""
    values = wane.signals(logits + offsets, labels, also=[by])[by].double()
    mean = values.mean() if weights is None else (values * weights).sum()
    return wane.SIGNALS[by].sign * float(mean)


def test_loss_is_logistic_regression_on_the_offsets():
    logits, labels, members = biased(n=306, groups=3)
    fitted = LogitCorrection("loss", members).fit(logits, labels).offsets

    def objective(o):
        z = logits + torch.tensor([0.0, *o], dtype=torch.float64)[members]
        return float(F.cross_entropy(z, labels))

    best = minimize(objective, np.zeros(2), method="BFGS", options={"gtol": 1e-10}).x
    np.testing.assert_allclose(fitted[[3, 6]].numpy(), best, atol=2e-5)  # a ridge of 1e-6 apart


def test_two_groups_by_loss_are_scikit_learn():
    """With two classes, an offset is the intercept of a logistic regression whose only slope is 1, on z1 - z0."""
    g = torch.Generator().manual_seed(1)
    labels = torch.randint(2, (400,), generator=g)
    logits = torch.randn(400, 2, generator=g, dtype=torch.float64)
    fitted = LogitCorrection("loss", [0, 1], balanced=False, ridge=0.0).fit(logits, labels).offsets
    # scikit-learn has no offset: the intercept is found where the mean probability of its own fit is that of the labels
    gap = (logits[:, 1] - logits[:, 0]).numpy()
    probability = 1 / (1 + np.exp(-(gap + float(fitted[1] - fitted[0]))))
    assert probability.mean() == pytest.approx(labels.double().mean().item(), abs=1e-8)
    # and, with the logits for its one feature, its own intercept leaves nothing for a correction to do
    model = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000).fit(gap[:, None], labels.numpy())
    scores = torch.from_numpy(np.c_[np.zeros(400), model.decision_function(gap[:, None])])
    again = LogitCorrection("loss", [0, 1], balanced=False).fit(scores, labels).offsets
    np.testing.assert_allclose(again.numpy(), 0, atol=1e-5)


def test_one_offset_a_class_is_scipys_ridge():
    logits, labels, _ = biased(n=500, c=10, groups=5)
    labels = torch.where(torch.arange(500) % 7 == 0, 0, labels)  # unequal counts
    correction = LogitCorrection("loss").fit(logits.float(), labels)
    counts = torch.bincount(labels)
    weights = (1 / counts[labels]) / 10

    def objective(o):
        z = logits.float().double() + torch.from_numpy(o)
        return float((F.cross_entropy(z, labels, reduction="none") * weights).sum()) + correction.ridge / 2 * o @ o

    best = minimize(objective, np.zeros(10), method="BFGS", options={"gtol": 1e-9}).x
    np.testing.assert_allclose(correction.offsets.numpy(), best - best.mean(), atol=1e-5)
    assert abs(correction.offsets.mean().item()) < 1e-12


def test_the_strength_for_one_offset_a_class_follows_the_evidence():
    """The chosen ridge makes the rows most likely, by Laplace's integral over the offsets."""
    logits, labels, _ = biased(n=400, c=8, groups=4, bias=1.0)
    chosen = LogitCorrection("loss").fit(logits, labels).ridge

    def log_evidence(ridge):
        offsets = LogitCorrection("loss", ridge=ridge).fit(logits, labels).offsets
        p = (logits + offsets).softmax(1)
        hessian = torch.diag(p.sum(0)) - p.T @ p + 400 * ridge * torch.eye(8, dtype=torch.float64)
        fit = -float(F.cross_entropy(logits + offsets, labels)) * 400
        prior = -400 * ridge / 2 * float(offsets @ offsets) + 8 / 2 * math.log(400 * ridge)
        return fit + prior - float(torch.logdet(hessian)) / 2

    grid = chosen * np.logspace(-2, 2, 81)
    assert grid[np.argmax([log_evidence(r) for r in grid])] == pytest.approx(chosen, rel=0.15)


@pytest.mark.parametrize("groups", [3, None])
@pytest.mark.parametrize("by", ["loss", "nkl", "ctl"])
def test_the_gradient_vanishes_at_the_offsets(by, groups):
    """By autograd through `wane.signals`, and to the tolerance that is stated."""
    logits, labels, members = biased(n=900, noise=2.0, seed=4)
    correction = LogitCorrection(by, None if groups is None else members).fit(logits, labels)
    group = torch.arange(9) if groups is None else members
    ridge = correction.ridge if by == "loss" else correction.ridge / math.log(9)
    found = torch.stack([correction.offsets[group == g][0] for g in range(int(group.max()) + 1)])
    offsets = (found - found.mean()).requires_grad_()  # a ridge prefers those of mean 0
    value = wane.SIGNALS[by].sign * wane.signals(logits + offsets[group], labels)[by].mean()
    (value - ridge / 2 * offsets.square().sum()).backward()
    assert offsets.grad.abs().max() < 2e-8


@pytest.mark.parametrize("groups", [3, None])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_gradient_of_the_confusion_margin_is_autograds(groups, dtype):
    logits, labels, members = biased(n=300, noise=2.0)
    logits[5, 8] = -math.inf
    group = torch.arange(9) if groups is None else members
    weights = torch.linspace(1, 2, 300, dtype=torch.float64) / 450
    offsets = torch.linspace(-1, 1, int(group.max()) + 1, dtype=torch.float64, requires_grad=True)
    wanted = ((1 - wane.signals(logits.to(dtype).double() + offsets[group], labels).cm) * weights).sum()
    wanted.backward()
    lost, gradient = margin_lost(read_rows(logits.to(dtype), labels, weights, group), offsets.detach())
    assert lost == pytest.approx(wanted.item(), abs=1e-6)
    np.testing.assert_allclose(gradient, offsets.grad, atol=1e-6)


@pytest.mark.parametrize("by", ["accuracy", "rtlr", "log_tlr", "cm"])
def test_with_one_offset_a_class_no_single_shift_helps_much(by):
    """Forty classes are many groups: the search ends when a round gains little."""
    logits, labels, _ = biased(n=800, c=40, groups=4, noise=1.5)
    correction = LogitCorrection(by).fit(logits, labels)
    ridge = correction.ridge / math.log(40)

    def value(offsets):  # (..., 40)
        many = logits + offsets[..., None, :]
        means = wane.signals(many, labels.expand(many.shape[:-1]))[by].double().mean(-1)
        return means - ridge / 2 * offsets.square().sum(-1)

    found = value(correction.offsets)
    assert found > value(torch.zeros(40, dtype=torch.float64)) + 0.02
    for c in range(0, 40, 3):
        line = torch.linspace(-1.5, 1.5, 61, dtype=torch.float64)[:, None] * F.one_hot(torch.tensor(c), 40)
        assert value(correction.offsets + line).max() < found + 2 / 800  # two rows


def test_rows_without_bias_give_small_offsets_and_a_great_ridge():
    calm, steep = (LogitCorrection("loss").fit(*biased(n=600, c=20, groups=2, bias=b)[:2]) for b in (0.0, 3.0))
    assert calm.ridge > 10 * steep.ridge
    assert calm.offsets.abs().max() < 0.2 < 1 < steep.offsets.abs().max()


@pytest.mark.parametrize("by", ["loss", "nkl", "ctl", "accuracy", "cm", "log_tlr", "tlr", "rtlr"])
@pytest.mark.parametrize("seed", range(3))
def test_two_groups_reach_the_best_of_a_fine_grid(by, seed):
    logits, labels, members = biased(n=120, c=6, groups=2, bias=1.5, seed=seed, noise=1.5)
    fitted = LogitCorrection(by, members).fit(logits, labels).offsets
    many = logits + torch.linspace(-10, 10, 2001, dtype=torch.float64)[:, None, None] * members
    grid = wane.SIGNALS[by].sign * wane.signals(many, labels.expand(2001, -1))[by].mean(1)
    assert mean_signal(by, logits, labels, fitted) >= float(grid.max()) - SHORT.get(by, 2e-6)


@pytest.mark.parametrize("by", ["nkl", "ctl", "accuracy"])
@pytest.mark.parametrize("seed", range(2))
def test_three_groups_reach_the_best_of_a_grid(by, seed):
    logits, labels, members = biased(n=90, c=6, groups=3, seed=seed, noise=1.5)
    fitted = LogitCorrection(by, members).fit(logits, labels).offsets
    axis = np.linspace(-6, 6, 49)
    offsets = torch.tensor([(0.0, a, b) for a, b in itertools.product(axis, axis)], dtype=torch.float64)[:, members]
    many = logits[None] + offsets[:, None]
    values = wane.signals(many, labels.expand(len(offsets), -1))[by].double().mean(1)
    # coordinate ascent on accuracy may end one or two rows short
    assert mean_signal(by, logits, labels, fitted) >= float(values.max()) - (2 / 90 if by == "accuracy" else 1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("by", ["nkl", "ctl"])
def test_five_groups_are_as_good_as_a_global_search(by):
    logits, labels, members = biased(n=200, c=10, groups=5, noise=2.0)
    fitted = LogitCorrection(by, members).fit(logits, labels).offsets

    def objective(o):
        return -mean_signal(by, logits, labels, torch.tensor([0.0, *o], dtype=torch.float64)[members])

    found = differential_evolution(objective, [(-8, 8)] * 4, seed=0, maxiter=150, tol=1e-8)
    assert mean_signal(by, logits, labels, fitted) >= -found.fun - 1e-6


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(["loss", "nkl", "ctl", "accuracy", "log_tlr", "cm"]), st.integers(2, 4))
def test_the_fit_never_does_worse_than_no_correction(seed, by, groups):
    logits, labels, members = biased(n=60, c=8, groups=groups, bias=1.0, seed=seed, noise=2.0)
    fitted = LogitCorrection(by, members).fit(logits, labels)
    weights = 1 / labels.bincount()[labels] / 8  # 60 rows of 8 classes: every class weighs the same, not every row
    # the ridge, 1e-6 / ln 8, is all that it may pay
    after, before = (mean_signal(by, logits, labels, offsets, weights) for offsets in (fitted.offsets, 0.0))
    assert after >= before - 1e-4
    assert torch.equal(fitted.offsets, LogitCorrection(by, members).fit(logits, labels).offsets)
    assert (fitted.offsets[members == 0] == 0).all()


@pytest.mark.parametrize("by", ["loss", "nkl", "ctl", "accuracy", "cm", "log_tlr", "tlr", "rtlr"])
def test_equal_logits_are_left_alone(by):
    """A tie goes to the label: all answers are right, and any offset would cost some."""
    labels = torch.tensor([0, 1, 1, 2, 2, 2])
    for groups in ([0, 1, 2], [0, 0, 1], None):
        offsets = LogitCorrection(by, groups).fit(torch.zeros(6, 3), labels).offsets
        assert offsets.isfinite().all()
        if by in ("accuracy", "log_tlr", "tlr", "rtlr") and groups is not None:
            assert offsets.abs().max() == 0


@pytest.mark.parametrize("scale", [1e-3, 1e4])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_logits_of_any_size(scale, dtype):
    logits, labels, members = biased(n=90)
    logits = (logits * scale).clamp(-6e4, 6e4).to(dtype)
    for by in ("loss", "nkl", "ctl", "accuracy", "log_tlr"):
        correction = LogitCorrection(by, members).fit(logits, labels)
        before, after = (mean_signal(by, z.double(), labels, 0.0) for z in (logits, logits + correction.offsets))
        assert after >= before - 1e-6


@pytest.mark.parametrize("by", ["nkl", "accuracy"])
def test_a_known_bias_is_taken_back(by):
    logits, labels, members = biased(n=4000, c=20, groups=4, bias=2.5)
    offsets = LogitCorrection(by, members).fit(logits, labels).offsets
    assert offsets[-1].item() == pytest.approx(-2.5, abs=0.4)
    assert offsets[:15].abs().max() < 0.4


def test_every_class_weighs_the_same_unless_told_otherwise():
    logits, labels, members = biased(n=300)
    many = torch.cat([torch.arange(300), torch.tensor([0] * 500)])  # class 0 is there 500 times more
    twice = torch.cat([torch.arange(300), torch.arange(300)])
    fit = lambda rows, **kw: LogitCorrection("loss", members, **kw).fit(logits[rows], labels[rows]).offsets  # noqa: E731
    np.testing.assert_allclose(fit(torch.arange(300)), fit(twice), atol=1e-7)
    assert (fit(many)[-1] - fit(many, balanced=False)[-1]).abs() > 0.1


def test_one_number_for_the_newest_group():
    logits, labels, members = biased(groups=3)
    offsets = LogitCorrection("nkl", [task == 2 for task in members.tolist()]).fit(logits, labels).offsets
    assert (offsets[:6] == 0).all()
    assert torch.unique(offsets[6:]).numel() == 1
    assert offsets[8] < -1.5


def test_classes_that_take_no_part():
    logits, labels, members = biased(groups=3)
    wide = torch.cat([logits, torch.full((300, 2), 50.0, dtype=torch.float64)], dim=1)
    got = LogitCorrection("nkl", [*members.tolist(), -1, -1]).fit(wide, labels).offsets
    np.testing.assert_allclose(got[:9], LogitCorrection("nkl", members).fit(logits, labels).offsets, atol=1e-9)
    assert got[9:].tolist() == [0, 0]
    masked = torch.cat([logits, torch.full((300, 2), -math.inf, dtype=torch.float64)], dim=1)
    with pytest.raises(ValueError, match="none of them of group 3"):
        LogitCorrection("nkl", [*members.tolist(), 3, 3]).fit(masked, labels)
    alone = LogitCorrection("loss").fit(wide, labels)  # a class without rows is left as it is
    assert alone.offsets[9:].tolist() == [0, 0]


def test_masked_logits_within_rows():
    logits, labels, members = biased(groups=3)
    logits[labels < 3, 6:] = -math.inf
    for by in ("loss", "nkl", "ctl", "accuracy", "log_tlr", "cm"):
        offsets = LogitCorrection(by, members).fit(logits, labels).offsets
        assert offsets.isfinite().all()


def test_prior():
    correction = LogitCorrection("prior", [0, 0, 1, -1]).fit(counts=[10, 30, 100, 0])
    np.testing.assert_allclose(correction.offsets, [0, 0, math.log(20 / 100), 0], atol=1e-12)
    np.testing.assert_allclose(LogitCorrection("prior").fit(counts=[1, 4]).offsets, [math.log(2), -math.log(2)])
    with pytest.raises(ValueError, match="class 1 has a count of 0"):
        LogitCorrection("prior").fit(counts=[1, 0])
    with pytest.raises(TypeError, match="counts"):
        LogitCorrection("prior").fit(torch.zeros(2, 2), torch.zeros(2))


def test_state_shapes_and_types():
    logits, labels, members = biased()
    correction = LogitCorrection("nkl", members).fit(logits, labels)
    other = LogitCorrection("nkl", members)
    other.load_state_dict(correction.state_dict())
    half = logits.half().view(30, 10, 9)
    assert (other.apply(half).dtype, other.apply(half).shape) == (torch.float16, half.shape)
    assert torch.equal(other.apply(logits), logits + correction.offsets)
    cubes = LogitCorrection("nkl", members).fit(logits.view(30, 10, 9), labels.view(30, 10))
    assert torch.equal(cubes.offsets, correction.offsets)
    assert LogitCorrection("nkl", [0] * 9).fit(logits, labels).offsets.abs().max() == 0
    with pytest.raises(ValueError, match=r"shape \(9,\), this correction has \(2,\)"):
        LogitCorrection("nkl", [0, 1]).load_state_dict(correction.state_dict())


@pytest.mark.parametrize("by", ["accuracy", "log_tlr", "top2"])
def test_ranks_by_bins_and_in_blocks_are_as_good_as_sorted_at_once(by, monkeypatch):
    """The bins beside the best point of the grid are sorted, so that at most what lies between two points is missed."""
    logits, labels, members = biased(n=270, groups=2, noise=2.0)
    logits[3, 0], logits[4, 8] = -math.inf, -1e6  # a masked class, and one that stretches the grid
    sorted_at_once = LogitCorrection(by, members).fit(logits, labels).offsets
    monkeypatch.setattr("wane.interventions.rank_lines.FEW_PLACES", 0)
    monkeypatch.setattr("wane.interventions.group_rows.CHUNK", 40)  # nothing is kept between passes
    binned = LogitCorrection(by, members).fit(logits, labels).offsets
    best, found = (mean_signal(by, logits, labels, o) for o in (sorted_at_once, binned))
    assert found == pytest.approx(best, abs=1e-6)
    logits[4, 8] = -3.0
    found = mean_signal(by, logits, labels, LogitCorrection(by, members).fit(logits, labels).offsets)
    monkeypatch.undo()
    best = mean_signal(by, logits, labels, LogitCorrection(by, members).fit(logits, labels).offsets)
    assert found >= best - 1 / 270


def test_float32_logits_in_blocks_are_the_same(monkeypatch):
    logits, labels, members = biased()
    whole = LogitCorrection("nkl", members).fit(logits, labels).offsets
    monkeypatch.setattr("wane.interventions.group_rows.CHUNK", 900)
    np.testing.assert_allclose(LogitCorrection("nkl", members).fit(logits, labels).offsets, whole, atol=1e-9)
    by_class = LogitCorrection("loss", ridge=1e-3).fit(logits, labels).offsets
    monkeypatch.setattr("wane.interventions.smooth_offsets.PRODUCTS", 9 * 9 * 60)  # Hessians of every fifth row
    again = LogitCorrection("loss", ridge=1e-3).fit(logits, labels).offsets
    np.testing.assert_allclose(again, by_class, atol=1e-6)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda z, y, g: LogitCorrection("nkk", g), "did you mean 'nkl'"),
        (lambda z, y, g: LogitCorrection("nkl", g, ridge=-1), "ridge is -1"),
        (lambda z, y, g: LogitCorrection("nkl", [0.5, 1.0]), "whole number for each class"),
        (lambda z, y, g: LogitCorrection("nkl", [-1, -1]), "whole number for each class"),
        (lambda z, y, g: LogitCorrection("nkl", g).fit(z[:0], y[:0]), "no rows"),
        (lambda z, y, g: LogitCorrection("nkl", g).fit(z[:2], y[:2]), "2 rows for 3 groups, none of them of group 1"),
        (lambda z, y, g: LogitCorrection("nkl", g).fit(z[y < 6], y[y < 6]), r"group 2 \(class 6, 7, 8\)"),
        (lambda z, y, g: LogitCorrection("nkl", g[:5]).fit(z, y), "groups name 5 classes, but the logits have 9"),
        (lambda z, y, g: LogitCorrection("nkl", g - 1).fit(z, y), "rows of class 0, whose group, -1, takes no part"),
        (lambda z, y, g: LogitCorrection("nkl").fit(z[y == 3], y[y == 3]), "all 33 rows are of class 3"),
        (lambda z, y, g: LogitCorrection("nkl", g).fit(z.where(z < 3, math.nan), y), "nan"),
        (lambda z, y, g: LogitCorrection("nkl", g).fit(z, y + 1), "label 9"),
        (lambda z, y, g: LogitCorrection("nkl", g).fit(z, y[:-1]), "labels have shape"),
        (lambda z, y, g: LogitCorrection("nkl", g).apply(z), "was not fitted"),
        (lambda z, y, g: LogitCorrection("nkl", g).fit(z, y).apply(z[:, :4]), "4 classes"),
    ],
)
def test_bad_input_is_one_sentence(change, sentence):
    logits, labels, members = biased()
    with pytest.raises(ValueError, match=sentence) as caught:
        change(logits, labels, members)
    assert "\n" not in str(caught.value)
