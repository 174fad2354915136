"""The metric and the replay in real strategies: digits, two classes an experience.

`make test-avalanche` runs them. Avalanche is not among the packages of developers: it wants the torchvision that fits
torch's build, and brings a package `tests` along that would hide this one.
"""

import copy
import importlib.util
import warnings

import numpy as np
import pytest
import torch
from plugins import torchvision_stub
from plugins.digits import CLASS_TO_TASK, digits
from torch import nn
from torch.utils.data import TensorDataset

import wane
from wane.interventions.trend_sampler import TrendSampler

if importlib.util.find_spec("avalanche") is None:
    pytest.skip("Avalanche is not installed: make test-avalanche", allow_module_level=True)
with torchvision_stub.stubbed(), warnings.catch_warnings(action="ignore"):
    from avalanche.benchmarks import nc_benchmark
    from avalanche.benchmarks.scenarios.supervised import class_incremental_benchmark
    from avalanche.benchmarks.utils import as_classification_dataset
    from avalanche.evaluation.metrics import accuracy_metrics, class_accuracy_metrics, loss_metrics
    from avalanche.training import Naive
    from avalanche.training.plugins import EvaluationPlugin, ReplayPlugin, SupervisedPlugin
    from avalanche.training.storage_policy import ClassBalancedBuffer

    from wane.plugins.avalanche import SignalMetrics, TrendReplay, class_to_task

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def data(*, test, count=None):
    images, labels = digits(test=test)
    made = TensorDataset(images[:count], labels[:count])
    made.targets = labels[:count].tolist()
    return as_classification_dataset(made)


def made(kind):
    """Avalanche has two kinds: with task labels, which some of its own metrics need, and without."""
    train, test, order = data(test=False, count=400), data(test=True), list(range(10))
    if kind == "with task labels":
        return nc_benchmark(train, test, n_experiences=5, task_labels=False, fixed_class_order=order)
    return class_incremental_benchmark({"train": train, "test": test}, num_experiences=5, class_order=order)


@pytest.fixture(scope="module")
def benchmark():
    return made("with task labels")


def strategy(*metrics, plugins=(), epochs=2, criterion=None, **options):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    return Naive(
        model=net, optimizer=torch.optim.SGD(net.parameters(), lr=0.1), criterion=criterion or nn.CrossEntropyLoss(),
        train_mb_size=16, train_epochs=epochs, eval_mb_size=100, plugins=list(plugins),
        evaluator=EvaluationPlugin(*metrics, loggers=[]), **options,
    )  # fmt: skip


def replay(history, **options):
    options = {"generator": torch.Generator().manual_seed(0), "mem_size": 60, "batch_size_mem": 8} | options
    return TrendReplay(history, **options)


@pytest.mark.parametrize("kind", ["with task labels", "without"])
def test_the_history_of_a_stream(kind, tmp_path):
    benchmark = made(kind)
    metric = SignalMetrics(wane.History(class_to_task=class_to_task(benchmark.train_stream)), folder=tmp_path)
    learner = strategy(metric, eval_every=1)
    for experience in list(benchmark.train_stream)[:2]:
        learner.train(experience, eval_streams=[benchmark.test_stream])
        learner.eval(benchmark.test_stream)  # the same weights as after the last epoch
    history = metric.history
    assert history.class_to_task.tolist() == CLASS_TO_TASK
    assert [(e.split, e.step, e.task, e.classes.tolist()) for e in history.evaluations] == [
        ("untrained", 0, 0, [*range(10)]),
        ("future", 0, 0, [*range(2, 10)]), ("test", 0, 0, [0, 1]),
        ("future", 1, 0, [*range(2, 10)]), ("test", 1, 0, [0, 1]),
        ("future", 2, 1, [*range(4, 10)]), ("test", 2, 1, [0, 1, 2, 3]),
        ("future", 3, 1, [*range(4, 10)]), ("test", 3, 1, [0, 1, 2, 3]),
    ]  # fmt: skip
    images, labels = digits(test=True)
    with torch.no_grad():
        scored = wane.signals(learner.model.eval()(images).double(), labels)
    wanted = [[scored[name][labels == c].mean() for name in wane.SIGNALS] for c in range(4)]
    np.testing.assert_allclose(history.evaluations[-1].values, wanted, atol=1e-6)
    assert wane.History.read(tmp_path / "history.parquet").frame.equals(history.frame)


