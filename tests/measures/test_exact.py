"""Sums that stay what they are: under every cast of a module, and when an update fails."""

import copy
import io
import pickle

import numpy as np
import pytest
import torch
from torch import nn

import wane

LOGITS = torch.randn(3000, 5, generator=torch.Generator().manual_seed(0))
LABELS = torch.randint(5, (3000,), generator=torch.Generator().manual_seed(1))

METRICS = {
    "class": lambda: wane.ClassMetrics(5, also=["ece", "mrr"], flow=True),
    "group": lambda: wane.GroupMetrics(5, also=["ece"]),
    "calibration": lambda: wane.CalibrationMetrics(5),
}

CASTS = {
    "to dtype": lambda module: module.to(torch.bfloat16),
    "to device and dtype": lambda module: module.to("cpu", torch.float16),
    "to another tensor": lambda module: module.to(torch.zeros(1, dtype=torch.float16)),
    "half": lambda module: module.half(),
    "bfloat16": lambda module: module.bfloat16(),
    "float": lambda module: module.float(),
    "double": lambda module: module.double(),
    "type": lambda module: module.type(torch.float16),
    "set_dtype": lambda module: module.metric.set_dtype(torch.float16),
    "set_dtype, then to": lambda module: module.metric.set_dtype(torch.bfloat16).to(torch.bfloat16),
}


class Module(nn.Module):
    """As a LightningModule holds a metric."""

    def __init__(self, metric):
        super().__init__()
        self.metric, self.layer = metric, nn.Linear(2, 2)


def add(metric, logits=LOGITS, labels=LABELS):
    more = {"groups": labels} if type(metric) is wane.GroupMetrics else {}
    metric.update(logits, labels, **more)
    return metric


def state_of(metric):
    return {name: getattr(metric, name).clone() for name in metric._defaults}


def same(a, b):
    return all(torch.equal(a[name], b[name]) and a[name].dtype == b[name].dtype for name in a)


@pytest.mark.parametrize("cast", CASTS)
@pytest.mark.parametrize("kind", METRICS)
def test_a_cast_changes_no_sum(kind, cast):
    module = Module(add(METRICS[kind]()))
    expected = state_of(module.metric)
    CASTS[cast](module)
    for metric in (module.metric, copy.deepcopy(module.metric), pickle.loads(pickle.dumps(module.metric))):
        assert same(expected, state_of(metric))
        metric.reset()
        assert same(expected, state_of(add(metric)))


@pytest.mark.parametrize("kind", METRICS)
def test_a_state_comes_back_whole_or_not_at_all(kind):
    made = Module(add(METRICS[kind]()))
    made.metric.persistent(True)
    saved = made.state_dict()
    other = Module(METRICS[kind]())
    other.metric.persistent(True)
    other.load_state_dict(saved)
    assert same(state_of(made.metric), state_of(other.metric))
    add(other.metric)  # what was loaded is a copy
    assert same(state_of(made.metric), {name: saved[f"metric.{name}"] for name in made.metric._defaults})
    half = {name: value.half() if value.is_floating_point() else value for name, value in saved.items()}
    before = state_of(other.metric)
    with pytest.raises(RuntimeError, match=r"is torch.float16 of shape .*, not torch.float64"):
        other.load_state_dict(half, strict=False)
    changed = {name for name, value in state_of(other.metric).items() if not torch.equal(value, before[name])}
    assert all(not before[name].is_floating_point() for name in changed)


def bad_labels():
    labels = LABELS.clone()
    labels[1234] = 9
    return labels


BAD = {
    "label": lambda: (LOGITS, bad_labels()),
    "negative label": lambda: (LOGITS, -1 - LABELS),
    "too few labels": lambda: (LOGITS, LABELS[:-1]),
    "fractions": lambda: (LOGITS, LABELS.double()),
    "another head": lambda: (torch.zeros(3, 7), torch.tensor([0, 1, 2])),
    "complex": lambda: (LOGITS.to(torch.complex64), LABELS),
}


@pytest.mark.parametrize("how", ["update", "forward"])
@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("kind", [*METRICS, "unchecked"])
def test_an_update_that_fails_changes_nothing(kind, bad, how):
    metric = add(METRICS[kind]() if kind in METRICS else wane.ClassMetrics(5, also=["ece"], flow=True, validate=False))
    if type(metric) is wane.GroupMetrics and bad == "another head":
        return  # groups may be of models of any size
    before, count, value = state_of(metric), metric.update_count, metric.compute()
    logits, labels = BAD[bad]()
    groups = {"groups": labels} if type(metric) is wane.GroupMetrics else {}
    call = metric.update if how == "update" else metric
    with pytest.raises((ValueError, TypeError)):
        call(logits, labels, **groups)
    assert same(before, state_of(metric))
    assert metric.update_count == count
    assert (metric._to_sync, metric._should_unsync) == (True, True)  # several processes still share it afterwards
    again = metric.compute()
    assert all(torch.equal(value[name], again[name]) for name in value)
    assert not same(before, state_of(add(metric)))


INTEGERS = [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64]


