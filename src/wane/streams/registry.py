"""The data sets that wane knows by name, and the one function that loads them."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from wane.streams.cifar import CIFAR10, CIFAR100, cifar10, cifar100
from wane.streams.dataset import (
    DataError,
    Dataset,
    Split,
    at_resolution,
    channel_statistics,
    first_per_class,
    rank_in_class,
    with_holdout,
)
from wane.streams.fetch import Archive, data_root, ensure_folder
from wane.streams.tiny_imagenet import TINY_IMAGENET, tiny_imagenet

_Statistics = tuple[tuple[float, ...], tuple[float, ...]]


@dataclass(frozen=True)
class Request:
    """What a loader may need to know.

    Attributes:
        folder: the publisher's folder, for data sets that have an archive.
        per_class: how many training images of each class will be kept, so that a loader need not read more.
        seed: for data sets that are made up.
    """

    folder: Path
    per_class: int | None
    seed: int


@dataclass(frozen=True)
class Source:
    """One row of the registry.

    Attributes:
        title: for tables and figures.
        load: gives train, test and the names of the classes.
        classes: how many there are.
        size: (channels, height, width).
        licence: terms and citation, in a line.
        archive: where it comes from; None if nothing is fetched.
        statistics: published channel means and deviations; None to compute them from the training images.
    """

    title: str
    load: Callable[[Request], tuple[Split, Split, tuple[str, ...]]]
    classes: int
    size: tuple[int, int, int]
    licence: str
    archive: Archive | None = None
    statistics: _Statistics | None = None


def _glyphs(request: Request) -> tuple[Split, Split, tuple[str, ...]]:
    from wane.streams.glyphs import CHARACTERS, glyphs

    return *glyphs(request.seed), tuple(CHARACTERS)


def _digits(request: Request) -> tuple[Split, Split, tuple[str, ...]]:
    """The last fifth of each digit is the test split: scikit-learn does not define one."""
    try:
        from sklearn.datasets import load_digits
    except ModuleNotFoundError as error:
        raise DataError("digits comes with scikit-learn, which is missing: pip install 'wane[digits]'") from error

    bunch = load_digits()
    grey = torch.from_numpy(bunch.images)[:, None].mul(255 / 16).round().to(torch.uint8)  # 0..16 there
    labels = torch.from_numpy(bunch.target).long()
    is_test = rank_in_class(labels) >= (labels.bincount() * 4 // 5)[labels]
    everything = Split(grey, labels)
    return everything[~is_test], everything[is_test], tuple("0123456789")


DATASETS: dict[str, Source] = {
    "glyphs": Source(
        title="Glyphs",
        load=_glyphs,
        classes=100,
        size=(1, 16, 16),
        licence="made on the spot with the DejaVu fonts (free licence, shipped by matplotlib)",
    ),
    "digits": Source(
        title="Digits",
        load=_digits,
        classes=10,
        size=(1, 8, 8),
        licence="CC BY 4.0; Alpaydin and Kaynak 1998, Optical Recognition of Handwritten Digits (UCI)",
    ),
    "cifar10": Source(
        title="CIFAR-10",
        load=lambda request: cifar10(request.folder),
        classes=10,
        size=(3, 32, 32),
        licence="no licence stated; Krizhevsky 2009, Learning Multiple Layers of Features from Tiny Images",
        archive=CIFAR10,
        statistics=((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2615)),
    ),
    "cifar100": Source(
        title="CIFAR-100",
        load=lambda request: cifar100(request.folder),
        classes=100,
        size=(3, 32, 32),
        licence="no licence stated; Krizhevsky 2009, Learning Multiple Layers of Features from Tiny Images",
        archive=CIFAR100,
        statistics=((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
    ),
    "tiny_imagenet": Source(
        title="Tiny-ImageNet",
        load=lambda request: tiny_imagenet(request.folder, request.per_class),
        classes=200,
        size=(3, 64, 64),
        licence="non-commercial research; Le and Yang 2015, Tiny ImageNet Visual Recognition Challenge",
        archive=TINY_IMAGENET,
        statistics=((0.4802, 0.4480, 0.3975), (0.2770, 0.2691, 0.2821)),
    ),
}


def load_dataset(
    name: str,
    *,
    root: str | Path | None = None,
    per_class: int | None = None,
    resolution: int | None = None,
    holdout: int = 0,
    seed: int = 0,
    download: bool = True,
    _archive: Archive | None = None,
) -> Dataset:
    """Load a data set of the registry `DATASETS`.

    The options act in this order: the first `per_class` training images of each class are kept, `holdout` of
    them are moved to the holdout split, and everything is reduced to `resolution`.

    Args:
        name: glyphs, digits, cifar10, cifar100 or tiny_imagenet.
        root: folder that holds the publishers' folders; by default the environment's WANE_DATA, or the user's
            cache folder. What is there is used as it is, what is missing is fetched.
        per_class: keep the first n training images of each class; all by default.
        resolution: box-filter the images down to this height and width (see `box_filter` for the rounding).
        holdout: training images of each class to move to the holdout split, drawn from `seed`.
        seed: of the holdout, and of glyphs, which are made up.
        download: whether fetching is allowed.
        _archive: internal, for tests: another archive in place of the publisher's.

    >>> data = load_dataset("digits", per_class=100, holdout=10)
    >>> len(data.train), len(data.holdout), len(data.test), data.image_shape
    (900, 100, 364, (1, 8, 8))
    """
    if name not in DATASETS:
        near = difflib.get_close_matches(name, DATASETS, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else "your own data: from_arrays, from_folder."
        raise DataError(f"there is no data set {name!r}; {hint} Known: {', '.join(DATASETS)}")
    for option, value, least in (
        ("per_class", per_class, 1),
        ("resolution", resolution, 1),
        ("holdout", holdout, 0),
    ):
        if value is not None and value < least:
            raise DataError(f"{option}={value} of {name}: it must be at least {least}")
    source = DATASETS[name]
    archive = _archive or source.archive
    base = data_root(root) if archive else Path()
    folder = ensure_folder(archive, base, download=download) if archive else base
    train, test, names = source.load(Request(folder, per_class, seed))
    mean, std = source.statistics or channel_statistics(train.images)
    dataset = Dataset(name, train, test, None, names, mean, std)
    if per_class is not None:
        dataset = first_per_class(dataset, per_class)
    if holdout:
        dataset = with_holdout(dataset, holdout, seed=seed)
    if resolution is not None:
        dataset = at_resolution(dataset, resolution)
    if source.statistics is None:
        mean, std = channel_statistics(dataset.train.images)
        dataset = replace(dataset, mean=mean, std=std)
    return dataset
