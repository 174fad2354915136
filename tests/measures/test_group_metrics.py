"""ClassMetrics against the literal transcription, and in every place where a torchmetrics.Metric is used."""

import pickle

import numpy as np
import pytest
import reference
import torch
import torch.multiprocessing as mp
from sklearn.metrics import accuracy_score, confusion_matrix, log_loss
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy

import wane

C = 7


def data(n=300, seed=0):
    g = torch.Generator().manual_seed(seed)
    z = torch.randn(n, C, generator=g) * 3
    y = torch.randint(C - 1, (n,), generator=g)  # the last class has no sample
    return z, y


def filled(z, y, sizes=(300,), **options):
    m = wane.ClassMetrics(C, **options)
    for a, b in zip(
        z.split(sizes if len(sizes) > 1 else len(z)), y.split(sizes if len(sizes) > 1 else len(y)), strict=True
    ):
        m.update(a, b)
    return m


def test_means_per_class_equal_the_literal_transcription():
    z, y = data()
    rows = reference.table([reference.from_logits(r.numpy(), int(k)) for r, k in zip(z, y, strict=True)])
    means = filled(z, y).compute()
    for name in wane.SIGNALS:
        for c in range(C - 1):
            assert means[name][c].item() == pytest.approx(rows[name][y.numpy() == c].mean(), abs=1e-6)
        assert means[name][C - 1].isnan()
        assert means[name].dtype == torch.float64


def test_agrees_with_scikit_learn_and_torchmetrics():
    z, y = data()
    means = filled(z, y).compute()
    counts = confusion_matrix(y, z.argmax(1), labels=range(C))
    recall = np.diag(counts)[: C - 1] / counts.sum(1)[: C - 1]
    np.testing.assert_allclose(means["accuracy"][: C - 1], recall, atol=1e-12)
    peer = MulticlassAccuracy(C, average=None)
    peer.update(z, y)
    torch.testing.assert_close(means["accuracy"][: C - 1].float(), peer.compute()[: C - 1])
    micro = filled(z, y, average="micro").compute()
    assert micro["accuracy"].item() == pytest.approx(accuracy_score(y, z.argmax(1)))
    assert micro["loss"].item() == pytest.approx(log_loss(y, z.double().softmax(1), labels=range(C)), abs=1e-6)


def test_any_split_and_order_gives_the_same_bits():
    z, y = data()
    whole = filled(z, y).compute()
    order = torch.randperm(300, generator=torch.Generator().manual_seed(1))
    for other in (filled(z, y, (1, 99, 150, 50)), filled(z[order], y[order], (130, 170))):
        assert all(torch.equal(other.compute()[k].nan_to_num(-1), whole[k].nan_to_num(-1)) for k in whole)


def test_half_precision_leading_shapes_padding_and_probabilities():
    z, y = data()
    whole = filled(z, y).compute()
    m = wane.ClassMetrics(C, ignore_index=-100)
    padded = torch.cat([z, torch.full((20, C), torch.nan)]).reshape(4, 80, C)
    m.update(padded, torch.cat([y, torch.full((20,), -100)]).reshape(4, 80))
    assert torch.equal(m.compute()["nkl"].nan_to_num(-1), whole["nkl"].nan_to_num(-1))
    m = wane.ClassMetrics(C)
    m.update(probabilities=z.double().softmax(1), labels=y)
    torch.testing.assert_close(m.compute()["cm"], whole["cm"], equal_nan=True, atol=1e-6, rtol=0)
    half = filled(z.bfloat16(), y).compute()
    torch.testing.assert_close(half["ctl"], whole["ctl"], equal_nan=True, atol=2e-2, rtol=0)


@pytest.mark.filterwarnings("ignore:The ``compute`` method")
def test_signals_scored_elsewhere_can_be_added():
    z, y = data()
    m = wane.ClassMetrics(C)
    assert m.compute()["cm"].isnan().all()
    m.update(scored=wane.signals(z.requires_grad_(), y), labels=y)
    torch.testing.assert_close(m.compute()["cm"], filled(z, y).compute()["cm"], equal_nan=True, atol=1e-6, rtol=0)


