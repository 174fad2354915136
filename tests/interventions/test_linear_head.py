"""The re-fitted head against scikit-learn, scipy and a search written out by hand."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import log_softmax
from sklearn.linear_model import LogisticRegression

from wane.interventions.linear_head import STRENGTHS, fit_head


def rows(n=120, d=6, classes=4, seed=0, noise=1.0, shift=0.0, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (n,), generator=generator)
    labels[:classes] = torch.arange(classes)
    centres = torch.randn(classes, d, generator=generator)
    features = scale * (centres[labels] + noise * torch.randn(n, d, generator=generator)) + shift
    return features, labels


def standardised(features, labels, balanced):
    """Features and weights as the docstring has them, in NumPy."""
    x, y = features.double().numpy(), labels.numpy()
    w = 1 / np.bincount(y)[y] if balanced else np.ones(len(y))
    w = w / w.sum()
    centre = w @ x
    scale = np.sqrt((w @ (x - centre) ** 2).mean())
    return (x - centre) / scale, y, w, centre, scale


@pytest.mark.parametrize("balanced", [True, False])
@pytest.mark.parametrize("strength", [0.3, 10.0, 300.0])
def test_the_head_is_that_of_scikit_learn(balanced, strength):
    features, labels = rows(shift=3.0, scale=20.0)
    head = fit_head(features, labels, strength=strength, balanced=balanced, tolerance=1e-9)
    x, y, w, _, scale = standardised(features, labels, balanced)
    peer = LogisticRegression(C=1 / strength, tol=1e-10, max_iter=10_000, solver="newton-cg")
    peer.fit(x, y, sample_weight=w * len(y))
    np.testing.assert_allclose(head.weight.numpy() * scale, peer.coef_, atol=1e-6)
    logits = head(features).numpy()
    expected = peer.decision_function(x)
    np.testing.assert_allclose(logits - logits.mean(1, keepdims=True), expected - expected.mean(1, keepdims=True),
                               atol=1e-5)  # fmt: skip
    assert head.gradient <= 1e-9


def test_the_change_of_an_old_head_is_what_is_penalised():
    """Against scipy on the literal objective; class 1 does not compete and keeps its part."""
    features, labels = rows(classes=4, n=80, d=3)
    keep = labels != 1
    features, labels = features[keep], labels[keep]
    generator = torch.Generator().manual_seed(5)
    old = torch.randn(5, 3, generator=generator), torch.randn(5, generator=generator)
    head = fit_head(features, labels, classes=[0, 2, 3], strength=20.0, toward=old, tolerance=1e-9)
    x = features.double().numpy()
    y = np.array([0, -1, 1, 2])[labels.numpy()]
    w = 1 / np.bincount(y)[y] / 3
    scale = np.sqrt((w @ (x - w @ x) ** 2).mean())
    before = x @ old[0].double().numpy()[[0, 2, 3]].T + old[1].double().numpy()[[0, 2, 3]]

    def objective(theta):
        change = theta.reshape(3, 4)
        logits = before + x @ change[:, :3].T + change[:, 3]
        squares = (scale * change[:, :3]) ** 2
        return -w @ log_softmax(logits, axis=1)[np.arange(len(y)), y] + 20.0 / (2 * len(y)) * squares.sum()

    found = minimize(objective, np.zeros(12), method="BFGS", options={"gtol": 1e-9}).x.reshape(3, 4)
    np.testing.assert_allclose((head.weight - old[0].double())[[0, 2, 3]], found[:, :3], atol=1e-5)
    bias = (head.bias - old[1].double())[[0, 2, 3]].numpy()
    np.testing.assert_allclose(bias, found[:, 3] - found[:, 3].mean(), atol=1e-5)
    assert torch.equal(head.weight[[1, 4]], old[0].double()[[1, 4]])
    assert torch.equal(head.bias[[1, 4]], old[1].double()[[1, 4]])


def test_a_strong_penalty_leaves_the_old_head_but_for_its_bias():
    features, labels = rows()
    old = torch.randn(4, 6, generator=torch.Generator().manual_seed(1)), torch.tensor([0.0, 0.0, 0.0, 9.0])
    head = fit_head(features, labels, strength=1e9, toward=old, tolerance=1e-8)
    np.testing.assert_allclose(head.weight, old[0].double(), atol=1e-6)
    said = (features.double() @ old[0].double().T + old[1]).argmax(1)
    assert (said == 3).double().mean() > 0.8  # a bias hid the other classes
    assert set(head(features).argmax(1).tolist()) == {0, 1, 2, 3}


def test_the_strength_is_that_of_cross_validation_by_hand():
    features, labels = rows(n=90, d=20, noise=3.0, seed=3)
    strengths = (1000.0, 100.0, 10.0, 1.0)
    chosen = fit_head(features, labels, strength=strengths, folds=3, tolerance=1e-6).strength
    turn = np.zeros(90, int)
    for c in range(4):
        mine = np.flatnonzero(labels.numpy() == c)
        turn[mine] = np.arange(len(mine)) % 3
    accuracy = []
    for strength in strengths:
        right = np.zeros(90)
        for fold in range(3):
            x, y, w, centre, scale = standardised(features[turn != fold], labels[turn != fold], True)
            peer = LogisticRegression(C=1 / strength, tol=1e-8, max_iter=5000).fit(x, y, sample_weight=w * len(y))
            held = (features[turn == fold].double().numpy() - centre) / scale
            right[turn == fold] = peer.predict(held) == labels[turn == fold].numpy()
        accuracy.append(np.mean([right[labels.numpy() == c].mean() for c in range(4)]))
    best = next(i for i, (a, b) in enumerate(zip(accuracy, [*accuracy[1:], -1], strict=True)) if b < a)
    assert chosen == strengths[accuracy.index(max(accuracy[: best + 1]))]


def test_a_strength_means_the_same_for_any_scale_and_for_every_row_twice():
    features, labels = rows(n=60)
    plain = fit_head(features, labels, strength=20.0, tolerance=1e-9)
    scaled = fit_head(1000 * features - 7, labels, strength=20.0, tolerance=1e-9)
    twice = fit_head(features.repeat(2, 1), labels.repeat(2), strength=40.0, tolerance=1e-9)
    np.testing.assert_allclose(scaled(1000 * features - 7), plain(features), atol=1e-3)
    np.testing.assert_allclose(twice(features), plain(features), atol=1e-6)


@given(st.integers(0, 10_000), st.floats(0.01, 1e4), st.booleans())
def test_the_gradient_is_zero_and_nothing_is_random(seed, strength, balanced):
    """Autograd on the literal objective; order of rows does not matter."""
    features, labels = rows(n=30, d=4, classes=3, seed=seed)
    head = fit_head(features, labels, strength=strength, balanced=balanced, tolerance=1e-7)
    again = fit_head(features, labels, strength=strength, balanced=balanced, tolerance=1e-7)
    assert torch.equal(head.weight, again.weight)
    assert torch.equal(head.bias, again.bias)
    _, y, w, _, scale = standardised(features, labels, balanced)
    weight, bias = head.weight.clone().requires_grad_(), head.bias.clone().requires_grad_()
    losses = torch.nn.functional.cross_entropy(features.double() @ weight.T + bias, labels, reduction="none")
    value = (torch.from_numpy(w) * losses).sum() + strength / (2 * len(y)) * (scale * weight).square().sum()
    value.backward()
    assert float(weight.grad.abs().max()) <= 1e-6 * max(1.0, scale)
    assert float(bias.grad.abs().max()) <= 1e-6 * (1 + float(features.abs().max()))


def test_a_few_rows_of_each_class_choose_the_strength():
    features, labels = rows(n=400, classes=4)
    few = fit_head(features, labels, rows_for_choice=5)
    assert few.strength in STRENGTHS
    every = fit_head(features, labels, strength=few.strength)
    assert torch.equal(few.weight, every.weight)  # all rows are fitted


def test_features_that_never_vary_leave_a_bias():
    head = fit_head(torch.ones(8, 3), torch.arange(8) % 2, strength=1.0)
    assert torch.equal(head.weight, torch.zeros(2, 3, dtype=torch.float64))
    assert head(torch.ones(1, 3)).diff().abs().max() < 1e-6


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"features": torch.full((4, 2), torch.nan)}, r"features\[0, 0\] is nan: a head needs finite features"),
        ({"labels": torch.tensor([1, 1, 1, 1]), "classes": [1]}, "all 4 rows are of class 1: a head needs at least"),
        ({"labels": torch.tensor([0, 2, 0, 2])}, "no row of class 1 among 4 rows: give rows of every class"),
        ({"classes": range(9)}, r"no row of class 2 \(nor of 6 more\) among 4 rows: .* leave them out of `classes`"),
        ({"labels": torch.tensor([0, 1, 5, 1]), "classes": [0, 1]}, "a row has the label 5, which is not among the 2"),
        ({"labels": torch.tensor([0, 1, -1, 1])}, "a row has the label -1"),
        ({"features": torch.zeros(0, 2), "labels": torch.zeros(0, dtype=torch.int64)}, "there is no row"),
        ({"features": torch.zeros(4)}, r"features are torch.float32 of shape \(4,\): give floats of shape \(N, d\)"),
        ({"labels": torch.zeros(3, dtype=torch.int64)}, r"labels are torch.int64 of shape \(3,\): give integers"),
        ({"strength": 0.0}, "strength=0.0: give a finite number above 0"),
        ({"strength": ()}, r"strength=\(\): give a finite number above 0"),
        ({"folds": 1}, "folds is 1: give a whole number of at least 2"),
        ({"tolerance": 0.0}, "tolerance is 0.0: give a finite number above 0"),
        ({"toward": (torch.zeros(1, 2), torch.zeros(1))}, r"toward has a weight of shape \(1, 2\)"),
    ],
)
def test_bad_input_is_one_sentence(change, message):
    good = {"features": torch.randn(4, 2), "labels": torch.tensor([0, 1, 0, 1])}
    with pytest.raises(ValueError, match=message):
        fit_head(**{**good, **change})
