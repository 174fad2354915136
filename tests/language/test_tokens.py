"""The table of tokens against a float64 forward pass over each window, and against an interrupted run."""

import json

import numpy as np
import polars as pl
import pytest
import torch

pytest.importorskip("transformers")

from language.tiny_models import TOKENIZERS, gpt2, moved, save, write_texts
from typer.testing import CliRunner

from wane.cli import app
from wane.language.causal_model import ModelError, wrap_model
from wane.language.texts import TextsError
from wane.language.token_files import TokenSettings, read_about, score_texts
from wane.language.windows import windows

SMALL = TokenSettings(stride=10, part_tokens=60, batch_tokens=200)


@pytest.fixture(scope="module", params=["byte-level", "sentencepiece"])  # without and with a first token of its own
def scored(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokens")
    tokenizer = TOKENIZERS[request.param]()
    model = gpt2(tokenizer)
    texts = write_texts(folder / "texts")
    about = score_texts(wrap_model(model, tokenizer), [texts], folder / "out.parquet", settings=SMALL)
    return folder, tokenizer, model, about


def expected(model, tokenizer, text, signal):
    """By the letter: softmax in float64 of each window's own forward pass."""
    ids = tokenizer(text).input_ids
    exact = model.double()
    values = np.full(len(ids) - 1, np.nan)
    for w in windows(len(ids), longest=32, stride=10):
        with torch.no_grad():
            logits = exact(torch.tensor([ids[w.start : w.stop - 1]])).logits[0]
        log_p = torch.log_softmax(logits, -1)
        for i in range(w.first, w.stop):
            row = log_p[i - 1 - w.start]
            own = row[ids[i]]
            values[i - 1] = {"loss": -own, "rank": 1 + (row > own).sum(), "ctl": own.exp()}[signal]
    model.float()
    return values


@pytest.mark.parametrize("signal", ["loss", "rank", "ctl"])
def test_every_token_is_scored_as_by_the_letter(scored, signal):
    folder, tokenizer, model, about = scored
    table = pl.read_parquet(folder / "out.parquet")
    assert about.tokens == len(table)
    for (name,), part in table.group_by("document", maintain_order=True):
        file, _, line = name.partition(":")
        content = (folder / "texts" / file).read_text(encoding="utf-8")
        text = json.loads(content.splitlines()[int(line) - 1])["text"] if line else content
        values = expected(model, tokenizer, text, signal)
        assert len(part) == len(values)
        np.testing.assert_allclose(part[signal].to_numpy(), values, atol=2e-5, rtol=2e-5)
        assert "".join(part["text"]) == text
        assert part["position"].to_list() == list(range(1 - about.begins, 1 - about.begins + len(part)))


def test_domains_kinds_and_deciles(scored):
    table = pl.read_parquet(scored[0] / "out.parquet")
    assert set(table["domain"]) == {"prose", "mixed", "story", "python"}
    assert {"keyword", "identifier"} <= set(table.filter(pl.col("domain") == "python")["kind"])
    assert not {"keyword", "identifier"} & set(table.filter(pl.col("domain") == "story")["kind"])
    counts = dict(table["token"].value_counts().iter_rows())
    of_decile = table.select("token", "decile").unique().sort("decile")
    most = [max(counts[t] for t in part["token"]) for _, part in of_decile.group_by("decile", maintain_order=True)]
    assert most == sorted(most, reverse=True)


def test_a_killed_command_goes_on_and_ends_with_the_same_file(scored, tmp_path, monkeypatch):
    folder, tokenizer, model, _ = scored
    asked = wrap_model(model, tokenizer)
    parts = []

    def die_after_two(done, total):
        parts.append(done)
        if len(parts) == 3:  # once before the first
            raise KeyboardInterrupt

    out = tmp_path / "out.parquet"
    with pytest.raises(KeyboardInterrupt):
        score_texts(asked, [folder / "texts"], out, settings=SMALL, told=die_after_two)
    assert not out.exists()
    left = sorted((tmp_path / ".out.parquet.parts").glob("*.parquet"))
    assert len(left) == 2
    before = [path.stat().st_mtime_ns for path in left]
    seen = []

    def look(*_, **__):
        seen.append([path.stat().st_mtime_ns for path in left])

    monkeypatch.setattr("wane.language.token_files._merge", look)
    score_texts(asked, [folder / "texts"], out, settings=SMALL)
    assert seen == [before]  # what was done is not done again
    monkeypatch.undo()
    score_texts(asked, [folder / "texts"], out, settings=SMALL)
    assert out.read_bytes() == (folder / "out.parquet").read_bytes()
    assert not (tmp_path / ".out.parquet.parts").exists()


def test_parts_of_another_model_are_not_taken_over(scored, tmp_path):
    folder, tokenizer, model, _ = scored

    def die(done, total):
        raise KeyboardInterrupt

    out, other = tmp_path / "out.parquet", wrap_model(moved(model), tokenizer)
    with pytest.raises(KeyboardInterrupt):
        score_texts(other, [folder / "texts"], out, settings=SMALL, told=die)
    score_texts(wrap_model(model, tokenizer), [folder / "texts"], out, settings=SMALL)
    assert out.read_bytes() == (folder / "out.parquet").read_bytes()


def test_two_models_in_one_pass_are_each_scored_as_alone(scored, tmp_path):
    folder, tokenizer, model, about = scored
    base, tuned = wrap_model(model, tokenizer), wrap_model(moved(model), tokenizer)
    both = [tmp_path / "base.parquet", tmp_path / "tuned.parquet"]
    score_texts(base, [folder / "texts"], both[0], settings=SMALL, against=tuned, against_out=both[1])
    score_texts(tuned, [folder / "texts"], tmp_path / "alone.parquet", settings=SMALL)
    tables = [pl.read_parquet(path) for path in both]
    pair = ["kl_base_tuned", "same_top"]
    assert tables[0].drop(pair).equals(pl.read_parquet(folder / "out.parquet").select(tables[0].drop(pair).columns))
    assert tables[1].drop(pair).equals(pl.read_parquet(tmp_path / "alone.parquet").select(tables[1].drop(pair).columns))
    assert tables[0].select(pair).equals(tables[1].select(pair))
    assert float(tables[0]["kl_base_tuned"].min()) >= 0
    found = read_about(both[1])
    assert (found.fingerprint, found.against) == (tuned.fingerprint, base.fingerprint)
    assert (found.tokenizer, found.texts) == (about.tokenizer, about.texts)


def test_the_command_and_an_adapter(tmp_path):
    peft = pytest.importorskip("peft")
    tokenizer = TOKENIZERS["byte-level"]()
    base = save(gpt2(tokenizer), tokenizer, tmp_path / "base")
    settings = peft.LoraConfig(r=2, target_modules=["c_attn"], init_lora_weights=False, fan_in_fan_out=True)
    adapted = peft.get_peft_model(gpt2(tokenizer), settings)
    adapted.peft_config["default"].base_model_name_or_path = base
    adapted.save_pretrained(tmp_path / "adapter")
    texts = write_texts(tmp_path / "texts")
    runner, common = CliRunner(), ["--context", "16", "--stride", "8"]
    outs = [tmp_path / name for name in ("a.parquet", "b.parquet", "c.parquet")]
    for model, out, more in (
        (base, outs[0], []),
        (str(tmp_path / "adapter"), outs[1], []),
        (base, outs[2], ["--adapter", str(tmp_path / "adapter")]),
    ):
        result = runner.invoke(app, ["tokens", model, str(texts), "-o", str(out), *common, *more, "--quiet"])
        assert result.exit_code == 0, result.output
    plain, adapter, again = (pl.read_parquet(out) for out in outs)
    assert adapter.equals(again)
    assert not np.allclose(plain["loss"], adapter["loss"], atol=1e-3)
    exact = adapted.merge_and_unload().eval()
    text = (texts / "python.md").read_text()
    ids = tokenizer(text).input_ids[:9]
    with torch.no_grad():
        logits = exact(torch.tensor([ids[:-1]])).logits[0]
    loss = torch.nn.functional.cross_entropy(logits, torch.tensor(ids[1:]), reduction="none")
    np.testing.assert_allclose(adapter.filter(pl.col("document") == "python.md")["loss"][:8], loss, atol=1e-4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m, t: (m.base_model, t), "has no output matrix"),
        (lambda m, t: (_broken(m), t), r"has weights that are not numbers, in transformer.wte.weight"),
        (lambda m, t: (m, _added(t)), "has 401 tokens, the model 400: take the tokenizer that it was trained with"),
    ],
)
def test_models_that_cannot_be_scored_are_one_sentence(change, message):
    tokenizer = TOKENIZERS["byte-level"]()
    model, tokenizer = change(gpt2(tokenizer), tokenizer)
    with pytest.raises(ModelError, match=message):
        wrap_model(model, tokenizer)


