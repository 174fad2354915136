"""A data set in memory, and the three ways to make one smaller.

Images stay uint8 until a batch is made of them, so a data set costs its uint8 size once; other rows (images with float
pixels, rows of a table) are float32. Class ids are the data set's own labels 0..C-1 everywhere in wane: nothing is ever
relabelled, so a curve of class 37 is a curve of class 37.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

# Bytes of float scratch that `box_filter` may use at once: keeps it in the caches and its memory flat.
_SCRATCH = 1 << 22
# The same for a single image, which may be larger than that.
_PHOTOGRAPH = 1 << 26


class DataError(ValueError):
    """Data that cannot be used: the message quotes the path or value and says what to do."""


@dataclass(frozen=True, eq=False)
class Split:
    """Rows with their labels.

    Attributes:
        images: (N, C, H, W) uint8 or float32; the rows of a table are (N, d) float32.
        labels: (N,) int64.
        domains: (N,) int64, the number of each row's domain; None for data without domains.
    """

    images: Tensor
    labels: Tensor
    domains: Tensor | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, rows: Tensor) -> Split:
        """The split made of these rows, in this order."""
        return Split(self.images[rows], self.labels[rows], None if self.domains is None else self.domains[rows])

    def to(self, device: torch.device | str) -> Split:
        """The same split on a device; no copy if it is there already."""
        domains = None if self.domains is None else self.domains.to(device)
        return Split(self.images.to(device), self.labels.to(device), domains)


@dataclass(frozen=True, eq=False)
class Dataset:
    """Train and test splits, an optional holdout, and what is needed to name and normalise them.

    Attributes:
        name: for titles and run folders.
        train: what is learnt.
        test: what is measured; never shown to a learner.
        holdout: training images set aside by `with_holdout`, for signals that must not leak from the test
            split.
        class_names: one per class; the position is the label.
        mean: of each channel of an image, or of each column of a table. For uint8 images in units where white is 1.
        std: likewise.
        domain_names: one per domain, if the rows come from several; the position is the number in `Split.domains`.
    """

    name: str
    train: Split
    test: Split
    holdout: Split | None
    class_names: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    domain_names: tuple[str, ...] | None = None

    @property
    def num_classes(self) -> int:
        """How many classes there are: the labels are 0 .. num_classes - 1."""
        return len(self.class_names)

    @property
    def row_shape(self) -> tuple[int, ...]:
        """The shape of one row: (channels, height, width) of an image, (d,) of a table's row."""
        return tuple(self.train.images.shape[1:])

    @property
    def image_shape(self) -> tuple[int, ...]:
        """The same as `row_shape`."""
        return self.row_shape

    @property
    def is_images(self) -> bool:
        """Whether the rows are images, (channels, height, width)."""
        return len(self.row_shape) == 3

    def to(self, device: torch.device | str) -> Self:
        """The same data set on a device."""
        holdout = self.holdout.to(device) if self.holdout is not None else None
        return replace(self, train=self.train.to(device), test=self.test.to(device), holdout=holdout)


