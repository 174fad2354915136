"""Image files to uint8 tensors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from wane.streams.dataset import DataError, box_filter
from wane.streams.progress import progress_bar

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["SUFFIXES", "decode", "image_formats", "is_image_file"]

#: What an image file's name may end in, and its format. Files are never read as any other format, whatever they hold:
#: for PostScript, say, Pillow would start another program.
SUFFIXES = {
    ".bmp": "BMP", ".gif": "GIF", ".jpeg": "JPEG", ".jpg": "JPEG", ".pgm": "PPM", ".png": "PNG", ".ppm": "PPM",
    ".tif": "TIFF", ".tiff": "TIFF", ".webp": "WEBP",
}  # fmt: skip
#: Pixels of one image; decoding more would take gigabytes.
MOST_PIXELS = 2**26
#: How many bad files an error lists.
LISTED = 10


def is_image_file(path: Path) -> bool:
    """Whether the name says so: a known suffix, and no dot in front."""
    return path.suffix.lower() in SUFFIXES and not path.name.startswith(".")


def decode(files: Sequence[Path], *, title: str, size: int | None = None, resolution: int | None = None) -> Tensor:
    """Decode image files to one (N, 3, H, W) uint8 tensor, in their order.

    Args:
        files: at least one.
        title: of the progress bar.
        size: height and width that every file must have; by default, those of most files.
        resolution: if given, files of any size: the largest square in the middle, box-filtered down.

    Raises:
        DataError: lists all files that cannot be read or have another size.
    """
    if not files:
        raise DataError(f"{title}: there is no image file; see that the path is right")
    images: Tensor | None = None
    unreadable: dict[Path, str] = {}
    sizes: dict[Path, tuple[int, int]] = {}
    with progress_bar(title, total=len(files)) as bar:
        for row, path in enumerate(files):
            bar.update(1)
            try:
                image = _decode_one(path)
            except _UnreadableError as error:
                unreadable[path] = str(error)
                continue
            sizes[path] = (image.shape[1], image.shape[2])
            if resolution is not None:
                if min(sizes[path]) < resolution:
                    continue
                image = _centre_square(image, resolution)
            if images is None:
                shape = image.shape if size is None else (3, size, size)
                images = torch.empty((len(files), *shape), dtype=torch.uint8)
            if image.shape == images.shape[1:]:
                images[row] = image
    odd = _odd_sizes(sizes, size, resolution)
    if unreadable or odd or images is None:
        raise DataError(_complaint(files, unreadable, odd, min((min(s) for s in sizes.values()), default=0)))
    return images


def _odd_sizes(sizes: dict[Path, tuple[int, int]], size: int | None, resolution: int | None) -> dict[Path, str]:
    """What is wrong with the files whose size is not the one wanted, or that of most files."""
    if resolution is not None:
        return {
            path: f"is {height} x {width} pixels, smaller than resolution={resolution}"
            for path, (height, width) in sizes.items()
            if min(height, width) < resolution
        }
    if not sizes:
        return {}
    usual = (size, size) if size is not None else Counter(sizes.values()).most_common(1)[0][0]
    return {
        path: f"is {height} x {width} pixels, not the {usual[0]} x {usual[1]} of the others"
        for path, (height, width) in sizes.items()
        if (height, width) != usual
    }


def _complaint(files: Sequence[Path], unreadable: dict[Path, str], odd: dict[Path, str], side: int) -> str:
    """One sentence for a single bad file, a list for several, and what to do."""
    bad = unreadable | odd
    advice = []
    if unreadable:
        advice.append("repair, replace or delete it" if len(unreadable) == 1 else "repair, replace or delete these")
    if any("smaller than" in what for what in odd.values()):
        advice.append(f"images are only reduced; ask for at most {side} (--set data.resolution={side} on the command "
                      "line), or remove small files")  # fmt: skip
    elif odd:
        advice.append(f"make all images the same size or, for a folder of your own, have them cropped and reduced: "
                      f"resolution={side}, --set data.resolution={side} on the command line")  # fmt: skip
    if len(bad) == 1:
        path, what = next(iter(bad.items()))
        return f"{path} {what}: {'; '.join(advice)}"
    lines = [f"{path} {what}" for path, what in list(bad.items())[:LISTED]]
    if len(bad) > LISTED:
        lines.append(f"and {len(bad) - LISTED} more")
    listed = "\n  ".join(lines)
    return f"{len(bad)} of {len(files)} image files cannot be used:\n  {listed}\nWhat to do: {'; '.join(advice)}"


class _UnreadableError(Exception):
    """Says what is wrong with an image file, without its path."""


def _decode_one(path: Path) -> Tensor:
    from PIL import Image, ImageOps

    try:
        with Image.open(path, formats=image_formats()) as image:
            if (size := image.width * image.height) > MOST_PIXELS:  # only the header was read so far
                raise _UnreadableError(f"has {size:,} pixels, more than {MOST_PIXELS:,}")
            # Cameras store how they were held; without this their portraits lie on the side.
            upright = ImageOps.exif_transpose(image)
            deep = upright.mode == "F" or upright.mode.startswith("I")
            pixels = _eight_bits(upright, image.format) if deep else np.array(upright.convert("RGB"))
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise _UnreadableError(f"is not a readable image ({error})") from error
    return torch.from_numpy(pixels).permute(2, 0, 1)


@cache
def image_formats() -> tuple[str, ...]:
    """The decoders of `SUFFIXES` that this Pillow was built with."""
    from PIL import Image

    Image.init()
    return tuple(kind for kind in sorted(set(SUFFIXES.values())) if kind in Image.OPEN)


def _eight_bits(image: Image, kind: str | None) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Greyscale of more than 8 bits as RGB: white (65535 of 16 bits, 1.0 of floats) becomes 255.

    Pillow's own conversion would make everything above 255 white.
    """
    values = np.array(image)
    low, high = (float(values.min()), float(values.max())) if values.size else (0.0, 0.0)
    if image.mode == "F":
        if not (low >= 0 and high <= 1):  # so written, it fails for NaN too
            raise ValueError(f"float pixels from {low:g} to {high:g}, so white is unknown; scale them to 0..1")
        grey = np.floor(values.astype(np.float64) * 255 + 0.5)
    else:
        # Mode I is 16 bits in PNG and PGM files. In a TIFF it is 32 bits, and how bright white is nobody knows.
        if (image.mode == "I" and kind == "TIFF") or low < 0 or high > 65535:
            raise ValueError(f"32-bit pixels from {low:g} to {high:g}, so white is unknown; save it with 8 or 16 bits")
        grey = (values.astype(np.int64) + 128) // 257
    return np.repeat(grey.astype(np.uint8)[:, :, None], 3, axis=2)


def _centre_square(image: Tensor, resolution: int) -> Tensor:
    _, height, width = image.shape
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    return box_filter(image[None, :, top : top + side, left : left + side], resolution)[0]
