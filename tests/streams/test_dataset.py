"""Making a data set smaller."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from wane.streams import (
    DataError,
    at_resolution,
    box_filter,
    channel_statistics,
    first_per_class,
    from_arrays,
    with_holdout,
)
from wane.streams.dataset import rank_in_class


def dataset(classes=6, per_class=10, seed=0, size=4):
    g = torch.Generator().manual_seed(seed)
    labels = torch.arange(classes * per_class)[torch.randperm(classes * per_class, generator=g)] % classes
    images = torch.randint(256, (len(labels), 3, size, size), dtype=torch.uint8, generator=g)
    return from_arrays(images, labels, images[:30], labels[:30], layout="NCHW")


def literal_box(image, size):
    """The exact mean under each pixel, in fractions, rounded half up."""
    height = len(image)
    scale = Fraction(height, size)

    def overlap(i, j):
        return max(Fraction(0), min((i + 1) * scale, Fraction(j + 1)) - max(i * scale, Fraction(j)))

    weights = [[overlap(i, j) for j in range(height)] for i in range(size)]
    out = np.empty((size, size), np.uint8)
    for i in range(size):
        for k in range(size):
            total = sum(
                weights[i][a] * weights[k][b] * int(image[a][b])
                for a in range(height)
                for b in range(height)
                if weights[i][a] and weights[k][b]
            )
            out[i, k] = (total / scale**2 + Fraction(1, 2)).__floor__()
    return out


@settings(max_examples=40)
@given(height=st.integers(1, 9), data=st.data(), seed=st.integers(0, 10_000))
def test_box_filter_is_the_exact_mean(height, data, seed):
    size = data.draw(st.integers(1, height))
    image = np.random.default_rng(seed).integers(0, 256, (height, height), np.uint8)
    out = box_filter(torch.from_numpy(image)[None, None], size)
    assert np.array_equal(out[0, 0].numpy(), literal_box(image, size))


def test_box_filter_agrees_with_pillow_to_its_rounding():
    from PIL import Image

    image = np.random.default_rng(0).integers(0, 256, (64, 64), np.uint8)
    for size in (32, 24, 16, 7):
        theirs = np.asarray(Image.fromarray(image).resize((size, size), Image.Resampling.BOX)).astype(int)
        ours = box_filter(torch.from_numpy(image)[None, None], size)[0, 0].numpy().astype(int)
        # Pillow rounds after each axis and snaps pixels of broken factors to whole ones.
        assert np.abs(theirs - ours).max() <= 1 or 64 % size


def test_box_filter_rounds_halves_up_and_keeps_white():
    halves = torch.tensor([[0, 1], [0, 1]], dtype=torch.uint8).view(1, 1, 2, 2)
    assert box_filter(halves, 1).item() == 1
    assert box_filter(torch.full((2, 3, 7, 7), 255, dtype=torch.uint8), 3).unique().tolist() == [255]


def test_box_filter_is_exact_on_images_too_large_for_float32():
    image = torch.full((1, 1, 300, 300), 255, dtype=torch.uint8)
    image[0, 0, :150] = 254  # the mean is 254.5 exactly
    assert box_filter(image, 1).item() == 255


def test_box_filter_in_pieces_equals_one_at_a_time():
    images = torch.randint(256, (700, 3, 32, 32), dtype=torch.uint8)
    assert torch.equal(box_filter(images, 12), torch.cat([box_filter(i[None], 12) for i in images]))


def test_box_filter_in_bands_is_exact(monkeypatch):
    """A photograph of 169 megapixels took 5.9 GB."""
    from wane.streams import dataset as module

    image = torch.randint(256, (1, 3, 301, 301), dtype=torch.uint8)
    whole = box_filter(image, 40)
    monkeypatch.setattr(module, "_PHOTOGRAPH", 100_000)
    assert torch.equal(box_filter(image, 40), whole)


@pytest.mark.parametrize(("shape", "size", "words"), [((4, 4), 5, "5 is outside 1..4"), ((4, 6), 2, "4 x 6")])
def test_box_filter_complains(shape, size, words):
    with pytest.raises(DataError, match=words):
        box_filter(torch.zeros(1, 1, *shape, dtype=torch.uint8), size)


def test_channel_statistics_equal_numpy():
    images = torch.randint(256, (50, 3, 8, 8), dtype=torch.uint8)
    mean, std = channel_statistics(images)
    array = images.double().numpy() / 255
    np.testing.assert_allclose(mean, array.mean((0, 2, 3)), rtol=1e-12)
    np.testing.assert_allclose(std, array.std((0, 2, 3)), rtol=1e-12)
    assert channel_statistics(torch.full((2, 1, 2, 2), 51, dtype=torch.uint8)) == ((0.2,), (1.0,))


@given(st.lists(st.integers(0, 5), max_size=40))
def test_rank_in_class_counts_earlier_rows(labels):
    assert rank_in_class(torch.tensor(labels, dtype=torch.int64)).tolist() == [
        labels[:i].count(label) for i, label in enumerate(labels)
    ]


def test_first_per_class_keeps_the_first_in_order():
    data = dataset()
    kept = first_per_class(data, 3).train
    seen, rows = {}, []
    for row, label in enumerate(data.train.labels.tolist()):
        seen[label] = seen.get(label, 0) + 1
        if seen[label] <= 3:
            rows.append(row)
    assert torch.equal(kept.images, data.train.images[rows])
    assert torch.equal(kept.labels, data.train.labels[rows])


def test_holdout_is_a_seeded_partition():
    data = dataset()
    held = with_holdout(data, 4, seed=1)
    assert held.holdout.labels.bincount().tolist() == [4] * 6
    assert held.train.labels.bincount().tolist() == [6] * 6

    def contents(*splits):
        return sorted(image.numpy().tobytes() for split in splits for image in split.images)

    assert contents(held.train, held.holdout) == contents(data.train)
    assert torch.equal(held.holdout.images, with_holdout(data, 4, seed=1).holdout.images)
    assert not torch.equal(held.holdout.images, with_holdout(data, 4, seed=2).holdout.images)


def test_asking_too_much_is_quoted():
    data = dataset()
    with pytest.raises(DataError, match=r"per_class=11 .* class 0 \('0'\) has 10 .* at most 10"):
        first_per_class(data, 11)
    with pytest.raises(DataError, match=r"holdout=10 .* at most 9"):
        with_holdout(data, 10)
    with pytest.raises(DataError, match="per_class=0"):
        first_per_class(data, 0)


def test_at_resolution_and_to_reach_every_split():
    data = at_resolution(with_holdout(dataset(), 2), 2).to("cpu")
    assert [tuple(s.images.shape[2:]) for s in (data.train, data.test, data.holdout)] == [(2, 2)] * 3
    assert data.image_shape == (3, 2, 2)


def test_float_statistics_equal_numpy_and_constant_columns_get_a_deviation_of_one():
    rows = np.random.default_rng(0).normal(5, 3, (40, 6)).astype(np.float32)
    rows[:, 2] = 0.1
    mean, std = channel_statistics(torch.from_numpy(rows))
    np.testing.assert_allclose(mean, rows.astype(float).mean(0), rtol=1e-12)
    np.testing.assert_allclose(np.delete(std, 2), np.delete(rows.astype(float).std(0), 2), rtol=1e-12)
    assert std[2] == 1.0
    images = torch.from_numpy(rows).view(10, 4, 3, 2)
    mean, _ = channel_statistics(images)
    np.testing.assert_allclose(mean, images.double().mean((0, 2, 3)).numpy(), rtol=1e-12)


def test_float_images_are_reduced_by_the_mean():
    images = torch.rand(5, 2, 6, 6)
    expected = images.double().view(5, 2, 3, 2, 3, 2).mean((3, 5)).float()
    torch.testing.assert_close(box_filter(images, 3), expected)


def test_tables_have_no_resolution():
    rows = torch.rand(4, 12)
    table = from_arrays(rows, [0, 1, 0, 1], rows, [0, 1, 0, 1], layout="ND")
    with pytest.raises(DataError, match=r"resolution=3 is for images: the rows of arrays have the shape \(12,\)"):
        at_resolution(table, 3)


def test_domains_survive_every_reduction():
    data = dataset()
    marked = from_arrays(data.train.images, data.train.labels, data.test.images, data.test.labels, layout="NCHW",
                         train_domains=data.train.images[:, 0, 0, 0] % 3,
                         test_domains=data.test.images[:, 0, 0, 0] % 3)  # fmt: skip
    assert marked.domain_names == ("0", "1", "2")
    small = with_holdout(first_per_class(marked, 8), 2).to("cpu")
    for split in (small.train, small.test, small.holdout):
        assert torch.equal(split.domains, split.images[:, 0, 0, 0].long() % 3)
    reduced = at_resolution(small, 2)
    assert torch.equal(reduced.train.domains, small.train.domains)
    assert torch.equal(reduced.holdout.domains, small.holdout.domains)
    assert reduced.domain_names == marked.domain_names
