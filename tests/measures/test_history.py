"""History: what goes in comes out, fast, from memory and from disk."""

import time

import numpy as np
import polars as pl
import pytest
import torch

import wane
from wane.measures.history import KEYS, History

rng = np.random.default_rng(0)


def evaluation(n):
    return {"n": n, **{name: np.where(np.asarray(n) > 0, rng.random(len(n)), np.nan) for name in wane.SIGNALS}}


@pytest.fixture
def history():
    h = History(class_to_task=[0, 0, 1, 1])
    for step in range(6):
        task = step // 3
        h.record(evaluation([10, 30, 0, 0] if task == 0 else [10, 30, 20, 20]), step=step, task=task, split="test")
        h.record(evaluation([step % 2, 1, 0, 0]), step=step, task=task, split="replay")
    return h


def test_the_tidy_table(history):
    frame = history.frame
    assert frame.columns == [*KEYS, *wane.SIGNALS]
    assert len(frame) == len(history) == 3 * 2 + 3 * 4 + 6 + 3
    row = frame.filter(step=4, split="test").row(2, named=True)
    assert (row["class"], row["class_task"], row["n"], row["task"]) == (2, 1, 20, 1)
    assert not frame.select(pl.col(*wane.SIGNALS).is_nan().any()).to_numpy().any()
    pandas = history.to_pandas()
    assert list(pandas.columns) == frame.columns
    np.testing.assert_array_equal(pandas["cm"], frame["cm"].to_numpy())


def test_records_a_class_metrics():
    m = wane.ClassMetrics(3)
    m.update(torch.randn(20, 3), torch.arange(20) % 2)
    h = History()
    h.record(m, step=7, task=0)
    assert h.frame["class"].to_list() == [0, 1]
    assert h.frame["class_task"].to_list() == [-1, -1]
    np.testing.assert_array_equal(h.frame["nkl"], m.compute()["nkl"][:2])
    m.reset()
    assert h.frame["n"].to_list() == [10, 10]  # a copy, not a view of the metric's state


def test_matrix_is_the_sample_mean_at_the_last_evaluation_of_each_task(history):
    matrix = history.matrix("log_tlr")
    f = history.frame.filter(split="test")
    first = f.filter(step=2)
    assert matrix[0, 0] == pytest.approx((first["n"] * first["log_tlr"]).sum() / 40)
    assert np.isnan(matrix[0, 1])
    last = f.filter(step=5, class_task=1)
    assert matrix[1, 1] == pytest.approx(last["log_tlr"].mean())
    assert wane.forgetting(matrix) == pytest.approx(max(matrix[:, 0]) - matrix[1, 0])


def test_by_task_feeds_the_stability_gap(history):
    steps, tasks, _, values = history.by_task("accuracy")
    worst = wane.min_acc(steps, tasks, values)
    assert worst == pytest.approx(values[3:, 0].min())


def test_trajectory(history):
    t = history.trajectory("cm", [2, 0])
    assert t.values.shape == (6, 2)
    assert np.isnan(t.values[:3, 0]).all()
    assert t.values[4, 1] == history.frame.filter(split="test", step=4)["cm"][0]
    assert t.task.tolist() == [0, 0, 0, 1, 1, 1]
    replay = history.trajectory("cm", split="replay")
    assert np.isnan(replay.values[:, 0]).tolist() == [True, False] * 3


def test_tail(history):
    assert [e.step for e in history.tail(2, split="replay")] == [4, 5]
    assert [e.step for e in history.tail(99, split="test")] == list(range(6))


def test_written_and_read_back(history, tmp_path):
    path = tmp_path / "history.parquet"
    history.write(path)
    again = History.read(path)
    assert again.frame.equals(history.frame)
    assert len(again.evaluations) == len(history.evaluations)
    np.testing.assert_array_equal(again.matrix("cm"), history.matrix("cm"))
    assert list(tmp_path.iterdir()) == [path]
    again.append(history)
    assert len(again) == 2 * len(history)
    again.write(tmp_path / "b.parquet")
    history.write(path)
    assert path.read_bytes() != (tmp_path / "b.parquet").read_bytes()


