"""Two files of tokens against sums by hand, and intervals against what they promise."""

import json
from dataclasses import asdict

import numpy as np
import polars as pl
import pytest

from wane.language.comparison import _intervals, compare_tokens, is_token_file
from wane.language.token_files import ABOUT, AboutTokens

SAID = AboutTokens("m", "f", "tok", "texts", 100, 32, 16, False, 0)


def write(path, frame, **changed):
    about = asdict(SAID) | {"tokens": len(frame)} | changed
    frame.write_parquet(path, metadata={ABOUT: json.dumps(about)})
    return path


def made(seed=0, documents=12, length=40):
    """Two tables of the same tokens; the second model loses on numbers of domain a."""
    g = np.random.default_rng(seed)
    n = documents * length
    kind = g.choice(["word", "number"], n)
    domain = np.repeat(["a", "b"], n // 2)
    loss = g.gamma(2.0, 1.0, n)
    worse = loss + g.normal(0, 0.05, n) + np.where((kind == "number") & (domain == "a"), 0.5, 0.0)
    frames = []
    for values in (loss, worse):
        rank = np.maximum(1, np.round(np.exp(values) - 0.5)).astype(np.int32)
        frames.append(
            pl.DataFrame(
                {
                    "document": np.repeat([f"d{i:02d}" for i in range(documents)], length),
                    "domain": domain,
                    "position": np.tile(np.arange(length, dtype=np.int32), documents),
                    "token": g.integers(0, 100, n),
                    "text": [f"t{i} " for i in range(n)],
                    "offset": 0,
                    "kind": kind,
                    "decile": 1,
                    "accuracy": (rank == 1).astype(np.float32),
                    "loss": values.astype(np.float32),
                    "ctl": np.exp(-values).astype(np.float32),
                    "rank": rank,
                }
            )
        )
    return frames


@pytest.fixture
def files(tmp_path):
    before, after = made()
    return write(tmp_path / "a.parquet", before), write(tmp_path / "b.parquet", after), before, after


def test_means_and_transitions_are_those_of_the_tokens(files):
    a, b, before, after = files
    found = compare_tokens(a, b)
    assert list(found.tables) == [(), ("domain",), ("kind",), ("domain", "kind")]
    row = found.tables["domain", "kind"].row(0, named=True)
    assert (row["domain"], row["kind"], row["verdict"]) == ("a", "number", "lost")
    chosen = (before["domain"] == "a") & (before["kind"] == "number")
    x, y = before.filter(chosen), after.filter(chosen)
    assert row["tokens"] == len(x)
    assert row["documents"] == 6
    assert row["loss_change"] == pytest.approx(y["loss"].mean() - x["loss"].mean(), abs=1e-6)
    assert row["perplexity_ratio"] == pytest.approx(np.exp(y["loss"].mean() - x["loss"].mean()), rel=1e-6)
    assert row["top5_before"] == pytest.approx((x["rank"] <= 5).mean())
    assert row["log_rank_after"] == pytest.approx(y["rank"].log().mean())
    assert row["lost"] == pytest.approx(((x["accuracy"] == 1) & (y["accuracy"] == 0)).mean())
    assert row["gained"] == pytest.approx(((x["accuracy"] == 0) & (y["accuracy"] == 1)).mean())
    assert 0 < row["loss_low"] < row["loss_change"] < row["loss_high"]
    assert found.overall["tokens"] == len(before)


def test_the_worst_passages_come_first_with_their_tokens(files):
    found = compare_tokens(files[0], files[1], worst=3)
    assert len(found.passages) == 3
    lost = [p.lost for p in found.passages]
    assert lost == sorted(lost, reverse=True)
    first = found.passages[0]
    change = (first.tokens["loss_after"] - first.tokens["loss_before"]).sum()
    assert change == pytest.approx(first.lost, abs=1e-3)
    assert first.domain == "a"


def test_intervals_of_a_table_hold_together():
    """No group changed: over many data sets, some interval of a table misses zero in about one of twenty, not more."""
    misses, tries, groups, documents = 0, 120, 8, 30
    for seed in range(tries):
        g = np.random.default_rng(seed)
        of = np.tile(np.arange(groups), documents)
        who = np.repeat(np.arange(documents), groups)
        tokens = g.integers(5, 40, len(of)).astype(float)
        shared = np.repeat(g.normal(0, 0.3, documents), groups)  # documents differ, so groups depend on each other
        changes = (tokens * (shared + g.normal(0, 0.2, len(of))))[:, None]
        low, high = _intervals(of, groups, who, changes, tokens, 0.05, seed)
        misses += bool(((low > 0) | (high < 0)).any())
    assert misses / tries <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / tries)


