"""The embedded data set: 100 characters drawn with the fonts that matplotlib ships.

Characters of four scripts and a row of symbols, in twelve styles of DejaVu, each image with its own rotation, shear,
scale, shift, contrast and noise: a hundred classes as in the paper, in a second and without a download. The three
families of the fonts (Sans, Mono, Serif) are its domains.
"""

from __future__ import annotations

import math
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from wane.streams.dataset import Split

# Chosen to differ under rotation, scale and shear: no o beside O, no 1 beside l, no Greek or Cyrillic twin of
# a Latin.
CHARACTERS = "".join(
    [
        "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
        "abdefghnqty",
        "2345678",
        "ΓΔΘΛΞΠΣΦΨΩ",
        "αβδζλμξφω",
        "БДЖИЛЦЧЩЮЯЪЭ",
        "!?#$%&@+÷<§¶€£¥{",
        "∞√∂≈↑♠◊∩☀",
    ]
)
SIZE = 16
TRAIN_PER_CLASS, TEST_PER_CLASS = 100, 30
_STYLES = [
    "DejaVuSans",
    "DejaVuSans-Bold",
    "DejaVuSans-Oblique",
    "DejaVuSans-BoldOblique",
    "DejaVuSansMono",
    "DejaVuSansMono-Bold",
    "DejaVuSansMono-Oblique",
    "DejaVuSansMono-BoldOblique",
    "DejaVuSerif",
    "DejaVuSerif-Bold",
    "DejaVuSerif-Italic",
    "DejaVuSerif-BoldItalic",
]
DOMAINS = ("Sans", "Mono", "Serif")  # four of the styles above each, in this order
_CANVAS = 64  # a glyph is drawn once, this large, and every image of it is a view of that drawing
_OVERSAMPLING = 2  # an image is sampled this much finer, then averaged: thin strokes would alias otherwise


def glyphs(seed: int = 0) -> tuple[Split, Split]:
    """Train and test splits: 100 and 30 images of each of the 100 characters, 1 x 16 x 16.

    Rows run over the classes first, so row i has label i % 100, and the first n images of each class are the
    first 100 n rows. The two splits are drawn from two generators, so neither depends on the size of the
    other.

    >>> train, test = glyphs()
    >>> train.images.shape, test.images.shape, train.images.dtype
    (torch.Size([10000, 1, 16, 16]), torch.Size([3000, 1, 16, 16]), torch.uint8)
    """
    drawings = _drawings()
    return (
        _views(drawings, TRAIN_PER_CLASS, torch.Generator().manual_seed(2 * seed)),
        _views(drawings, TEST_PER_CLASS, torch.Generator().manual_seed(2 * seed + 1)),
    )


@cache
def _drawings() -> Tensor:
    """Every character in every style, centred: (characters, styles, 64, 64) float32 in 0..1."""
    from matplotlib import get_data_path
    from PIL import Image, ImageDraw, ImageFont

    fonts = [
        # The basic layout is the same everywhere; the default one depends on what Pillow was built with.
        ImageFont.truetype(f"{get_data_path()}/fonts/ttf/{style}.ttf", 44, layout_engine=ImageFont.Layout.BASIC)
        for style in _STYLES
    ]
    sheet = torch.empty(len(CHARACTERS), len(fonts), _CANVAS, _CANVAS)
    for i, character in enumerate(CHARACTERS):
        for j, font in enumerate(fonts):
            left, top, right, bottom = font.getbbox(character)
            canvas = Image.new("L", (_CANVAS, _CANVAS))
            corner = ((_CANVAS - left - right) / 2, (_CANVAS - top - bottom) / 2)
            ImageDraw.Draw(canvas).text(corner, character, fill=255, font=font)
            sheet[i, j] = torch.frombuffer(bytearray(canvas.tobytes()), dtype=torch.uint8).view(_CANVAS, _CANVAS)
    return sheet / 255


def _views(drawings: Tensor, per_class: int, generator: torch.Generator) -> Split:
    classes, styles = drawings.shape[:2]
    n = classes * per_class
    labels = torch.arange(n) % classes

    def uniform(low: float, high: float) -> Tensor:
        return torch.rand(n, generator=generator) * (high - low) + low

    style = torch.randint(styles, (n,), generator=generator)
    angle, shear = uniform(-15, 15) * (math.pi / 180), uniform(-0.25, 0.25)
    # the part of the canvas that is shown: a smaller part is a larger character
    wide, high = uniform(0.65, 0.95), uniform(0.65, 0.95)
    across, down = uniform(-0.1, 0.1), uniform(-0.1, 0.1)
    cos, sin = angle.cos(), angle.sin()
    affine = torch.stack(
        [wide * cos, high * (shear * cos - sin), across, wide * sin, high * (shear * sin + cos), down], 1
    ).view(n, 2, 3)
    ink, paper, grain = uniform(0.5, 1.0), uniform(0.0, 0.35), uniform(0.02, 0.1)

    fine = SIZE * _OVERSAMPLING
    images = torch.empty(n, 1, SIZE, SIZE, dtype=torch.uint8)
    for start in range(0, n, 2000):  # in pieces, so that the sampling grids stay small
        rows = torch.arange(start, min(start + 2000, n))
        grid = F.affine_grid(affine[rows], [len(rows), 1, fine, fine], align_corners=False)
        stroke = F.grid_sample(drawings[labels[rows], style[rows]][:, None], grid, align_corners=False)
        smooth = F.avg_pool2d(stroke, _OVERSAMPLING)
        at = (-1, 1, 1, 1)
        noise = torch.randn(smooth.shape, generator=generator) * grain[rows].view(at)
        grey = torch.lerp(paper[rows].view(at), ink[rows].view(at), smooth) + noise
        images[rows] = grey.clamp_(0, 1).mul_(255).round_().to(torch.uint8)
    return Split(images, labels, domains=style // (styles // len(DOMAINS)))
