"""Arrays and folders of the user's own."""

import numpy as np
import pytest
import torch
from PIL import Image

from wane.streams import DataError, crop_and_flip, eval_batch, from_arrays, from_folder, load_dataset, make_stream

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
    with pytest.raises(DataError, match=r"wide.png is 8 x 20 pixels, not the 8 x 8 .* --set data.resolution=8"):
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


def test_float_images_are_stored_as_float32_and_normalised_by_channel():
    images = RNG.normal(3, 2, (6, 5, 7, 3))
    data = from_arrays(images, [0, 1, 2] * 2, images, [0, 1, 2] * 2, layout="NHWC")
    assert data.train.images.dtype == torch.float32
    assert data.row_shape == data.image_shape == (3, 5, 7)
    assert data.is_images
    batch = eval_batch(data.train.images, slice(0, 6), data.mean, data.std, channels_last=True)
    assert batch.is_contiguous(memory_format=torch.channels_last)
    np.testing.assert_allclose(batch.mean((0, 2, 3)), 0, atol=1e-6)
    np.testing.assert_allclose(batch.std((0, 2, 3), correction=0), 1, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.uint8, np.bool_])
def test_tables_are_normalised_by_column(dtype):
    table = RNG.integers(0, 9, (40, 5)).astype(dtype)
    table[:, 3] = 1  # a constant column
    labels = np.arange(40) % 4
    data = from_arrays(table, labels, table[:9], labels[:9], layout="ND")
    assert data.train.images.dtype == torch.float32
    assert data.row_shape == (5,)
    assert not data.is_images
    batch = eval_batch(data.train.images, torch.arange(40), data.mean, data.std, channels_last=True)
    expected = (table.astype(float) - table.astype(float).mean(0)) / np.where(table.std(0) > 0, table.std(0), 1)
    np.testing.assert_allclose(batch, expected, atol=1e-5)
    assert (batch[:, 3] == 0).all()
    g = torch.Generator().manual_seed(0)
    assert crop_and_flip(data.train.images, 4, True, g) is data.train.images
    assert torch.equal(g.get_state(), torch.Generator().manual_seed(0).get_state())


def test_float32_tables_are_shared_not_copied():
    table = RNG.normal(0, 1, (6, 4)).astype(np.float32)
    data = from_arrays(table, [0, 1] * 3, table, [0, 1] * 3, layout="ND")
    assert data.train.images.data_ptr() == table.ctypes.data


def test_nan_and_infinity_are_counted():
    table = RNG.normal(0, 1, (6, 4))
    table[2, 1], table[4, 0] = np.nan, np.inf
    with pytest.raises(DataError, match=r"2 rows of train_images hold NaN or infinity .* the first is row 2: fill in"):
        from_arrays(table, [0, 1] * 3, table, [0, 1] * 3, layout="ND")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"train_domains": [0, 1, 0]}, "6 train_images but 3 train_domains"),
        ({"train_domains": [0, 1, 2] * 2, "domain_names": ["a", "b"]}, "train_domains hold 2: with 2 domains"),
        ({"test_domains": None}, "test_domains is missing: give the domains of both splits"),
        ({"train_domains": [0.5] * 6}, "train_domains are torch.float32"),
    ],
)
def test_bad_domains_are_quoted(change, words):
    good = {"train_domains": [0, 1] * 3, "test_domains": [0, 1] * 3, "layout": "NHWC"}
    images = arrays()
    with pytest.raises(DataError, match=words):
        from_arrays(images, [0, 1, 2] * 2, images, [0, 1, 2] * 2, **(good | change))
    with pytest.raises(DataError, match="domain_names without train_domains"):
        from_arrays(images, [0, 1, 2] * 2, images, [0, 1, 2] * 2, layout="NHWC", domain_names=["a"])


@pytest.fixture
def weather(tmp_path):
    """Two domains of two classes; `fog` has no `dog`."""
    for domain, classes in (("sun", ("cat", "dog", "owl")), ("fog", ("cat", "owl"))):
        for name in classes:
            for i in range(5):
                write(tmp_path / "weather" / domain / name / f"{i}.png", seed=i)
    return tmp_path / "weather"


