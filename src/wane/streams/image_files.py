"""Image files to uint8 tensors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from wane.streams.dataset import DataError, box_filter
from wane.streams.progress import progress_bar


def decode(files: Sequence[Path], *, title: str, size: int | None = None, resolution: int | None = None) -> Tensor:
    """Decode image files to one (N, 3, H, W) uint8 tensor, in their order.

    Args:
        files: at least one.
        title: of the progress bar.
        size: height and width that every file must have; by default, those of the first.
        resolution: if given, files of any size: the largest square in the middle, box-filtered down.
    """
    images: Tensor | None = None
    with progress_bar(title, total=len(files)) as bar:
        for row, path in enumerate(files):
            image = _decode_one(path)
            if resolution is not None:
                image = _centre_square(image, resolution, path)
            if images is None:
                shape = (3, size, size) if size is not None else image.shape
                images = torch.empty((len(files), *shape), dtype=torch.uint8)
            if image.shape != images.shape[1:]:
                raise DataError(
                    f"{path} is {image.shape[1]} x {image.shape[2]} pixels, not the {images.shape[2]} x "
                    f"{images.shape[3]} of the others: make all the same size, or, for your own folder, pass "
                    f"resolution="
                )
            images[row] = image
            bar.update(1)
    if images is None:
        raise DataError(f"{title}: there is no image file; see that the path is right")
    return images


def _decode_one(path: Path) -> Tensor:
    from PIL import Image, ImageOps

    try:
        with Image.open(path) as image:
            # Cameras store how they were held; without this their portraits lie on the side.
            pixels = np.array(ImageOps.exif_transpose(image).convert("RGB"))
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise DataError(f"{path} is not a readable image ({error}): repair, replace or delete it") from error
    return torch.from_numpy(pixels).permute(2, 0, 1)


def _centre_square(image: Tensor, resolution: int, path: Path) -> Tensor:
    _, height, width = image.shape
    side = min(height, width)
    if side < resolution:
        raise DataError(
            f"{path} is {height} x {width} pixels, smaller than resolution={resolution}: images are only "
            f"reduced; ask for at most {side}, or remove the file"
        )
    top, left = (height - side) // 2, (width - side) // 2
    return box_filter(image[None, :, top : top + side, left : left + side], resolution)[0]
