"""Kinds of token: the same under tokenizers of three kinds, and what they say of words, numbers and code."""

import pytest
from language.tiny_models import SENTENCES, TOKENIZERS

from wane.language.kinds import KINDS, kinds_of

pytest.importorskip("transformers")


@pytest.fixture(scope="module", params=TOKENIZERS)
def tokenizer(request):
    return TOKENIZERS[request.param]()


def kinds(tokenizer, text, **options):
    made = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    found = kinds_of(text, made.offset_mapping, **options)
    return [(text[a:b].strip(), kind) for (a, b), kind in zip(made.offset_mapping, found, strict=True)]


def test_words_begin_once_whoever_cuts_them(tokenizer):
    """However a word is cut, one token begins it, so tokenizers agree on the number of words."""
    for text in SENTENCES[:3]:
        found = [kind for _, kind in kinds(tokenizer, text)]
        assert set(found) <= set(KINDS)
        letters = "".join(c if c.isalpha() or c in "'-" else " " for c in text)
        words = [word for word in letters.split() if any(c.isalpha() for c in word)]
        assert found.count("word") == len(words), (text, kinds(tokenizer, text))


def test_numbers_punctuation_and_the_rest(tokenizer):
    found = dict(kinds(tokenizer, "It cost 12 pounds; nobody paid."))
    assert found["12"] == "number" if "12" in found else found["1"] == "number"
    assert found[";"] == "punctuation"
    assert found["."] == "punctuation"


def test_code_has_keywords_and_identifiers(tokenizer):
    found = kinds(tokenizer, "for item in items:\n    return total_sum", code=True)
    assert found[0][1] == "keyword"
    assert [kind for _, kind in found].count("keyword") == 3  # for, in, return
    assert [kind for _, kind in found].count("identifier") == 3  # item, items, total_sum
    assert not [kind for _, kind in found if kind == "word"]


@pytest.mark.parametrize(
    ("text", "offsets", "expected"),
    [
        ("a 😀", [(0, 1), (1, 3), (2, 3), (2, 3)], ["word", "other", "other", "other"]),  # one character, three tokens
        ("naïve", [(0, 2), (2, 3), (2, 3), (3, 5)], ["word", "continuation", "continuation", "continuation"]),
        ("1,5 x2", [(0, 1), (1, 2), (2, 3), (4, 5), (5, 6)], ["number", "number", "number", "word", "continuation"]),
        ("B12!", [(0, 1), (1, 3), (3, 4)], ["word", "continuation", "punctuation"]),
        ("日本語", [(0, 1), (1, 3)], ["word", "word"]),
        ("x", [(0, 0)], ["other"]),
        (" \n", [(0, 1), (1, 2)], ["whitespace", "whitespace"]),
        ("$5", [(0, 1), (1, 2)], ["other", "number"]),
    ],
)
def test_cases(text, offsets, expected):
    assert kinds_of(text, offsets) == expected
