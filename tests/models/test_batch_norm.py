import pytest
import torch
from torch import nn

from wane.models import batch_norm, resnet18
from wane.models.batch_norm import BatchNorm2d


@pytest.fixture(params=[1, 2])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def passes(layer, x, direction):
    """Output, gradients and running statistics of three training steps."""
    for _ in range(3):
        x = x.detach().requires_grad_()
        out = layer(x)
        layer.zero_grad()
        (out * direction).sum().backward()
    return [out, x.grad, layer.weight.grad, layer.bias.grad, *layer.buffers(), layer.eval()(x)]


@pytest.mark.parametrize("channels", [8, 16, 20])
@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format])
def test_equals_torchs_own(channels, layout, threads):
    g = torch.Generator().manual_seed(channels)
    x = (torch.randn(6, channels, 5, 7, generator=g) * 3 + 2).contiguous(memory_format=layout)
    ours, theirs = BatchNorm2d(channels), nn.BatchNorm2d(channels).double()
    with torch.no_grad():
        for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
            p.uniform_(0.5, 1.5, generator=g)
            q.copy_(p)
    direction = torch.randn(x.shape, generator=g)
    for a, b in zip(passes(ours, x, direction), passes(theirs, x.double(), direction.double()), strict=True):
        torch.testing.assert_close(a.double(), b.double(), rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize(("channels", "expected"), [(8, True), (16, False), (20, True)])
def test_steps_in_only_where_threads_share_a_cache_line(channels, expected, threads, monkeypatch):
    calls = []
    apply = batch_norm._Normalise.apply
    monkeypatch.setattr(batch_norm._Normalise, "apply", lambda *args: calls.append(1) or apply(*args))
    x = torch.randn(2, channels, 4, 4).contiguous(memory_format=torch.channels_last)
    BatchNorm2d(channels)(x)
    BatchNorm2d(channels).eval()(x)
    BatchNorm2d(channels)(x.contiguous())
    assert bool(calls) is (expected and threads > 1)


def test_a_network_has_the_gradients_of_one_with_torchs_own(threads):
    ours, theirs = resnet18(10, width=8), resnet18(10, width=8)
    for module in list(theirs.modules()):
        if isinstance(module, BatchNorm2d):
            module.__class__ = nn.BatchNorm2d
    x = torch.randn(8, 3, 16, 16).contiguous(memory_format=torch.channels_last)
    y = torch.arange(8)
    for model in (ours, theirs):
        model.to(memory_format=torch.channels_last)
        nn.functional.cross_entropy(model(x), y).backward()
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad, rtol=1e-3, atol=1e-5)
