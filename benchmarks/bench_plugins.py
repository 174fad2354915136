"""An epoch of another framework, training and evaluation, with wane's plugin against the same epoch without.

    python -m benchmarks.bench_plugins [--rounds 5]

CPU time, one epoch of each in turn within one process, minima. Images: 1,280 of 32x32 and 100 classes in
training, 1,000 in evaluation, wane's small CNN. Texts: 64 of 64 tokens and 8,000 words in training, the same
in evaluation, a GPT-2 of two layers; without a plugin the Trainer computes the loss only. Writing the run
folder is included, the report at the end is not. Avalanche is left out where it is not installed. Target: at
most 1.05.
"""

import argparse
import importlib.util
import logging
import tempfile
import time
import warnings
from contextlib import suppress
from functools import partial
from pathlib import Path

import torch
from torch.utils.data import DataLoader, TensorDataset

import wane
from benchmarks.timing import interleaved, table
from wane.models import cnn

G = torch.Generator().manual_seed(0)
TASKS = [c // 20 for c in range(100)]
TRAIN, TEST = 1280, 1000


def images(count):
    return torch.randn(count, 3, 32, 32, generator=G), torch.arange(count) % 100


def lightning(scratch):
    import lightning as L

    from wane.plugins.lightning import HistoryCallback

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

    class Net(L.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = cnn(100, width=32)

        def training_step(self, batch, _):
            return torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])

        def validation_step(self, batch, _):
            logits = self.net(batch[0])
            return {"loss": torch.nn.functional.cross_entropy(logits, batch[1]), "logits": logits}

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

    net = Net()
    train, test = (DataLoader(TensorDataset(*images(n)), batch_size=128) for n in (TRAIN, TEST))
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}

    def epoch(callbacks):
        trainer = L.Trainer(
            max_epochs=1, accelerator="cpu", enable_checkpointing=False, num_sanity_val_steps=0, callbacks=callbacks,
            **quiet,
        )  # fmt: skip
        trainer.fit(net, train, test)

    callback = HistoryCallback(wane.History(class_to_task=TASKS), folder=scratch / "lightning")
    callback.on_fit_end = lambda trainer, module: None
    return {"Lightning": partial(epoch, []), "Lightning + wane": partial(epoch, [callback])}


def transformers(scratch):
    from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

    from wane.plugins.transformers import HistoryCallback

    words = 8000
    model = GPT2LMHeadModel(GPT2Config(
        n_layer=2, n_head=4, n_embd=128, vocab_size=words, n_positions=64, bos_token_id=0, eos_token_id=0
    ))  # fmt: skip
    texts = [{"input_ids": row, "labels": row} for row in torch.randint(words, (64, 64), generator=G)]
    arguments = TrainingArguments(
        str(scratch / "trainer"), num_train_epochs=1, eval_strategy="epoch", save_strategy="no", report_to=[],
        use_cpu=True, disable_tqdm=True, logging_strategy="no",
    )  # fmt: skip

    def epoch(**options):
        trainer = Trainer(model, arguments, train_dataset=texts, eval_dataset={"a": texts}, **options)
        with suppress(ImportError):
            from transformers import PrinterCallback

            trainer.remove_callback(PrinterCallback)
        trainer.train()

    callback = HistoryCallback(wane.History(names=["a"], kind="domain"), folder=scratch / "transformers")
    callback.recorder.report = lambda: None
    given = {"callbacks": [callback], "preprocess_logits_for_metrics": callback.preprocess,
             "compute_metrics": callback.compute_metrics}  # fmt: skip
    return {"Trainer": epoch, "Trainer + wane": partial(epoch, **given)}


def avalanche(scratch):
    from tests.plugins.torchvision_stub import stubbed

    with stubbed():
        from avalanche.benchmarks import nc_benchmark
        from avalanche.benchmarks.utils import as_classification_dataset
        from avalanche.training import Naive
        from avalanche.training.plugins import EvaluationPlugin, ReplayPlugin

        from wane.plugins.avalanche import SignalMetrics, TrendReplay

    def data(count):
        made = TensorDataset(*images(count))
        made.targets = made.tensors[1].tolist()
        return as_classification_dataset(made)

    benchmark = nc_benchmark(data(2 * TRAIN), data(2 * TEST), n_experiences=2, task_labels=False)

    def strategy(metrics, replay):
        net = cnn(100, width=32)
        made = Naive(
            model=net, optimizer=torch.optim.SGD(net.parameters(), lr=0.01), criterion=torch.nn.CrossEntropyLoss(),
            train_mb_size=64, train_epochs=1, eval_mb_size=128, plugins=[replay],
            evaluator=EvaluationPlugin(*metrics, loggers=[]),
        )  # fmt: skip
        made.train(benchmark.train_stream[0])
        return made

    def epoch(made):
        made.train(benchmark.train_stream[1])
        made.eval(benchmark.test_stream[1:])

    history = wane.History(class_to_task=[0] * 100)
    plain = strategy([], ReplayPlugin(mem_size=200))
    ours = strategy([SignalMetrics(history, folder=scratch / "avalanche")], TrendReplay(
        history, trend=wane.TrendSampler(), weights=wane.LossWeights(), generator=G, mem_size=200
    ))  # fmt: skip
    return {"Avalanche, replay": partial(epoch, plain), "Avalanche, replay + wane": partial(epoch, ours)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=["lightning", "transformers", "avalanche"])
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    rows = []
    for name in given.only:
        if importlib.util.find_spec(name) is None:
            print(f"{name} is not installed: left out")
            continue
        with tempfile.TemporaryDirectory() as scratch:
            candidates = globals()[name](Path(scratch))
            times = interleaved(candidates, rounds=given.rounds, clock=time.process_time, warm=1)
            plain, ours = (min(times[candidate]) for candidate in candidates)
            rows.append((list(candidates)[1], f"{plain:.2f}", f"{ours:.2f}", f"{ours / plain:.3f}"))
    table("an epoch with wane's plugin and without, CPU seconds", ("", "without", "with", "ratio"), rows)


if __name__ == "__main__":
    main()
