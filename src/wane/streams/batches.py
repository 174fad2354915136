"""From rows of a data set to a float batch: one gather, one crop and flip, one normalisation.

This is the hot path of training. Everything works on a whole batch, on whatever device the images are, and
every random choice comes from an explicit generator, so a batch is the same bit for bit whenever the
generator is. `benchmarks/bench_data_path.py` measures it on 3 x 32 x 32 images: 6 to 10 microseconds of CPU
an image, where a lean pipeline of PIL calls, image by image, takes 80 to 140 in the same run.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor


def crop_and_flip(images: Tensor, padding: int, flip: bool, generator: torch.Generator) -> Tensor:
    """Shift each image by up to `padding` pixels in both directions, and mirror half of them.

    The same as padding with zeros on all sides, cropping the old size at a random place, and flipping left to
    right with probability 1/2. What moves in from outside is black: the zeros are pixels, put in before
    normalisation.

    The generator may live on another device than the images: a CPU generator gives the same batch on every
    device.

    Rows that are not images, such as those of a table, come back as they are.

    Args:
        images: (N, C, H, W) uint8 or float; never written to.
        padding: most pixels to shift by; 0 for no crop.
        flip: whether to mirror at all.
        generator: where the random choices come from. Without a crop or a flip nothing is drawn from it.

    Returns:
        As `images`.

    >>> image = torch.tensor([[1, 2], [3, 4]], dtype=torch.uint8).view(1, 1, 2, 2)
    >>> crop_and_flip(image, 1, True, torch.Generator().manual_seed(5)).tolist()  # mirrored, one down
    [[[[0, 0], [2, 1]]]]
    """
    if images.ndim != 4 or (not padding and not flip):
        return images
    n, channels, height, width = images.shape
    device = images.device

    def draw(choices: int) -> Tensor:
        return torch.randint(choices, (n, 1), generator=generator, device=generator.device).to(device)

    # The crop and the flip are one gather: output pixel (i, j) reads padded pixel (top + i, left + j), or its
    # mirror image. All channels share one index, by stride 0: building it would otherwise dominate.
    row = torch.arange(height, device=device).expand(n, -1)
    column = torch.arange(width, device=device).expand(n, -1)
    if flip:
        column = torch.where(draw(2).bool(), width - 1 - column, column)
    if padding:
        row, column = row + draw(2 * padding + 1), column + draw(2 * padding + 1)
        images = F.pad(images, (padding, padding, padding, padding))
    index = row[:, :, None] * images.shape[-1] + column[:, None, :]
    shared = index.view(n, 1, height * width).expand(n, channels, height * width)
    return images.flatten(2).gather(2, shared).view(n, channels, height, width)


def normalise(images: Tensor, mean: Sequence[float], std: Sequence[float], *, channels_last: bool = False) -> Tensor:
    """(images / 255 - mean) / std for each channel, as float32; float rows are not divided by 255.

    Both memory formats hold the same bits; `channels_last` is what convolutions on a CPU and on tensor cores
    like.

    Args:
        images: (N, C, H, W) uint8 or float, or the rows of a table, (N, d) float.
        mean: of each channel, for uint8 in units where 255 is 1; of each column of a table.
        std: likewise.
        channels_last: lay the result out as N, H, W, C in memory. Its shape stays (N, C, H, W). Only for images.

    >>> normalise(torch.tensor([0, 102, 255], dtype=torch.uint8).view(3, 1, 1, 1), [0.2], [0.4]).flatten()
    tensor([-0.5000,  0.5000,  2.0000])
    >>> normalise(torch.tensor([[3.0, 10.0], [5.0, 10.0]]), [4.0, 10.0], [2.0, 1.0])
    tensor([[-0.5000,  0.0000],
            [ 0.5000,  0.0000]])
    """
    if not images.shape[1] == len(mean) == len(std):
        raise ValueError(
            f"images of shape {tuple(images.shape)} have {images.shape[1]} channels, but there are "
            f"{len(mean)} means and {len(std)} deviations: give one of each for every channel"
        )
    layout = torch.channels_last if channels_last and images.ndim == 4 else torch.contiguous_format
    if images.dtype != torch.uint8:
        across = (1, -1, *[1] * (images.ndim - 2))
        m, s = (torch.tensor(v, dtype=torch.float32, device=images.device).view(across) for v in (mean, std))
        return ((images.float() - m) / s).contiguous(memory_format=layout)
    batch = torch.empty(images.shape, dtype=torch.float32, device=images.device, memory_format=layout)
    # One fused multiply-add per channel reads bytes and writes floats where they belong: conversion,
    # normalisation and layout in a single pass. Broadcasting over the channels instead costs three to five
    # times as much when the channels are innermost.
    for c, (centre, spread) in enumerate(zip(mean, std, strict=True)):
        shift = torch.tensor(-centre / spread, dtype=torch.float32)
        torch.add(shift, images[:, c], alpha=1 / (255 * spread), out=batch[:, c])
    return batch


def eval_batch(
    images: Tensor,
    index: Tensor | slice,
    mean: Sequence[float],
    std: Sequence[float],
    *,
    channels_last: bool = False,
) -> Tensor:
    """Rows `index` (a slice is read in place) of a data set, normalised and nothing else.

    >>> eval_batch(torch.full((10, 1, 2, 2), 255, dtype=torch.uint8), slice(0, 4), [0.5], [0.25]).shape
    torch.Size([4, 1, 2, 2])
    """
    rows = images[index] if isinstance(index, slice) else images.index_select(0, index)
    return normalise(rows, mean, std, channels_last=channels_last)
