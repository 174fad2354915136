"""Data sets by name, path and function; the two embedded ones; and what an import costs."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from wane.streams import DATASETS, DataError, load_dataset, tiny_imagenet
from wane.streams.glyphs import CHARACTERS, _drawings


@pytest.fixture(scope="module")
def glyphs():
    return load_dataset("glyphs")


def test_importing_is_light():
    heavy = ("matplotlib", "sklearn", "PIL", "pooch", "requests", "rich", "scipy")
    code = f"import sys, wane.streams; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_unknown_names_list_what_is_known_and_mention_folders():
    with pytest.raises(DataError, match=r"'cifar_100'; did you mean 'cifar100'\? Known: glyphs, digits") as caught:
        load_dataset("cifar_100")
    assert "path of a folder" in str(caught.value)
    assert str(Path("cifar_100").absolute()) in str(caught.value)


def test_a_path_is_a_folder_of_images(tmp_path):
    for name in ("ant", "bee"):
        for i in range(10):
            save(tmp_path / "insects" / name / f"{i}.png", 20 * i, size=8)
    data = load_dataset(str(tmp_path / "insects"), per_class=6, holdout=2, resolution=4)
    assert (data.name, data.class_names, data.row_shape) == ("insects", ("ant", "bee"), (3, 4, 4))
    assert (len(data.train), len(data.holdout), len(data.test)) == (8, 4, 4)


MAKER = """
import torch
from wane.streams import from_arrays

def make():
    rows, labels = torch.rand(40, 3), torch.arange(40) % 4
    return from_arrays(rows, labels, rows, labels, layout="ND", name="made")

def nothing():
    return 3
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """An installed package that offers a data set as entry point."""
    (tmp_path / "h2_own_data.py").write_text(MAKER)
    info = tmp_path / "h2_own_data-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: h2-own-data\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[wane.datasets]\nsensors = h2_own_data:make\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    DATASETS.pop("sensors", None)
    sys.modules.pop("h2_own_data", None)


@pytest.mark.parametrize("name", ["h2_own_data:make", "sensors"])
def test_data_sets_of_other_packages(name, package):
    data = load_dataset(name, per_class=5, holdout=2)
    assert (data.name, data.row_shape, len(data.train), len(data.holdout)) == ("made", (3,), 12, 8)


def test_functions_that_make_no_data_set_are_refused(package):
    with pytest.raises(DataError, match=r"'h2_own_data:nothing' returned int: it must return a wane.streams.Dataset"):
        load_dataset("h2_own_data:nothing")
    with pytest.raises(DataError, match="has no 'gone'"):
        load_dataset("h2_own_data:gone")
    with pytest.raises(DataError, match="no module 'h2_other'"):
        load_dataset("h2_other:make")


@pytest.mark.parametrize("options", [{"per_class": 0}, {"resolution": 0}, {"holdout": -1}])
def test_impossible_options_are_quoted(options):
    (name, value), *_ = options.items()
    with pytest.raises(DataError, match=f"{name}={value}"):
        load_dataset("glyphs", **options)


@pytest.mark.parametrize("name", ["glyphs", "digits"])
def test_rows_of_the_registry_match_the_data(name):
    data, row = load_dataset(name), DATASETS[name]
    assert data.num_classes == row.classes
    assert data.image_shape == row.size
    for split in (data.train, data.test):
        assert split.images.dtype == torch.uint8
        assert split.labels.unique().tolist() == list(range(row.classes))


def test_glyphs_are_deterministic_and_seeded(glyphs):
    again, other = load_dataset("glyphs"), load_dataset("glyphs", seed=1)
    assert torch.equal(glyphs.train.images, again.train.images)
    assert torch.equal(glyphs.test.images, again.test.images)
    assert not torch.equal(glyphs.train.images, other.train.images)
    # Seeds do not share images either: the test split of one is not the training split of the next.
    pool = {image.numpy().tobytes() for image in glyphs.train.images}
    for split in (glyphs.test, other.train, other.test):
        assert not any(image.numpy().tobytes() in pool for image in split.images)


def test_glyphs_per_class_is_a_prefix(glyphs):
    few = load_dataset("glyphs", per_class=7)
    assert torch.equal(few.train.images, glyphs.train.images[:700])
    assert torch.equal(few.test.images, glyphs.test.images)


def test_glyphs_are_all_drawn_and_all_different():
    drawings = _drawings()
    assert len(set(CHARACTERS)) == 100
    assert (drawings.sum((2, 3)) > 50).all()  # a font without the character would draw its empty box
    regular = drawings[:, 0].flatten(1)
    distances = torch.cdist(regular, regular) + 1e9 * torch.eye(100)
    assert distances.min() > 5


def test_every_font_has_every_character():
    from matplotlib import get_data_path
    from matplotlib.ft2font import FT2Font

    from wane.streams.glyphs import _STYLES

    for style in _STYLES:
        font = FT2Font(f"{get_data_path()}/fonts/ttf/{style}.ttf")
        assert [c for c in CHARACTERS if not font.get_char_index(ord(c))] == []


def test_glyphs_are_neither_trivial_nor_hopeless(glyphs):
    train, test = (split.images.flatten(1).float() for split in (glyphs.train, glyphs.test))
    votes = glyphs.train.labels[torch.cdist(test, train).topk(5, largest=False).indices].mode(1).values
    accuracy = (votes == glyphs.test.labels).float().mean()
    assert 0.3 < accuracy < 0.7  # chance is 0.01; measured 0.44


