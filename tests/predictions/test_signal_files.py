"""Files of signals: what is written comes back, and counts as the logits did."""

import numpy as np
import polars as pl
import pytest
import torch

import wane
from wane.predictions import signal_files
from wane.predictions.comparison import compare, score
from wane.predictions.predictions import Predictions, PredictionsError, read_predictions
from wane.predictions.reading import read_samples
from wane.predictions.samples import measure
from wane.predictions.signal_files import SignalWriter, write_samples

BEFORE, AFTER = (read_predictions(f"example:digits_{when}") for when in ("before", "after"))


def written(path, predictions, *, step=100, **columns):
    options = {"num_classes": 10, "class_names": predictions.class_names, "source": {"model": "small"}}
    with SignalWriter(path, **options) as writer:
        for start in range(0, len(predictions), step):
            rows = slice(start, start + step)
            logits, labels = predictions.logits[rows], predictions.labels[rows]
            more = {name: column[rows] for name, column in columns.items()}
            writer.write(wane.signals(logits, labels), labels, answers=logits.argmax(1), **more)
    return path


def test_it_counts_as_the_logits_did(tmp_path, monkeypatch):
    monkeypatch.setattr(signal_files, "BATCH", 128)  # several parts
    ids = np.array(BEFORE.ids)
    files = [written(tmp_path / f"{i}.parquet", p, id=ids) for i, p in enumerate((BEFORE, AFTER))]
    first, second = map(read_samples, files)
    assert pl.scan_parquet(files[0]).select(pl.len()).collect().item() == len(BEFORE)
    wanted, found = measure(BEFORE), first
    for name in wanted.values:
        np.testing.assert_allclose(found.values[name], wanted.values[name], rtol=1e-6, atol=2e-6)
    assert score(second).groups["name"].to_list() == score(AFTER).groups["name"].to_list()
    by_logits, by_signals = compare(BEFORE, AFTER), compare(first, second)
    assert by_logits.groups["verdict"].equals(by_signals.groups["verdict"])
    assert by_logits.takers.equals(by_signals.takers)
    assert by_logits.flips["id"].to_list() == by_signals.flips["id"].to_list()
    for name in ("accuracy_low", "nkl_high", "gap_after", "decline_p"):
        np.testing.assert_allclose(by_signals.groups[name], by_logits.groups[name], rtol=1e-4, atol=1e-6)


def test_any_shape_and_padding(tmp_path):
    logits = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([[0, 1, -100], [2, -100, 4]])
    position = torch.arange(3).expand(2, 3)
    with SignalWriter(tmp_path / "s.parquet", num_classes=5, by=["domain"]) as writer:
        writer.write(
            wane.signals(logits, labels, ignore_index=-100), labels, document=[["a"] * 3, ["b"] * 3], position=position,
            domain="code",
        )  # fmt: skip
        assert writer.rows == 4
    samples = read_samples(tmp_path / "s.parquet")
    assert samples.labels.tolist() == [0, 1, 2, 4]
    assert [*samples.keys] == ["document", "position"]
    assert samples.keys["position"].to_list() == [0, 1, 0, 2]
    assert samples.by == ("domain",)
    assert score(samples).groups.select("domain", "n").rows() == [("code", 4)]
    assert "answer" not in samples.values
    with pytest.raises(KeyError, match="no column 'answer' here"):
        samples.values["answer"]


def test_it_appears_whole_or_not_at_all(tmp_path):
    path = tmp_path / "s.parquet"
    path.write_text("old")
    scored, labels = wane.signals(BEFORE.logits, BEFORE.labels), BEFORE.labels

    def half_way():
        with SignalWriter(path, num_classes=10) as writer:
            writer.write(scored, labels)
            writer.write(scored, labels[:3])

    with pytest.raises(PredictionsError):
        half_way()
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["s.parquet"]
    written(path, BEFORE)
    assert [file.name for file in tmp_path.iterdir()] == ["s.parquet"]
    assert len(read_samples(path)) == len(BEFORE)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda d, s, y: SignalWriter(d / "s.csv", num_classes=3), "does not end in .parquet"),
        (lambda d, s, y: SignalWriter(d / "no" / "s.parquet", num_classes=3), "is not a folder: make it first"),
        (lambda d, s, y: SignalWriter(d / "s.parquet", num_classes=1), "num_classes is 1: give 2 or more"),
        (lambda d, s, y: SignalWriter(d / "s.parquet", num_classes=3, class_names=["a"]), "1 class names for 3"),
        (lambda d, s, y: SignalWriter(d / "s.parquet", num_classes=3).close(), "would have no rows"),
        (lambda d, s, y: SignalWriter(d / "s.parquet", num_classes=3).write(s, y[:2]), r"\(899,\) and labels \(2,\)"),
        (
            lambda d, s, y: SignalWriter(d / "s.parquet", num_classes=3).write({"cm": y}, y),
            "give rank and at least one",
        ),
        (lambda d, s, y: SignalWriter(d / "s.parquet", num_classes=3).write(s, y, id=[1]), r"'id' has shape \(1,\)"),
        (lambda d, s, y: SignalWriter(d / "s.parquet", num_classes=3).write(s, y, cm=y), "cannot be called 'cm'"),
    ],
)
def test_what_cannot_be_written(tmp_path, make, message):
    with pytest.raises((PredictionsError, OSError), match=message):
        make(tmp_path, wane.signals(BEFORE.logits, BEFORE.labels), BEFORE.labels)


