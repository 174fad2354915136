"""Arrays and folders of the user's own."""

import numpy as np
import pytest
import torch
from PIL import Image

from wane.streams import DataError, from_arrays, from_folder

RNG = np.random.default_rng(0)


def arrays(n=6, shape=(5, 7, 3)):
    return RNG.integers(0, 256, (n, *shape), np.uint8)


def test_layouts_give_the_same_data_set():
    nhwc, labels = arrays(), [0, 1, 2, 0, 1, 2]
    nchw = np.ascontiguousarray(nhwc.transpose(0, 3, 1, 2))
    first = from_arrays(nhwc, labels, nhwc, labels, layout="NHWC")
    second = from_arrays(torch.from_numpy(nchw), torch.tensor(labels, dtype=torch.int32), nchw, labels, layout="NCHW")
    assert torch.equal(first.train.images, second.train.images)
    assert first.train.images.is_contiguous()
    assert first.train.labels.dtype == second.train.labels.dtype == torch.int64
    assert first.image_shape == (3, 5, 7)
    grey = from_arrays(nhwc[..., 0], labels, nhwc[..., 0], labels, layout="NHW", class_names=["a", "b", "c"])
    assert torch.equal(grey.train.images[:, 0], torch.from_numpy(nhwc[..., 0]))
    assert grey.class_names == ("a", "b", "c")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"train_images": np.zeros((6, 5, 7, 3), int)},
            r"train_images are torch.int64: give uint8 \(0..255\), or float32",
        ),
        (
            {"train_images": np.zeros((6, 5, 7, 3))},
            r"\(3, 5, 7\) torch.float32 and test_images \(3, 5, 7\) torch.uint8",
        ),
        ({"layout": "NHW"}, r"\(6, 5, 7, 3\) have 4 axes, layout='NHW' has 3"),
        ({"layout": "HWCN"}, "layout='HWCN' is unknown"),
        ({"train_labels": [0, 1, 2, 0, 1]}, "6 train_images but 5 train_labels"),
        ({"train_labels": [0, 1, 2, 0, 1, -1]}, "train_labels hold -1"),
        ({"train_labels": [0, 1, 1, 0, 1, 1]}, "class 2 has no training image"),
        ({"train_labels": [0.0, 1, 2, 0, 1, 2]}, "train_labels are torch.float32"),
        ({"test_labels": [0, 1, 2, 0, 1, 3], "class_names": "abc"}, "test_labels hold 3: with 3 classes"),
        ({"test_images": np.zeros((6, 5, 5, 3), np.uint8)}, r"\(3, 5, 7\) torch.uint8 and test_images \(3, 5, 5\)"),
        (
            {"train_images": np.zeros((0, 5, 7, 3), np.uint8), "train_labels": np.zeros(0, int)},
            "no training image",
        ),
    ],
)
def test_bad_arrays_are_quoted(change, words):
    good = {"train_images": arrays(), "train_labels": [0, 1, 2] * 2, "layout": "NHWC"}
    good |= {"test_images": arrays(), "test_labels": [0, 1, 2] * 2}
    with pytest.raises(DataError, match=words):
        from_arrays(**(good | change))


def test_read_only_and_reversed_arrays_are_fine(recwarn):
    images = arrays()[:, ::-1]
    frozen = arrays()
    frozen.setflags(write=False)
    data = from_arrays(images, np.array([0, 1, 2] * 2)[::-1], frozen, [0, 1, 2] * 2, layout="NHWC")
    assert np.array_equal(data.train.images.permute(0, 2, 3, 1).numpy(), images)
    assert not recwarn.list


def write(path, size=(8, 8), mode="RGB", seed=None):
    path.parent.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    shape = (size[1], size[0], 3) if mode == "RGB" else (size[1], size[0])
    Image.fromarray(rng.integers(0, 256, shape, np.uint8)).save(path)