@pytest.mark.parametrize("tasks", [[0, 0, 1, 1], [1, 0, 1, 0]])
def test_classes_that_were_not_evaluated_yet_keep_their_tasks(tmp_path, tasks):
    path, first = tmp_path / "h.parquet", [10 * (task == 0) for task in tasks]
    begun = History(class_to_task=tasks)
    begun.write(path)
    assert History.read(path).class_to_task.tolist() == tasks  # before the first evaluation, too
    begun.record(evaluation(first), step=0, task=0)
    begun.write(path)
    again = History.read(path)
    assert again.class_to_task.tolist() == tasks
    again.record(evaluation([10] * 4), step=1, task=1)  # a loop of one's own goes on
    np.testing.assert_array_equal(np.isfinite(again.matrix("cm")), [[True, False], [True, True]])


def test_a_file_without_the_tasks_of_all_classes_tells_those_of_its_rows(tmp_path):
    history = History(class_to_task=[1, 0, 1, 0])
    history.record(evaluation([0, 10, 0, 10]), step=0, task=0)
    history.frame.write_parquet(tmp_path / "h.parquet")  # as before wane kept them
    assert History.read(tmp_path / "h.parquet").class_to_task.tolist() == [-1, 0, -1, 0]


def test_empty_history_round_trip(tmp_path):
    History().write(tmp_path / "h.parquet")
    assert len(History.read(tmp_path / "h.parquet")) == 0


def test_a_failed_write_leaves_the_old_file(history, tmp_path, monkeypatch):
    path = tmp_path / "h.parquet"
    history.write(path)
    before = path.read_bytes()
    monkeypatch.setattr(pl.DataFrame, "write_parquet", lambda *_, **__: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        history.write(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_bad_files(history, tmp_path):
    path = tmp_path / "h.parquet"
    history.write(path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ValueError, match=r"h\.parquet is not a whole Parquet file"):
        History.read(path)
    pl.DataFrame({"a": [1]}).write_parquet(path)
    with pytest.raises(ValueError, match="not a history of wane: it has no column 'step', only a"):
        History.read(path)
    with pytest.raises(FileNotFoundError, match="there is no history at"):
        History.read(tmp_path / "none.parquet")


def test_errors(history):
    with pytest.raises(ValueError, match="unknown signal 'CM'"):
        history.trajectory("CM")
    with pytest.raises(ValueError, match="class 9 was never evaluated"):
        history.trajectory("cm", [9])
    with pytest.raises(ValueError, match="nothing was recorded for split 'holdout'; there is replay, test"):
        history.matrix("cm", split="holdout")
    h = History()
    h.record(evaluation([1, 1]), step=0, task=0)
    with pytest.raises(ValueError, match="does not know the task of each class"):
        h.matrix("cm")
    with pytest.raises(ValueError, match="5 classes were recorded, but class_to_task names 4"):
        history.record(evaluation([1] * 5), step=9, task=1)
    with pytest.raises(ValueError, match="not average='macro'"):
        history.record(wane.ClassMetrics(4, average="macro"), step=9, task=1)
    with pytest.raises(ValueError, match="divide the classes into tasks differently"):
        history.append(History(class_to_task=[0, 1, 1, 1]))


def test_a_million_rows_in_seconds(tmp_path):
    values = evaluation([5] * 1000)
    h = History(class_to_task=np.arange(1000) // 100)
    start = time.perf_counter()
    times = []
    for step in range(1000):
        t = time.perf_counter()
        h.record(values, step=step, task=step // 100)
        times.append(time.perf_counter() - t)
    h.write(tmp_path / "h.parquet")
    again = History.read(tmp_path / "h.parquet")
    assert len(again) == 1_000_000
    assert time.perf_counter() - start < 20  # seconds, with a wide margin for a busy machine
    # what came before costs nothing: the last records are as cheap as the first
    assert np.median(times[-200:]) < 3 * np.median(times[:200])
