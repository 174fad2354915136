"""The user's own data: arrays, or a folder with one folder per class."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from wane.streams.dataset import DataError, Dataset, Split, channel_statistics, rank_in_class
from wane.streams.image_files import decode

Layout = Literal["NCHW", "NHWC", "NHW"]
_IMAGE_SUFFIXES = {".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"}


def from_arrays(
    train_images: Tensor | np.ndarray[Any, Any],
    train_labels: Tensor | np.ndarray[Any, Any] | Sequence[int],
    test_images: Tensor | np.ndarray[Any, Any],
    test_labels: Tensor | np.ndarray[Any, Any] | Sequence[int],
    *,
    layout: Layout,
    class_names: Sequence[str] | None = None,
    name: str = "arrays",
) -> Dataset:
    """A data set from uint8 arrays of numpy or torch.

    Args:
        train_images: uint8, its axes in the order of `layout`.
        train_labels: integers 0..C-1; every class must occur.
        test_images: as train_images.
        test_labels: integers 0..C-1.
        layout: "NCHW", "NHWC", or "NHW" for a single channel. Never guessed.
        class_names: C names; the labels themselves by default.
        name: of the data set.

    Arrays in the layout NCHW are shared, not copied.

    >>> images = np.zeros((4, 8, 8, 3), np.uint8)
    >>> data = from_arrays(images, [0, 1, 2, 1], images, [2, 2, 1, 0], layout="NHWC")
    >>> data.num_classes, data.image_shape, data.class_names
    (3, (3, 8, 8), ('0', '1', '2'))
    """
    train = Split(_as_nchw(train_images, layout, "train_images"), _as_labels(train_labels, "train_labels"))
    test = Split(_as_nchw(test_images, layout, "test_images"), _as_labels(test_labels, "test_labels"))
    if train.images.shape[1:] != test.images.shape[1:]:
        raise DataError(
            f"train_images are {tuple(train.images.shape[1:])} and test_images "
            f"{tuple(test.images.shape[1:])} (channels, height, width): make them the same"
        )
    names = tuple(class_names) if class_names is not None else _numbered(train, test)
    for what, split in (("train", train), ("test", test)):
        if len(split.images) != len(split.labels):
            raise DataError(f"{len(split.images)} {what}_images but {len(split.labels)} {what}_labels: give one each")
        if len(split) and not 0 <= (label := _outermost(split.labels, len(names))) < len(names):
            raise DataError(f"{what}_labels hold {label}: with {len(names)} classes they must be 0..{len(names) - 1}")
    counts = train.labels.bincount(minlength=len(names))
    if not len(train) or (counts == 0).any():
        empty = int((counts == 0).nonzero()[0]) if len(train) else 0
        raise DataError(f"class {empty} has no training image: number the classes that occur 0..C-1, or drop its name")
    mean, std = channel_statistics(train.images)
    return Dataset(name, train, test, None, names, mean, std)


def from_folder(
    path: str | Path,
    *,
    test: float = 0.2,
    resolution: int | None = None,
    seed: int = 0,
    name: str | None = None,
) -> Dataset:
    """A data set from image files in one folder per class; the classes are the sorted names of the folders.

    A path whose only folders are train/ and test/, each with the folders of the classes, is used as it was
    split. Otherwise `test` of each class (rounded, at least one image) is drawn from `seed` for the test
    split. Images become RGB. Files that are not images by their suffix, and whatever starts with a dot, are
    passed over; an image that cannot be read is an error.

    Args:
        path: the folder.
        test: share of each class to set aside for testing.
        resolution: if given, images may have any size: the largest square in the middle is box-filtered down.
        seed: of the test split.
        name: of the data set; the folder's name by default.
    """
    root = Path(path).expanduser()
    if not root.is_dir():
        raise DataError(f"{root} is not a folder: give the folder that holds one folder per class")
    is_split = _folders(root) == ["test", "train"]
    base = root / "train" if is_split else root
    classes = _folders(base)
    if len(classes) < 2:
        raise DataError(f"{base} has {len(classes)} folder(s): there must be one, with images, for each class")
    files, labels = _files(base, classes)
    if is_split:
        if unknown := sorted(set(_folders(root / "test")) - set(classes)):
            raise DataError(f"{root / 'test' / unknown[0]} has no counterpart in train/: add it there or remove it")
        test_files, test_labels = _files(root / "test", classes, may_be_empty=True)
        held = torch.tensor([False] * len(files) + [True] * len(test_files))
        files, labels = files + test_files, torch.cat([labels, test_labels])
    else:
        held = _draw_test(root, classes, labels, test, seed)
    images = decode(files, title=f"decoding {root.name}", resolution=resolution)
    return from_arrays(
        images[~held],
        labels[~held],
        images[held],
        labels[held],
        layout="NCHW",
        class_names=classes,
        name=name or root.resolve().name,
    )


def _draw_test(root: Path, classes: Sequence[str], labels: Tensor, share: float, seed: int) -> Tensor:
    """A mask of the rows for testing: `share` of each class, at least one, and not all."""
    if not 0 < share < 1:
        raise DataError(f"test={share} must lie between 0 and 1: it is the share of each class set aside for testing")
    counts = labels.bincount(minlength=len(classes))
    if (counts < 2).any():
        lonely = root / classes[int((counts < 2).nonzero()[0])]
        raise DataError(f"{lonely} has a single image: two are needed, one to learn and one to test")
    wanted = torch.minimum((counts * share).round().long().clamp_min(1), counts - 1)
    shuffled = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    held = torch.empty(len(labels), dtype=torch.bool)
    held[shuffled] = rank_in_class(labels[shuffled]) < wanted[labels[shuffled]]
    return held


def _folders(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))


def _files(root: Path, classes: Sequence[str], may_be_empty: bool = False) -> tuple[list[Path], Tensor]:
    files: list[Path] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        folder = root / name
        found = sorted(p for p in folder.iterdir() if _is_image(p)) if folder.is_dir() else []
        if not found and not may_be_empty:
            raise DataError(f"{folder} has no image file: add some ({', '.join(sorted(_IMAGE_SUFFIXES))}) or remove it")
        files += found
        labels += [label] * len(found)
    return files, torch.tensor(labels, dtype=torch.int64)


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in _IMAGE_SUFFIXES and not path.name.startswith(".")


def _as_nchw(images: Tensor | np.ndarray[Any, Any], layout: Layout, what: str) -> Tensor:
    if layout not in ("NCHW", "NHWC", "NHW"):
        raise DataError(f"layout={layout!r} is unknown: use 'NCHW', 'NHWC' or 'NHW'")
    # torch shares memory with an array, but only with a writable one without negative strides.
    tensor = torch.as_tensor(np.require(images, requirements=["C", "W"]) if isinstance(images, np.ndarray) else images)
    if tensor.dtype != torch.uint8:
        raise DataError(f"{what} are {tensor.dtype}: give uint8, 0..255 (for 0..1, multiply by 255 and round)")
    if tensor.ndim != len(layout):
        raise DataError(
            f"{what} of shape {tuple(tensor.shape)} have {tensor.ndim} axes, layout={layout!r} has "
            f"{len(layout)}: give the layout they have"
        )
    if layout == "NHW":
        tensor = tensor[:, None]
    elif layout == "NHWC":
        tensor = tensor.permute(0, 3, 1, 2)
    return tensor.contiguous()


def _as_labels(labels: Tensor | np.ndarray[Any, Any] | Sequence[int], what: str) -> Tensor:
    tensor = torch.as_tensor(np.array(labels) if isinstance(labels, np.ndarray) else labels)
    if tensor.ndim != 1 or tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool:
        raise DataError(f"{what} are {tensor.dtype} of shape {tuple(tensor.shape)}: give one integer for each image")
    return tensor.to(torch.int64)


def _outermost(labels: Tensor, classes: int) -> int:
    """A label outside 0..classes-1 if there is one."""
    return int(labels.min()) if labels.min() < 0 else int(labels.max())


def _numbered(*splits: Split) -> tuple[str, ...]:
    classes = max((int(split.labels.max()) + 1 for split in splits if len(split)), default=0)
    return tuple(str(label) for label in range(max(classes, 0)))
