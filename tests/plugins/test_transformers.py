"""The callback in real Trainers: a classifier of digits, and a causal language model of two domains."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from plugins.digits import digits
from torch.nn.functional import pad

import wane

transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")
from transformers import (  # noqa: E402
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainingArguments,
)

from wane.plugins.transformers import HistoryCallback, token_signals  # noqa: E402

WORDS = 40


def language_model(**options):
    torch.manual_seed(0)
    tokens = {"bos_token_id": 0, "eos_token_id": 0}
    return GPT2LMHeadModel(
        GPT2Config(n_layer=2, n_head=2, n_embd=16, vocab_size=WORDS, n_positions=24, **tokens, **options)
    )


def texts(count, seed, *, lengths=(5, 20)):
    """Texts of different lengths; the first tokens of each are a prompt, which has no labels."""
    g = torch.Generator().manual_seed(seed)
    made = []
    for _ in range(count):
        ids = torch.randint(WORDS, (int(torch.randint(*lengths, (), generator=g)),), generator=g)
        made.append({"input_ids": ids, "labels": torch.cat([torch.full((2,), -100), ids[2:]])})
    return made


def collate(rows):
    """Padded on the right, with labels of -100."""
    width = max(len(row["input_ids"]) for row in rows)

    def padded(key, value):
        return torch.stack([pad(r[key], (0, width - len(r[key])), value=value) for r in rows])

    ids = padded("input_ids", 0)
    mask = torch.stack([torch.arange(width) < len(r["input_ids"]) for r in rows])
    return {"input_ids": ids, "attention_mask": mask.long(), "labels": padded("labels", -100)}


def trainer(model, callback, folder, train=None, test=None, **options):
    options = {"eval_strategy": "epoch", "num_train_epochs": 2, "save_strategy": "no", "learning_rate": 1e-3} | options
    more = {"data_collator": options.pop("data_collator", collate), "compute_metrics": callback.compute_metrics}
    arguments = TrainingArguments(
        str(folder), use_cpu=True, report_to=[], disable_tqdm=True, logging_strategy="no", **options
    )
    return Trainer(
        model, arguments, train_dataset=train, eval_dataset=test, callbacks=[callback],
        preprocess_logits_for_metrics=callback.preprocess, **more,
    )  # fmt: skip


@torch.no_grad()
def direct(model, rows):
    """Means over the predicted tokens, text by text in float64: no batch, no padding, shifted by hand."""
    model.eval()
    scored = []
    for row in rows:
        logits = model(input_ids=row["input_ids"][None]).logits[0, :-1].double()
        labels = row["labels"][1:]
        scored.append(torch.stack(wane.signals(logits[labels >= 0], labels[labels >= 0])[:-1], 1))
    scored = torch.cat(scored)
    return scored.mean(0).numpy(), len(scored)


@pytest.mark.parametrize("options", [{}, {"batch_eval_metrics": True}, {"eval_accumulation_steps": 1}])
def test_domains_of_a_language_model(options, tmp_path):
    callback = HistoryCallback(wane.History(names=["code", "code_prose"], kind="domain"), folder=tmp_path / "out")
    model, test = language_model(), {"code_prose": texts(7, 1), "code": texts(5, 2)}
    fit = trainer(model, callback, tmp_path, texts(16, 0), test, per_device_eval_batch_size=3, **options)
    fit.train()
    assert callback.shift
    assert [(e.step, len(e.classes)) for e in callback.history.evaluations] == [(0, 2), (1, 2)]
    last = callback.history.evaluations[-1]
    for group, name in enumerate(("code", "code_prose")):
        means, count = direct(model, test[name])
        assert last.n[group] == count
        np.testing.assert_allclose(last.values[group], means, atol=2e-6)
    metrics = fit.evaluate()
    assert metrics["eval_code_ctl"] == pytest.approx(direct(model, test["code"])[0][-2], abs=2e-6)
    assert metrics["eval_code_mean_loss"] != metrics["eval_code_loss"]  # the Trainer's own is left as it is
    assert wane.History.read(tmp_path / "out" / "history.parquet").frame.equals(callback.history.frame)


def test_what_the_trainer_keeps_is_small(tmp_path):
    """Nine numbers a token instead of one for each word of the vocabulary."""
    callback = HistoryCallback(wane.History(names=["a"], kind="domain"))
    fit = trainer(language_model(), callback, tmp_path, test={"a": texts(6, 0)}, eval_strategy="no")
    shapes = []
    compute = fit.compute_metrics
    fit.compute_metrics = lambda p: shapes.append((p.predictions.shape, p.label_ids.shape)) or compute(p)
    fit.evaluate()
    (predictions, labels) = shapes[0]
    assert predictions == (*labels, len(wane.SIGNALS) + 1)


def bert(labels=10, **options):
    torch.manual_seed(0)
    return BertForSequenceClassification(BertConfig(
        vocab_size=17, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=64, num_labels=labels, **options,
    ))  # fmt: skip


def images(classes=range(10), *, test, count=60):
    """Digits as texts of 64 tokens, one for each of the 17 shades."""
    pixels, labels = digits(classes, test=test)
    pixels = (pixels * 16).long()
    return [{"input_ids": x, "labels": y} for x, y in zip(pixels[:count], labels[:count], strict=True)]


def default(rows):
    return {key: torch.stack([row[key] for row in rows]) for key in rows[0]}


@pytest.mark.parametrize("options", [{}, {"output_hidden_states": True}])  # the second: a tuple of logits
def test_classes_of_a_classifier(options, tmp_path):
    callback = HistoryCallback(wane.History(class_to_task=[0] * 5 + [1] * 5))
    model, test = bert(**options), images(test=True)
    for task in range(2):
        callback.task = task
        train = images(range(5 * task, 5 * task + 5), test=False)
        trainer(model, callback, tmp_path, train, test, num_train_epochs=1, data_collator=default).train()
    assert not callback.shift
    assert [(e.step, e.task, e.split) for e in callback.history.evaluations] == [(0, 0, "test"), (1, 1, "test")]
    batch = default(test)
    with torch.no_grad():
        logits = model.eval()(input_ids=batch["input_ids"]).logits
    scored = wane.signals(logits.double(), batch["labels"])
    wanted = [[scored[name][batch["labels"] == c].mean() for name in wane.SIGNALS] for c in range(10)]
    last = callback.history.evaluations[-1]
    np.testing.assert_allclose(last.values, wanted, atol=2e-6)
    assert last.n.tolist() == torch.bincount(batch["labels"]).tolist()


def test_named_sets_of_a_classifier_are_splits(tmp_path):
    callback = HistoryCallback()
    test = {"test": images(test=True, count=20), "holdout": images(test=False, count=30)}
    fit = trainer(bert(), callback, tmp_path, test=test, eval_strategy="no", data_collator=default)
    fit.evaluate()
    fit.predict(test["test"])  # no evaluation
    fit.evaluate()
    evaluations = callback.history.evaluations
    assert [(e.split, e.step, e.n.sum()) for e in evaluations] == [
        ("test", 0, 20), ("holdout", 0, 30), ("test", 1, 20), ("holdout", 1, 30),
    ]  # fmt: skip


def test_resumed_from_a_checkpoint_the_history_is_the_same(tmp_path):
    def fit(folder, resume=None, stop=None):
        callback = HistoryCallback(wane.History(names=["a", "b"], kind="domain"))
        options = {"save_strategy": "epoch", "num_train_epochs": 3}
        test = {"a": texts(4, 1), "b": texts(4, 2)}
        fitted = trainer(language_model(), callback, tmp_path / folder, texts(8, 0), test, **options)
        if stop:
            fitted.add_callback(Stop(stop))
        fitted.train(resume_from_checkpoint=resume)
        return callback.history

    class Stop(transformers.TrainerCallback):
        def __init__(self, epoch):
            self.epoch = epoch

        def on_epoch_end(self, args, state, control, **kwargs):
            control.should_training_stop = state.epoch >= self.epoch

    whole = fit("whole")
    assert [e.step for e in whole.evaluations] == [0, 1, 2]
    fit("stopped", stop=1)
    assert fit("stopped", resume=True).frame.equals(whole.frame)


def test_padding_that_the_trainer_adds_does_not_count():
    """Texts of one batch are longer than those of another, and those of another process too: -100 fills up."""
    callback = HistoryCallback(wane.History(names=["a"], kind="domain"), shift=True)
    logits, labels = torch.randn(2, 4, 7), torch.randint(7, (2, 4))
    longer = (
        pad(logits, (0, 0, 0, 2), value=-100),
        pad(labels, (0, 2), value=-100),
    )
    metrics = {}
    for name, (z, y) in {"as is": (logits, labels), "longer": longer}.items():
        kept = callback.preprocess((z, "something else"), y)
        kept = pad(kept, (0, 0, 0, 3), value=-100)  # and among batches
        y = pad(y, (0, 3), value=-100)
        metrics[name] = callback.compute_metrics(transformers.EvalPrediction(kept.numpy(), y.numpy()))
        callback._metrics = None
    wanted = wane.signals(logits[:, :-1], labels[:, 1:])
    for name, value in metrics["as is"].items():
        assert (
            value
            == metrics["longer"][name]
            == pytest.approx(wanted[name.removeprefix("mean_")].mean().item(), abs=1e-6)
        )


def test_half_precision():
    logits, labels = torch.randn(2, 4, 7).bfloat16(), torch.randint(7, (2, 4))
    kept = token_signals(logits, labels, shift=False)
    assert kept.dtype == torch.float32
    np.testing.assert_allclose(kept[..., 1], wane.signals(logits.float(), labels).loss, rtol=1e-6)


def test_errors(tmp_path):
    callback = HistoryCallback()
    with pytest.raises(ValueError, match=r"has not seen the model: give it to the Trainer, callbacks=\[callback\]"):
        callback.preprocess(torch.zeros(2, 3), torch.zeros(2, dtype=torch.long))
    prediction = transformers.EvalPrediction(np.zeros((2, 3)), np.zeros(2, dtype=int))
    with pytest.raises(ValueError, match=r"shape \(2, 3\) and labels \(2,\): these are not the signals"):
        callback.compute_metrics(prediction)
    with pytest.raises(TypeError, match="labels are a tuple: give the Trainer one label_names"):
        token_signals(torch.zeros(2, 3), (torch.zeros(2), torch.zeros(2)), shift=False)
    named = HistoryCallback(wane.History(names=["a", "b"], kind="domain"))
    fit = trainer(language_model(), named, tmp_path, test={"c": texts(4, 1)}, eval_strategy="no")
    with pytest.raises(ValueError, match="no domain 'c', only a, b"):
        fit.evaluate()


def test_which_models_are_shifted(tmp_path):
    def shift_of(model):
        callback = HistoryCallback()
        trainer(model, callback, tmp_path, eval_strategy="no")
        return callback.shift

    small = {"vocab_size": 17, "d_model": 8, "d_kv": 4, "d_ff": 8, "num_layers": 1, "num_heads": 2}
    masked = {"vocab_size": 17, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    assert shift_of(language_model())
    assert not shift_of(bert())
    assert not shift_of(transformers.T5ForConditionalGeneration(transformers.T5Config(**small)))
    assert not shift_of(transformers.BertForMaskedLM(BertConfig(intermediate_size=8, **masked)))


@pytest.mark.slow
def test_two_processes(tmp_path):
    """Texts of different lengths in two processes: what is recorded is what one process computes."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--standalone",
               str(Path(__file__).with_name("transformers_ddp.py")), str(tmp_path)]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    model = GPT2LMHeadModel.from_pretrained(tmp_path / "model")
    last = wane.History.read(tmp_path / "run" / "history.parquet").evaluations[-1]
    for group, rows in enumerate((texts(7, 1), texts(5, 2, lengths=(15, 22)))):
        means, count = direct(model, rows)
        assert last.n[group] == count
        np.testing.assert_allclose(last.values[group], means, atol=2e-6)
