"""The page: complete, inert, and whole on disk."""

import re
from html.parser import HTMLParser

import numpy as np
import polars as pl
import pytest
import torch

from wane.predictions.comparison import compare
from wane.predictions.predictions import Predictions, read_predictions
from wane.predictions.samples import Samples
from wane.views.compare.page import comparison_page, write_comparison

EVIL = "<script>alert(1)</script>"


class Tags(HTMLParser):
    """What a browser would see as elements, with their attributes."""

    VOID = ("meta", "link", "img", "br", "input", "hr")

    def __init__(self, page):
        super().__init__()
        self.open, self.seen, self.attributes, self.text = [], [], [], []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.seen.append(tag)
        self.attributes += attributes
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


@pytest.fixture(scope="module")
def example():
    return compare(read_predictions("example:digits_before"), read_predictions("example:digits_after"))


def test_well_formed_and_alone(example):
    page = comparison_page(example, before="a.npz", after="b.npz")
    tags = Tags(page)
    assert not tags.open
    assert not {"script", "link", "img", "iframe", "object"} & {*tags.seen}
    assert not re.search(r"url\(|@import|https?:", page)
    assert "prefers-color-scheme: dark" in page
    assert "default-src 'none'" in page
    links = [value for name, value in tags.attributes if name == "href"]
    ids = [value for name, value in tags.attributes if name == "id"]
    assert links
    assert len({*ids}) == len(ids)
    for link in links:
        assert link.removeprefix("#") in ids


def test_every_class_and_sentence_is_there(example):
    text = "".join(Tags(comparison_page(example)).text)
    for name in example.groups["name"]:
        assert name in text
    for heading in ("Lost accuracy", "Hidden decline", "At 0 %", "Gained accuracy", "Hidden gain", "Every class"):
        assert heading in text
    assert "4 of 10 classes lost accuracy" in text
    assert "nan" not in text.lower().split()
    assert "None" not in text


def test_names_are_inert():
    labels = np.repeat([0, 1], 20)
    good = torch.tensor(np.eye(2)[labels] * 5)
    names = (EVIL, '" onmouseover="alert(2)')
    result = compare(
        Predictions(torch.tensor(labels), logits=good, class_names=names),
        Predictions(torch.tensor(labels), logits=-good, class_names=names),
    )
    page = comparison_page(result, before=EVIL, after="</title><script>")
    tags = Tags(page)
    assert "script" not in tags.seen
    assert not [name for name, _ in tags.attributes if name.startswith("on")]
    assert EVIL not in page
    assert EVIL in "".join(tags.text)


def test_few_samples_and_no_finite_loss():
    p = torch.tensor([[0.0, 1.0]] * 6 + [[0.5, 0.5]])
    some = Predictions(torch.tensor([0] * 6 + [1]), probabilities=p)
    text = "".join(Tags(comparison_page(compare(some, some))).text)
    assert "too few samples" in text
    assert not re.search(r"\b(nan|inf|None)\b", text)
    assert "probability 0" in text


def test_written_whole_or_not_at_all(example, tmp_path, monkeypatch):
    target = tmp_path / "page.html"
    target.write_text("old")

    def fails(*_, **__):
        raise RuntimeError("half way")

    monkeypatch.setattr("wane.views.compare.page.comparison_page", fails)
    with pytest.raises(RuntimeError):
        write_comparison(example, target, before="a", after="b")
    assert target.read_text() == "old"
    monkeypatch.undo()
    write_comparison(example, target, before="a", after="b")
    assert target.read_text().startswith("<!doctype html>")
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def grown(classes=12):
    first, second = (read_predictions(f"example:digits_{when}") for when in ("before", "after"))
    new = torch.full((len(second), classes - 10), 9.0, dtype=second.logits.dtype)
    names = (*second.class_names, *map(str, range(10, classes)))
    return first, Predictions(
        second.labels, logits=torch.cat([second.logits, new], 1), class_names=names, ids=second.ids
    )


def test_takers_flips_and_common_classes_are_there():
    result = compare(*grown())
    text = " ".join(" ".join(Tags(comparison_page(result)).text).split())
    for words in ("Who took the answers", "does not know", "common 0%", "Samples that turned from right to wrong"):
        assert words in text
    for sample in result.flips["id"]:
        assert f" {sample} " in text
    assert 'class="new"' in comparison_page(result)


def test_many_classes_are_behind_a_line_to_click_on():
    rng = torch.Generator().manual_seed(0)
    labels = torch.arange(100).repeat(8)
    good = 9.0 * torch.nn.functional.one_hot(labels) + torch.randn(800, 100, generator=rng)
    names = tuple(f"class <{i}>" for i in range(100))
    result = compare(*(Predictions(labels, logits=z, class_names=names) for z in (good, -good)))
    page = comparison_page(result)
    tags = Tags(page)
    assert not tags.open
    assert "60 more" in "".join(tags.text)
    for name in names:
        assert name in "".join(tags.text)


def test_signals_that_were_not_saved_leave_no_gap():
    values = {"accuracy": np.array([1.0] * 20), "loss": np.full(20, 0.1), "rank": np.ones(20)}
    worse = {"accuracy": np.array([0.0] * 20), "loss": np.full(20, 2.1), "rank": np.full(20, 2)}
    first, second = (Samples(np.zeros(20, dtype=np.int64), v, 0, columns={"task": pl.Series(["a", "b"] * 10)})
                     for v in (values, worse))  # fmt: skip
    text = "".join(Tags(comparison_page(compare(first, second, by=["task"]))).text)
    assert "2 of 2 groups lost accuracy" in text
    assert "Every group, every signal" in text
    assert not re.search(r"\b(nan|inf|None)\b", text)