def test_what_loggers_get_is_what_avalanche_measures(benchmark):
    """Accuracy and loss by experience, accuracy by class: the metrics that Avalanche has itself."""
    metric = SignalMetrics(by_class=True)
    own = (*accuracy_metrics(experience=True), *loss_metrics(experience=True), *class_accuracy_metrics(experience=True))
    learner = strategy(metric, *own)
    learner.train(benchmark.train_stream[0])
    results = learner.eval(benchmark.test_stream)
    where = "eval_phase/test_stream/Task000"
    for k in range(5):
        assert results[f"accuracy/{where}/Exp{k:03}"] == pytest.approx(results[f"Top1_Acc_Exp/{where}/Exp{k:03}"])
        assert results[f"loss/{where}/Exp{k:03}"] == pytest.approx(results[f"Loss_Exp/{where}/Exp{k:03}"], rel=1e-5)
    for c in range(10):
        theirs = next(v for name, v in results.items() if name.startswith("Top1_ClassAcc") and name.endswith(f"/{c}"))
        assert results[f"accuracy_Class/eval_phase/test_stream/{c:03}"] == pytest.approx(theirs)
    assert {name for name in results if name.startswith("nkl/")} == {f"nkl/{where}/Exp{k:03}" for k in range(5)}
    assert metric.result()["accuracy"] == pytest.approx(results[f"accuracy/{where}/Exp000"])  # what was taught
    assert str(metric) == "wane"


class Batches(SupervisedPlugin):
    """Keeps the labels, the loss and the outputs of every batch."""

    def __init__(self):
        super().__init__()
        self.labels, self.losses = [], []

    def before_forward(self, learner, **kwargs):
        self.before = copy.deepcopy(learner.model.state_dict())
        self.labels.append(learner.mb_y.clone())

    def after_backward(self, learner, **kwargs):
        self.losses.append((learner.mb_output.detach(), learner.mb_y.clone(), learner.loss.item()))


def test_replayed_rows_come_last_and_as_many_as_asked(benchmark):
    seen = Batches()
    replayed = replay(wane.History(class_to_task=CLASS_TO_TASK))
    learner = strategy(plugins=[replayed, seen], epochs=1)
    learner.train(benchmark.train_stream[0])
    first = len(seen.labels)
    assert all(len(labels) <= 16 for labels in seen.labels)  # nothing to replay yet
    learner.train(benchmark.train_stream[1])
    rest = seen.labels[first:]
    assert all(set(labels[-8:].tolist()) <= {0, 1} for labels in rest)
    assert all(set(labels[:-8].tolist()) <= {2, 3} for labels in rest)
    assert sum(len(labels) - 8 for labels in rest) == len(benchmark.train_stream[1].dataset)
    evaluation = replayed.history.evaluations[-1]
    assert (evaluation.split, evaluation.step, evaluation.task) == ("replay", 1, 1)
    assert evaluation.n.sum() == 8 * len(rest)


def test_the_draw_follows_the_trend(benchmark):
    """A class that is falling is drawn more often, by as much as the sampler says."""
    history = wane.History(class_to_task=CLASS_TO_TASK)
    trend = TrendSampler("ctl", gamma=5.0, window=2)
    seen = Batches()
    plugin = replay(history, trend=trend, batch_size_mem=64)
    learner = strategy(plugins=[plugin, seen], epochs=1)
    learner.train(benchmark.train_stream[0])
    for step, values in enumerate([[0.9, 0.5], [0.5, 0.5]]):
        history.record({"n": [1, 1], "ctl": values}, step=step, task=0, split="replay")
    wanted = trend.probabilities(history, task=1)[:2]
    seen.labels.clear()
    learner.train(benchmark.train_stream[1])
    drawn = torch.cat([labels[-64:] for labels in seen.labels]).bincount().double()
    share = float(wanted[0] / wanted[:2].sum())
    assert share > 0.8
    deviation = (share * (1 - share) / float(drawn.sum())) ** 0.5
    assert float(drawn[0] / drawn.sum()) == pytest.approx(share, abs=4 * deviation)