def channel_statistics(images: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel of images, or of each column of a table (N, d).

    Those of uint8 images are in units where 255 is 1. They come from a histogram, so they are exact and need no float
    copy of the images. A channel that never varies gets a deviation of 1, so that normalising it gives zeros and not a
    division by zero.

    >>> black_and_white = torch.tensor([0, 255], dtype=torch.uint8).view(2, 1, 1, 1)
    >>> channel_statistics(black_and_white)
    ((0.5,), (0.5,))
    >>> channel_statistics(torch.tensor([[1.0, 7.0], [3.0, 7.0]]))
    ((2.0, 7.0), (1.0, 1.0))
    """
    if images.dtype != torch.uint8:
        return _float_statistics(images)
    values = torch.arange(256, dtype=torch.float64) / 255
    means, stds = [], []
    for channel in images.unbind(1):
        histogram = torch.bincount(channel.flatten(), minlength=256).cpu().double()
        weights = histogram / histogram.sum()
        mean = (weights * values).sum()
        std = (weights * (values - mean).square()).sum().sqrt().item()
        means.append(mean.item())
        stds.append(std if std > 0 else 1.0)
    return tuple(means), tuple(stds)


def _float_statistics(rows: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    others = [axis for axis in range(rows.ndim) if axis != 1]
    rows = rows.cpu().double()
    mean = rows.mean(others)
    centred = rows - mean.view(1, -1, *[1] * (rows.ndim - 2))
    std = centred.square().mean(others).sqrt()
    # A constant column has a mean that is off by a rounding, and so a deviation that is tiny but not 0.
    constant = rows.amax(others) == rows.amin(others)
    return tuple(mean.tolist()), tuple(torch.where(constant, 1.0, std).tolist())


def rank_in_class(labels: Tensor) -> Tensor:
    """The number of earlier rows with the same label, for every row.

    >>> rank_in_class(torch.tensor([5, 5, 2, 5, 2]))
    tensor([0, 1, 0, 2, 1])
    """
    order = labels.argsort(stable=True)
    counts = labels.bincount()
    first = (counts.cumsum(0) - counts)[labels[order]]
    return torch.empty_like(order).scatter_(0, order, torch.arange(len(labels), device=labels.device) - first)


def first_per_class(dataset: Dataset, n: int) -> Dataset:
    """Keep the first `n` training images of each class, in their order. Test and holdout stay whole.

    >>> from wane.streams import from_arrays
    >>> images, labels = torch.zeros(6, 1, 4, 4, dtype=torch.uint8), torch.tensor([0, 0, 0, 1, 1, 1])
    >>> data = from_arrays(images, labels, images, labels, layout="NCHW")
    >>> first_per_class(data, 2).train.labels
    tensor([0, 0, 1, 1])
    """
    _require_per_class(dataset, n, f"per_class={n}")
    rows = (rank_in_class(dataset.train.labels) < n).nonzero()[:, 0]
    # Indexing copies; a loader that read no more than it was asked for need not pay for that.
    return dataset if len(rows) == len(dataset.train) else replace(dataset, train=dataset.train[rows])


def with_holdout(dataset: Dataset, n: int, *, seed: int = 0) -> Dataset:
    """Move `n` random training images of each class to the holdout split; both keep the order of the rows.

    >>> from wane.streams import from_arrays
    >>> images, labels = torch.zeros(6, 1, 4, 4, dtype=torch.uint8), torch.tensor([0, 0, 0, 1, 1, 1])
    >>> data = with_holdout(from_arrays(images, labels, images, labels, layout="NCHW"), 1)
    >>> data.train.labels, data.holdout.labels
    (tensor([0, 0, 1, 1]), tensor([0, 1]))
    """
    _require_per_class(dataset, n, f"holdout={n}", spare=1)
    labels = dataset.train.labels
    shuffled = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed)).to(labels.device)
    held = torch.empty_like(labels, dtype=torch.bool)
    held[shuffled] = rank_in_class(labels[shuffled]) < n
    train, holdout = (dataset.train[mask.nonzero()[:, 0]] for mask in (~held, held))
    return replace(dataset, train=train, holdout=holdout)


def at_resolution(dataset: Dataset, size: int) -> Dataset:
    """Every image box-filtered down to `size` x `size`; the published channel statistics stay as they are."""
    if not dataset.is_images:
        raise DataError(f"resolution={size} is for images: the rows of {dataset.name} have the shape "
                        f"{dataset.row_shape}; leave resolution out")  # fmt: skip

    def reduce(split: Split) -> Split:
        return replace(split, images=box_filter(split.images, size))

    holdout = reduce(dataset.holdout) if dataset.holdout is not None else None
    return replace(dataset, train=reduce(dataset.train), test=reduce(dataset.test), holdout=holdout)


def box_filter(images: Tensor, size: int) -> Tensor:
    """Reduce square images (N, C, H, H) to (N, C, size, size) by the mean of the area under a pixel.

    Where `size` does not divide H, a source pixel counts in proportion to its overlap. The weights are
    integers (an overlap is counted in 1/size of a pixel), so for uint8 the sum is exact, and the mean is rounded once:
    to nearest, halves up. Float pixels are averaged in float64.

    >>> box_filter(torch.tensor([[0, 10], [20, 31]], dtype=torch.uint8).view(1, 1, 2, 2), 1).item()  # 15.25
    15
    >>> box_filter(torch.tensor([[90, 0, 30]] * 3, dtype=torch.uint8).view(1, 1, 3, 3), 2)[0, 0, 0].tolist()
    [60, 20]
    """
    *_, height, width = images.shape
    if height != width:
        raise DataError(f"resolution={size} needs square images, these are {height} x {width}: crop them first")
    if not 1 <= size <= height:
        raise DataError(f"resolution={size} is outside 1..{height}: images of {height} x {width} can only be reduced")
    if size == height:
        return images
    edges_in, edges_out = torch.arange(height) * size, torch.arange(size) * height
    upper = torch.minimum(edges_in + size, edges_out[:, None] + height)
    overlap = (upper - torch.maximum(edges_in, edges_out[:, None])).clamp_min_(0)  # (size, H), rows sum to H
    area = height * height
    # float32 holds integers up to 2^24 exactly, which is enough for images up to 256 x 256 and twice as fast.
    is_small = images.dtype == torch.uint8 and 255 * area < 1 << 24
    weights = overlap.to(images.device, torch.float32 if is_small else torch.float64)
    reduced = images.new_empty((*images.shape[:2], size, size))
    step = max(1, _SCRATCH // max(1, images[:1].numel() * weights.element_size()))
    for start in range(0, len(images), step):
        sums = _area_sums(images[start : start + step], weights)
        whole = images.dtype == torch.uint8
        means = sums.long().mul_(2).add_(area).div_(2 * area, rounding_mode="floor") if whole else sums / area
        reduced[start : start + step] = means
    return reduced


def _area_sums(images: Tensor, weights: Tensor) -> Tensor:
    """`weights @ images @ weights.T`; a photograph of many megapixels is converted band by band."""
    height = images.shape[-2]
    band = max(1, min(height, _PHOTOGRAPH // max(1, images[..., 0, :].numel() * weights.element_size())))
    sums = weights[:, :band] @ images[..., :band, :].to(weights.dtype) @ weights.T
    for row in range(band, height, band):
        rows = slice(row, row + band)
        sums += weights[:, rows] @ (images[..., rows, :].to(weights.dtype) @ weights.T)
    return sums


def _require_per_class(dataset: Dataset, n: int, asked: str, spare: int = 0) -> None:
    """Complain unless every class has `n` training images, and `spare` more."""
    if n < 1:
        raise DataError(f"{asked} of {dataset.name}: it must be at least 1")
    counts = dataset.train.labels.bincount(minlength=dataset.num_classes)
    label = int(counts.argmin())
    if counts[label] < n + spare:
        raise DataError(
            f"{asked} asks for too many images of {dataset.name}: class {label} "
            f"({dataset.class_names[label]!r}) has {int(counts[label])} for training; ask for at most "
            f"{int(counts[label]) - spare}"
        )