@pytest.mark.parametrize("dtype", [*INTEGERS, ">i4", torch.int8, torch.uint8, torch.uint16, torch.uint32, torch.uint64])
def test_every_integer_type_is_a_label(dtype):
    given = LABELS.to(dtype) if isinstance(dtype, torch.dtype) else LABELS.numpy().astype(dtype)
    tasks = torch.tensor([0, 0, 1, 1, 1])
    tasks = tasks.to(dtype) if isinstance(dtype, torch.dtype) else tasks.numpy().astype(dtype)
    assert torch.equal(wane.signals(LOGITS, given).loss, wane.signals(LOGITS, LABELS).loss)
    assert torch.equal(wane.signals(LOGITS, LABELS, classes=range(5)).loss, wane.signals(LOGITS, given).loss)
    assert torch.equal(
        wane.signals_within(LOGITS, given, tasks).rank, wane.signals_within(LOGITS, LABELS, [0, 0, 1, 1, 1]).rank
    )
    for kind, make in METRICS.items():
        assert same(state_of(add(make())), state_of(add(make(), labels=given))), kind
    metric = add(METRICS["class"]())
    assert metric.by_task(tasks)["loss"].shape == (2,)
    assert wane.calibration_error(LOGITS, given) == wane.calibration_error(LOGITS, LABELS)
    assert wane.LogitCorrection("prior", groups=tasks).groups.dtype == torch.int64


@pytest.mark.parametrize("bad", [LABELS.bool(), LABELS.float(), LABELS.numpy().astype(object), ["a"] * 3000])
def test_what_is_no_integer_is_no_label(bad):
    for call in (
        lambda: wane.signals(LOGITS, bad),
        lambda: wane.signals_within(LOGITS, bad, [0, 0, 1, 1, 1]),
        lambda: add(wane.ClassMetrics(5), labels=bad),
        lambda: wane.calibration_error(LOGITS, bad),
    ):
        with pytest.raises(TypeError, match=r"labels (should be integers, not|cannot be read as numbers)"):
            call()


def test_a_label_beyond_int64_is_one_sentence():
    with pytest.raises(ValueError, match="labels hold a number of 9,223,372,036,854,775,808 or more"):
        wane.signals(LOGITS[:1], np.array([2**63 + 1], np.uint64))
    with pytest.raises(TypeError, match="labels cannot be read as numbers"):
        wane.signals(LOGITS[:1], [2**70])


def test_arrays_that_torch_cannot_share_are_copied():
    expected = wane.signals(LOGITS.flip(0), LABELS.flip(0)).loss
    backwards, labels = LOGITS.numpy()[::-1], LABELS.numpy()[::-1]
    assert torch.equal(wane.signals(backwards, labels).loss, expected)
    assert torch.equal(wane.signals(backwards.astype(">f4"), labels).loss, expected)
    assert torch.allclose(wane.signals(backwards.astype(np.longdouble), labels).loss.float(), expected)
    columns = wane.signals(LOGITS.numpy()[:, ::-1], 4 - LABELS).loss
    assert torch.allclose(columns, wane.signals(LOGITS, LABELS).loss)
    assert torch.equal(wane.signals(LOGITS, LABELS, classes=np.arange(5)[::-1]).rank, wane.signals(LOGITS, LABELS).rank)
    metric = wane.ClassMetrics(5)
    metric.update(backwards, labels)
    assert torch.equal(metric.counts, add(wane.ClassMetrics(5)).counts)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_logits_too_far_apart_are_called_that(dtype):
    size = 3e38 if dtype == torch.float32 else 1.5e308
    logits = torch.tensor([[0.0, 1.0, 2.0], [size, -size, 0.0]], dtype=dtype)
    with pytest.raises(ValueError, match=r"logits of row 1 are as far apart as -.* cannot tell from infinity"):
        wane.signals(logits, [0, 1])
    with pytest.raises(ValueError, match=r"logits of row 1 are as far apart as"):
        wane.linear_signals(logits, torch.eye(3, dtype=dtype), [0, 1])
    with pytest.raises(ValueError, match="own logit is -inf at row 0"):
        wane.signals(torch.tensor([[0.0, -torch.inf]], dtype=dtype), [1])
    assert wane.signals(logits, [0, 0]).loss.isfinite().all()  # nothing is lost where the label is on top


def test_linear_signals_of_mixed_inputs():
    hidden, weight, labels = torch.randn(4, 3), torch.randn(7, 3), [0, 1, 2, 3]
    expected = wane.linear_signals(hidden, weight, labels, torch.zeros(7))
    arrays = wane.linear_signals(hidden.numpy(), weight.numpy(), labels, [0.0] * 7)
    assert torch.equal(arrays.loss, expected.loss)
    for parts, sentence in (
        ((hidden, weight.double(), labels), "hidden states are torch.float32, the output matrix torch.float64"),
        ((hidden, weight, labels, torch.zeros(7).double()), "hidden states are torch.float32, the bias torch.float64"),
        ((hidden, weight.to("meta"), labels), "hidden states are on cpu, the output matrix on meta"),
    ):
        with pytest.raises(ValueError, match=sentence):
            wane.linear_signals(*parts)
    with pytest.raises(TypeError, match="the output matrix should be floating point"):
        wane.linear_signals(hidden, weight.int(), labels)
    with pytest.raises(ValueError, match=r"models compute in torch.float32 and torch.float64"):
        wane.linear_pair_signals((hidden, hidden.double()), (weight, weight.double()), labels)
    with pytest.raises(ValueError, match="vocabulary_chunk is 0"):
        wane.linear_signals(hidden, weight, labels, vocabulary_chunk=0)


