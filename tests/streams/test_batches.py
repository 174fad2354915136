"""The hot path against a literal loop over images, rows and columns."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from wane.streams import crop_and_flip, eval_batch, normalise

MEAN, STD = (0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def noise(n, channels, height, width, seed=0):
    return torch.randint(1, 256, (n, channels, height, width), dtype=torch.uint8, generator=generator(seed))


def literal(image, top, left, mirrored, padding):
    """Pad with zeros, crop at (top, left), flip: pixel by pixel, in numpy."""
    channels, height, width = image.shape
    padded = np.zeros((channels, height + 2 * padding, width + 2 * padding), np.uint8)
    padded[:, padding : padding + height, padding : padding + width] = image
    crop = padded[:, top : top + height, left : left + width]
    return crop[:, :, ::-1] if mirrored else crop


def every_view(image, padding, flip):
    return {
        literal(image, top, left, mirrored, padding).tobytes(): (top, left, mirrored)
        for top in range(2 * padding + 1)
        for left in range(2 * padding + 1)
        for mirrored in ([False, True] if flip else [False])
    }


@settings(max_examples=40)
@given(
    n=st.integers(0, 6),
    channels=st.integers(1, 4),
    height=st.integers(2, 9),
    width=st.integers(2, 9),
    padding=st.integers(0, 3),
    flip=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_every_output_is_one_of_the_literal_crops(n, channels, height, width, padding, flip, seed):
    images = noise(n, channels, height, width, seed)
    out = crop_and_flip(images, padding, flip, generator(seed))
    assert out.shape == images.shape
    assert out.dtype == torch.uint8
    for image, view in zip(images.numpy(), out.numpy(), strict=True):
        assert view.tobytes() in every_view(image, padding, flip)


def test_crops_and_flips_are_uniform_and_independent():
    image = noise(1, 1, 6, 6)
    views = every_view(image[0].numpy(), 2, True)
    n = 20_000
    out = crop_and_flip(image.expand(n, -1, -1, -1), 2, True, generator(3))
    counts = dict.fromkeys(views.values(), 0)
    for view in out.numpy():
        counts[views[view.tobytes()]] += 1
    expected = n / 50
    chi_square = sum((count - expected) ** 2 / expected for count in counts.values())
    assert chi_square < 85.4  # the 0.1 % point of chi-square with 49 degrees of freedom


def test_crop_equals_literal_loop_given_the_same_draws():
    images, g = noise(32, 3, 32, 32), generator(11)
    out = crop_and_flip(images, 4, True, generator(11))
    mirrored, top, left = (torch.randint(k, (32, 1), generator=g).flatten().tolist() for k in (2, 9, 9))
    for i, image in enumerate(images.numpy()):
        assert np.array_equal(out[i].numpy(), literal(image, top[i], left[i], bool(mirrored[i]), 4))


def test_input_is_not_written_to_and_nothing_is_drawn_without_need():
    images = noise(4, 3, 8, 8)
    before, g = images.clone(), generator()
    assert torch.equal(crop_and_flip(images, 0, False, g), before)
    assert torch.equal(g.get_state(), generator().get_state())
    crop_and_flip(images, 4, True, g)
    assert torch.equal(images, before)


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_normalise_every_byte(channels, channels_last):
    images = torch.arange(256, dtype=torch.uint8).view(256, 1, 1, 1).repeat(1, channels, 2, 3)
    mean, std = (0.1, 0.4, 0.5, 0.9)[:channels], (0.2, 0.3, 0.25, 0.5)[:channels]
    out = normalise(images, mean, std, channels_last=channels_last)
    literal_64 = (images.double() / 255 - torch.tensor(mean).double().view(-1, 1, 1)) / torch.tensor(std).double().view(
        -1, 1, 1
    )
    torch.testing.assert_close(out.double(), literal_64, rtol=0, atol=1e-6)
    assert out.dtype == torch.float32
    layout = torch.channels_last if channels_last else torch.contiguous_format
    assert out.is_contiguous(memory_format=layout)


def test_memory_formats_hold_the_same_bits():
    images = noise(65, 3, 32, 32)
    assert torch.equal(normalise(images, MEAN, STD), normalise(images, MEAN, STD, channels_last=True))


def test_a_row_does_not_depend_on_the_batch_it_is_in():
    images = noise(65, 3, 7, 5)
    whole = normalise(images, MEAN, STD)
    assert torch.equal(whole, torch.cat([normalise(image[None], MEAN, STD) for image in images]))


def test_normalise_is_float32_whatever_the_default():
    torch.set_default_dtype(torch.float64)
    try:
        assert normalise(noise(2, 3, 4, 4), MEAN, STD).dtype == torch.float32
    finally:
        torch.set_default_dtype(torch.float32)


def test_padding_is_black_before_normalisation():
    white = torch.full((50, 3, 8, 8), 255, dtype=torch.uint8)
    batch = normalise(crop_and_flip(white, 4, True, generator()), MEAN, STD)
    black = torch.tensor([-m / s for m, s in zip(MEAN, STD, strict=True)])
    torch.testing.assert_close(batch.amin((0, 2, 3)), black)


def test_augmentation_is_reproducible_bit_for_bit():
    images = noise(64, 3, 32, 32)
    first, second, other = (crop_and_flip(images, 4, True, generator(seed)) for seed in (5, 5, 6))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)


def test_eval_batch_by_index_and_by_slice():
    images = noise(20, 3, 8, 8)
    by_slice = eval_batch(images, slice(4, 9), MEAN, STD)
    assert torch.equal(by_slice, eval_batch(images, torch.arange(4, 9), MEAN, STD))
    assert torch.equal(by_slice, normalise(images[4:9], MEAN, STD))


def test_wrong_number_of_channels_is_quoted():
    with pytest.raises(ValueError, match=r"\(2, 1, 4, 4\) have 1 channels, but there are 3 means"):
        normalise(noise(2, 1, 4, 4), MEAN, STD)


def test_memory_of_a_batch_not_of_the_data_set():
    """The data set is never padded or copied: the largest tensor made is of the size of a batch."""
    images = noise(2000, 3, 16, 16)
    with torch.profiler.profile(profile_memory=True) as profile:
        normalise(crop_and_flip(images.index_select(0, torch.arange(8)), 4, True, generator()), MEAN, STD)
    largest = max(event.cpu_memory_usage for event in profile.key_averages())
    assert largest < images.numel() / 4
