"""From rows of a uint8 data set to a float batch: one gather, one crop and flip, one normalisation.

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

    Args:
        images: (N, C, H, W) uint8; never written to.
        padding: most pixels to shift by; 0 for no crop.
        flip: whether to mirror at all.
        generator: where the random choices come from. Without a crop or a flip nothing is drawn from it.

    Returns:
        (N, C, H, W) uint8.

    >>> image = torch.tensor([[1, 2], [3, 4]], dtype=torch.uint8).view(1, 1, 2, 2)
    >>> crop_and_flip(image, 1, True, torch.Generator().manual_seed(5)).tolist()  # mirrored, one down
    [[[[0, 0], [2, 1]]]]
    """
    n, channels, height, width = images.shape
    device = images.device
    if not padding and not flip:
        return images

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
    """(images / 255 - mean) / std for each channel, as float32.

    Both memory formats hold the same bits; `channels_last` is what convolutions on a CPU and on tensor cores
    like.

    Args:
        images: (N, C, H, W) uint8.
        mean: of each channel, in units where 255 is 1.
        std: of each channel, likewise.
        channels_last: lay the result out as N, H, W, C in memory. Its shape stays (N, C, H, W).

    >>> normalise(torch.tensor([0, 102, 255], dtype=torch.uint8).view(3, 1, 1, 1), [0.2], [0.4]).flatten()
    tensor([-0.5000,  0.5000,  2.0000])
    """
    if not images.shape[1] == len(mean) == len(std):
        raise ValueError(
            f"images of shape {tuple(images.shape)} have {images.shape[1]} channels, but there are "
            f"{len(mean)} means and {len(std)} deviations: give one of each for every channel"
        )
    layout = torch.channels_last if channels_last else torch.contiguous_format
    batch = torch.empty(images.shape, dtype=torch.float32, device=images.device, memory_format=layout)
    # One fused multiply-add per channel reads bytes and writes floats where they belong: conversion,
    # normalisation and layout in a single pass. Broadcasting over the channels instead costs three to five
    # times as much when the channels are innermost.
    for c, (m, s) in enumerate(zip(mean, std, strict=True)):
        shift = torch.tensor(-m / s, dtype=torch.float32)
        torch.add(shift, images[:, c], alpha=1 / (255 * s), out=batch[:, c])
    return batch


def train_batch(
    images: Tensor,
    index: Tensor,
    mean: Sequence[float],
    std: Sequence[float],
    *,
    generator: torch.Generator,
    padding: int = 4,
    flip: bool = True,
    channels_last: bool = False,
) -> Tensor:
    """Rows `index` of a uint8 data set, cropped and flipped at random, normalised: (B, C, H, W) float32.

    >>> images = torch.full((10, 3, 8, 8), 255, dtype=torch.uint8)
    >>> batch = train_batch(
    ...     images, torch.tensor([7, 7, 1]), [0.5] * 3, [0.5] * 3, generator=torch.Generator().manual_seed(0)
    ... )
    >>> batch.shape, batch.unique()  # black came in at the borders
    (torch.Size([3, 3, 8, 8]), tensor([-1.0000,  1.0000]))
    """
    rows = images.index_select(0, index)
    return normalise(crop_and_flip(rows, padding, flip, generator), mean, std, channels_last=channels_last)


def eval_batch(
    images: Tensor,
    index: Tensor | slice,
    mean: Sequence[float],
    std: Sequence[float],
    *,
    channels_last: bool = False,
) -> Tensor:
    """Rows `index` (a slice is read in place) of a uint8 data set, normalised and nothing else.

    >>> eval_batch(torch.full((10, 1, 2, 2), 255, dtype=torch.uint8), slice(0, 4), [0.5], [0.25]).shape
    torch.Size([4, 1, 2, 2])
    """
    rows = images[index] if isinstance(index, slice) else images.index_select(0, index)
    return normalise(rows, mean, std, channels_last=channels_last)