@pytest.mark.parametrize("size", [10**15, 2.5, float("nan"), float("inf"), "3", None, True, -1, np.array([1, 2])])
def test_sizes_of_metrics(size):
    for make in (
        lambda: wane.GroupMetrics(size),
        lambda: wane.ClassMetrics(size),
        lambda: wane.ClassMetrics(5, also=["ece"], bins=size),
    ):
        with pytest.raises(ValueError, match="give a whole number"):
            make()


ROW = {"accuracy": [0.1, 0.2], "n": [1, 2]}


@pytest.mark.parametrize(
    ("metrics", "said", "sentence"),
    [
        ({"n": [-1, 2]}, {}, "n holds -1"),
        ({"n": [1.5, 2]}, {}, "n holds 1.5"),
        ({"n": [np.nan, 2]}, {}, "n holds nan"),
        ({"n": [np.inf, 2]}, {}, "n holds inf"),
        ({"n": [2.0**70, 2]}, {}, "n holds 1.18"),
        ({"n": [True, False]}, {}, "n is "),
        ({"n": ["1", "2"]}, {}, "n is "),
        ({"n": None}, {}, "n is None"),
        ({"n": 3}, {}, "n is 3"),
        ({"n": [1]}, {}, "n has 1 entries"),
        ({"n": [[1], [2, 3]]}, {}, "n is "),
        ({"mrr": [0.1]}, {}, "mrr has shape"),
        ({"mrr": ["a", "b"]}, {}, "mrr is "),
        ({"mrr": [1j, 2]}, {}, "mrr is "),
        ({}, {"task": -1}, "task is -1"),
        ({}, {"task": 0.5}, "task is 0.5"),
        ({}, {"task": 10**12}, "task is 10"),
        ({}, {"step": -1}, "step is -1"),
        ({}, {"step": float("nan")}, "step is nan"),
        ({}, {"split": 3}, "split is 3"),
    ],
)
def test_a_record_that_fails_changes_nothing(metrics, said, sentence):
    history = wane.History(class_to_task=[0])
    history.record(ROW, step=0, task=0)
    before, signals, tasks = history.frame, history.signals, history.class_to_task.tolist()
    with pytest.raises(ValueError, match=sentence):
        history.record({**ROW, **metrics}, **{"step": 1, "task": 1, **said})
    assert (history.signals, history.class_to_task.tolist(), history.num_groups) == (signals, tasks, 2)
    history._frame = None
    assert history.frame.equals(before)


def test_equal_keys_are_told_apart_in_a_file():
    history = wane.History(class_to_task=[0, 1, 1])
    counts = ([1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [0, 0, 2], [2, 2, 2])
    for n in counts:
        history.record({"accuracy": [0.1, 0.2, 0.3], "n": n}, step=0, task=0)
    history.record({"accuracy": [0.1, 0.2, 0.3], "n": [0, 0, 0]}, step=0, task=0)  # nothing to write
    file = io.BytesIO()
    history.write_parquet(file)
    file.seek(0)
    read = wane.History.read_parquet(file)
    assert [np.bincount(e.classes, e.n, 3).tolist() for e in read.evaluations] == [list(n) for n in counts]


@pytest.mark.parametrize("tasks", [[0.5, 1], [float("nan"), 1], [-5, 1], [10**12, 1], [[0], [1]], ["a"], [True]])
def test_tasks_of_a_history(tasks):
    with pytest.raises(ValueError, match="class_to_task is "):
        wane.History(class_to_task=tasks)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), "a", None, True, 1j])
def test_options_are_finite(value):
    for make in (
        lambda: wane.LossWeights(epsilon=value),
        lambda: wane.LossWeights(temperature=value),
        lambda: wane.TrendSampler(gamma=value),
        lambda: wane.TrendSampler(window=value),
        lambda: wane.fit_head(torch.zeros(2, 2), torch.tensor([0, 1]), tolerance=value),
        *([lambda: wane.LogitCorrection(ridge=value)] if value is not None else []),
    ):
        with pytest.raises(ValueError, match=r"is .*: give a"):
            make()


@pytest.mark.parametrize("task", [-1, 0.5, float("nan"), "a"])
def test_the_task_of_a_draw_is_a_whole_number(task):
    history = wane.History(class_to_task=[0, 1])
    history.record(ROW, step=0, task=0, split="replay")
    with pytest.raises(ValueError, match=r"task is .*: give a whole number"):
        wane.TrendSampler("accuracy").probabilities(history, task=task)