def test_folder_of_domains(weather):
    data = from_folder(weather, domains=True)
    assert (data.class_names, data.domain_names) == (("cat", "dog", "owl"), ("fog", "sun"))
    for split, n in ((data.train, 4), (data.test, 1)):
        cells = (split.domains * 3 + split.labels).bincount(minlength=6)
        assert cells.tolist() == [n, 0, n, n, n, n]
    assert [t.name for t in make_stream(data, kind="domains")] == ["fog", "sun"]
    loaded = load_dataset(str(weather), domains=True, holdout=1)
    assert loaded.holdout.domains is not None
    with pytest.raises(DataError, match=r"cat holds no folder: with domains=True it is a domain"):
        from_folder(weather / "sun", domains=True)


def test_folder_of_domains_with_train_and_test(weather, tmp_path):
    (tmp_path / "both").mkdir()
    weather.rename(tmp_path / "both" / "train")
    write(tmp_path / "both" / "test" / "fog" / "owl" / "0.png")
    data = from_folder(tmp_path / "both", domains=True)
    assert (len(data.train), data.test.labels.tolist(), data.test.domains.tolist()) == (25, [2], [0])
    write(tmp_path / "both" / "test" / "ice" / "owl" / "0.png")
    with pytest.raises(DataError, match=r"test.ice has no counterpart in train"):
        from_folder(tmp_path / "both", domains=True)


def grey(folder, array, suffix=".png", **options):
    """The pixels that a file of these values loads as."""
    for name in ("a", "b"):
        for i in range(2):
            path = folder / name / f"{i}{suffix}"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(array).save(path, **options)
    images = from_folder(folder).train.images
    assert (images[:, 0] == images[:, 1]).all()
    assert (images[:, 0] == images[:, 2]).all()
    return images[0, 0].tolist()


@pytest.mark.parametrize("suffix", [".png", ".tif", ".pgm"])
def test_sixteen_bit_greyscale_keeps_its_greys(tmp_path, suffix):
    array = np.array([[0, 128, 129], [3000, 60000, 65535]], np.uint16)
    pixels = grey(tmp_path, array, suffix)
    assert pixels == [[0, 0, 1], [12, 233, 255]]


def test_eight_bit_greyscale_is_as_it_was(tmp_path):
    array = np.arange(256, dtype=np.uint8).reshape(16, 16)
    assert grey(tmp_path, array) == array.tolist()


def test_float_tiffs_from_0_to_1_have_white_at_1(tmp_path):
    assert grey(tmp_path / "f", np.array([[0, 0.5, 1]], np.float32), ".tif") == [[0, 128, 255]]
    with pytest.raises(DataError, match=r"float pixels from 0 to 300, so white is unknown; scale them to 0..1"):
        grey(tmp_path / "g", np.array([[0, 300]], np.float32), ".tif")
    with pytest.raises(DataError, match="32-bit pixels from 0 to 70000, so white is unknown; save it with 8 or 16"):
        grey(tmp_path / "i", np.array([[0, 70000]], np.int32), ".tif")


def test_all_bad_files_are_in_one_message(folder):
    for i in range(8):
        (folder / "elk" / f"{i}.png").write_bytes(b"not an image")
    for i in range(3):
        write(folder / "cat" / f"wide{i}.png", size=(20, 6), seed=1)
    with pytest.raises(DataError) as caught:
        from_folder(folder)
    message = str(caught.value)
    assert message.startswith("11 of 33 image files cannot be used:")
    assert message.count("is not a readable image") == 8
    assert message.count("is 6 x 20 pixels, not the 8 x 8 of the others") == 2
    assert "and 1 more" in message
    assert "repair, replace or delete these" in message
    assert "--set data.resolution=6" in message
    for i in range(8):
        write(folder / "elk" / f"{i}.png", seed=i)
    assert from_folder(folder, resolution=6).row_shape == (3, 6, 6)
    with pytest.raises(DataError, match=r"at most 6 \(--set data.resolution=6"):
        from_folder(folder, resolution=7)


def test_the_odd_one_is_named_even_if_it_comes_first(folder):
    write(folder / "cat" / "!.png", size=(20, 8), seed=1)
    with pytest.raises(DataError, match=r"!.png is 8 x 20 pixels, not the 8 x 8 of the others"):
        from_folder(folder)


def test_a_file_is_never_given_to_a_decoder_of_another_kind(folder, monkeypatch):
    """Pillow hands PostScript to Ghostscript, whatever the file is called."""
    from PIL import EpsImagePlugin

    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *a, **k: pytest.fail("Ghostscript was called"))
    (folder / "elk" / "3.png").write_bytes(
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n"
    )
    with pytest.raises(DataError, match=r"elk.3.png is not a readable image"):
        from_folder(folder)
