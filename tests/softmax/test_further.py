"""Measures that are computed where they are asked for: ranking, confidence, Brier; the same by every kernel."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import ndcg_score, top_k_accuracy_score

import wane

ASKED = ("mrr", "ndcg", "top1", "top3", "top1000", "confidence", "brier", "brier_top")


def case(n=60, c=7, seed=0, dtype=torch.float64):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(n, c, generator=g, dtype=dtype) * 3, torch.randint(c, (n,), generator=g)


def literal(z, y):
    """One row at a time, in plain Python and float64."""
    rows = []
    for logits, label in zip(z.double().tolist(), y.tolist(), strict=True):
        top = max(logits)
        total = sum(math.exp(x - top) for x in logits)
        p = [math.exp(x - top) / total for x in logits]
        rank = 1 + sum(x > logits[label] for x in logits)
        rows.append((1 / rank, 1 / math.log2(1 + rank), rank <= 1, rank <= 3, rank <= 1000, max(p),
                     sum((q - (c == label)) ** 2 for c, q in enumerate(p)), (max(p) - (rank == 1)) ** 2))  # fmt: skip
    return dict(zip(ASKED, np.array(rows, dtype=float).T, strict=True))


def test_off_by_default_and_in_order_when_asked_for():
    z, y = case()
    assert wane.signals(z, y).names == (*wane.SIGNALS, "rank")
    assert wane.signals(z, y, also=ASKED).names == (*wane.SIGNALS, *ASKED, "rank")
    assert wane.signals(z, y, also="mrr").names == (*wane.SIGNALS, "mrr", "rank")
    assert wane.signals(z, y, also=("cm", "ece", "ece")).names == (*wane.SIGNALS, "confidence", "rank")


@settings(max_examples=30)
@given(st.integers(2, 9), st.integers(1, 12), st.integers(0, 10**6), st.floats(0.01, 40))
def test_equal_to_the_literal_definition_by_every_way(c, n, seed, scale):
    z, y = case(n, c, seed)
    z = z * scale
    expected = literal(z, y)
    weights = torch.eye(c, dtype=z.dtype)
    tasks = [0] * c
    for scored in (
        wane.signals(z, y, also=ASKED, compiled=False),
        wane.signals(z.clone().requires_grad_(), y, also=ASKED),
        wane.signals(probabilities=z.softmax(1), labels=y, also=ASKED),
        wane.linear_signals(z, weights, y, also=ASKED, vocabulary_chunk=2),
        wane.signals_within(z, y, tasks, also=ASKED),
    ):
        for name in ASKED:
            np.testing.assert_allclose(scored[name].detach(), expected[name], rtol=1e-9, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_compiled_and_chunked_kernels_agree(dtype):
    z, y = case(500, 40, dtype=dtype)
    expected = literal(z, y)
    for compiled in (False, True):
        scored = wane.signals(z, y, also=ASKED, compiled=compiled)
        for name in ASKED:
            np.testing.assert_allclose(scored[name], expected[name], rtol=2e-5, atol=5e-7, err_msg=name)


def test_equal_to_scikit_learn():
    z, y = case(200, 12)
    scored = wane.signals(z, y, also=("ndcg", "top4"))
    truth = np.eye(12)[y]
    assert float(scored.ndcg.mean()) == pytest.approx(ndcg_score(truth, z.numpy()))
    assert float(scored.top4.mean()) == pytest.approx(top_k_accuracy_score(y, z.numpy(), k=4, labels=range(12)))


def test_how_the_rank_signals_relate():
    z, y = case(300, 20)
    s = wane.signals(z, y, also=("mrr", "ndcg", "top1"))
    c = 20
    torch.testing.assert_close(s.rtlr, (s.mrr - 1 / c) / (1 - 1 / c))
    torch.testing.assert_close(s.log_tlr, 1 - (1 / s.ndcg).exp2().sub(1).log() / math.log(c))
    assert torch.equal(s.top1, s.accuracy)
    order = s.rank.argsort()
    for name in ("tlr", "log_tlr", "rtlr", "mrr", "ndcg"):
        assert (s[name][order].diff() <= 0).all()


def test_padding_broken_rows_and_the_last_bit_of_a_sure_answer():
    z, y = case(dtype=torch.float32)
    y[3], z[5, 0] = -100, torch.nan
    s = wane.signals(z, y, also=ASKED, ignore_index=-100, validate=False)
    assert all(s[name][[3, 5]].isnan().all() and not s[name][[0, 1]].isnan().any() for name in ASKED)
    sure = wane.signals(torch.tensor([[50.0, 0.0, 0.0]]), [0], also="brier")
    assert sure.brier.item() == 0


def test_a_row_for_any_k_and_errors_that_help():
    assert wane.SIGNALS["top17"] is wane.SIGNALS["top17"]
    assert wane.SIGNALS["top17"].short == "Top-17"
    assert wane.SIGNALS["ece"].higher_is_better is False
    for name in ("top0", "top", "top-1", "mrrr"):
        assert not wane.SIGNALS.knows(name)
        with pytest.raises(ValueError, match=f"unknown signal '{name}'"):
            wane.signals(*case(), also=[name])
    with pytest.raises(ValueError, match="'ece' has no value for one sample"):
        wane.SIGNALS["ece"] = wane.SIGNALS["ece"]
    with pytest.raises(ValueError, match="needs a formula"):
        wane.Signal("mine", "Mine", "m", "rank", "m", True, None)
