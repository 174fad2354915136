"""What the memory tells of test data, against numpy and scipy on a history made at random."""

import numpy as np
import pytest
from scipy import stats
from views.hand_made import write_run

from wane.measures.history import History
from wane.softmax.signals import SIGNALS
from wane.views.agreement import agreement_markdown, agreement_table

TASK_OF = np.repeat([0, 1, 2], 6)
EPOCHS = 5  # of a task


def random_history(seed, *, alike):
    """Three tasks; the replayed rows are the test images' values, or have nothing to do with them."""
    random = np.random.default_rng(seed)
    history = History(class_to_task=TASK_OF)
    for epoch in range(3 * EPOCHS):
        task = epoch // EPOCHS
        there = np.where(task >= TASK_OF, 9, 0)
        for split in ("replay", "test"):
            if split == "replay" or not alike:
                values = {name: random.random(18) for name in SIGNALS}
            history.record({"n": there, **values}, step=epoch, task=task, split=split)
    return history


def test_rows_like_the_test_images_agree_wholly(tmp_path):
    runs = [write_run(tmp_path / str(s), history=random_history(s, alike=True)) for s in range(2)]
    table = agreement_table(runs)
    assert table["rho"].to_list() == pytest.approx([1.0] * 24)
    assert table["replayed"].to_list() == pytest.approx(table["test"].to_list())


def test_levels_and_slopes_are_those_of_numpy_and_scipy(tmp_path):
    runs = [write_run(tmp_path / str(s), history=random_history(s, alike=False)) for s in range(3)]
    table = agreement_table(runs, windows=[4])
    assert table["part"].unique(maintain_order=True).to_list() == ["level", "slope 4"]
    for name in ("cm", "loss"):
        levels, slopes, means = [], [], []
        for run in runs:
            a, b = (run.history.trajectory(name, split=s).values for s in ("replay", "test"))
            rhos, sloped, seen = [], [], []
            for epoch in range(EPOCHS, 3 * EPOCHS):
                past = np.flatnonzero(epoch // EPOCHS > TASK_OF)
                rhos.append((len(past), stats.spearmanr(a[epoch, past], b[epoch, past]).statistic))
                at = np.arange(epoch - 3, epoch + 1)
                fits = [[np.polyfit(at[(k := np.isfinite(v[at, c]))], v[at, c][k], 1)[0] for c in past] for v in (a, b)]
                sloped.append((len(past), stats.spearmanr(*fits).statistic))
                seen += a[epoch, past].tolist()
            levels.append(rhos)
            slopes.append(sloped)
            means.append(np.mean(seen))
        rows = table.filter(signal=name)
        assert rows["replayed"][0] == pytest.approx(np.mean(means))
        for row, found in enumerate((levels, slopes)):
            # ranks as shares of an epoch's size weigh each epoch by the spread of its ranks
            each = [np.average([r for _, r in f], weights=[n * (1 - 1 / n**2) for n, _ in f]) for f in found]
            assert rows["rho"][row] == pytest.approx(np.mean(each), abs=1e-9)
            half = stats.t.ppf(0.975, 2) * np.std(each, ddof=1) / 3**0.5
            assert rows["high"][row] - rows["rho"][row] == pytest.approx(half, abs=1e-6)


def test_one_run_has_no_interval_and_a_constant_no_correlation(tmp_path):
    history = History(class_to_task=TASK_OF)
    for epoch in range(4):
        for split in ("replay", "test"):
            values = dict.fromkeys(SIGNALS, np.full(18, 0.5))
            history.record({"n": np.full(18, 9), **values}, step=epoch, task=epoch // 2, split=split)
    table = agreement_table([write_run(tmp_path / "r", history=history)])
    assert table["rho"].is_null().all()
    assert "| Accuracy | 0.50 | 0.50 | all the same | all the same | all the same |" in agreement_markdown(table)
    one = agreement_table([write_run(tmp_path / "s", history=random_history(0, alike=False))])
    assert one["rho"].is_not_null().all()
    assert one["low"].is_null().all()
