"""Lines as lm-evaluation-harness writes them (`EvaluationTracker.save_results_samples`), against its own metrics."""

import json

import numpy as np
import pytest
import torch

from wane.predictions.comparison import compare, score
from wane.predictions.predictions import PredictionsError
from wane.predictions.reading import read_samples
from wane.softmax.signals import signals

CHOICES = ("yes", "no way", "perhaps", "not at all, my friend")


def line(doc_id, lls, target, choices=CHOICES, *, context="Is it?", **more):
    """What the harness logs of a multiple-choice document: numbers as text, arguments by name, metrics as numbers."""
    choices = choices[: len(lls)]
    gold = target if isinstance(target, int) else None
    record = {
        "doc_id": doc_id, "doc": {"question": "Is it?" * 30, "subject": ("law", "art")[doc_id % 2]},
        "target": str(target),
        "arguments": {f"gen_args_{i}": {"arg_0": context, "arg_1": f" {text}"} for i, text in enumerate(choices)},
        "resps": [[[str(ll), "False"]] for ll in lls], "filtered_resps": [[str(ll), "False"] for ll in lls],
        "filter": "none", "metrics": ["acc", "acc_norm"], "doc_hash": f"{doc_id:064x}", "prompt_hash": "p",
        "target_hash": "t",
    }  # fmt: skip
    if gold is not None:
        lengths = np.array([float(len(text)) for text in choices])
        record["acc"] = float(np.argmax(lls) == gold)
        record["acc_norm"] = float(np.argmax(np.array(lls) / lengths) == gold)
        record["acc_bytes"] = float(np.argmax(np.array(lls) / [len(text.encode()) for text in choices]) == gold)
    return {**record, **more}


def save(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in lines), encoding="utf-8")
    return path


def drawn(rng, n, size=4):
    return [line(i, rng.normal(-20, 5, size).tolist(), int(rng.integers(size))) for i in range(n)]


NAME = "samples_hellaswag_2026-03-01T12-00-00.123456.jsonl"


@pytest.mark.parametrize(("normalise", "metric"), [("none", "acc"), ("characters", "acc_norm"), ("bytes", "acc_bytes")])
def test_accuracy_is_what_the_harness_recorded(tmp_path, normalise, metric):
    lines = drawn(np.random.default_rng(0), 60)
    samples = read_samples(save(tmp_path / NAME, lines), normalise=normalise)
    np.testing.assert_array_equal(samples.values["accuracy"], [record[metric] for record in lines])
    assert samples.num_classes == 4
    assert samples.by == ("task",)
    assert {*samples.columns["task"]} == {"hellaswag"}
    assert {*samples.columns["doc.subject"]} == {"law", "art"}
    assert "doc.question" not in samples.columns  # a text is no group
    assert samples.keys["id"][0] == "hellaswag:0:0000000000000000"
    assert not samples.notes


def test_signals_are_those_of_the_choices(tmp_path):
    lines = drawn(np.random.default_rng(1), 20) + [line(90 + i, [-3.0, -2.0], 1) for i in range(5)]
    samples = read_samples(save(tmp_path / NAME, lines))
    assert samples.num_classes == 0  # it differs
    for rows in (slice(0, 20), slice(20, 25)):
        logits = torch.tensor([[float(ll) for ll, _ in r["filtered_resps"]] for r in lines[rows]], dtype=torch.float64)
        wanted = signals(logits, [int(r["target"]) for r in lines[rows]])
        for name in wanted.names:
            np.testing.assert_allclose(samples.values[name][rows], wanted[name], rtol=1e-9)
    assert samples.columns["choices"].to_list() == [4] * 20 + [2] * 5


def test_two_runs_are_matched_by_document_and_grouped_by_task(tmp_path):
    rng = np.random.default_rng(2)
    for when, worse in (("before", 0.0), ("after", 6.0)):
        for task in ("arc_easy", "mmlu_law"):
            lines = []
            for i in np.random.default_rng(3).permutation(80) if worse else range(80):
                lls = np.random.default_rng(int(i)).normal(-20, 1, 4)
                lls[i % 4] += 5 - (worse if task == "mmlu_law" else 0)
                lines.append(line(int(i), lls.tolist(), int(i % 4)))
            save(tmp_path / when / "model" / f"samples_{task}_2026-03-0{1 + rng.integers(8)}T12-00-00.1.jsonl", lines)
    result = compare(read_samples(tmp_path / "before"), read_samples(tmp_path / "after"))
    assert dict(result.groups.select("task", "verdict").rows()) == {"mmlu_law": "lost", "arc_easy": "steady"}
    assert result.flips["id"][0].startswith("mmlu_law:")
    assert {*result.takers["name"]} == {"mmlu_law"}