def test_batches_have_the_same_columns(tmp_path):
    s, y = wane.signals(BEFORE.logits, BEFORE.labels), BEFORE.labels
    writer = SignalWriter(tmp_path / "s.parquet", num_classes=10)
    writer.write(s, y, light="day")
    with pytest.raises(PredictionsError, match=r"light \(Int64\), after one .* light \(String\)"):
        writer.write(s, y, light=1)
    writer.discard()
    assert not [*tmp_path.iterdir()]


def test_a_later_schema_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(signal_files, "SCHEMA", 9)
    path = written(tmp_path / "s.parquet", BEFORE)
    monkeypatch.undo()
    with pytest.raises(PredictionsError, match="has schema 9, and this wane reads up to 1: update wane"):
        read_samples(path)


def test_columns_are_read_one_by_one(tmp_path, monkeypatch):
    path = written(tmp_path / "s.parquet", BEFORE, light=np.array(["day"] * len(BEFORE)))
    samples, asked = read_samples(path), []
    real = pl.LazyFrame.select
    monkeypatch.setattr(pl.LazyFrame, "select", lambda self, *a, **k: asked.append(str(a[0])) or real(self, *a, **k))
    assert "cm" in samples.values
    assert "light" in samples.columns
    assert not asked
    assert samples.values["cm"].dtype == np.float32
    assert len(asked) == 1
    assert 'col("cm")' in asked[0]


def test_measured_once_for_all(tmp_path):
    """Probabilities with groups and ids, as a file of signals."""
    p = BEFORE.logits.double().softmax(1)
    lights = pl.Series(["day", "night"] * 449 + ["day"])
    given = Predictions(BEFORE.labels, probabilities=p, ids=BEFORE.ids, columns={"light": lights})
    assert write_samples(measure(given), tmp_path / "s.parquet", source={"file": "x"}) == 899
    again = read_samples(tmp_path / "s.parquet")
    assert score(again, by=["light"]).groups["accuracy"].to_list() == pytest.approx(
        score(given, by=["light"]).groups["accuracy"].to_list()
    )
    assert again.keys["id"].to_list() == list(BEFORE.ids)


def test_heads_of_other_sizes_are_said(tmp_path):
    first, second = tmp_path / "a.parquet", tmp_path / "b.parquet"
    for path, classes in ((first, 10), (second, 12)):
        with SignalWriter(path, num_classes=classes) as writer:
            writer.write(wane.signals(BEFORE.logits, BEFORE.labels), BEFORE.labels)
    result = compare(read_samples(first), read_samples(second))
    assert "no logits, so every signal is over all classes of its own model" in result.notes[0]
    assert {*result.groups["verdict"]} == {"steady"}


def test_rows_that_someone_else_wrote(tmp_path):
    """Tokens, whose label has another name."""
    rows = pl.DataFrame({
        "token": [5, 6, 5], "accuracy": [1.0, 0.0, 1.0], "loss": [0.1, 2.0, 0.2], "rank": [1, 3, 1],
        "document": ["a", "a", "b"], "position": [1, 2, 1], "kind": ["word", "word", "number"],
    })  # fmt: skip
    metadata = signal_files.signal_metadata(num_classes=9, signals=["accuracy", "loss"], by=["kind"], label="token")
    rows.write_parquet(tmp_path / "t.parquet", metadata=metadata)
    samples = read_samples(tmp_path / "t.parquet")
    assert samples.labels.tolist() == [5, 6, 5]
    assert score(samples).groups.select("kind", "n", "accuracy").rows() == [("word", 2, 0.5), ("number", 1, 1.0)]
    assert compare(samples, samples).clustered


def test_a_file_without_answers_cannot_be_compared(tmp_path):
    with SignalWriter(tmp_path / "s.parquet", num_classes=3) as writer:
        writer.write({"loss": np.ones(4), "rank": np.ones(4)}, np.zeros(4, dtype=int))
    samples = read_samples(tmp_path / "s.parquet")
    assert score(samples).overall["loss"] == 1
    with pytest.raises(
        PredictionsError, match=r"does not say which answers are right .it has loss, rank.: save accuracy"
    ):
        compare(samples, samples)
