"""Strongly augmented views of images, for losses that compare views of the same image or class with each other."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

__all__ = ["strong_views"]

#: Least share of an image's area that a view shows, and the largest ratio of the sides of that part.
LEAST_AREA, MOST_RATIO = 0.2, 4 / 3
#: Probabilities that a view's colours are changed, and that it is grey.
CHANGED, GREY = 0.8, 0.2
#: By how much brightness, contrast and saturation may differ from 1, and the hue from 0 (in turns of the colour wheel).
JITTER, HUE = 0.4, 0.1
#: How bright red, green and blue look; the two rows below span the colours of no brightness.
LUMA = (0.299, 0.587, 0.114)
CHROMA = ((0.596, -0.274, -0.322), (0.211, -0.523, 0.312))


def strong_views(images: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """`count` views of each image: a part of it at full size, perhaps mirrored, in other colours, perhaps grey.

    The recipe of SimCLR (Chen et al., 2020) for small images, without blur. All changes of colour, and the hue too, are
    linear, so each view has one matrix for them: the clamp to legal values comes once, at the end, where torchvision
    has one after each change and turns the hue in HSV. A batch at once: about 20 microseconds of CPU a view of 3 x
    32 x 32.

    Args:
        images: (N, C, H, W). The colours of uint8 images change (all but brightness and contrast only if C is 3);
            float images, whose range is not known, are only cropped and mirrored. Rows of a table stay as they are.
        count: views of each.
        generator: where the random choices come from, on the CPU.

    Returns:
        (N, count, C, H, W) float32, of uint8 images in units where 255 is 1.

    >>> images = torch.full((2, 3, 8, 8), 51, dtype=torch.uint8)
    >>> views = strong_views(images, 4, torch.Generator().manual_seed(0))
    >>> views.shape
    torch.Size([2, 4, 3, 8, 8])
    >>> views[0, :, 0, 0, 0]  # a plain image has no part that differs, and grey has no hue: this is the brightness
    tensor([0.1984, 0.2480, 0.1496, 0.2388])
    """
    n, bytes_ = len(images), images.dtype == torch.uint8
    repeated = images.float().div_(255 if bytes_ else 1).repeat_interleave(count, 0)
    if images.ndim == 4:
        chance = torch.rand(n * count, 11, generator=generator).to(images.device).unbind(1)
        repeated = _part(repeated, *chance[:5])
        if bytes_:
            repeated = _colours(repeated, *chance[5:])
    return repeated.view(n, count, *images.shape[1:])


def _part(images: Tensor, area: Tensor, ratio: Tensor, x: Tensor, y: Tensor, mirror: Tensor) -> Tensor:
    """A random part of each image, at the size of the whole."""
    shown = LEAST_AREA + (1 - LEAST_AREA) * area
    stretch = MOST_RATIO ** (2 * ratio - 1)
    width, height = (shown * stretch).sqrt().clamp(max=1), (shown / stretch).sqrt().clamp(max=1)
    place = images.new_zeros(len(images), 2, 3)
    place[:, 0, 0] = torch.where(mirror < 0.5, width, -width)
    place[:, 1, 1] = height
    place[:, 0, 2], place[:, 1, 2] = (1 - width) * (2 * x - 1), (1 - height) * (2 * y - 1)
    grid = F.affine_grid(place, list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, padding_mode="border", align_corners=False)


def _colours(
    images: Tensor, changed: Tensor, brightness: Tensor, contrast: Tensor, saturation: Tensor, hue: Tensor, grey: Tensor
) -> Tensor:
    """Brightness, contrast, saturation and hue, in that order, of most images; then some are made grey.

    Contrast moves each pixel towards the mean brightness of its image. Greys are kept by all that comes after it, so
    that its constant is added in the end.
    """
    some = changed < CHANGED
    b, c, s = (torch.where(some, 1 + JITTER * (2 * p - 1), 1.0) for p in (brightness, contrast, saturation))
    colourful = images.shape[1] == 3
    luma = images.new_tensor(LUMA) if colourful else images.new_full((images.shape[1],), 1 / images.shape[1])
    mean = (images.mean((2, 3)) * luma).sum(1)
    offset = ((1 - c) * b * mean)[:, None, None]
    if not colourful:
        return ((b * c)[:, None, None] * images.flatten(2) + offset).clamp_(0, 1).view_as(images)
    angle = torch.where(some, 2 * torch.pi * HUE * (2 * hue - 1), 0.0)
    s, cos, sin = (torch.where(grey < GREY, 0.0, v) for v in (s, angle.cos(), angle.sin()))
    chroma = images.new_tensor(CHROMA)
    back = torch.linalg.inv(torch.cat([luma[None], chroma]))  # from brightness and two chromas to red, green, blue
    turned = torch.stack([torch.stack([cos, -sin], 1), torch.stack([sin, cos], 1)], 1)
    matrix = torch.ones_like(luma)[:, None] * luma + back[:, 1:] @ (s[:, None, None] * turned) @ chroma
    made: Tensor = (b * c)[:, None, None] * matrix @ images.flatten(2) + offset
    return made.clamp_(0, 1).view_as(images)
