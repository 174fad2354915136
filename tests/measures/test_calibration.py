"""Calibration against torchmetrics, scikit-learn and a literal transcription; in any portions and processes."""

import math
import pickle

import numpy as np
import pytest
import torch
import torch.multiprocessing as mp
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.metrics import brier_score_loss
from torchmetrics.functional.classification import multiclass_calibration_error

import wane
from wane.measures.bins import bin_index


def case(n=400, c=6, seed=0, scale=3.0, dtype=torch.float32):
    g = torch.Generator().manual_seed(seed)
    z = torch.randn(n, c, generator=g, dtype=dtype) * scale
    return z, torch.where(torch.rand(n, generator=g) < 0.6, z.argmax(1), torch.randint(c, (n,), generator=g))


def literal_bins(p, hit, bins, closed="right"):
    """(bin, confidence, hit) one sample at a time: which of the half-open intervals it is in."""
    found = []
    for q, h in zip(p, hit, strict=True):
        edges = [np.asarray(k / bins).astype(q.dtype) for k in range(bins + 1)]
        if closed == "right":
            inside = [k for k in range(bins) if edges[k] < q <= edges[k + 1]] or [0]
        else:
            inside = [k for k in range(bins) if edges[k] <= q < edges[k + 1]] or [bins]
        (k,) = inside
        found.append((k, float(q), float(h)))
    return found


def literal_error(binned, norm):
    """Guo's sum over bins."""
    n, gaps = len(binned), []
    for k in {k for k, _, _ in binned}:
        inside = [(q, h) for b, q, h in binned if b == k]
        gap = abs(sum(h for _, h in inside) / len(inside) - sum(q for q, _ in inside) / len(inside))
        gaps.append((len(inside) / n, gap))
    if norm == "max":
        return max(g for _, g in gaps)
    return sum(w * g for w, g in gaps) if norm == "l1" else math.sqrt(sum(w * g * g for w, g in gaps))


def top(z, y):
    p = z.softmax(1)
    return p.max(1).values.numpy(), (p.argmax(1) == y).numpy()


@settings(max_examples=40)
@given(st.integers(1, 60), st.integers(2, 8), st.integers(1, 20), st.integers(0, 10**6), st.floats(0.1, 30),
       st.sampled_from(["l1", "l2", "max"]))  # fmt: skip
def test_equal_to_torchmetrics_and_to_the_literal_transcription(n, c, bins, seed, scale, norm):
    z, y = case(n, c, seed, scale)
    p = z.softmax(1)  # of logits that happen to lie between 0 and 1 torchmetrics takes none
    theirs = float(multiclass_calibration_error(p, y, c, n_bins=bins, norm=norm))
    assert wane.calibration_error(z, y, bins=bins, closed="left", norm=norm) == pytest.approx(theirs, abs=2e-6)
    for closed in ("right", "left"):
        mine = wane.calibration_error(z, y, bins=bins, closed=closed, norm=norm)
        assert mine == pytest.approx(literal_error(literal_bins(*top(z, y), bins, closed), norm), abs=2e-6)


def test_the_edges_of_bins_are_where_they_are_said_to_be():
    p = torch.tensor([[0.8, 0.2], [0.6, 0.4], [1.0, 0.0], [0.81, 0.19]])
    y = [0, 0, 1, 0]
    right = wane.calibration_error(probabilities=p, labels=y, bins=5)
    left = wane.calibration_error(probabilities=p, labels=y, bins=5, closed="left")
    assert right.bins.n.tolist() == [0, 0, 1, 1, 2]  # 0.6 in (0.4, 0.6], 0.8 in (0.6, 0.8], 1 in the last
    assert left.bins.n.tolist() == [0, 0, 0, 1, 2, 1]  # 0.6 in [0.6, 0.8), 0.8 in [0.8, 1), 1 in a bin of its own
    theirs = multiclass_calibration_error(p, torch.tensor(y), 2, n_bins=5)
    assert left == pytest.approx(float(theirs), abs=1e-6)
    assert right == pytest.approx((0.4 + 0.2 + abs(1 - 1.81)) / 4, abs=1e-6)
    # every edge k/15 of float32 belongs to the bin below it, or above it; in float64 too
    for dtype in (torch.float32, torch.float64):
        edges = torch.tensor([k / 15 for k in range(16)], dtype=torch.float64).to(dtype)
        assert bin_index(edges, 15).tolist() == [0, *range(15)]
        assert bin_index(edges, 15, "left").tolist() == [*range(16)]


