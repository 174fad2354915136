"""The user's own data: arrays, or a folder with one folder per class."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from wane.streams.dataset import DataError, Dataset, Split, channel_statistics, rank_in_class
from wane.streams.image_files import SUFFIXES, decode, is_image_file

__all__ = ["Layout", "from_arrays", "from_folder"]

Layout = Literal["NCHW", "NHWC", "NHW", "ND"]
_Array = Tensor | np.ndarray[Any, Any]


def from_arrays(
    train_images: _Array,
    train_labels: _Array | Sequence[int],
    test_images: _Array,
    test_labels: _Array | Sequence[int],
    *,
    layout: Layout,
    class_names: Sequence[str] | None = None,
    name: str = "arrays",
    train_domains: _Array | Sequence[int] | None = None,
    test_domains: _Array | Sequence[int] | None = None,
    domain_names: Sequence[str] | None = None,
) -> Dataset:
    """A data set from arrays of numpy or torch: images, or the rows of a table.

    Images are uint8, or float in units of your own, stored as float32. Rows of a table (layout "ND") may have any real
    type and are stored as float32. Each channel of float images, and each column of a table, is normalised by its mean
    and standard deviation over the training rows.

    Args:
        train_images: the rows, their axes in the order of `layout`.
        train_labels: integers 0..C-1; every class must occur.
        test_images: as train_images.
        test_labels: integers 0..C-1.
        layout: "NCHW", "NHWC", "NHW" for a single channel, or "ND" for a table. Never guessed.
        class_names: C names; the labels themselves by default.
        name: of the data set.
        train_domains: integers 0..D-1, where each row comes from (a font, a hospital, a year), for a stream of domains.
        test_domains: as train_domains.
        domain_names: D names; the numbers themselves by default.

    Arrays of uint8 in the layout NCHW, and float32 tables, are shared, not copied.

    >>> images = np.zeros((4, 8, 8, 3), np.uint8)
    >>> data = from_arrays(images, [0, 1, 2, 1], images, [2, 2, 1, 0], layout="NHWC")
    >>> data.num_classes, data.row_shape, data.class_names
    (3, (3, 8, 8), ('0', '1', '2'))
    >>> table = np.array([[1.0, 50.0], [3.0, 70.0]])
    >>> data = from_arrays(table, [0, 1], table, [0, 1], layout="ND", train_domains=[0, 1], test_domains=[0, 1])
    >>> data.row_shape, data.mean, data.domain_names
    ((2,), (2.0, 60.0), ('0', '1'))
    """
    train = _split(train_images, train_labels, train_domains, layout, "train")
    test = _split(test_images, test_labels, test_domains, layout, "test")
    if train.images.shape[1:] != test.images.shape[1:] or train.images.dtype != test.images.dtype:
        raise DataError(
            f"train_images are {tuple(train.images.shape[1:])} {train.images.dtype} and test_images "
            f"{tuple(test.images.shape[1:])} {test.images.dtype}"
            f"{' (channels, height, width)' if layout != 'ND' else ''}: make them the same"
        )
    names = tuple(class_names) if class_names is not None else _numbered(train.labels, test.labels)
    for what, split in (("train", train), ("test", test)):
        _require_range(split.labels, len(names), f"{what}_labels", "classes")
    counts = train.labels.bincount(minlength=len(names))
    if not len(train) or (counts == 0).any():
        empty = int((counts == 0).nonzero()[0]) if len(train) else 0
        raise DataError(f"class {empty} has no training image: number the classes that occur 0..C-1, or drop its name")
    domains = _domain_names(train.domains, test.domains, domain_names)
    mean, std = channel_statistics(train.images)
    return Dataset(name, train, test, None, names, mean, std, domains)


def from_folder(
    path: str | Path,
    *,
    test: float = 0.2,
    resolution: int | None = None,
    seed: int = 0,
    name: str | None = None,
    domains: bool = False,
) -> Dataset:
    """A data set from image files in one folder per class; the classes are the sorted names of the folders.

    A path whose only folders are train/ and test/, each with the folders of the classes, is used as it was
    split. Otherwise `test` of each class (rounded, at least one image) is drawn from `seed` for the test
    split. Images become RGB. Files that are not images by their suffix, and whatever starts with a dot, are
    passed over; images that cannot be used are an error that lists them.

    Args:
        path: the folder.
        test: share of each class to set aside for testing (with domains: of each class in each domain).
        resolution: if given, images may have any size: the largest square in the middle is box-filtered down.
        seed: of the test split.
        name: of the data set; the folder's name by default.
        domains: whether there is one folder per domain, which holds the folders of the classes (photo/cat/1.png,
            sketch/cat/1.png). A class need not occur in every domain.
    """
    root = Path(path).expanduser()
    if not root.is_dir():
        raise DataError(f"{root} is not a folder: give the folder that holds one folder per class")
    is_split = _folders(root) == ["test", "train"]
    base = root / "train" if is_split else root
    domain_names = _domain_folders(base) if domains else [""]
    classes = sorted({name for domain in domain_names for name in _folders(base / domain)})
    if len(classes) < 2:
        raise DataError(f"{base} has {len(classes)} folder(s): there must be one, with images, for each class")
    files, labels, sources = _files(base, domain_names, classes, may_lack=domains)
    if is_split:
        _require_counterparts(root, domain_names, classes, domains)
        test_files, test_labels, test_sources = _files(root / "test", domain_names, classes, may_lack=True)
        held = torch.tensor([False] * len(files) + [True] * len(test_files))
        files, labels = files + test_files, torch.cat([labels, test_labels])
        sources = torch.cat([sources, test_sources])
    else:
        cells = [f"{domain}/{name}" if domain else name for domain in domain_names for name in classes]
        held = _draw_test(root, cells, sources * len(classes) + labels, test, seed)
    images = decode(files, title=f"decoding {root.name}", resolution=resolution)
    return from_arrays(
        images[~held],
        labels[~held],
        images[held],
        labels[held],
        layout="NCHW",
        class_names=classes,
        name=name or root.resolve().name,
        train_domains=sources[~held] if domains else None,
        test_domains=sources[held] if domains else None,
        domain_names=domain_names if domains else None,
    )


def _domain_folders(base: Path) -> list[str]:
    names = _folders(base)
    for name in names:
        if not _folders(base / name):
            raise DataError(
                f"{base / name} holds no folder: with domains=True it is a domain, and must hold one folder of images "
                f"for each class"
            )
    if len(names) < 2:
        raise DataError(
            f"{base} has {len(names)} folder(s): with domains=True there must be at least two, one for each domain"
        )
    return names


def _require_counterparts(root: Path, domain_names: Sequence[str], classes: Sequence[str], domains: bool) -> None:
    """Complain about a folder of test/ that train/ does not have."""
    known = {root / "test" / domain / name for domain in domain_names for name in classes}
    given = [root / "test" / domain for domain in (_folders(root / "test") if domains else [""])]
    for folder in given:
        if domains and folder.name not in domain_names:
            raise DataError(f"{folder} has no counterpart in train/: add it there or remove it")
        for name in _folders(folder):
            if folder / name not in known:
                raise DataError(f"{folder / name} has no counterpart in train/: add it there or remove it")


def _draw_test(root: Path, cells: Sequence[str], cell: Tensor, share: float, seed: int) -> Tensor:
    """A mask of the rows for testing: `share` of each class (of each domain), at least one, and not all."""
    if not 0 < share < 1:
        raise DataError(f"test={share} must lie between 0 and 1: it is the share of each class set aside for testing")
    counts = cell.bincount(minlength=len(cells))
    if (counts == 1).any():
        lonely = root / cells[int((counts == 1).nonzero()[0])]
        raise DataError(f"{lonely} has a single image: two are needed, one to learn and one to test")
    wanted = torch.minimum((counts * share).round().long().clamp_min(1), counts - 1)
    shuffled = torch.randperm(len(cell), generator=torch.Generator().manual_seed(seed))
    held = torch.empty(len(cell), dtype=torch.bool)
    held[shuffled] = rank_in_class(cell[shuffled]) < wanted[cell[shuffled]]
    return held


def _folders(root: Path) -> list[str]:
    if not root.is_dir():
        return []
    return sorted(path.name for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))


def _files(
    root: Path, domains: Sequence[str], classes: Sequence[str], *, may_lack: bool
) -> tuple[list[Path], Tensor, Tensor]:
    """The image files with their labels and domains. A class that may be lacking need not have a folder."""
    files: list[Path] = []
    labels: list[int] = []
    sources: list[int] = []
    for source, domain in enumerate(domains):
        for label, name in enumerate(classes):
            folder = root / domain / name
            found = sorted(p for p in folder.iterdir() if is_image_file(p)) if folder.is_dir() else []
            if not found and not may_lack:
                raise DataError(f"{folder} has no image file: add some ({', '.join(sorted(SUFFIXES))}) or remove it")
            files += found
            labels += [label] * len(found)
            sources += [source] * len(found)
    return files, torch.tensor(labels, dtype=torch.int64), torch.tensor(sources, dtype=torch.int64)


def _split(
    rows: _Array, labels: _Array | Sequence[int], domains: _Array | Sequence[int] | None, layout: Layout, what: str
) -> Split:
    images = _as_rows(rows, layout, f"{what}_images")
    of = _as_integers(labels, f"{what}_labels")
    sources = None if domains is None else _as_integers(domains, f"{what}_domains")
    for name, column in (("labels", of), ("domains", sources)):
        if column is not None and len(column) != len(images):
            raise DataError(f"{len(images)} {what}_images but {len(column)} {what}_{name}: give one each")
    return Split(images, of, sources)


def _as_rows(images: _Array, layout: Layout, what: str) -> Tensor:
    if layout not in ("NCHW", "NHWC", "NHW", "ND"):
        raise DataError(f"layout={layout!r} is unknown: use 'NCHW', 'NHWC', 'NHW' or 'ND'")
    # torch shares memory with an array, but only with a writable one without negative strides.
    tensor = torch.as_tensor(np.require(images, requirements=["C", "W"]) if isinstance(images, np.ndarray) else images)
    if tensor.is_complex() or (layout != "ND" and tensor.dtype != torch.uint8 and not tensor.is_floating_point()):
        raise DataError(f"{what} are {tensor.dtype}: give uint8 (0..255), or float32 in any unit")
    if tensor.ndim != len(layout):
        raise DataError(
            f"{what} of shape {tuple(tensor.shape)} have {tensor.ndim} axes, layout={layout!r} has "
            f"{len(layout)}: give the layout they have"
        )
    if layout == "NHW":
        tensor = tensor[:, None]
    elif layout == "NHWC":
        tensor = tensor.permute(0, 3, 1, 2)
    if tensor.dtype == torch.uint8 and layout != "ND":
        return tensor.contiguous()
    tensor = tensor.to(torch.float32).contiguous()
    if bool((bad := ~tensor.isfinite().flatten(1).all(1)).any()):
        raise DataError(f"{int(bad.sum())} rows of {what} hold NaN or infinity (as float32), the first is row "
                        f"{int(bad.nonzero()[0])}: fill in or drop them")  # fmt: skip
    return tensor


def _as_integers(values: _Array | Sequence[int], what: str) -> Tensor:
    tensor = torch.as_tensor(np.array(values) if isinstance(values, np.ndarray) else values)
    if tensor.ndim != 1 or tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool:
        raise DataError(f"{what} are {tensor.dtype} of shape {tuple(tensor.shape)}: give one integer for each image")
    return tensor.to(torch.int64)


def _require_range(values: Tensor, count: int, what: str, kind: str) -> None:
    """Complain about a value outside 0..count-1."""
    if len(values) and not 0 <= (value := int(values.min() if values.min() < 0 else values.max())) < count:
        raise DataError(f"{what} hold {value}: with {count} {kind} they must be 0..{count - 1}")


def _domain_names(train: Tensor | None, test: Tensor | None, names: Sequence[str] | None) -> tuple[str, ...] | None:
    if train is None and test is None:
        if names is not None:
            raise DataError("domain_names without train_domains and test_domains: give all three, or none")
        return None
    if train is None or test is None:
        lacking = "train_domains" if train is None else "test_domains"
        raise DataError(f"{lacking} is missing: give the domains of both splits, or of none")
    known = tuple(names) if names is not None else _numbered(train, test)
    for what, of in (("train_domains", train), ("test_domains", test)):
        _require_range(of, len(known), what, "domains")
    return known


def _numbered(*columns: Tensor) -> tuple[str, ...]:
    count = max((int(column.max()) + 1 for column in columns if len(column)), default=0)
    return tuple(str(number) for number in range(max(count, 0)))
