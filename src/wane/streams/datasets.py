"""The data sets that wane knows by name, and the one function that loads a data set, known or not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from wane.registry import Registry, UnknownNameError
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
from wane.streams.own_data import from_folder
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
        domains: names of the domains, for data sets that have some.
    """

    title: str
    load: Callable[[Request], tuple[Split, Split, tuple[str, ...]]]
    classes: int
    size: tuple[int, int, int]
    licence: str
    archive: Archive | None = None
    statistics: _Statistics | None = None
    domains: tuple[str, ...] | None = None


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


#: A row is a `Source`; other packages, and `package.module:name`, give a function that returns a `Dataset`.
DATASETS: Registry[Source | Callable[[], Dataset]] = Registry("data set", {
    "glyphs": Source(
        title="Glyphs",
        load=_glyphs,
        classes=100,
        size=(1, 16, 16),
        licence="made on the spot with the DejaVu fonts (free licence, shipped by matplotlib)",
        domains=("Sans", "Mono", "Serif"),
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
}, group="wane.datasets")  # fmt: skip


def load_dataset(
    name: str,
    *,
    root: str | Path | None = None,
    per_class: int | None = None,
    resolution: int | None = None,
    holdout: int = 0,
    seed: int = 0,
    download: bool = True,
    domains: bool = False,
    _archive: Archive | None = None,
) -> Dataset:
    """Load a data set by name, from a folder of images, or from a function of your own.

    The options act in this order: the first `per_class` training images of each class are kept, `holdout` of
    them are moved to the holdout split, and everything is reduced to `resolution`.

    Args:
        name: a row of `DATASETS` (glyphs, digits, cifar10, cifar100, tiny_imagenet, or what an installed package adds
            as entry point of the group `wane.datasets`); the path of a folder as `from_folder` takes it; or
            `package.module:function`, a function without arguments that returns a `Dataset`.
        root: folder that holds the publishers' folders; by default the environment's WANE_DATA, or the user's
            cache folder. What is there is used as it is, what is missing is fetched.
        per_class: keep the first n training images of each class; all by default.
        resolution: box-filter the images down to this height and width (see `box_filter` for the rounding).
        holdout: training images of each class to move to the holdout split, drawn from `seed`.
        seed: of the holdout, of glyphs, which are made up, and of the test split of a folder.
        download: whether fetching is allowed.
        domains: of a folder: whether it holds one folder per domain, each with the folders of the classes.
        _archive: internal, for tests: another archive in place of the publisher's.

    >>> data = load_dataset("digits", per_class=100, holdout=10)
    >>> len(data.train), len(data.holdout), len(data.test), data.row_shape
    (900, 100, 364, (1, 8, 8))
    """
    for option, value, least in (
        ("per_class", per_class, 1),
        ("resolution", resolution, 1),
        ("holdout", holdout, 0),
    ):
        if value is not None and value < least:
            raise DataError(f"{option}={value} of {name}: it must be at least {least}")
    source = find_dataset(name)
    if isinstance(source, Path):
        # files of different sizes need the resolution while they are read
        dataset = from_folder(source, resolution=resolution, seed=seed, domains=domains)
    elif isinstance(source, Source):
        return _load_source(name, source, root, per_class, resolution, holdout, seed, download, _archive)
    else:
        dataset = _called(name, source)
    return reduced(dataset, per_class=per_class, holdout=holdout, resolution=resolution, seed=seed)


def reduced(
    dataset: Dataset, *, per_class: int | None = None, holdout: int = 0, resolution: int | None = None, seed: int = 0
) -> Dataset:
    """A data set with fewer images of each class, a holdout, and a lower resolution, as far as asked for.

    >>> small = reduced(load_dataset("digits"), per_class=20, resolution=4)
    >>> len(small.train), small.row_shape
    (200, (1, 4, 4))
    """
    if per_class:
        dataset = first_per_class(dataset, per_class)
    if holdout:
        dataset = with_holdout(dataset, holdout, seed=seed)
    if resolution and dataset.row_shape[1:] != (resolution, resolution):
        dataset = at_resolution(dataset, resolution)
    return dataset


def find_dataset(name: str) -> Source | Path | Callable[[], Dataset]:
    """The row of a name, a folder, or a function that makes the data set."""
    if name not in DATASETS and Path(name).expanduser().is_dir():
        return Path(name)
    try:
        return DATASETS.find(name)
    except UnknownNameError as error:
        if ":" in name:  # a function, and the error says what is wrong with it
            raise DataError(str(error)) from None
        raise DataError(
            f"{error}. The path of a folder with one folder of images per class works too; "
            f"there is none at {Path(name).expanduser().absolute()}"
        ) from None


def _load_source(
    name: str, source: Source, root: str | Path | None, per_class: int | None, resolution: int | None, holdout: int,
    seed: int, download: bool, other: Archive | None,
) -> Dataset:  # fmt: skip
    archive = other or source.archive
    base = data_root(root) if archive else Path()
    folder = ensure_folder(archive, base, download=download) if archive else base
    train, test, names = source.load(Request(folder, per_class, seed))
    mean, std = source.statistics or channel_statistics(train.images)
    dataset = Dataset(name, train, test, None, names, mean, std, source.domains)
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


def _called(name: str, make: Callable[[], Dataset]) -> Dataset:
    if not callable(make):
        raise DataError(f"data set {name!r} is {make!r}: it must be a function that returns a wane.streams.Dataset")
    dataset = make()
    if not isinstance(dataset, Dataset):
        raise DataError(f"data set {name!r} returned {type(dataset).__name__}: it must return a wane.streams.Dataset, "
                        "such as from_arrays makes")  # fmt: skip
    return dataset
