"""Prompt logprobs as vLLM writes them, against the signals of the logits they came from."""

import json

import numpy as np
import pytest
import torch

import wane
from wane.predictions.comparison import compare
from wane.predictions.predictions import PredictionsError
from wane.predictions.reading import read_samples

VOCABULARY = 50


def logprobs_of(logits, ids, k):
    """As vLLM makes them: the prompt's own token first, ranked by the logprobs at least as large, then k more."""
    entries = [None]
    for position in range(1, len(ids)):
        row = torch.log_softmax(logits[position - 1].double(), 0)
        own = ids[position]
        found = {
            str(own): {"logprob": float(row[own]), "rank": int((row >= row[own]).sum()), "decoded_token": f"t{own}"}
        }
        for place, token in enumerate(row.topk(k).indices.tolist()):
            found[str(token)] = {"logprob": float(row[token]), "rank": place + 1, "decoded_token": f"t{token}"}
        entries.append(found)
    return entries


def prompts(*, seed=0, n=6, length=9, ties=False):
    rng = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(n, length, VOCABULARY, generator=rng)
    logits = logits.round() if ties else logits  # whole numbers: many are equal, as in 16 bits
    return logits, torch.randint(VOCABULARY, (n, length), generator=torch.Generator().manual_seed(1))


def save(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def records_of(logits, ids, k, **more):
    return [
        {
            "request_id": str(i),
            "prompt_token_ids": row.tolist(),
            "prompt_logprobs": logprobs_of(z, row.tolist(), k),
            **more,
        }
        for i, (z, row) in enumerate(zip(logits, ids, strict=True))
    ]


@pytest.mark.parametrize("k", [1, 5])
def test_signals_are_those_of_the_logits(tmp_path, k):
    logits, ids = prompts()
    path = save(tmp_path / "p.jsonl", records_of(logits, ids, k, domain="code"))
    samples = read_samples(path, vocabulary=VOCABULARY)
    wanted = wane.signals(logits[:, :-1].double().reshape(-1, VOCABULARY), ids[:, 1:].reshape(-1))
    assert samples.labels.tolist() == ids[:, 1:].reshape(-1).tolist()
    for name in wanted.names:
        np.testing.assert_allclose(samples.values[name], wanted[name], rtol=1e-9, atol=1e-12)
    assert samples.columns["document"].to_list()[:9] == ["0"] * 8 + ["1"]
    assert samples.columns["position"].to_list()[:9] == [*range(1, 9), 1]
    assert {*samples.columns["domain"]} == {"code"}
    assert samples.class_names[samples.labels[0]] == f"t{samples.labels[0]}"


def test_ties_are_mended_where_they_can_be_and_said(tmp_path):
    logits, ids = prompts(n=40, ties=True)
    wanted = wane.signals(logits[:, :-1].reshape(-1, VOCABULARY), ids[:, 1:].reshape(-1)).rank.numpy()
    few = read_samples(save(tmp_path / "a.jsonl", records_of(logits, ids, 3)), vocabulary=VOCABULARY)
    every = read_samples(save(tmp_path / "b.jsonl", records_of(logits, ids, VOCABULARY)), vocabulary=VOCABULARY)
    np.testing.assert_array_equal(every.values["rank"], wanted)
    assert not every.notes
    rank = few.values["rank"]
    assert (rank >= wanted).all()
    np.testing.assert_array_equal(rank[rank <= 3], wanted[rank <= 3])
    np.testing.assert_array_equal(few.values["accuracy"], wanted == 1)
    beyond = int((rank > 4).sum())
    assert (rank != wanted).any()
    assert f"the rank of {beyond} of 320 tokens is vLLM's own" in few.notes[-1]


def test_what_is_not_there_is_left_out_and_said(tmp_path):
    logits, ids = prompts()
    samples = read_samples(save(tmp_path / "p.jsonl", records_of(logits, ids, 0)))
    assert {"accuracy", "loss", "ctl", "rank"} == {*samples.values}
    assert "tlr, log_tlr, rtlr and nkl are left out" in samples.notes[0]
    assert "with prompt_logprobs=1" in samples.notes[1]
    result = compare(samples, samples)
    assert result.clustered
    assert {*result.groups["verdict"]} <= {"steady", "too few"}
    with pytest.raises(PredictionsError, match=r"vocabulary is 7, but a token has rank \d+"):
        read_samples(tmp_path / "p.jsonl", vocabulary=7)


def test_answers_of_the_server_and_its_batches(tmp_path):
    logits, ids = prompts(n=2)
    wanted = read_samples(save(tmp_path / "a.jsonl", records_of(logits, ids, 2)), vocabulary=VOCABULARY)
    parts = [{"prompt_logprobs": logprobs_of(z, y.tolist(), 2)} for z, y in zip(logits, ids, strict=True)]
    answers = [{"id": f"cmpl-{i}f3", "object": "text_completion", "choices": [part]} for i, part in enumerate(parts)]
    batch = [{"id": "vllm-1", "custom_id": f"q{i}", "response": {"body": {"id": "cmpl-x", "choices": [part]}}}
             for i, part in enumerate(parts)]  # fmt: skip
    whole = tmp_path / "w.json"
    whole.write_text(json.dumps(answers))
    for path, names in ((save(tmp_path / "s.jsonl", answers), ["0", "1"]), (whole, ["0", "1"]),
                        (save(tmp_path / "b.jsonl", batch), ["q0", "q1"])):  # fmt: skip
        samples = read_samples(path, vocabulary=VOCABULARY)
        assert samples.columns["document"].unique(maintain_order=True).to_list() == names
        np.testing.assert_array_equal(samples.values["loss"], wanted.values["loss"])


def test_a_logprob_that_json_cannot_hold(tmp_path):
    entry = {"3": {"logprob": -9999.0, "rank": 50, "decoded_token": "x"}, "1": {"logprob": -0.1, "rank": 1}}
    samples = read_samples(save(tmp_path / "p.jsonl", [{"prompt_logprobs": [None, entry]}]), vocabulary=VOCABULARY)
    assert np.isinf(samples.values["loss"][0])
    assert samples.values["ctl"].tolist() == [0.0]
    assert samples.values["answer"].tolist() == [1]


def test_what_is_no_logprob_is_one_sentence(tmp_path):
    for entry, message in (({"3": {"logprob": "x"}}, "not as vLLM writes it"), ({"3": {}}, "not as vLLM writes it")):
        with pytest.raises(PredictionsError, match=message):
            read_samples(save(tmp_path / "p.jsonl", [{"prompt_logprobs": [None, entry]}]))
    with pytest.raises(PredictionsError, match="has no prompt logprobs"):
        read_samples(save(tmp_path / "p.jsonl", [{"prompt_logprobs": [None]}]))