def test_restricted_classes_by_task_and_flow():
    z, y = data()
    restricted = filled(z, y, classes=range(C - 1)).compute()
    assert restricted["tlr"][0] != filled(z, y).compute()["tlr"][0]
    m = filled(z, y, (120, 180), flow=True)
    tasks = [0, 0, 1, 1, 2, 2, 3]
    by_task = m.by_task(tasks)
    accuracy = wane.signals(z, y).accuracy.double()
    for t in range(3):
        inside = torch.tensor(tasks)[y] == t
        assert by_task["accuracy"][t].item() == pytest.approx(accuracy[inside].mean().item(), abs=1e-12)
    assert by_task["accuracy"][3].isnan()
    flow = m.compute()["flow"]
    p = z.double().softmax(1)
    for c in range(C - 1):
        torch.testing.assert_close(flow[c], p[y == c].mean(0), atol=1e-9, rtol=0)
    torch.testing.assert_close(flow.diagonal()[: C - 1], m.compute()["ctl"][: C - 1], atol=1e-6, rtol=0)


@pytest.mark.filterwarnings("ignore:The ``compute`` method")
def test_reset_forward_merge_pickle_and_state_dict():
    z, y = data()
    whole = filled(z, y)
    m = wane.ClassMetrics(C)
    batch = m(z[:100], y[:100])
    assert torch.equal(batch["cm"].nan_to_num(-1), filled(z[:100], y[:100]).compute()["cm"].nan_to_num(-1))
    other = filled(z[100:], y[100:])
    m.merge_state(other)
    assert torch.equal(m.sums, whole.sums)
    assert torch.equal(m.counts, whole.counts)
    again = pickle.loads(pickle.dumps(m))
    assert torch.equal(again.compute()["cm"].nan_to_num(-1), whole.compute()["cm"].nan_to_num(-1))
    m.persistent(True)
    loaded = wane.ClassMetrics(C)
    loaded.persistent(True)
    loaded.load_state_dict(m.state_dict())
    assert torch.equal(loaded.sums, whole.sums)
    m.reset()
    assert m.counts.sum() == 0
    assert m.compute()["cm"].isnan().all()


def test_in_a_metric_collection():
    z, y = data()
    both = MetricCollection([wane.ClassMetrics(C, average="macro"), MulticlassAccuracy(C, average="micro")])
    both.update(z, y)
    out = both.compute()
    assert set(wane.SIGNALS) | {"MulticlassAccuracy"} == set(out)
    assert out["cm"].ndim == 0


def test_plot_shows_the_values():
    z, y = data()
    figure, axes = filled(z, y).plot()
    assert len(axes.lines) == 7
    cm = next(line for line in axes.lines if line.get_label() == "Confusion margin")
    expected = filled(z, y).compute()["cm"][: C - 1].sort().values
    np.testing.assert_allclose(cm.get_ydata(), expected)
    figure.clear()


def _worker(rank, meeting, results):
    torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    z, y = data()
    m = wane.ClassMetrics(C, flow=True)
    part = slice(0, 77) if rank == 0 else slice(77, 300)
    m.update(z[part], y[part])
    results[rank] = {k: v.tolist() for k, v in m.compute().items()}
    torch.distributed.destroy_process_group()


def test_two_processes_with_uneven_data_give_the_same_bits(tmp_path):
    with mp.Manager() as manager:
        results = manager.dict()
        mp.spawn(_worker, args=(tmp_path / "meeting", results), nprocs=2)
        expected = {k: v.tolist() for k, v in filled(*data(), flow=True).compute().items()}
        for rank in (0, 1):
            np.testing.assert_array_equal(results[rank]["cm"], expected["cm"])
            for name in expected:
                np.testing.assert_array_equal(results[rank][name], expected[name])


