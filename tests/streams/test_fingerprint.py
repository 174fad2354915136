"""Fingerprints: what changes them, what does not, and how long they take."""

import os
import shutil
import time

import numpy as np
import pytest
import torch

from wane.streams import DataError, dataset_fingerprint, fingerprint, fingerprint_folder, from_arrays, with_holdout


@pytest.fixture
def folder(tmp_path):
    """The contents are never decoded, only hashed."""
    for name in ("cat", "owl"):
        for i in range(3):
            path = tmp_path / "zoo" / "train" / name / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(np.random.default_rng(i).bytes(1000))
    return tmp_path / "zoo"


def changes(folder):
    before = fingerprint_folder(folder)

    def since(fresh=True):
        if fresh:
            fingerprint._known.clear()
        return fingerprint_folder(folder) != before

    return since


def test_it_is_the_same_elsewhere_and_after_a_touch(folder, tmp_path):
    first = fingerprint_folder(folder)
    assert len(first) >= 10
    assert int(first, 16) >= 0
    shutil.copytree(folder, tmp_path / "elsewhere" / "other name")
    assert fingerprint_folder(str(tmp_path / "elsewhere" / "other name")) == first
    for path in folder.rglob("*.png"):
        os.utime(path, (1, 1))
    assert fingerprint_folder(folder) == first


def test_a_changed_byte_changes_it_also_within_a_process(folder):
    changed, path = changes(folder), folder / "train" / "cat" / "1.png"
    content = bytearray(path.read_bytes())
    content[500] ^= 1
    path.write_bytes(bytes(content))
    assert changed(fresh=False)
    assert changed()


def test_a_changed_byte_with_the_old_time_is_noticed(folder):
    changed, path = changes(folder), folder / "train" / "cat" / "1.png"
    info = path.stat()
    path.write_bytes(b"x" * 1000)
    os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))
    assert changed(fresh=False)


@pytest.mark.parametrize(
    "change",
    [
        lambda f: (f / "train/cat/1.png").rename(f / "train/cat/7.png"),
        lambda f: (f / "train/cat").rename(f / "train/dog"),
        lambda f: (f / "train/cat/9.png").write_bytes(b"new"),
        lambda f: (f / "train/cat/1.png").unlink(),
        lambda f: [(f / "train/cat/0.png").rename(f / "x"), (f / "train/cat/1.png").rename(f / "train/cat/0.png"),
                   (f / "x").rename(f / "train/cat/1.png")],
    ],
)  # fmt: skip
def test_names_and_files_count(folder, change):
    changed = changes(folder)
    change(folder)
    assert changed()


def test_what_is_no_image_does_not_count(folder):
    changed = changes(folder)
    (folder / "train" / "cat" / "notes.txt").write_text("hello")
    (folder / "train" / ".thumbs").mkdir()
    (folder / "train" / ".thumbs" / "1.png").write_bytes(b"x")
    (folder / ".DS_Store").write_bytes(b"x")
    assert not changed()


def test_a_path_that_is_no_folder_is_quoted(tmp_path):
    with pytest.raises(DataError, match="nowhere is not a folder"):
        fingerprint_folder(tmp_path / "nowhere")


def test_files_are_read_once_in_a_process(folder, monkeypatch):
    first = fingerprint_folder(folder)
    monkeypatch.setattr(fingerprint, "blake2b", lambda digest_size: _Counting(digest_size))
    _Counting.made = 0
    assert fingerprint_folder(folder) == first
    assert _Counting.made == 1  # the whole, and no file


class _Counting:
    made = 0

    def __init__(self, digest_size):
        import hashlib

        type(self).made += 1
        self._inner = hashlib.blake2b(digest_size=digest_size)
        self.update, self.hexdigest, self.digest = self._inner.update, self._inner.hexdigest, self._inner.digest


def data(**change):
    images = torch.arange(48, dtype=torch.uint8).view(12, 1, 2, 2)
    given = {"train_images": images, "train_labels": torch.arange(12) % 3, "test_images": images,
             "test_labels": torch.arange(12) % 3, "layout": "NCHW", "class_names": ["a", "b", "c"]}  # fmt: skip
    return from_arrays(**(given | change))


def test_data_sets_differ_by_tensors_and_names():
    same = dataset_fingerprint(data())
    assert same == dataset_fingerprint(data(name="other").to("cpu"))
    images = data().train.images.clone()
    images[3, 0, 1, 1] += 1
    domains = torch.arange(12) % 2
    others = [
        data(train_images=images),
        data(test_images=images),
        data(train_images=images.float(), test_images=images.float()),
        data(train_labels=torch.arange(12) * 2 % 3),
        data(class_names=["a", "b", "d"]),
        data(class_names=["a", "bc", ""]),
        data(train_domains=domains, test_domains=domains),
        data(train_domains=domains, test_domains=domains, domain_names=["x", "y"]),
        with_holdout(data(), 1),
    ]
    assert len({same, *map(dataset_fingerprint, others)}) == 10


def test_speed(tmp_path):
    """At least 300 MB/s, in the best of a few tries; measured 700 to 900 on a busy machine."""
    size = 3 << 20
    for i in range(20):
        path = tmp_path / "a" / f"{i}.png"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(np.random.default_rng(i).bytes(size))
    images = torch.zeros(20_000, 3, 32, 32, dtype=torch.uint8)
    big = from_arrays(images, torch.arange(20_000) % 2, images[:2], [0, 1], layout="NCHW")
    for work, amount in ((lambda: fingerprint_folder(tmp_path), 20 * size), (lambda: dataset_fingerprint(big), 61e6)):
        best = 0.0
        for _ in range(5):
            fingerprint._known.clear()
            start = time.process_time()
            work()
            best = max(best, amount / 1e6 / (time.process_time() - start))
        assert best > 300
