"""Windows: every token scored once, with the promised context, for any length."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wane.language.windows import batches, windows


@given(st.integers(0, 200), st.integers(1, 40), st.data())
def test_every_token_but_the_first_is_scored_once_with_its_context(tokens, longest, data):
    stride = data.draw(st.integers(1, longest))
    found = list(windows(tokens, longest=longest, stride=stride))
    scored = [i for w in found for i in range(w.first, w.stop)]
    assert scored == list(range(1, tokens))
    for w in found:
        assert 0 <= w.start < w.first < w.stop <= tokens
        assert w.length <= longest
        for i in range(w.first, w.stop):
            assert i - w.start >= min(i, longest - stride)


@given(st.lists(st.integers(2, 60), max_size=30), st.integers(1, 200))
def test_batches_hold_every_window_once_and_no_more_than_fits(lengths, most):
    found = [w for i, n in enumerate(lengths) for w in windows(n, longest=20, stride=10, document=i)]
    made = batches(found, most=most)
    assert sorted(w for batch in made for w in batch) == sorted(found)
    for batch in made:
        assert len(batch) == 1 or len(batch) * max(w.length for w in batch) <= most


@pytest.mark.parametrize("stride", [0, 5])
def test_an_impossible_stride_is_said(stride):
    with pytest.raises(ValueError, match=f"stride is {stride}: give 1 to 4"):
        list(windows(10, longest=4, stride=stride))
