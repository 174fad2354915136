"""CIFAR-10 and CIFAR-100 from their binary versions: records of label bytes and 3 x 32 x 32 pixel bytes.

The versions for Python are pickles, which execute what they hold; wane never loads one.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from wane.streams.dataset import DataError, Split
from wane.streams.fetch import Archive

_PIXELS = 3 * 32 * 32
_CIFAR10_BATCHES = tuple(f"data_batch_{i}.bin" for i in range(1, 6))

CIFAR10 = Archive(
    url="https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    checksum="md5:c32a1d4ab5d03f1284b67883e8d87530",
    folder="cifar-10-batches-bin",
    members=(*_CIFAR10_BATCHES, "test_batch.bin", "batches.meta.txt"),
)
CIFAR100 = Archive(
    url="https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
    checksum="md5:03b5dce01913d631647c71ecec9e9cb8",
    folder="cifar-100-binary",
    members=("train.bin", "test.bin", "fine_label_names.txt"),
)


def cifar10(folder: Path) -> tuple[Split, Split, tuple[str, ...]]:
    """Train and test splits in the official order, and the names of the 10 classes."""
    names = _names(folder / "batches.meta.txt", 10)
    batches = [_records(folder / batch, 10_000, 1, 10) for batch in _CIFAR10_BATCHES]
    train = Split(torch.cat([b.images for b in batches]), torch.cat([b.labels for b in batches]))
    return train, _records(folder / "test_batch.bin", 10_000, 1, 10), names


def cifar100(folder: Path) -> tuple[Split, Split, tuple[str, ...]]:
    """Train and test splits in the official order, with the 100 fine labels and their names."""
    names = _names(folder / "fine_label_names.txt", 100)
    return (
        _records(folder / "train.bin", 50_000, 2, 100),
        _records(folder / "test.bin", 10_000, 2, 100),
        names,
    )


def _records(path: Path, count: int, label_bytes: int, classes: int) -> Split:
    """Records of `label_bytes` label bytes, of which the last one counts, and 3072 pixels."""
    size, expected = path.stat().st_size, count * (label_bytes + _PIXELS)
    if size != expected:
        raise DataError(
            f"{path} has {size:,} bytes, not the {expected:,} of {count:,} images: it was cut short or is "
            f"not the publisher's; delete {path.parent} to fetch it again"
        )
    records = np.fromfile(path, np.uint8).reshape(count, label_bytes + _PIXELS)
    labels = torch.from_numpy(records[:, label_bytes - 1].astype(np.int64))
    if (largest := int(labels.max())) >= classes:
        raise DataError(
            f"{path} holds the label {largest}, there are only {classes} classes: it is not the publisher's "
            f"file; delete {path.parent} to fetch it again"
        )
    # Contiguous: a view into the records would keep the label bytes and make every gather slower.
    images = np.ascontiguousarray(records[:, label_bytes:]).reshape(count, 3, 32, 32)
    return Split(torch.from_numpy(images), labels)


def _names(path: Path, classes: int) -> tuple[str, ...]:
    names = tuple(line.strip() for line in path.read_text().splitlines() if line.strip())
    if len(names) != classes:
        raise DataError(f"{path} names {len(names)} classes, not {classes}: delete {path.parent} to fetch it again")
    return names