def test_digits_are_all_there():
    from sklearn.datasets import load_digits

    data = load_dataset("digits")
    assert len(data.train) + len(data.test) == 1797
    assert int(data.train.images.max()) == 255
    ink = load_digits().images.sum() * 255 / 16
    ours = data.train.images.double().sum() + data.test.images.double().sum()
    assert abs(ours.item() / ink - 1) < 1e-3


@pytest.fixture
def tiny(tmp_path):
    """A miniature in the layout of Tiny-ImageNet: 3 classes of 12 training images."""
    root = tmp_path / "tiny-imagenet-200"
    wnids = ["n03", "n01", "n02"]
    for c, wnid in enumerate(wnids):
        for i in range(12):
            save(root / "train" / wnid / "images" / f"{wnid}_{i}.JPEG", 80 * c + 3 * i, grey=i == 1)
    rows = []
    for i in range(6):
        save(root / "val" / "images" / f"val_{i}.JPEG", 40 * i)
        rows.append(f"val_{i}.JPEG\t{wnids[i % 3]}\t0\t0\t9\t9\n")
    (root / "wnids.txt").write_text("\n".join(wnids))
    (root / "words.txt").write_text("n01\tgoldfish, Carassius auratus\nn02\tfire salamander\nn03\tbullfrog\n")
    (root / "val" / "val_annotations.txt").write_text("".join(rows))
    return root


def save(path, level, grey=False, size=64):
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.full((size, size) if grey else (size, size, 3), level, np.uint8)
    Image.fromarray(pixels).save(path, format="PNG" if path.suffix == ".png" else "JPEG", quality=100)


def load(root, **options):
    return load_dataset("tiny_imagenet", root=root.parent, download=False, **options)


def test_tiny_imagenet_order(tiny):
    data = load(tiny)
    assert data.class_names == ("bullfrog", "goldfish", "fire salamander")
    assert data.train.labels.tolist() == [0, 1, 2] * 12
    levels = data.train.images[:, 1, 32, 32].tolist()
    assert levels == [80 * c + 3 * i for i in range(12) for c in range(3)]  # by number: 2 before 10
    assert data.test.labels.tolist() == [0, 1, 2, 0, 1, 2]
    assert data.test.images[:, 0, 0, 0].tolist() == [0, 40, 80, 120, 160, 200]


def test_tiny_imagenet_decodes_no_more_than_asked(tiny, monkeypatch):
    decoded = []
    original = tiny_imagenet.decode
    monkeypatch.setattr(tiny_imagenet, "decode", lambda files, **k: decoded.append(len(files)) or original(files, **k))
    few = load(tiny, per_class=2)
    assert decoded == [6, 6]  # two of each class, and val
    load(tiny, per_class=2)
    assert decoded == [6, 6]  # cached
    load(tiny, per_class=5)
    assert decoded == [6, 6, 15]
    again = load(tiny, per_class=2)  # a prefix of the larger cache
    assert decoded == [6, 6, 15]
    assert torch.equal(few.train.images, again.train.images)
    assert sorted(p.name.split("-")[2] for p in tiny.parent.glob("*.npy")) == ["200.train", "200.val"]


def test_tiny_imagenet_cache_is_ignored_when_the_source_changes(tiny):
    assert load(tiny).train.images[0, 0, 0, 0] == 0
    save(tiny / "train" / "n03" / "images" / "n03_0.JPEG", 201)
    assert load(tiny).train.images[0, 0, 0, 0] == 201


@pytest.mark.parametrize("damage", [b"", b"rubbish" * 100, None])
def test_tiny_imagenet_damaged_cache_is_replaced(tiny, damage):
    before = load(tiny).train.images.clone()
    for cache in tiny.parent.glob("*.npy"):
        cache.write_bytes(cache.read_bytes()[:-1000] if damage is None else damage)
    assert torch.equal(load(tiny).train.images, before)


def test_tiny_imagenet_writing_to_the_images_leaves_the_cache_alone(tiny):
    load(tiny)
    images = load(tiny).train.images
    images.zero_()
    assert load(tiny).train.images.max() > 0


def test_tiny_imagenet_works_where_nothing_can_be_written(tiny, monkeypatch):
    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tiny_imagenet, "replace_file", full)
    assert len(load(tiny).train) == 36
    assert list(tiny.parent.glob("*.npy")) == []


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (lambda r: (r / "train/n01/images/n01_3.JPEG").unlink(), "n01.images has 11 images where .* has 12"),
        (lambda r: (r / "val/images/val_2.JPEG").unlink(), "val_2.JPEG is "),
        (
            lambda r: (r / "train/n01/images/n01_3.JPEG").write_bytes(b"x"),
            "n01_3.JPEG is not a readable image",
        ),
        (lambda r: save(r / "train/n01/images/n01_3.JPEG", 1, size=32), "n01_3.JPEG is 32 x 32 pixels"),
        (lambda r: (r / "wnids.txt").write_text("n03 n01 n02 n77"), "n77.images has no JPEG"),
        (lambda r: (r / "wnids.txt").write_text("n03 n01"), "line 3: 'n02' is not in wnids.txt"),
        (lambda r: (r / "val/val_annotations.txt").write_text(""), "lists no image"),
        (lambda r: (r / "words.txt").unlink(), "has no words.txt"),
    ],
)
def test_tiny_imagenet_incomplete_folders_are_named(tiny, harm, words):
    harm(tiny)
    with pytest.raises(DataError, match=words):
        load(tiny)
    assert [p.name for p in tiny.parent.glob("*.npy") if "train" in p.name and "val_2" not in words] == []


def test_tiny_imagenet_too_few_images(tiny):
    with pytest.raises(DataError, match=r"per_class=13 .* has 12 of each class"):
        load(tiny, per_class=13)
