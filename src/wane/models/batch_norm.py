"""Batch normalisation that two threads do not slow down.

PyTorch's channels_last backward pass on the CPU keeps one partial sum for each thread and channel, in rows side by side
in memory. Where a row is no whole number of cache lines, the threads fight for the line they share: with 8 channels two
threads need three to four times as long as one. There, and only there, the same sums are taken over the whole width of
an image at a time.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

__all__ = ["BatchNorm2d"]

#: Floats in a cache line of 64 bytes.
CACHE_LINE = 16


class BatchNorm2d(nn.BatchNorm2d):
    """`nn.BatchNorm2d`, to rounding, in less time on several threads.

    >>> layer = BatchNorm2d(8)
    >>> layer.load_state_dict(nn.BatchNorm2d(8).state_dict())
    <All keys matched successfully>
    """

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        if self.num_features % CACHE_LINE == 0 or not (self.training and _threads_share_a_line(x)):
            return super().forward(x)
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        out: Tensor = _Normalise.apply(  # type: ignore[no-untyped-call]
            x, self.weight, self.bias, self.running_mean, self.running_var, self.momentum, self.eps
        )
        return out


def _threads_share_a_line(x: Tensor) -> bool:
    return (
        torch.get_num_threads() > 1
        and torch.is_grad_enabled()
        and x.device.type == "cpu"
        and x.dtype == torch.float32
        and x.is_contiguous(memory_format=torch.channels_last)
        and not torch.compiler.is_compiling()
    )


class _Normalise(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, var: Tensor, momentum: float, eps: float
    ) -> Tensor:
        out, batch_mean, batch_scale = torch.native_batch_norm(x, weight, bias, mean, var, True, momentum, eps)
        ctx.save_for_backward(x, weight, batch_mean, batch_scale)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, mean, scale = ctx.saved_tensors
        n, channels, height, width = x.shape
        pixels = n * height * width

        def rows(t: Tensor) -> Tensor:  # a view: one row of an image after the other
            return t.permute(0, 2, 3, 1).reshape(n * height, width * channels)

        def each(row: Tensor) -> Tensor:
            return row.view(width, channels).sum(0)

        x, g = rows(x), rows(gradient)
        d_bias = each(g.sum(0))
        d_weight = (each((g * x).sum(0)) - mean * d_bias) * scale
        # dx = scale * weight * (g - d_bias / pixels - xhat * d_weight / pixels), gathered by g, x and 1.
        by_g = weight * scale
        by_x = by_g * scale * d_weight / -pixels
        rest = by_g * d_bias / -pixels - by_x * mean
        dx = torch.addcmul(rest.repeat(width), x, by_x.repeat(width)).addcmul_(g, by_g.repeat(width))
        return dx.view(n, height, width, channels).permute(0, 3, 1, 2), d_weight, d_bias, None, None, None, None
