"""A few hex digits that stand for the contents of a folder of images, or of a data set in memory.

Equal data gives equal digits wherever it lies and whenever it was written; a changed byte, a renamed or an added file
gives others.
"""

from __future__ import annotations

import os
from hashlib import blake2b
from pathlib import Path

import torch
from torch import Tensor

from wane.streams.dataset import DataError, Dataset
from wane.streams.image_files import is_image_file

__all__ = ["dataset_fingerprint", "fingerprint_folder"]

#: Hex digits of a fingerprint.
DIGITS = 16
_PIECE = 1 << 20
#: Digests of files by path, size and times of change: a file that looks the same is read once in a process.
_known: dict[tuple[str, int, int, int], bytes] = {}


def fingerprint_folder(path: str | Path) -> str:
    """The fingerprint of the image files at any depth below a folder: their relative names and contents.

    Files that are not images by their suffix, and whatever starts with a dot, do not count.
    """
    root = Path(path).expanduser()
    if not root.is_dir():
        raise DataError(f"{root} is not a folder: give the folder that holds one folder per class")
    whole = blake2b(digest_size=DIGITS // 2)
    for name, file in sorted((file.relative_to(root).as_posix(), file) for file in _image_files(root)):
        whole.update(_framed(name.encode(errors="surrogateescape")))
        whole.update(_file_digest(file))
    return whole.hexdigest()


def dataset_fingerprint(dataset: Dataset) -> str:
    """The fingerprint of a data set: rows, labels and domains of all splits, and the names of classes and domains.

    >>> import torch
    >>> from wane.streams import from_arrays
    >>> images = torch.arange(8, dtype=torch.uint8).view(2, 1, 2, 2)
    >>> def of(labels, name="arrays"):
    ...     return dataset_fingerprint(from_arrays(images, labels, images, [0, 1], layout="NCHW", name=name))
    >>> of([0, 1]) == of([0, 1], name="another"), of([0, 1]) == of([1, 0])
    (True, False)
    """
    whole = blake2b(digest_size=DIGITS // 2)
    for names in (dataset.class_names, dataset.domain_names or ()):
        whole.update(f"{len(names)};".encode())
        for name in names:
            whole.update(_framed(name.encode(errors="surrogateescape")))
    whole.update(f"{dataset.mean} {dataset.std};".encode())
    for split in (dataset.train, dataset.test, dataset.holdout):
        for column in (None, None, None) if split is None else (split.images, split.labels, split.domains):
            _add_tensor(whole, column)
    return whole.hexdigest()


def _image_files(root: Path) -> list[Path]:
    found = []
    for folder, below, files in os.walk(root, followlinks=True):
        below[:] = [name for name in below if not name.startswith(".")]
        found += [file for file in (Path(folder, name) for name in files) if is_image_file(file)]
    return found


def _file_digest(file: Path) -> bytes:
    try:
        info = file.stat()
        key = (str(file.absolute()), info.st_size, info.st_mtime_ns, info.st_ctime_ns)
        if key not in _known:
            digest = blake2b(digest_size=16)
            with file.open("rb", buffering=0) as stream:
                while piece := stream.read(_PIECE):
                    digest.update(piece)
            _known[key] = digest.digest()
        return _known[key]
    except OSError as error:
        raise DataError(f"{file} cannot be read ({error}): repair, replace or delete it") from error


def _add_tensor(whole: blake2b, column: Tensor | None) -> None:
    if column is None:
        whole.update(b"none;")
        return
    whole.update(f"{column.dtype} {tuple(column.shape)};".encode())
    for piece in torch.split(column.detach(), 4096):
        whole.update(piece.cpu().contiguous().numpy().data)


def _framed(text: bytes) -> bytes:
    """The bytes with their length in front, so that neighbours cannot be confused."""
    return len(text).to_bytes(8, "little") + text
