"""Every kernel against the literal transcription, then the properties, then the errors."""

import math

import numpy as np
import pytest
import reference
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import wane
from wane.softmax import compiled as fused_kernel


def random_case(n, c, scale, seed=0):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(n, c, generator=g) * scale, torch.randint(c, (n,), generator=g)


def one_hot_case():
    return torch.eye(6) * 50, torch.tensor([0, 1, 2, 4, 3, 0])


def masked_case():
    z, y = random_case(64, 20, 3.0)
    mask = torch.rand(64, 20, generator=torch.Generator().manual_seed(1)) < 0.5
    mask[torch.arange(64), y] = False
    return z.masked_fill(mask, -torch.inf), y


CASES = {
    "random": random_case(200, 10, 1.0),
    "sharp": random_case(200, 100, 10.0),
    "huge": random_case(100, 30, 1e4),
    "huge offset": (random_case(100, 30, 1.0)[0] + 1e4, random_case(100, 30, 1.0)[1]),
    "one-hot": one_hot_case(),
    "uniform": (torch.zeros(5, 7), torch.tensor([0, 1, 2, 3, 6])),
    "ties": (torch.tensor([[1.0, 1, 0, 0], [0, 1, 1, 0], [2, 2, 2, 1]]), torch.tensor([0, 0, 3])),
    "two classes": random_case(50, 2, 2.0),
    "128,000 classes": random_case(3, 128_000, 4.0),
    "masked": masked_case(),
}