def test_the_newest_file_of_a_task_counts(tmp_path):
    save(tmp_path / "samples_boolq_2026-03-01T12-00-00.1.jsonl", [line(0, [-1.0, -2.0], 0)])
    save(tmp_path / "samples_boolq_2026-03-02T12-00-00.1.jsonl", [line(0, [-3.0, -2.0], 0)])
    assert read_samples(tmp_path).values["accuracy"].tolist() == [0.0]


@pytest.mark.parametrize(
    ("record", "gold"),
    [
        (line(0, [-1.0, -2.0, -3.0], "no way"), 1),  # the text of a choice
        (line(0, [-1.0, -2.0, -3.0], "[1, 2]"), 1),  # several are right: the likeliest of them
        (line(0, [-1.0, -2.0], "ran.", choices=("ran.", "ran."), acc=0.0), 1),  # the question differs, not the choice
        (line(0, [-1.0, -2.0], "ran.", choices=("ran.", "ran."), acc=1.0), 0),
    ],
)
def test_which_choice_is_right(tmp_path, record, gold):
    samples = read_samples(save(tmp_path / NAME, [record]))
    assert samples.labels.tolist() == [gold]


def test_what_is_not_said_is_left_out(tmp_path):
    lines = [line(0, [-1.0, -2.0, -3.0], "ran.", choices=("ran.",) * 3, acc=0.0), line(1, [-1.0, -2.0], 0)]
    samples = read_samples(save(tmp_path / NAME, lines))
    assert len(samples) == 1
    assert samples.notes == ("1 samples do not say which choice is right, and are left out.",)
    with pytest.raises(PredictionsError, match="no sample with an answer that is right or wrong"):
        read_samples(save(tmp_path / NAME, lines[:1]))


def test_choices_without_the_question_are_not_choices(tmp_path):
    record = line(0, [-5.0, -4.0, -1.0, -2.0], 0)
    for i in (2, 3):  # acc_mutual_info asks for them as well
        record["arguments"][f"gen_args_{i}"]["arg_0"] = ""
    samples = read_samples(save(tmp_path / NAME, [record]))
    assert samples.num_classes == 2
    assert samples.values["accuracy"].tolist() == [0.0]


def test_one_continuation(tmp_path):
    lines = [line(i, [-1.5 - i], "word", acc=int(i == 0)) for i in range(2)]
    lines[0]["filtered_resps"] = [["-1.5", "True"]]
    samples = read_samples(save(tmp_path / "samples_lambada_2026-03-01T12-00-00.1.jsonl", lines))
    assert samples.values["accuracy"].tolist() == [1.0, 0.0]
    assert samples.values["loss"].tolist() == [1.5, 2.5]
    assert "rank" not in samples.values
    assert score(samples).groups["accuracy"].to_list() == [0.5]
    assert "have no rank and no margin" in samples.notes[0]


def test_generated_answers(tmp_path):
    lines = []
    for kept in ("strict-match", "flexible-extract"):
        for i in range(6):
            record = line(i, [], "4", choices=(), filter=kept, exact_match=float(i > 2))
            lines.append(
                {**record, "filtered_resps": [f"the answer is {i}"], "arguments": {"gen_args_0": {"arg_0": "2+2?"}}}
            )
    path = save(tmp_path / "samples_gsm8k_2026-03-01T12-00-00.1.jsonl", lines)
    samples = read_samples(path)
    assert samples.keys["id"].n_unique() == 12
    assert score(samples, by=["filter"]).groups["accuracy"].to_list() == [0.5, 0.5]
    result = compare(samples, samples)
    assert result.groups["verdict"].to_list() == ["steady"]


def test_a_line_of_another_kind_is_one_sentence(tmp_path):
    lines = [line(0, [-1.0, -2.0], 0), {**line(1, [-1.0, -2.0], 0), "filtered_resps": [["x", "y"], ["z", "w"]]}]
    with pytest.raises(PredictionsError, match=r"line 2 is not as lm_eval logs it .ValueError: could not convert"):
        read_samples(save(tmp_path / NAME, lines))
    (tmp_path / "empty").mkdir()
    with pytest.raises(PredictionsError, match=r"has no file samples_\*.jsonl"):
        read_samples(tmp_path / "empty")
    with pytest.raises(ValueError, match="unknown normalisation 'length'"):
        read_samples(save(tmp_path / NAME, lines[:1]), normalise="length")
