"""Loss weights against the formulas, and in a bare loop."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

import wane
from wane.interventions.loss_weights import weight_statistics


def scored(n=50, c=10, seed=0):
    g = torch.Generator().manual_seed(seed)
    return wane.signals(torch.randn(n, c, generator=g) * 2, torch.randint(c, (n,), generator=g))


@pytest.mark.parametrize("signal", wane.SIGNALS)
def test_weights_are_the_formula(signal):
    s = scored()
    score = [float(x) for x in getattr(s, signal)]
    literal = {
        "inverse": [x + 0.2 if signal == "loss" else 1 / (x + 0.2) for x in score],
        "complement": [x if signal == "loss" else 1 - x for x in score],
        "softmax": [math.exp((x if signal == "loss" else -x) / 0.5) for x in score],
    }
    for form, raw in literal.items():
        weights = wane.LossWeights(signal, form=form, epsilon=0.2, temperature=0.5)(s)
        np.testing.assert_allclose(weights.numpy(), np.array(raw) / np.mean(raw), rtol=1e-5, atol=1e-6)
        assert weights.mean().item() == pytest.approx(1, abs=1e-6)
        assert not weights.requires_grad
    free = wane.LossWeights(signal, epsilon=0.2, normalise="none")(s)
    np.testing.assert_allclose(free.numpy(), literal["inverse"], rtol=1e-5)


@pytest.mark.parametrize("signal", wane.SIGNALS)
def test_the_more_forgotten_row_weighs_more(signal):
    logits = torch.zeros(8, 5)
    logits[:, 1:] = torch.tensor([0.1, 0.2, 0.3, 0.4])
    logits[:, 0] = torch.linspace(3, -3, 8)
    s = wane.signals(logits, torch.zeros(8, dtype=torch.int64))
    for form in ("inverse", "complement", "softmax"):
        weights = wane.LossWeights(signal, form=form)(s)
        assert (weights.diff() >= -1e-7).all()
        assert weights[-1] > weights[0]


@given(st.floats(0, 1, width=32), st.integers(1, 300), st.sampled_from(["inverse", "complement", "softmax"]))
@settings(max_examples=100)
def test_equal_scores_weigh_exactly_one(value, n, form):
    s = scored(n)._replace(cm=torch.full((n,), value))
    assert torch.equal(wane.LossWeights("cm", form=form)(s), torch.ones(n))


@pytest.mark.parametrize("signal", wane.SIGNALS)
@pytest.mark.parametrize("form", ["inverse", "complement", "softmax"])
@pytest.mark.parametrize("normalise", ["mean", "none"])
def test_padding_weighs_nothing_and_tokens_are_one_batch(signal, form, normalise):
    g = torch.Generator().manual_seed(0)
    logits, labels = torch.randn(4, 6, 5, generator=g), torch.randint(5, (4, 6), generator=g)
    padded = torch.where(torch.rand(4, 6, generator=g) < 0.3, -100, labels)
    weigh = wane.LossWeights(signal, form=form, normalise=normalise)
    weights = weigh(wane.signals(logits, padded, ignore_index=-100))
    kept = padded != -100
    assert weights.shape == (4, 6)
    assert (weights[~kept] == 0).all()
    torch.testing.assert_close(weights[kept], weigh(wane.signals(logits[kept], labels[kept])))
    whole = wane.signals(logits, labels)
    assert torch.equal(weigh(whole), weigh(wane.Signals(*(s.flatten() for s in whole))).view(4, 6))


def test_a_broken_or_infinite_row_does_not_count():
    logits = torch.tensor([[3.0, 0, 0], [math.nan, 0, 0], [0, 3.0, 0], [-math.inf, 0, 0]])
    weights = wane.LossWeights("loss")(wane.signals(logits, torch.zeros(4, dtype=torch.int64), validate=False))
    assert weights[[1, 3]].tolist() == [0, 0]
    assert weights[2] > weights[0] > 0
    assert weights[[0, 2]].mean().item() == pytest.approx(1)


def test_nothing_but_padding_weighs_nothing():
    s = wane.signals(torch.zeros(2, 3, 5), torch.full((2, 3), -100), ignore_index=-100)
    for form in ("inverse", "complement", "softmax"):
        assert torch.equal(wane.LossWeights("cm", form=form)(s), torch.zeros(2, 3))


def test_statistics():
    w = torch.tensor([0.5, 1.0, 1.5])
    assert weight_statistics(w).tolist() == pytest.approx([0.5, 1.5, 9 / (3 * 3.5)])
    assert weight_statistics(torch.ones(7))[2] == 1
    assert weight_statistics(torch.ones(2, 7))[2] == 1


def test_no_rows_give_no_weights():
    empty = wane.signals(torch.zeros(0, 5), torch.zeros(0, dtype=torch.int64))
    assert wane.LossWeights("cm")(empty).shape == (0,)


def test_in_a_bare_loop_with_a_list_as_buffer():
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 3)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.5)
    buffer = [(torch.randn(4), torch.tensor(i % 3)) for i in range(30)]
    weigh = wane.LossWeights("log_tlr")
    before = [wane.signals(model(torch.stack([x for x, _ in buffer])), torch.stack([y for _, y in buffer])).loss.mean()]
    for _ in range(50):
        x, y = (torch.stack(column) for column in zip(*buffer, strict=True))
        logits = model(x)
        weights = weigh(wane.signals(logits.detach(), y))
        loss = (weights * F.cross_entropy(logits, y, reduction="none")).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert wane.signals(model(x), y).loss.mean() < before[0]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"signal": "logtlr"}, "did you mean 'log_tlr'"),
        ({"form": "reverse"}, "unknown form 'reverse': choose inverse, complement or softmax"),
        ({"epsilon": 0}, "epsilon is 0: .* above 0"),
        ({"temperature": -1}, "temperature is -1: .* above 0"),
        ({"epsilon": math.nan}, "epsilon is nan: .* finite number above 0"),
        ({"temperature": math.inf}, "temperature is inf: .* finite number above 0"),
        ({"normalise": "sum"}, "unknown normalise 'sum'"),
        ({"rows": "new"}, "unknown rows 'new': choose replay or all"),
    ],
)
def test_errors(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        wane.LossWeights(**options)