def test_soft_capped_logits_are_refused():
    from transformers import Gemma2Config, Gemma2ForCausalLM

    tokenizer = TOKENIZERS["byte-level"]()
    config = Gemma2Config(
        vocab_size=400, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, head_dim=8, final_logit_softcapping=0.5,
    )  # fmt: skip
    with pytest.raises(ModelError, match="soft-capped"):
        wrap_model(Gemma2ForCausalLM(config), tokenizer)


def test_texts_without_a_token_to_score_and_other_bad_input(tmp_path):
    tokenizer = TOKENIZERS["byte-level"]()
    asked = wrap_model(gpt2(tokenizer), tokenizer)
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "one.txt").write_text("a")
    with pytest.raises(TextsError, match="no token can be scored"):
        score_texts(asked, [tmp_path], tmp_path / "o.parquet")
    assert not list(tmp_path.glob(".o*"))
    (tmp_path / "two.txt").write_text("a b")
    assert score_texts(asked, [tmp_path], tmp_path / "o.parquet").tokens >= 1  # short ones beside it do no harm
    with pytest.raises(NotADirectoryError, match="is not a folder: make it first"):
        score_texts(asked, [tmp_path / "two.txt"], tmp_path / "no" / "o.parquet")
    with pytest.raises(ModelError, match="reads 1 to 32"):
        wrap_model(gpt2(tokenizer), tokenizer, longest=33)
    other = TOKENIZERS["byte-level"](380)
    with pytest.raises(ModelError, match="different tokenizers"):
        score_texts(asked, [tmp_path / "two.txt"], tmp_path / "o.parquet", against=wrap_model(gpt2(other), other))
    result = CliRunner().invoke(app, ["tokens", str(tmp_path / "none"), str(tmp_path / "two.txt"), "-o", "x.parquet"])
    assert result.exit_code == 2
    assert "cannot be loaded as a causal language model" in result.output


def _broken(model):
    with torch.no_grad():
        model.transformer.wte.weight[3, 2] = torch.nan
    return model


def _added(tokenizer):
    tokenizer.add_tokens(["brandnewtoken"])
    return tokenizer
