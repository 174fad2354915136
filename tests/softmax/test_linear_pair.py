"""Two models at once against the literal divergence in float64, and against each model alone."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import wane


def made(rows, classes, features, seed, dtype=torch.float32):
    g = torch.Generator().manual_seed(seed)
    hidden = [torch.randn(rows, features, generator=g).to(dtype) for _ in range(2)]
    weight = [torch.randn(classes, features, generator=g).to(dtype) for _ in range(2)]
    bias = [torch.randn(classes, generator=g).to(dtype), None]
    return hidden, weight, bias, torch.randint(0, classes, (rows,), generator=g)


def logits_of(hidden, weight, bias):
    z = hidden.double() @ weight.double().T
    return z if bias is None else z + bias.double()


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 600), st.sampled_from([2, 7, 4096, 4097, 9000]), st.integers(0, 99))
def test_divergence_and_agreement_are_the_literal_ones(rows, classes, seed):
    hidden, weight, bias, labels = made(rows, classes, 5, seed)
    pair = wane.linear_pair_signals(tuple(hidden), tuple(weight), labels, tuple(bias))
    z = [logits_of(*parts) for parts in zip(hidden, weight, bias, strict=True)]
    log_p = [torch.log_softmax(x, 1) for x in z]
    expected = (log_p[0].exp() * (log_p[0] - log_p[1])).sum(1)
    torch.testing.assert_close(pair.kl_base_tuned.double(), expected, atol=2e-5, rtol=2e-5)
    margins = torch.stack([x.topk(2).values.diff(dim=1).abs()[:, 0] for x in z]).amin(0)
    clear = margins > 1e-4
    same = (z[0].argmax(1) == z[1].argmax(1)).double()
    assert torch.equal(pair.same_top.double()[clear], same[clear])


def test_each_model_is_scored_as_if_it_were_alone():
    hidden, weight, bias, labels = made(700, 5000, 16, 3)
    pair = wane.linear_pair_signals(tuple(hidden), tuple(weight), labels, tuple(bias), also=["brier"])
    for k, found in enumerate((pair.base, pair.tuned)):
        alone = wane.linear_signals(hidden[k], weight[k], labels, bias[k], also=["brier"])
        assert found.names == alone.names
        for a, b in zip(found, alone, strict=True):
            assert torch.equal(a, b)


def test_a_model_does_not_diverge_from_itself():
    hidden, weight, _, labels = made(50, 300, 8, 1)
    pair = wane.linear_pair_signals((hidden[0], hidden[0]), (weight[0], weight[0]), labels)
    assert float(pair.kl_base_tuned.max()) < 1e-5
    assert float(pair.kl_base_tuned.min()) >= 0
    assert bool((pair.same_top == 1).all())


def test_padding_is_blank_and_shapes_are_kept():
    hidden, weight, _, labels = made(6, 20, 4, 2)
    labels[2] = -100
    pair = wane.linear_pair_signals(
        tuple(h.view(2, 3, 4) for h in hidden), tuple(weight), labels.view(2, 3), ignore_index=-100
    )
    assert pair.kl_base_tuned.shape == (2, 3)
    assert torch.equal(pair.kl_base_tuned.isnan(), labels.view(2, 3) == -100)
    assert torch.equal(pair.base.loss.isnan(), labels.view(2, 3) == -100)


def test_half_precision_is_accumulated_in_float32():
    hidden, weight, _, labels = made(40, 5000, 32, 5, torch.bfloat16)
    pair = wane.linear_pair_signals(tuple(hidden), tuple(weight), labels)
    z = [(h @ w.T).double() for h, w in zip(hidden, weight, strict=True)]  # rounded as the model does
    log_p = [torch.log_softmax(x, 1) for x in z]
    expected = (log_p[0].exp() * (log_p[0] - log_p[1])).sum(1)
    torch.testing.assert_close(pair.kl_base_tuned.double(), expected, atol=1e-2, rtol=1e-2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda h, w: (h, (w[0], w[1][:-1])),
            "the output matrices have 20 and 19 rows: compare models",
        ),
        (lambda h, w: ((h[0], h[1].double()), w), "hidden states are torch.float64, the output matrix torch.float32"),
        (lambda h, w: ((h[0], h[1][:3]), w), "labels have shape (6,) but the hidden states (3, 4)"),
    ],
)
def test_what_does_not_fit_is_said(change, message):
    hidden, weight, _, labels = made(6, 20, 4, 0)
    hidden, weight = change(tuple(hidden), tuple(weight))
    with pytest.raises(ValueError, match=message.replace("(", r"\(").replace(")", r"\)")):
        wane.linear_pair_signals(hidden, weight, labels)