def test_weights_in_the_loss(benchmark):
    """The loss of a step is the mean over its rows, the replayed ones weighted."""
    seen, weights = Batches(), wane.LossWeights("ctl")
    plugin = replay(wane.History(class_to_task=CLASS_TO_TASK), weights=weights)
    learner = strategy(plugins=[plugin, seen], epochs=1)
    learner.train(benchmark.train_stream[0])
    seen.losses.clear()
    learner.train(benchmark.train_stream[1])
    for logits, labels, loss in seen.losses:
        losses = nn.functional.cross_entropy(logits, labels, reduction="none")
        losses[-8:] *= weights(wane.signals(logits[-8:], labels[-8:]))
        assert loss == pytest.approx(losses.mean().item(), rel=1e-5)
    assert any(abs(loss - nn.functional.cross_entropy(z, y).item()) > 1e-3 for z, y, loss in seen.losses)


def test_weights_of_one_change_nothing(benchmark):
    """Bit for bit the weights of a network that was trained without them."""

    def trained(**options):
        learner = strategy(plugins=[replay(wane.History(class_to_task=CLASS_TO_TASK), **options)], epochs=1)
        for experience in list(benchmark.train_stream)[:2]:
            torch.manual_seed(1)
            learner.train(experience)
        return learner.model.state_dict()

    flat = wane.LossWeights("ctl", form="softmax", temperature=1e30)
    for one, other in zip(trained().values(), trained(weights=flat).values(), strict=True):
        assert torch.equal(one, other)


def test_it_learns_as_avalanches_own_replay_does(benchmark):
    """Five experiences: far less is forgotten than without replay, and about as much as with Avalanche's."""

    def last_row(*plugins):
        metric = SignalMetrics(wane.History(class_to_task=CLASS_TO_TASK))
        learner = strategy(metric, plugins=plugins, epochs=6)
        for experience in benchmark.train_stream:
            learner.train(experience)
            learner.eval(benchmark.test_stream)
        return metric.history.matrix("accuracy")[-1].mean()

    own = replay(wane.History(class_to_task=CLASS_TO_TASK), trend=TrendSampler("ctl", gamma=0.0), mem_size=100,
                 storage_policy=ClassBalancedBuffer(100), batch_size_mem=16)  # fmt: skip
    without, ours, theirs = last_row(), last_row(own), last_row(ReplayPlugin(mem_size=100, batch_size_mem=16))
    assert without < 0.3
    assert ours > theirs - 0.1
    assert ours > 0.6


def test_errors(benchmark):
    history = wane.History(class_to_task=CLASS_TO_TASK)
    with pytest.raises(ValueError, match="does not know the task of each class, which a trend needs"):
        replay(wane.History())
    with pytest.raises(ValueError, match="task_balanced_dataloader is Avalanche's own draw"):
        replay(history, task_balanced_dataloader=True)
    with pytest.raises(KeyError, match="log_tlr"):
        SignalMetrics(log=["log_tl"])
    summed = nn.CrossEntropyLoss(reduction="sum")
    learner = strategy(plugins=[replay(history, weights=wane.LossWeights())], epochs=1, criterion=summed)
    learner.train(benchmark.train_stream[0])
    with pytest.raises(ValueError, match=r"a plain mean over rows, such as CrossEntropyLoss\(\), not CrossEntropyLoss"):
        learner.train(benchmark.train_stream[1])