def test_a_real_lightning_fit(tmp_path):
    import lightning as L

    class Net(L.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = torch.nn.Linear(4, C)
            self.metrics = wane.ClassMetrics(C, average="macro")
            self.log_tlr = self.metrics["log_tlr"]  # a metric of its own, a scalar: what self.log takes
            self.seen = []

        def training_step(self, batch, _):
            return torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])

        def validation_step(self, batch, _):
            self.log_tlr.update(self.net(batch[0]), batch[1])
            self.log("val/log_tlr", self.log_tlr, on_step=False, on_epoch=True)

        def on_validation_epoch_end(self):
            self.log_dict({f"val/{k}": v for k, v in self.metrics.compute().items() if k != "log_tlr"})
            self.seen.append({k: v.item() for k, v in self.metrics.compute().items()})

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.5)

    g = torch.Generator().manual_seed(0)
    x = torch.randn(200, 4, generator=g)
    y = (x @ torch.randn(4, C, generator=g)).argmax(1)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=32)
    net = Net()
    trainer = L.Trainer(max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False,
                        enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0,
                        default_root_dir=tmp_path)  # fmt: skip
    trainer.fit(net, loader, loader)
    final = wane.ClassMetrics(C, average="macro")
    with torch.no_grad():
        final.update(net.net(x), y)
    for name, value in final.compute().items():
        assert trainer.callback_metrics[f"val/{name}"].item() == pytest.approx(value.item(), abs=1e-5), name
    assert len(net.seen) == 2
    assert net.seen[1]["log_tlr"] > net.seen[0]["log_tlr"]


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: wane.ClassMetrics(1), "num_classes is 1"),
        (lambda: wane.ClassMetrics(3, average="weighted"), "unknown average 'weighted'"),
        (
            lambda: wane.ClassMetrics(3).update(torch.zeros(2, 4), [0, 1]),
            r"scores have shape \(2, 4\), but num_classes is 3",
        ),
        (lambda: wane.ClassMetrics(3).by_task([0, 1]), r"a task from 0 for each of the 3 classes, not \[0, 1\]"),
    ],
)
def test_errors(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()


def test_groups_beside_labels():
    z, y = data()
    groups = torch.randint(4, (300,), generator=torch.Generator().manual_seed(3))
    m = wane.GroupMetrics(5)
    m.update(z[:100], y[:100], groups=groups[:100])
    m.update(scored=wane.signals(z[100:], y[100:]), groups=groups[100:].tolist())
    expected = wane.signals(z, y)
    for name in wane.SIGNALS:
        for g in range(4):
            mean = expected[name][groups == g].double().mean().item()
            assert m.compute()[name][g].item() == pytest.approx(mean, abs=1e-9)
    assert m.compute()["cm"][4].isnan()
    assert m.counts.tolist() == [*torch.bincount(groups, minlength=5).tolist()]
    macro = wane.GroupMetrics(5, average="macro")
    macro.update(z, y, groups=groups)
    assert macro.compute()["cm"].item() == pytest.approx(m.compute()["cm"].nanmean().item(), abs=1e-7)


def test_group_is_label_is_class_metrics():
    z, y = data()
    m = wane.GroupMetrics(C)
    m.update(z, y, groups=y)
    assert torch.equal(m.sums, filled(z, y).sums)
    probabilities = wane.GroupMetrics(C)
    probabilities.update(probabilities=z.softmax(1), labels=y, groups=y)
    assert torch.equal(probabilities.counts, m.counts)


@pytest.mark.parametrize("how", ["logits", "scored with labels", "scored alone"])
def test_padding_never_counts(how):
    z, y = data()
    groups = y % 3
    whole = wane.GroupMetrics(3)
    whole.update(z, y, groups=groups)
    padded_z = torch.cat([z, torch.full((20, C), torch.nan)]).reshape(4, 80, C)
    padded_y = torch.cat([y, torch.full((20,), -100)]).reshape(4, 80)
    padded_groups = torch.cat([groups, torch.full((20,), 99)]).reshape(4, 80)  # whatever stands there
    scored = wane.signals(padded_z, padded_y, ignore_index=-100)
    m = wane.GroupMetrics(3, ignore_index=-100)
    if how == "logits":
        m.update(padded_z, padded_y, groups=padded_groups)
    elif how == "scored with labels":
        m.update(labels=padded_y, scored=scored, groups=padded_groups)
    else:
        m.update(scored=scored, groups=padded_groups)
    assert torch.equal(m.sums, whole.sums)
    assert torch.equal(m.counts, whole.counts)
    forgetful = wane.GroupMetrics(100)
    with pytest.raises(ValueError, match="row 300, of group 99, has no signals: if it is padding, give"):
        forgetful.update(scored=scored, groups=padded_groups)
    assert forgetful.counts.sum() == 0


@pytest.mark.parametrize("validate", [True, False])
@pytest.mark.parametrize(
    ("make", "call", "sentence"),
    [
        (
            lambda **k: wane.GroupMetrics(3, **k),
            lambda m, z, y: m.update(z, y, groups=torch.where(torch.arange(300) == 17, 3, 0)),
            "group 3 at row 17 is not a group from 0 to 2: correct it, or make the metric with more groups",
        ),
        (
            lambda **k: wane.GroupMetrics(3, **k),
            lambda m, z, y: m.update(z, y, groups=torch.full((300,), -1)),
            "group -1 at row 0 is not a group",
        ),
        (
            lambda **k: wane.GroupMetrics(3, **k),
            lambda m, z, y: m.update(z, y, groups=[0, 1]),
            r"groups have shape \(2,\), but the samples \(300,\)",
        ),
        (
            lambda **k: wane.ClassMetrics(C, flow=True, **k),
            lambda m, z, y: m.update(z, torch.where(torch.arange(300) == 5, C, y)),
            f"label {C} at row 5 is not a (class|label) from 0 to {C - 1}",
        ),
        (
            lambda **k: wane.ClassMetrics(C, **k),
            lambda m, z, y: m.update(scored=wane.signals(z, y), labels=torch.where(torch.arange(300) == 9, -100, y)),
            "label -100 at row 9 is not a label from 0 to 6: correct it, or name it as ignore_index",
        ),
    ],
)
def test_an_update_that_fails_quotes_the_value_and_changes_nothing(make, call, sentence, validate):
    z, y = data()
    m = make(validate=validate)
    state = {name: value.clone() for name, value in m.metric_state.items()}
    with pytest.raises(ValueError, match=sentence):
        call(m, z, y)
    assert all(torch.equal(m.metric_state[name], value) for name, value in state.items())


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.uint8])
def test_integer_types(dtype):
    z, y = data()
    assert torch.equal(filled(z, y.to(dtype)).sums, filled(z, y).sums)
    with pytest.raises(TypeError, match=r"groups should be integers, not torch\.float32"):
        wane.GroupMetrics(3).update(z, y, groups=y.float())


def test_sums_stay_exact_in_a_model_of_half_precision():
    z, y = data()
    holder = torch.nn.Module()
    holder.metric = wane.ClassMetrics(C)
    holder.to(torch.bfloat16)
    holder.metric.set_dtype(torch.float16)
    holder.metric.update(z, y)
    holder.to(torch.bfloat16)
    assert holder.metric.sums.dtype == torch.float64
    assert torch.equal(holder.metric.sums, filled(z, y).sums)


def test_groups_go_into_a_history():
    z, y = data()
    m = wane.GroupMetrics(3)
    m.update(z, y, groups=y % 3)
    history = wane.History(names=["news", "code", "law"], kind="domain")
    history.record(m, step=0, task=0)
    assert history.frame["domain"].to_list() == [0, 1, 2]
    np.testing.assert_array_equal(history.frame["cm"], m.compute()["cm"])