def test_few_documents_have_no_interval(tmp_path):
    before, after = made(documents=4)
    found = compare_tokens(write(tmp_path / "a.parquet", before), write(tmp_path / "b.parquet", after), by=["domain"])
    assert found.tables["domain",]["loss_low"].null_count() == 2
    assert set(found.tables["domain",]["verdict"]) == {"few"}
    assert "fewer than 5 documents" in found.notes[0]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"tokenizer": "other"}, "are of different tokenizers"),
        ({"texts": "other"}, "are of different texts"),
        ({"stride": 8}, r"are of different contexts \(32 16 False and 32 8 False\)"),
        ({"vocabulary": 101}, "are of different vocabularies"),
    ],
)
def test_files_that_do_not_fit_are_refused(tmp_path, changed, message):
    before, after = made()
    a, b = write(tmp_path / "a.parquet", before), write(tmp_path / "b.parquet", after, **changed)
    with pytest.raises(ValueError, match=message):
        compare_tokens(a, b)


def test_other_bad_input(files, tmp_path):
    a, b, before, _ = files
    before.write_parquet(tmp_path / "plain.parquet")
    assert is_token_file(a)
    assert not is_token_file(tmp_path / "plain.parquet")
    assert not is_token_file(tmp_path / "none.parquet")
    with pytest.raises(ValueError, match="is not a file of tokens: make it with wane tokens"):
        compare_tokens(a, tmp_path / "plain.parquet")
    with pytest.raises(ValueError, match="there is no column 'topic' to group by: choose from document, domain"):
        compare_tokens(a, b, by=["topic"])
    with pytest.raises(ValueError, match="alpha is 2"):
        compare_tokens(a, b, alpha=2)


def test_the_page_stands_alone_and_escapes_what_texts_hold(tmp_path):
    from wane.views.tokens.page import token_page

    before, after = (f.with_columns(pl.lit("<script>x</script>").alias("text")) for f in made())
    a, b = write(tmp_path / "a.parquet", before), write(tmp_path / "b.parquet", after)
    page = token_page(compare_tokens(a, b), before="<b>", after="tuned")
    assert "<script" not in page
    assert "http" not in page.replace("http-equiv", "")
    assert page.count("<figure>") == len(compare_tokens(a, b).passages)
    assert "&lt;b&gt;" in page


def test_compare_on_the_command_line(files, tmp_path):
    from typer.testing import CliRunner

    from wane.cli import app

    a, b, *_ = files
    page, runner = tmp_path / "lost.html", CliRunner()
    result = runner.invoke(app, ["compare", str(a), str(b), "--by", "domain,kind", "--html", str(page)])
    assert result.exit_code == 0, result.output
    assert "most of all a: perplexity ×" in result.output
    assert "the text itself" in page.read_text(encoding="utf-8").lower()
    found = json.loads(runner.invoke(app, ["compare", str(a), str(b), "--by", "kind", "--json"]).stdout)
    assert list(found["tables"]) == ["", "kind"]
    assert found["tables"]["kind"][0]["kind"] == "number"
    refused = runner.invoke(app, ["compare", str(a), str(b), "--by", "topic"])
    assert refused.exit_code == 2