@settings(max_examples=40)
@given(st.integers(1, 60), st.integers(1, 12), st.integers(0, 10**6), st.booleans())
@example(n=23, bins=11, seed=1, ties=True)
def test_equal_mass_is_that_of_sorted_confidences_in_any_order(n, bins, seed, ties):
    z, y = case(n, 4, seed)
    z = z.round() if ties else z
    found = wane.signals(z, y, also=("confidence",))  # which confidences are equal hangs on their last bit
    confidence, hit = found.confidence.numpy(), found.accuracy.numpy()  # a tie goes to the label
    assert confidence == pytest.approx(top(z, y)[0], abs=1e-6)
    order = np.argsort(confidence, kind="stable")
    blocks = np.unique(confidence, return_inverse=True)[1][order]
    at = np.empty(n, int)
    for block in set(blocks.tolist()):
        where = np.flatnonzero(blocks == block)
        at[where] = int((where[0] + where[-1] + 1) / 2 * bins // n)
    expected = literal_error(list(zip(at.tolist(), confidence[order].astype(float), hit[order], strict=True)), "l1")
    mine = wane.calibration_error(z, y, bins=bins, binning="mass")
    assert mine == pytest.approx(expected, abs=2e-6)
    shuffled = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    assert mine == wane.calibration_error(z[shuffled], y[shuffled], bins=bins, binning="mass")
    if not ties and len(set(confidence.tolist())) == n:
        assert np.ptp(mine.bins.n) <= 1


def test_class_wise_is_the_mean_over_classes_of_the_error_of_each_probability():
    z, y = case(300, 5)
    p = z.softmax(1).numpy()
    each = [literal_error(literal_bins(p[:, c], (y == c).numpy(), 10), "l1") for c in range(5)]
    mine = wane.calibration_error(z, y, bins=10, classwise=True)
    assert mine.per_class == pytest.approx(each, abs=2e-6)
    assert mine == pytest.approx(np.mean(each), abs=2e-6)
    assert mine == pytest.approx(wane.calibration_error(probabilities=z.softmax(1), labels=y, bins=10, classwise=True))


def test_brier_is_that_of_scikit_learn_and_its_parts_add_up():
    z, y = case(300, 5)
    p = z.double().softmax(1).numpy()
    score = wane.brier_score(z, y)
    assert score == pytest.approx(brier_score_loss(y.numpy(), p, labels=range(5), scale_by_half=False), abs=1e-6)
    assert score == pytest.approx(float(wane.signals(z, y, also="brier").brier.double().mean()), abs=1e-6)
    # Murphy's parts, literally
    parts = np.zeros(3)
    for c in range(5):
        binned = literal_bins(p[:, c].astype(np.float32), (y == c).numpy(), 15)
        base = float((y == c).float().mean())
        for k in {k for k, _, _ in binned}:
            q, h = np.array([(q, h) for b, q, h in binned if b == k]).T
            parts += np.array([(q.mean() - h.mean()) ** 2, (h.mean() - base) ** 2, 0]) * len(q) / 300
        parts[2] += base * (1 - base)
    assert (score.reliability, score.resolution, score.uncertainty) == pytest.approx(tuple(parts), abs=1e-6)
    # with a value a bin nothing is left over
    few = torch.tensor([[0.9, 0.1], [0.5, 0.5], [0.3, 0.7]])[torch.randint(3, (50,))]
    exact = wane.brier_score(probabilities=few, labels=torch.randint(2, (50,)))
    assert exact.within == pytest.approx(0, abs=1e-7)
    assert exact == pytest.approx(exact.reliability - exact.resolution + exact.uncertainty)
    answer = wane.brier_score(z, y, top_label=True)
    assert answer == pytest.approx(float(wane.signals(z, y, also="brier_top").brier_top.double().mean()), abs=1e-6)


def test_classes_padding_shapes_pickling_and_bad_input():
    z, y = case(60, 6)
    only = wane.calibration_error(z[:, :4], y.clamp(max=3))
    assert wane.calibration_error(z, y.clamp(max=3), classes=range(4)) == only
    padded = torch.cat([y, torch.full((6,), -100)]).view(2, 33)
    logits = torch.cat([z, torch.zeros(6, 6)]).view(2, 33, 6)
    for options in ({}, {"classwise": True}, {"binning": "mass"}):
        whole = wane.calibration_error(z, y, **options)
        assert wane.calibration_error(logits, padded, ignore_index=-100, **options) == whole
        again = pickle.loads(pickle.dumps(whole))
        assert again == whole
        assert again.bins.n.tolist() == whole.bins.n.tolist()
    assert pickle.loads(pickle.dumps(wane.brier_score(z, y))).resolution == wane.brier_score(z, y).resolution
    with pytest.raises(ValueError, match="unknown binning 'masses': choose width or mass"):
        wane.calibration_error(z, y, binning="masses")
    with pytest.raises(ValueError, match="bins is 0"):
        wane.calibration_error(z, y, bins=0)
    with pytest.raises(ValueError, match="no sample"):
        wane.calibration_error(z, torch.full_like(y, -1), ignore_index=-1)


def streamed(z, y, sizes, **options):
    metric = wane.CalibrationMetrics(z.shape[1], **options)
    for a, b in zip(z.split(sizes), y.split(sizes), strict=True):
        metric.update(a, b)
    return metric.compute()


@settings(max_examples=15)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=6), st.integers(0, 10**6))
def test_streamed_in_any_portions_it_is_the_same_to_the_last_bit(sizes, seed):
    z, y = case(sum(sizes), 5, seed)
    parts, whole = streamed(z, y, sizes), streamed(z, y, [len(z)])
    assert parts == whole
    score = wane.brier_score(z, y)
    expected = {"ece": wane.calibration_error(z, y), "mce": wane.calibration_error(z, y, norm="max"),
                "classwise_ece": wane.calibration_error(z, y, classwise=True), "brier": score,
                "brier_top": wane.brier_score(z, y, top_label=True), "reliability": score.reliability,
                "resolution": score.resolution, "uncertainty": score.uncertainty}  # fmt: skip
    assert {name: float(parts[name]) for name in expected} == pytest.approx(expected, abs=1e-6)