def assert_equal_to_reference(scored, expected, tolerance=1e-6):
    for name, value in expected.items():
        got = getattr(scored, name).double().numpy()
        # loss is not bounded by 1, so its tolerance is relative
        np.testing.assert_allclose(got, value, atol=tolerance, rtol=tolerance if name == "loss" else 0, err_msg=name)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_equals_the_literal_transcription(case, compiled):
    z, y = CASES[case]
    expected = reference.table([reference.from_logits(r.numpy(), int(k)) for r, k in zip(z, y, strict=True)])
    assert_equal_to_reference(wane.signals(z, y, compiled=compiled), expected)
    assert_equal_to_reference(wane.signals(z.double(), y, compiled=compiled), expected, 1e-12)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_differentiable_kernel_equals_the_literal_transcription(case):
    z, y = CASES[case]
    scored = wane.signals(z.clone().requires_grad_(), y)
    expected = reference.table([reference.from_logits(r.numpy(), int(k)) for r, k in zip(z, y, strict=True)])
    assert_equal_to_reference(scored.map(torch.Tensor.detach), expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("compiled", [False, True])
def test_half_precision_is_accumulated_in_float32(dtype, compiled):
    z, y = random_case(100, 500, 3.0)
    z = z.to(dtype)
    expected = reference.table([reference.from_logits(r.double().numpy(), int(k)) for r, k in zip(z, y, strict=True)])
    assert_equal_to_reference(wane.signals(z, y, compiled=compiled), expected)


#: Contiguous logits go to a kernel of their own, all others to torch.compile.
LAYOUTS = {"contiguous": lambda z: z, "columns of a wider one": lambda z: torch.cat([z, z], 1)[:, : z.shape[1]]}


def test_the_compiler_really_compiled():
    z, y = random_case(16, 10, 1.0)
    wane.signals(z, y, compiled=True)
    assert fused_kernel._kernels
    assert not fused_kernel._failed


def test_where_inductor_takes_no_graph_torch_compile_does_it(monkeypatch):
    def broken(*_, **__):
        raise TypeError("another interface")

    monkeypatch.setattr(fused_kernel, "_kernels", {})
    monkeypatch.setattr(fused_kernel, "_failed", set())
    monkeypatch.setattr("torch._inductor.standalone_compile", broken)
    z, y = random_case(16, 10, 1.0)
    assert torch.allclose(wane.signals(z, y, compiled=True).loss, wane.signals(z, y, compiled=False).loss, atol=2e-6)
    assert len(fused_kernel._kernels) == 1
    assert not fused_kernel._failed


@pytest.mark.parametrize("layout", LAYOUTS)
def test_new_batch_sizes_and_class_counts_do_not_compile_again(layout):
    import torch._dynamo.utils as dynamo

    def score(*shape):
        z, y = random_case(*shape, 1.0)
        return wane.signals(LAYOUTS[layout](z), y, compiled=True), wane.signals(z, y, compiled=False)

    for shape in [(64, 50), (65, 50)]:
        score(*shape)
    kernels, graphs = len(fused_kernel._kernels), dynamo.counters["stats"]["unique_graphs"]
    for shape in [(7, 50), (100, 100), (8191, 100), (2, 2), (1000, 300)]:
        for ours, expected in zip(*score(*shape), strict=True):
            assert torch.allclose(ours, expected, rtol=0, atol=2e-6)
    assert (len(fused_kernel._kernels), dynamo.counters["stats"]["unique_graphs"]) == (kernels, graphs)


@pytest.mark.parametrize("shape", [(0, 10), (1, 10), (3, 1024), (3, 1025)])
def test_the_compiled_kernel_at_the_edges_of_what_it_was_made_for(shape):
    z, y = random_case(*shape, 1.0)
    for ours, expected in zip(wane.signals(z, y, compiled=True), wane.signals(z, y, compiled=False), strict=True):
        assert torch.allclose(ours, expected, rtol=0, atol=2e-6)
    assert not fused_kernel._failed


def test_the_compiled_kernel_follows_the_number_of_threads():
    z, y = random_case(3000, 100, 1.0)
    before = torch.get_num_threads()
    try:
        scored = []
        for threads in (1, 2, 1):
            torch.set_num_threads(threads)
            scored.append(wane.signals(z, y, compiled=True).loss)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(scored[0], scored[1])
    assert torch.equal(scored[0], scored[2])
    assert {key[-1] for key in fused_kernel._kernels if isinstance(key, tuple)} >= {1, 2}  # a kernel for each


def test_the_papers_worked_example():
    p = torch.tensor([[0.48, 0.49, 0.02, 0.01], [0.05, 0.10, 0.70, 0.15]], dtype=torch.float64)
    s = wane.signals(probabilities=p, labels=[0, 0])
    expected = {
        "accuracy": [0, 0],
        "loss": [0.7339691750802, 2.9957322735540],
        "cm": [0.99, 0.35],
        "tlr": [2 / 3, 0],
        "log_tlr": [0.5, 0],
        "rtlr": [1 / 3, 0],
        "ctl": [0.48, 0.05],
        "nkl": [0.4705531554732, 0],
        "rank": [2, 4],
    }
    for name, value in expected.items():
        assert getattr(s, name).tolist() == pytest.approx(value, abs=1e-12), name
    logits = wane.signals(p.log() + 3, [0, 0])
    for name in expected:
        assert getattr(logits, name).tolist() == pytest.approx(expected[name], abs=1e-12), name


@pytest.mark.parametrize("case", ["random", "sharp", "uniform", "ties", "two classes"])
def test_probabilities_equal_the_literal_transcription(case):
    z, y = CASES[case]
    p = z.double().softmax(1)
    expected = reference.table([reference.from_probabilities(r.numpy(), int(k)) for r, k in zip(p, y, strict=True)])
    assert_equal_to_reference(wane.signals(probabilities=p, labels=y), expected, 1e-12)
    assert_equal_to_reference(wane.signals(probabilities=p.float(), labels=y), expected, 1e-6)


def test_zero_probability_has_infinite_loss_and_no_nan():
    s = wane.signals(probabilities=torch.tensor([[0.0, 1.0, 0.0]]), labels=[0])
    assert s.loss.item() == math.inf
    assert [s.ctl.item(), s.nkl.item(), s.cm.item(), s.rank.item()] == [0, 0, 0, 2]


def test_any_leading_shape_numpy_and_slices():
    z, y = random_case(24, 10, 2.0)
    flat = wane.signals(z, y)
    for shape in [(24,), (4, 6), (2, 3, 4)]:
        s = wane.signals(z.reshape(*shape, 10), y.reshape(shape))
        assert all(v.shape == shape and torch.equal(v.reshape(-1), f) for v, f in zip(s, flat, strict=True))
    assert torch.equal(wane.signals(z.numpy(), y.numpy()).loss, flat.loss)
    shifted = wane.signals(z.reshape(4, 6, 10)[:, :-1], y.reshape(4, 6)[:, 1:])
    copied = wane.signals(z.reshape(4, 6, 10)[:, :-1].contiguous(), y.reshape(4, 6)[:, 1:])
    assert all(torch.equal(a, b) for a, b in zip(shifted, copied, strict=True))
    empty = wane.signals(torch.zeros(0, 5), torch.zeros(0, dtype=torch.int64))
    assert all(v.shape == (0,) for v in empty)


@pytest.mark.parametrize("classes", [range(3, 8), [7, 3, 5, 4, 6], np.array([3, 4, 5, 6, 7])])
def test_classes_restrict_the_softmax(classes):
    z, _ = random_case(40, 10, 2.0)
    y = torch.arange(40) % 5 + 3
    expected = wane.signals(z[:, 3:8].contiguous(), y - 3)
    for got in (
        wane.signals(z, y, classes=classes),
        wane.signals(probabilities=z.softmax(1), labels=y, classes=classes),
    ):
        for a, b in zip(got, expected, strict=True):
            torch.testing.assert_close(a, b, atol=2e-6, rtol=2e-6)


def test_ignore_index_gives_nan_and_rank_0_and_is_not_checked():
    z, y = random_case(6, 5, 1.0)
    whole = wane.signals(z, y)
    y[2], z[2, 0] = -100, torch.nan
    for kept in (wane.signals(z, y, ignore_index=-100), wane.signals(z.requires_grad_(), y, ignore_index=-100)):
        assert all(v[2].isnan() for v in kept[:8])
        assert kept.rank[2] == 0
        rest = torch.tensor([0, 1, 3, 4, 5])
        for a, b in zip(kept, whole, strict=True):
            torch.testing.assert_close(a[rest].detach(), b[rest])


@pytest.mark.parametrize("name", ["loss", "cm", "ctl", "nkl"])
def test_gradients(name):
    # away from ties and from the cap of nkl, where the formulas have corners
    z = torch.tensor([[0.3, -0.2, 0.9, 0.1], [1.0, 0.5, -0.7, 0.2]], dtype=torch.float64, requires_grad=True)
    y = torch.tensor([0, 1])
    assert torch.autograd.gradcheck(lambda x: getattr(wane.signals(x, y), name), (z,))


def test_loss_gradient_is_that_of_cross_entropy():
    z, y = random_case(32, 20, 3.0)
    a, b = z.clone().requires_grad_(), z.clone().requires_grad_()
    wane.signals(a, y).loss.mean().backward()
    torch.nn.functional.cross_entropy(b, y).backward()
    torch.testing.assert_close(a.grad, b.grad)


# Multiples of 1/1024, so that adding a constant is exact and cannot make or break a tie.
logit_rows = arrays(
    np.float32,
    st.tuples(st.integers(1, 6), st.integers(2, 12)),
    elements=st.integers(-50_000, 50_000).map(lambda k: k / 1024),
)


@given(logit_rows, st.data())
@settings(max_examples=150)
def test_properties(z, data):
    n, c = z.shape
    y = np.array(data.draw(st.lists(st.integers(0, c - 1), min_size=n, max_size=n)))
    s = wane.signals(z, y)
    for name in wane.SIGNALS:
        if name != "loss":
            assert (getattr(s, name) >= 0).all(), name
            assert (getattr(s, name) <= 1).all(), name
    assert (s.loss >= 0).all()
    assert (s.rank >= 1).all()
    assert (s.rank <= c).all()
    assert (s.cm[s.accuracy == 1] == 1).all()

    # adding a constant
    shifted = wane.signals(z.astype(np.float64) + 3.0, y)
    plain = wane.signals(z.astype(np.float64), y)
    for a, b in zip(shifted, plain, strict=True):
        torch.testing.assert_close(a, b, atol=1e-9, rtol=1e-9)

    # permuting all classes together with the label
    order = np.array(data.draw(st.permutations(range(c))))
    where = np.argsort(order)
    permuted = wane.signals(z[:, order], where[y])
    for a, b in zip(permuted, s, strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-6)

    # splitting the batch changes nothing at all
    halves = [wane.signals(z[i : i + 1], y[i : i + 1]) for i in range(n)]
    for k, value in enumerate(s):
        assert torch.equal(torch.cat([h[k] for h in halves]), value)

    # raising the label's logit never lowers a signal
    raised = z.astype(np.float64)
    raised[np.arange(n), y] += data.draw(st.floats(0, 20))
    better = wane.signals(raised, y)
    for name, row in wane.SIGNALS.items():
        gain = getattr(better, name) - getattr(plain, name)
        assert (gain >= -1e-12).all() if row.higher_is_better else (gain <= 1e-12).all(), name


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("chunk", [7, 64, 100_000])
def test_linear_signals_equal_signals_of_the_product(bias, chunk):
    g = torch.Generator().manual_seed(0)
    hidden, weight = torch.randn(3, 11, 16, generator=g), torch.randn(1000, 16, generator=g)
    b = torch.randn(1000, generator=g) if bias else None
    labels = torch.randint(1000, (3, 11), generator=g)
    labels[1, 2] = -100
    logits = hidden @ weight.T + (0 if b is None else b)
    expected = wane.signals(logits, labels, ignore_index=-100)
    got = wane.linear_signals(hidden, weight, labels, b, ignore_index=-100, vocabulary_chunk=chunk)
    for a, e in zip(got, expected, strict=True):
        torch.testing.assert_close(a, e, atol=3e-6, rtol=3e-6, equal_nan=True)


def test_linear_signals_of_a_large_vocabulary_hold_no_logits():
    g = torch.Generator().manual_seed(0)
    hidden, weight = torch.randn(64, 8, generator=g), torch.randn(128_000, 8, generator=g)
    labels = torch.randint(128_000, (64,), generator=g)
    with torch.profiler.profile(profile_memory=True) as profile:
        got = wane.linear_signals(hidden, weight, labels)
    largest = max(e.self_cpu_memory_usage / max(e.count, 1) for e in profile.key_averages())
    assert largest < 64 * 128_000 * 4 / 5
    expected = wane.signals(hidden @ weight.T, labels)
    torch.testing.assert_close(got.loss, expected.loss, atol=1e-5, rtol=1e-5)
    assert (got.rank - expected.rank).abs().max() <= 1  # the matrix product rounds by its own blocking


def test_linear_signals_in_half_precision_and_masked_by_the_bias():
    g = torch.Generator().manual_seed(0)
    hidden = torch.randn(20, 32, generator=g).half()
    weight, labels = torch.randn(300, 32, generator=g).half(), torch.randint(150, (20,), generator=g)
    bias = torch.zeros(300).half()
    bias[150:] = -torch.inf
    got = wane.linear_signals(hidden, weight, labels, bias, vocabulary_chunk=50)
    expected = wane.signals(hidden @ weight.T + bias, labels)
    torch.testing.assert_close(got.loss, expected.loss, atol=2e-2, rtol=2e-2)


Z, Y = random_case(4, 5, 1.0)


@pytest.mark.parametrize(
    ("call", "error", "sentence"),
    [
        (lambda: wane.signals(Z, Y[:3]), ValueError, r"labels have shape \(3,\).*\(4, 5\).*should have shape \(4,\)"),
        (lambda: wane.signals(Z, [0, 1, 5, 2]), ValueError, "label 5 at row 2 is not a class from 0 to 4"),
        (lambda: wane.signals(Z, [0, 1, -100, 2]), ValueError, "label -100 at row 2 .*ignore_index"),
        (lambda: wane.signals(Z.log(), Y), ValueError, "the logit of class 0 in row 0 is nan"),
        (
            lambda: wane.signals(Z * torch.tensor([1, 1, 1, torch.inf, 1]).abs(), Y),
            ValueError,
            "the logit of class .* in row .* is inf",
        ),
        (
            lambda: wane.signals(torch.full((1, 3), -torch.inf), [0]),
            ValueError,
            "the label's own logit is -inf at row 0",
        ),
        (
            lambda: wane.signals(torch.tensor([[0.0, 1], [-torch.inf, 1]]), [0, 0]),
            ValueError,
            "the label's own logit is -inf at row 1",
        ),
        (lambda: wane.signals(torch.zeros(3, 1), [0, 0, 0]), ValueError, r"at least 2 classes.*\(3, 1\) is 1"),
        (lambda: wane.signals(Z, Y.float()), TypeError, "labels should be integers.*float32"),
        (lambda: wane.signals(Z.long(), Y), TypeError, "logits should be floating point, not torch.int64"),
        (lambda: wane.signals(Z[0], 1), ValueError, r"logits have shape \(5,\)"),
        (lambda: wane.signals(probabilities=Z.softmax(1) * 2, labels=Y), ValueError, "of row 0 sum to 2, not 1"),
        (lambda: wane.signals(probabilities=Z, labels=Y), ValueError, "a probability of row 0 is -"),
        (
            lambda: wane.signals(probabilities=torch.tensor([[torch.nan, 1.0]]), labels=[0]),
            ValueError,
            "a probability of row 0 is nan",
        ),
        (lambda: wane.signals(Z, Y, probabilities=Z), TypeError, "either logits or probabilities"),
        (lambda: wane.signals(Z), TypeError, "give labels"),
        (
            lambda: wane.signals(Z, [0, 1, 2, 3], classes=[0, 1, 2]),
            ValueError,
            "label 3 at row 3 is not among the 3 classes",
        ),
        (lambda: wane.signals(Z, Y, classes=[0, 9]), ValueError, r"indices from 0 to 4, not \[0, 9\]"),
        (lambda: wane.signals(Z, Y, classes=[0, 0]), ValueError, r"different indices.*\[0, 0\]"),
        (lambda: wane.signals(Z, Y, classes=[0.5]), ValueError, "list of class indices"),
        (lambda: wane.linear_signals(Z, torch.zeros(7, 4), Y), ValueError, r"\(7, 4\).*5 features"),
        (lambda: wane.linear_signals(Z, torch.zeros(7, 5), Y, torch.zeros(6)), ValueError, r"bias has shape \(6,\)"),
        (lambda: wane.linear_signals(Z, torch.zeros(7, 5), Y[:2]), ValueError, r"labels have shape \(2,\)"),
        (lambda: wane.linear_signals(Z, torch.zeros(1, 5), Y), ValueError, "at least 2 classes"),
        (lambda: wane.linear_signals(Z / 0, torch.ones(7, 5), Y), ValueError, "a logit in row 0 is nan"),
        (lambda: wane.SIGNALS["logtlr"], ValueError, "unknown signal 'logtlr'; did you mean 'log_tlr'"),
        (lambda: wane.signal, AttributeError, "no attribute 'signal'; it has: .*signals"),
    ],
)
def test_errors_quote_the_value_and_say_what_to_do(call, error, sentence):
    with pytest.raises(error, match=sentence):
        call()


@pytest.mark.parametrize("compiled", [False, True])
def test_without_validation_broken_rows_are_nan_and_never_correct(compiled):
    z, y = random_case(4, 5, 1.0)
    z[1, 0], z[2, 3] = torch.nan, torch.inf
    s = wane.signals(z, y, validate=False, compiled=compiled)
    assert all(v[[1, 2]].isnan().all() for v in s[:8])
    assert s.rank[[1, 2]].tolist() == [0, 0]
    assert not any(v[[0, 3]].isnan().any() for v in s[:8])


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("wrong", [-100, 5])
def test_without_validation_a_label_that_is_no_class_is_nan_and_ends_nothing(compiled, wrong):
    z, y = random_case(4, 5, 1.0)
    y[1] = wrong
    for s in (
        wane.signals(z, y, validate=False, compiled=compiled),
        wane.signals(z.clone().requires_grad_(), y, validate=False),
        wane.signals(probabilities=z.softmax(1), labels=y, validate=False),
        wane.linear_signals(z, torch.eye(5), y, validate=False),
    ):
        assert all(v[1].isnan() for v in s[:8])
        assert s.rank[1] == 0
        assert not any(v[[0, 2, 3]].isnan().any() for v in s[:8])


def test_checking_reads_the_logits_no_second_time():
    z, y = random_case(64, 1000, 1.0)

    def large_passes(**options):
        with torch.profiler.profile(record_shapes=True) as profile:
            wane.signals(z, y, **options)
        return sum(e.count for e in profile.key_averages(group_by_input_shape=True) if [64, 1000] in e.input_shapes)

    assert large_passes(validate=True) == large_passes(validate=False)


def test_registry_and_tuple_agree():
    assert [*wane.SIGNALS, "rank"] == list(wane.signals(Z, Y).names)
    assert [n for n, row in wane.SIGNALS.items() if not row.higher_is_better] == ["loss"]
    assert sorted(wane.__all__) == sorted(n for n in wane.__all__ if getattr(wane, n) is not None)


def test_signals_can_be_used_inside_a_compiled_function():
    z, y = random_case(16, 10, 1.0)
    inside = torch.compile(lambda a, b: wane.signals(a, b, validate=False).log_tlr.mean(), fullgraph=True)
    torch.testing.assert_close(inside(z, y), wane.signals(z, y).log_tlr.mean())
