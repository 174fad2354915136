"""The real CIFAR-100 and Tiny-ImageNet, where they lie beside the repository (../shared/data)."""

import hashlib
import importlib.util
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from wane.streams import load_dataset, make_stream

UNPACK = Path(__file__).resolve().parents[3] / "shared" / "data" / "unpack.py"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not UNPACK.exists(), reason=f"the real data sets are not here: no {UNPACK}"),
]


@pytest.fixture(scope="session")
def unpack():
    spec = importlib.util.spec_from_file_location("unpack", UNPACK)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def root(unpack, tmp_path_factory):
    """Both data sets in their publishers' layout, unpacked once, and removed afterwards: they are large."""
    root = tmp_path_factory.mktemp("data")
    unpack.cifar100(root / "cifar-100-binary")
    unpack.tiny_imagenet(root)
    yield root
    shutil.rmtree(root)


def test_cifar100_decodes_to_the_official_bytes(root, unpack):
    data = load_dataset("cifar100", root=root, download=False)
    for name, split in (("train", data.train), ("test", data.test)):
        # The coarse label is the only thing wane drops; a fine label determines it.
        official = np.fromfile(root / "cifar-100-binary" / f"{name}.bin", np.uint8).reshape(-1, 3074)
        records = np.empty_like(official)
        records[:, 0] = official[:, 0]
        records[:, 1] = split.labels.numpy()
        records[:, 2:] = split.images.flatten(1).numpy()
        assert hashlib.sha1(records.tobytes()).hexdigest() == unpack.SHA1[name]
    assert data.class_names[:3] == ("apple", "aquarium_fish", "baby")
    assert data.train.labels.bincount().tolist() == [500] * 100
    assert data.test.labels.bincount().tolist() == [100] * 100
    stream = make_stream(data, tasks=5)
    assert [len(task.train) for task in stream] == [10_000] * 5


def test_cifar100_published_statistics_are_about_right(root):
    from wane.streams import channel_statistics

    data = load_dataset("cifar100", root=root, download=False)
    mean, std = channel_statistics(data.train.images)
    np.testing.assert_allclose(mean, data.mean, atol=2e-3)
    np.testing.assert_allclose(std, data.std, atol=2e-3)


def test_tiny_imagenet_order_grey_and_cache(root):
    started = time.perf_counter()
    data = load_dataset("tiny_imagenet", root=root, per_class=20, download=False)
    first = time.perf_counter() - started
    folder = root / "tiny-imagenet-200"
    wnids = (folder / "wnids.txt").read_text().split()
    assert (len(data.train), len(data.test), data.num_classes) == (4_000, 10_000, 200)
    assert data.train.labels.bincount().tolist() == [20] * 200
    assert data.test.labels.bincount().tolist() == [50] * 200
    for row in range(0, 4000, 371):
        wnid = wnids[int(data.train.labels[row])]
        path = folder / "train" / wnid / "images" / f"{wnid}_{row // 200}.JPEG"
        expected = np.asarray(Image.open(path).convert("RGB"))
        assert np.array_equal(data.train.images[row].permute(1, 2, 0).numpy(), expected)
    lines = (folder / "val" / "val_annotations.txt").read_text().splitlines()
    assert [wnids[label] for label in data.test.labels.tolist()] == [line.split("\t")[1] for line in lines]

    files = [folder / "val" / "images" / line.split("\t")[0] for line in lines]
    grey = torch.tensor([Image.open(path).mode == "L" for path in files])
    assert 0.01 < grey.float().mean() < 0.03
    images = data.test.images[grey]
    assert torch.equal(images[:, 0], images[:, 1])
    assert torch.equal(images[:, 0], images[:, 2])

    started = time.perf_counter()
    again = load_dataset("tiny_imagenet", root=root, per_class=20, download=False)
    assert time.perf_counter() - started < first / 2
    assert torch.equal(again.train.images, data.train.images)


def test_tiny_imagenet_half_size(root):
    small = load_dataset("tiny_imagenet", root=root, per_class=5, resolution=32, holdout=1, download=False)
    whole = load_dataset("tiny_imagenet", root=root, per_class=5, download=False)
    assert (len(small.train), len(small.holdout), small.image_shape) == (800, 200, (3, 32, 32))
    blocks = whole.test.images[:500].view(500, 3, 32, 2, 32, 2).double().mean((3, 5))
    assert (small.test.images[:500].double() - blocks).abs().max() <= 0.5