def test_equal_mass_from_a_stream_is_near_and_gets_nearer_with_finer_cells():
    z, y = case(2000, 5, scale=1.0)
    exact = wane.calibration_error(z, y, binning="mass")
    errors = [abs(float(streamed(z, y, [len(z)], cells=cells)["ece_mass"]) - exact) for cells in (1, 64, 10**5)]
    assert errors[2] == pytest.approx(0, abs=1e-9)  # a cell for each sample
    assert errors[1] < 0.01 < errors[0] + 0.02


# per class, task and group, over time


def metrics_of(z, y, groups=None, sizes=None, **options):
    asked = ("ece", "mce", "reliability", "resolution", "uncertainty", "mrr")
    made = wane.GroupMetrics(3, also=asked) if groups is not None else wane.ClassMetrics(6, also=asked, **options)
    for rows in torch.arange(len(z)).split(sizes or len(z)):
        if groups is None:
            made.update(z[rows], y[rows])
        else:
            made.update(z[rows], y[rows], groups=groups[rows])
    return made


def test_every_class_task_group_and_history_has_its_own_error():
    z, y = case(600, 6)
    metrics = metrics_of(z, y, sizes=77)
    values = metrics.compute()
    tasks = torch.tensor([0, 0, 1, 1, 1, 2])
    by_task = metrics.by_task(tasks)
    for c in range(6):
        own = y == c
        assert float(values["ece"][c]) == pytest.approx(wane.calibration_error(z[own], y[own]), abs=1e-12)
        assert float(values["mce"][c]) == pytest.approx(wane.calibration_error(z[own], y[own], norm="max"), abs=1e-12)
    for k in range(3):
        own = tasks[y] == k
        whole = wane.brier_score(z[own], y[own], top_label=True)
        assert float(by_task["ece"][k]) == pytest.approx(wane.calibration_error(z[own], y[own]), abs=1e-12)
        for part in ("reliability", "resolution", "uncertainty"):
            assert float(by_task[part][k]) == pytest.approx(getattr(whole, part), abs=1e-12)
    micro = metrics_of(z, y, average="micro").compute()
    assert float(micro["ece"]) == pytest.approx(wane.calibration_error(z, y), abs=1e-12)
    groups = y % 3
    grouped = metrics_of(z, y, groups, sizes=50).compute()["ece"]
    assert float(grouped[1]) == pytest.approx(wane.calibration_error(z[groups == 1], y[groups == 1]), abs=1e-12)


def test_without_samples_there_is_no_error():
    values = wane.ClassMetrics(3, also=["ece", "mce", "resolution", "uncertainty"])
    values.update(torch.tensor([[2.0, 0.0, 0.0]]), torch.tensor([0]))
    for name in ("ece", "mce", "resolution", "uncertainty"):
        assert values.compute()[name].isnan().tolist() == [False, True, True]


def _process(rank, folder):
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    z, y = case(100, 5)
    own = slice(0, 37) if rank == 0 else slice(37, None)
    metric = wane.ClassMetrics(5, also=["ece"])
    metric.update(z[own], y[own])
    stream = wane.CalibrationMetrics(5)
    stream.update(z[own], y[own])
    torch.save({**stream.compute(), "classes": metric.compute()["ece"]}, f"{folder}/{rank}.pt")
    torch.distributed.destroy_process_group()


@pytest.mark.slow
def test_two_processes_agree_to_the_last_bit(tmp_path):
    mp.spawn(_process, (str(tmp_path),), nprocs=2)
    z, y = case(100, 5)
    alone_metric = wane.ClassMetrics(5, also=["ece"])
    alone_metric.update(z, y)
    alone = alone_metric.compute()["ece"]
    whole = streamed(z, y, [len(z)])
    for rank in range(2):
        found = torch.load(tmp_path / f"{rank}.pt", weights_only=True)
        assert torch.equal(found.pop("classes"), alone)
        assert found == whole
