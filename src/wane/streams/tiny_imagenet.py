"""Tiny-ImageNet-200 from the publisher's folder: 64 x 64 JPEGs, 200 classes, val as the test split.

Decoding takes a while, so the decoded bytes are kept beside the folder, one file a split, named after a
fingerprint (names, sizes, times) of the JPEGs they came from: if those change, they are decoded again.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from wane.files import replace_file
from wane.streams.dataset import DataError, Split
from wane.streams.fetch import Archive
from wane.streams.image_files import decode

TINY_IMAGENET = Archive(
    url="https://cs231n.stanford.edu/tiny-imagenet-200.zip",
    checksum="md5:90528d7ca1a48142e341f4ef8d21d0de",
    folder="tiny-imagenet-200",
    members=("wnids.txt", "words.txt", "train", "val/val_annotations.txt", "val/images"),
)
_SIZE = 64


def tiny_imagenet(folder: Path, per_class: int | None = None) -> tuple[Split, Split, tuple[str, ...]]:
    """Train and test splits and the names of the classes.

    Greyscale images, about 2 %, are kept as RGB with three equal channels.
    Label i is line i of wnids.txt. Training rows run over the classes first (row r has label r % 200), within
    a class by the number in the file's name: the first n images of every class are the first rows, so that
    `per_class` decodes no more than it needs. Test rows are in the order of val_annotations.txt.
    """
    wnids = (folder / "wnids.txt").read_text().split()
    words = dict(line.split("\t", 1) for line in (folder / "words.txt").read_text().splitlines() if "\t" in line)
    names = tuple(words.get(wnid, wnid).split(",")[0].strip() for wnid in wnids)
    by_class = [_training_files(folder / "train" / wnid / "images") for wnid in wnids]
    available = _even_count(by_class)
    kept = available if per_class is None else per_class
    if kept > available:
        raise DataError(f"per_class={per_class} asks for too many images: {folder} has {available} of each class")
    train_files = [files[rank] for rank in range(available) for files in by_class]
    test_files, test_labels = _validation(folder / "val", {wnid: i for i, wnid in enumerate(wnids)})
    classes = len(wnids)
    train = Split(_images(folder, "train", train_files, kept * classes), torch.arange(kept * classes) % classes)
    return train, Split(_images(folder, "val", test_files, len(test_files)), torch.tensor(test_labels)), names


def _training_files(folder: Path) -> list[Path]:
    files = list(folder.glob("*.JPEG")) if folder.is_dir() else []
    if not files:
        raise DataError(f"{folder} has no JPEG: the data set is incomplete; delete it to fetch it again")
    return sorted(files, key=lambda path: int(re.sub(r"\D", "", path.stem.rsplit("_", 1)[-1]) or 0))


def _even_count(by_class: Sequence[Sequence[Path]]) -> int:
    """The number of images of each class, which is the same for all classes unless the copy is incomplete."""
    fewest, most = min(by_class, key=len), max(by_class, key=len)
    if len(fewest) != len(most):
        raise DataError(
            f"{fewest[0].parent} has {len(fewest)} images where {most[0].parent} has {len(most)}: the data "
            f"set is incomplete; delete it to fetch it again, or keep equally many of each class"
        )
    return len(most)


def _validation(folder: Path, label_of: dict[str, int]) -> tuple[list[Path], list[int]]:
    annotations = folder / "val_annotations.txt"
    files, labels = [], []
    for number, line in enumerate(annotations.read_text().splitlines(), 1):
        name, _, rest = line.partition("\t")
        wnid = rest.split("\t")[0]
        if wnid not in label_of:
            raise DataError(f"{annotations}, line {number}: {wnid!r} is not in wnids.txt; fetch the data set again")
        files.append(folder / "images" / name)
        labels.append(label_of[wnid])
    if not files:
        raise DataError(f"{annotations} lists no image: delete {folder.parent} to fetch it again")
    return files, labels


def _images(folder: Path, split: str, files: Sequence[Path], rows: int) -> Tensor:
    """The first `rows` of `files` decoded: (rows, 3, 64, 64) uint8, from the cache if it has them."""
    prefix = f"{folder.name}.{split}-"
    for cached in sorted(folder.parent.glob(f"{prefix}*-*.npy")):
        count, _, fingerprint = cached.stem.removeprefix(prefix).partition("-")
        if count.isdigit() and rows <= int(count) <= len(files) and fingerprint == _fingerprint(files[: int(count)]):
            images = _read_cache(cached, int(count))
            if images is not None:
                return torch.from_numpy(images[:rows])
    decoded = decode(files[:rows], title=f"decoding {folder.name}/{split}", size=_SIZE)
    cache = folder.parent / f"{prefix}{rows}-{_fingerprint(files[:rows])}.npy"
    try:
        replace_file(cache, lambda stream: np.save(stream, decoded.numpy(), allow_pickle=False))
        for stale in folder.parent.glob(f"{prefix}*-*.npy"):
            if stale != cache:
                stale.unlink(missing_ok=True)
    except OSError:
        pass  # a read-only or full disk only means that the next start decodes again
    return decoded


def _read_cache(path: Path, rows: int) -> np.ndarray[Any, np.dtype[np.uint8]] | None:
    # Mapped, copy on write: only the rows that are used are read, and several runs share them in memory.
    try:
        images = np.load(path, mmap_mode="c", allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    if images.shape != (rows, 3, _SIZE, _SIZE) or images.dtype != np.uint8:
        return None
    return images  # type: ignore[no-any-return]


def _fingerprint(files: Sequence[Path]) -> str:
    digest = hashlib.sha256()
    for path in files:
        try:
            info = path.stat()
        except OSError as error:
            raise DataError(f"{path} is missing ({error}): the data set is incomplete; fetch it again") from error
        digest.update(f"{path.name} {info.st_size} {info.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]
