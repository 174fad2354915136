"""Task-incremental signals against `signals(classes=...)` task by task."""

import time

import pytest
import torch

import wane
from wane.models import build_model


def case(n=200, c=10, seed=0):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(n, c, generator=g) * 2, torch.randint(c, (n,), generator=g)


@pytest.mark.parametrize(
    "tasks",
    [
        [0, 0, 0, 0, 0, 1, 1, 1, 1, 1],  # equal
        [0, 1, 2, 3, 4, 0, 1, 2, 3, 4],  # equal, interleaved
        [0, 0, 0, 0, 1, 1, 1, 2, 2, 2],  # uneven
        [2, 0, 1, 1, 0, 2, 2, 0, 1, 1],  # uneven, interleaved
        [0, 0, 0, 1, 1, 1, 2, 3, 3, 4],  # two of a single class
        [0] * 10,
    ],
)
def test_is_signals_of_each_tasks_own_classes(tasks):
    z, y = case()
    got = wane.signals_within(z, y, tasks)
    for task in set(tasks):
        own = [c for c in range(10) if tasks[c] == task]
        rows = torch.tensor(tasks)[y] == task
        if len(own) == 1:
            assert all(v[rows].isnan().all() for v in got[:8])
            assert (got.rank[rows] == 0).all()
            continue
        expected = wane.signals(z[rows], y[rows], classes=own)
        for a, b in zip(got, expected, strict=True):
            assert torch.equal(a[rows], b)


def test_leading_shapes_padding_half_and_nothing():
    z, y = case()
    flat = wane.signals_within(z, y, [0, 0, 0, 0, 1, 1, 1, 2, 2, 2])
    shaped = wane.signals_within(z.view(20, 10, 10), y.view(20, 10), torch.tensor([0, 0, 0, 0, 1, 1, 1, 2, 2, 2]))
    assert torch.equal(shaped.nkl.view(-1), flat.nkl)
    y[5] = -100
    padded = wane.signals_within(z, y, [0] * 5 + [1] * 5, ignore_index=-100)
    assert padded.cm[5].isnan()
    assert padded.rank[5] == 0
    assert not padded.cm[6].isnan()
    assert wane.signals_within(z.bfloat16(), y.clamp(0), [0] * 5 + [1] * 5).loss.dtype == torch.float32
    assert wane.signals_within(z[:0], y[:0], [0] * 10).cm.shape == (0,)


def test_broken_rows_and_errors():
    z, y = case()
    tasks = [0] * 5 + [1] * 5
    with pytest.raises(ValueError, match=r"class_to_task has shape \(3,\), but the logits have 10 classes"):
        wane.signals_within(z, y, [0, 0, 1])
    with pytest.raises(ValueError, match="label 10 at row 0 is not a class from 0 to 9"):
        wane.signals_within(z, torch.full_like(y, 10), tasks)
    with pytest.raises(ValueError, match=r"labels should have shape \(200,\)"):
        wane.signals_within(z, y[:3], tasks)
    y[7], z[7, 2] = 1, torch.nan
    with pytest.raises(ValueError, match="a logit in row 7 is nan"):
        wane.signals_within(z, y, tasks)
    z[7, 2], z[7, 8] = 0.0, torch.nan  # of another task: it does not matter
    wane.signals_within(z, y, tasks)
    y[3] = 99
    assert wane.signals_within(z, y, tasks, validate=False).cm[3].isnan()


@pytest.mark.parametrize("sizes", [[20] * 5, [40, 30, 20, 10]])
def test_costs_next_to_nothing_beside_an_evaluation(sizes):
    model = build_model("cnn", 100, (3, 16, 16), seed=0, width=32).eval()
    tasks = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    x, y = torch.randn(2048, 3, 16, 16), torch.randint(100, (2048,))

    def cost(call, times):
        found = []
        for _ in range(times):
            start = time.perf_counter()
            call()
            found.append(time.perf_counter() - start)
        return min(found)

    with torch.inference_mode():
        forward = cost(lambda: [model(part) for part in x.split(128)], 2)
        z = torch.randn(2048, 100)
        within = cost(lambda: wane.signals_within(z, y, tasks, validate=False), 20)
    # 0.1 and 0.25 % when measured alone; at most 1 % is promised
    assert within < 0.01 * forward
