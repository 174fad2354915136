"""What the terminal shows: signs without colour, and names that cannot steer it."""

import io

import numpy as np
import pytest
import torch
from rich.console import Console

from wane.predictions.comparison import compare, score
from wane.predictions.predictions import Predictions, read_predictions
from wane.predictions.samples import Samples
from wane.views.compare.sentences import sentences
from wane.views.compare.tables import comparison_tables, percent, score_table


def printed(renderable, **options):
    stream = io.StringIO()
    Console(file=stream, width=80, highlight=False, **options).print(renderable)
    return stream.getvalue()


def pair(names=None, n=20, flip=True):
    labels = np.repeat([0, 1], n)
    good = torch.tensor(np.eye(2)[labels] * 5)
    first, second = (
        Predictions(torch.tensor(labels), logits=z, class_names=names) for z in (good, -good if flip else good)
    )
    return first, second


def test_names_are_neither_markup_nor_control():
    first, second = pair(("[red]a[/red]", "b\x1b[2J\nc"))
    for shown in (printed(score_table(score(first))), printed(comparison_tables(compare(first, second)))):
        assert "[red]a[/red]" in shown
        assert "b\ufffd[2J\ufffdc" in shown
        assert "\x1b" not in shown


def test_colour_only_adds(monkeypatch):
    result = compare(read_predictions("example:digits_before"), read_predictions("example:digits_after"))
    plain = printed(comparison_tables(result))
    coloured = printed(comparison_tables(result), force_terminal=True, color_system="standard")
    assert "\x1b[" in coloured
    assert "\x1b[1;31m" in coloured
    monkeypatch.setenv("NO_COLOR", "1")
    assert "31m" not in printed(comparison_tables(result), force_terminal=True, color_system="standard")
    assert "\x1b" not in plain
    assert max(map(len, plain.splitlines())) <= 80
    assert all(sign in plain for sign in "▼▽▲→")


def test_sentences_count_right():
    first, second = pair()
    assert sentences(compare(first, second)) == (
        "Accuracy went from 100.0 % to 0.0 % over 40 samples: 40 turned from right to wrong, 0 from wrong to right.",
        "2 of 2 classes lost accuracy (0, 1).",
        "2 classes are at 0 %; 0 is nearest to coming back, its label 5.0 nats short on average.",
    )
    assert sentences(compare(first, first))[1:] == ("No class changed beyond chance.",)
    assert sentences(compare(second, first))[1:] == ("2 classes gained accuracy (0, 1).",)


@pytest.mark.parametrize("n", [1, 3])
def test_hardly_any_samples(n):
    first, second = pair(n=n)
    assert "cannot be judged" in printed(comparison_tables(compare(first, second)))


def test_only_a_perfect_rate_reads_as_one():
    assert [percent(x) for x in (0.0, 1e-9, 0.5, 0.99999, 1.0)] == ["0%", "0.1%", "50.0%", "99.9%", "100%"]


def test_a_thousand_classes_are_a_few_lines():
    labels = torch.arange(1000).repeat(8)
    good = 20.0 * torch.nn.functional.one_hot(labels)
    result = compare(Predictions(labels, logits=good), Predictions(labels, logits=-good))
    lines = printed(comparison_tables(result)).splitlines()
    assert len(lines) < 70
    assert "and 992 more." in lines
    assert lines[-1] == "--top shows more rows; --html and --json show everything."
    assert len(printed(comparison_tables(result, top=100)).splitlines()) > 300


def test_who_took_the_answers():
    shown = printed(comparison_tables(compare(*(read_predictions(f"example:digits_{w}") for w in ("before", "after")))))
    assert "digit 8 (79), digit 9 (10), digit 6 (1)" in shown
    assert "Samples that turned from right to wrong, worst first (229)" in shown
    assert "hidden gain" in shown
    assert "improving" not in shown


def test_what_was_not_saved_has_no_column():
    right = {"accuracy": np.array([1.0] * 12), "loss": np.full(12, 0.5)}
    wrong = {"accuracy": np.array([0.0] * 12), "loss": np.full(12, 1.5)}
    first, second = (Samples(np.zeros(12, dtype=np.int64), values, 0, ("a",)) for values in (right, wrong))
    shown = printed(score_table(score(first)))
    assert shown.splitlines()[0].split() == ["class", "n", "acc", "loss"]
    assert "rank" not in shown
    assert "100% → 0%" in printed(comparison_tables(compare(first, second)))
    lost = Samples(np.zeros(12, dtype=np.int64), {"loss": np.full(12, 0.5)}, 0)
    assert printed(score_table(score(lost))).splitlines()[0].split() == ["class", "n", "loss"]