@pytest.fixture
def folder(tmp_path):
    for name in ("owl", "cat", "elk"):
        for i in range(10):
            write(tmp_path / "zoo" / name / f"{i}.png", seed=i)
    (tmp_path / "zoo" / "cat" / "notes.txt").write_text("not an image")
    (tmp_path / "zoo" / ".hidden").mkdir()
    return tmp_path / "zoo"


def test_folder_is_split_by_seed(folder):
    data = from_folder(folder, test=0.3)
    assert data.class_names == ("cat", "elk", "owl")
    assert data.name == "zoo"
    assert data.train.labels.bincount().tolist() == [7] * 3
    assert data.test.labels.bincount().tolist() == [3] * 3
    assert torch.equal(data.test.images, from_folder(folder, test=0.3).test.images)
    assert not torch.equal(data.test.images, from_folder(folder, test=0.3, seed=1).test.images)
    files = {np.asarray(Image.open(p)).tobytes() for p in folder.glob("cat/*.png")}
    both = torch.cat([data.train.images[data.train.labels == 0], data.test.images[data.test.labels == 0]])
    assert {image.permute(1, 2, 0).numpy().tobytes() for image in both} == files


def test_folder_with_train_and_test(tmp_path):
    for split, n in (("train", 4), ("test", 2)):
        for name in ("a", "b"):
            for i in range(n):
                write(tmp_path / split / name / f"{i}.png", mode="L")
    data = from_folder(tmp_path, test=0.9)
    assert (len(data.train), len(data.test)) == (8, 4)
    assert (data.train.images[:, 0] == data.train.images[:, 2]).all()
    write(tmp_path / "test" / "c" / "0.png")
    with pytest.raises(DataError, match=r"test.c has no counterpart in train"):
        from_folder(tmp_path)


def test_folder_of_any_size_needs_a_resolution(folder):
    write(folder / "cat" / "wide.png", size=(20, 8), seed=1)
    with pytest.raises(DataError, match=r"wide.png is 8 x 20 pixels, not the 8 x 8 .* resolution="):
        from_folder(folder)
    assert from_folder(folder, resolution=4).image_shape == (3, 4, 4)
    with pytest.raises(DataError, match="smaller than resolution=9"):
        from_folder(folder, resolution=9)


def test_photographs_are_turned_upright(tmp_path):
    for name in ("a", "b"):
        for i in range(2):
            write(tmp_path / name / f"{i}.png", size=(8, 8))
    picture = Image.fromarray(np.zeros((8, 8, 3), np.uint8))
    picture.paste((255, 255, 255), (0, 0, 8, 4))  # white above, stored lying on its side
    exif = picture.getexif()
    exif[0x0112] = 6
    picture.save(tmp_path / "a" / "0.png", exif=exif)
    picture.save(tmp_path / "a" / "1.png", exif=exif)
    image = from_folder(tmp_path).train
    assert image.images[image.labels == 0][0, 0, 0].tolist() == [0] * 4 + [255] * 4


@pytest.mark.parametrize("content", [b"", b"not an image", None])
def test_corrupt_image_is_named(folder, content):
    victim = folder / "elk" / "3.png"
    victim.write_bytes(victim.read_bytes()[:80] if content is None else content)
    with pytest.raises(DataError, match=r"elk.3.png is not a readable image .* repair, replace or delete it"):
        from_folder(folder)


def test_bad_folders_are_quoted(folder, tmp_path):
    with pytest.raises(DataError, match="nowhere is not a folder"):
        from_folder(tmp_path / "nowhere")
    with pytest.raises(DataError, match=r"test=1.5 must lie between"):
        from_folder(folder, test=1.5)
    (folder / "void").mkdir()
    with pytest.raises(DataError, match="void has no image file"):
        from_folder(folder)
    (folder / "void").rmdir()
    write(folder / "lynx" / "0.png")
    with pytest.raises(DataError, match="lynx has a single image"):
        from_folder(folder)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"empty has 0 folder"):
        from_folder(tmp_path / "empty")
