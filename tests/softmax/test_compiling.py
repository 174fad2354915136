"""When a kernel is compiled: only once it pays, with a word about it, and each kernel for itself."""

import warnings

import pytest
import torch

import wane
from wane.softmax import compiled


@pytest.fixture
def fresh(monkeypatch):
    """No kernel yet; a clock that advances a second whenever it is looked at; and small inputs count as large."""
    monkeypatch.setattr(compiled, "_kernels", {})
    monkeypatch.setattr(compiled, "_failed", set())
    budget = compiled.Budget()
    seconds = iter(range(1_000_000))
    budget.clock = lambda: float(next(seconds))
    monkeypatch.setattr(compiled, "_budget", budget)
    monkeypatch.setattr(compiled, "COMPILE_ELEMENTS", 1000)
    return budget


@pytest.fixture
def counted(monkeypatch):
    """A compiler that takes no time, and the kernels it was asked for."""
    calls = []

    def compile_it(function, logits, *_):
        calls.append(tuple(logits.shape))
        return function

    monkeypatch.setattr(compiled, "_traced", compile_it)
    return calls


def case(rows=100, classes=100, **options):
    g = torch.Generator().manual_seed(0)
    return torch.randn(rows, classes, generator=g, **options), torch.randint(classes, (rows,), generator=g)


def test_nothing_is_compiled_until_the_plain_kernel_has_cost_as_much(fresh, counted, monkeypatch):
    monkeypatch.setattr(compiled, "COMPILE_SECONDS", 3.0)
    z, y = case()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first = wane.signals(z, y)
        for _ in range(2):
            wane.signals(z, y)
    assert counted == []
    with pytest.warns(RuntimeWarning, match="compiles a kernel for its signals now, as the plain one has taken 3 s"):
        later = wane.signals(z, y)
    assert counted == [(100, 100)]
    torch.testing.assert_close(later.loss, first.loss)
    with warnings.catch_warnings():  # said once
        warnings.simplefilter("error")
        wane.signals(z, y)
        wane.signals(*case(rows=50))
    assert counted == [(100, 100)]


def test_small_inputs_are_never_compiled_by_themselves(fresh, counted, monkeypatch):
    monkeypatch.setattr(compiled, "COMPILE_SECONDS", 1.0)
    for _ in range(5):
        wane.signals(*case(rows=9))
    assert counted == []


def test_time_is_counted_for_each_kernel(fresh, counted, monkeypatch):
    monkeypatch.setattr(compiled, "COMPILE_SECONDS", 2.0)
    for _ in range(2):
        wane.signals(*case())
        wane.signals(*case(dtype=torch.float64))
    assert counted == []
    assert sorted(fresh.spent.values()) == [2.0, 2.0]


def test_what_compiling_took_is_the_estimate_for_the_next_kernel(fresh, counted, monkeypatch):
    monkeypatch.setattr(compiled, "COMPILE_SECONDS", 1000.0)
    wane.signals(*case(), compiled=True)
    assert fresh.compiling == 1.0
    wane.signals(*case(dtype=torch.float64))
    with pytest.warns(RuntimeWarning, match="compiles a kernel"):
        wane.signals(*case(dtype=torch.float64))
    assert len(counted) == 2


@pytest.mark.parametrize("contiguous", [True, False])
def test_a_compiler_that_fails_is_named_once_and_only_that_kernel_goes_without(fresh, monkeypatch, contiguous):
    def broken(*_, **__):
        raise RuntimeError("no compiler\nand a page of advice")

    z, y = case()
    z = z if contiguous else torch.cat([z, z], 1)[:, :100]
    wane.signals(*case(dtype=torch.float64), compiled=True)  # this one works, and goes on working
    with monkeypatch.context() as patch:
        patch.setattr(torch, "compile", broken)
        patch.setattr("torch._inductor.standalone_compile", broken)
        with pytest.warns(RuntimeWarning, match=r"\(RuntimeError: no compiler\): wane goes on with the plain kernel"):
            scored = wane.signals(z, y, compiled=True)
        assert torch.equal(scored.loss, wane.signals(z, y, compiled=False).loss)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            wane.signals(z, y, compiled=True)
            wane.signals(z, y)
    assert len(compiled._failed) == len(compiled._kernels) == 1


def test_a_first_large_call_does_not_wait_for_a_compiler():
    # 26.8 s in an earlier version
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        wane.signals(*case(rows=2048, classes=4096))
