"""History: what goes in comes out, fast, from memory and from disk."""

import io
import json
import time
from pathlib import Path

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


STORED = sorted((Path(__file__).parents[2] / "results" / "runs").glob("*/history.parquet"))


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.parent.name)
def test_every_stored_history_is_readable_and_unchanged(path):
    table = pl.read_parquet(path)
    history = History.read(path)
    assert history.frame.equals(table.cast(dict.fromkeys(wane.SIGNALS, pl.Float64)))
    assert history.signals == tuple(wane.SIGNALS)
    assert (history.kind, history.names) == ("class", None)
    assert np.isfinite(history.matrix("loss").diagonal()).all()


def test_there_are_stored_histories():
    assert len(STORED) >= 9


def test_the_file_says_what_it_holds(tmp_path):
    history = History([0, 0, 1], names=["cat", "dog", "<b>"], kind="domain")
    history.record(evaluation([3, 0, 4]), step=0, task=0)
    history.write(tmp_path / "h.parquet")
    said = pl.read_parquet_metadata(tmp_path / "h.parquet")
    assert json.loads(said["wane.schema"]) == 2
    assert json.loads(said["wane.signals"]) == list(wane.SIGNALS)
    again = History.read(tmp_path / "h.parquet")
    assert (again.kind, again.names, again.num_groups) == ("domain", ("cat", "dog", "<b>"), 3)
    assert again.frame.columns[:6] == ["step", "task", "split", "domain", "domain_task", "n"]
    assert again.frame["domain_task"].to_list() == [0, 1]
    with pytest.raises(ValueError, match="domain 1 was never evaluated on split 'test'; 2 domains were, from 0 to 2"):
        again.trajectory("cm", [1])
    with pytest.raises(ValueError, match="by domain and the other by class"):
        again.append(History())


def test_a_file_that_lacks_a_signal_reads_as_nan(history, tmp_path):
    history.frame.drop("nkl").write_parquet(tmp_path / "h.parquet")  # as one of before a signal was there
    again = History.read(tmp_path / "h.parquet")
    assert "nkl" not in again.signals
    assert np.isnan(again.trajectory("nkl").values).all()
    assert np.isnan(again.matrix("nkl")).all()
    np.testing.assert_array_equal(again.trajectory("cm").values, history.trajectory("cm").values)
    assert np.isnan(again.column(again.evaluations[0], "nkl")).all()


def test_columns_and_splits(history):
    e = history.evaluations[2]
    np.testing.assert_array_equal(history.column(e, "ctl"), history.frame.filter(split="test", step=1)["ctl"])
    assert history.splits == ("test", "replay")
    with pytest.raises(ValueError, match="unknown signal 'ctll'"):
        history.column(e, "ctll")


def unbalanced(values_by_task, *, split="test", into=None):
    """Two tasks of two classes with 90 and 10 samples each."""
    history = History([0, 0, 1, 1]) if into is None else into
    for task, values in enumerate(values_by_task):
        column = np.array(values, dtype=float)
        n = np.where(np.isnan(column), 0, [90, 10, 90, 10])
        history.record(dict.fromkeys(wane.SIGNALS, column) | {"n": n}, step=task, task=task, split=split)
    return history


def test_the_matrix_knows_whose_it_is():
    nan = np.nan
    history = unbalanced([[1.0, 1.0, nan, nan], [7.3, 7.3, 2.0, 2.0]])
    assert wane.forgetting(history.matrix("loss")) == pytest.approx(6.3)  # was 0 unless told
    assert wane.forgetting(history.matrix("loss"), signal="loss") == pytest.approx(6.3)
    assert wane.forgetting(history.matrix("loss"), signal="cm") == 0  # the word of the caller counts
    assert wane.forgetting(np.asarray(history.matrix("loss"))) == 0
    assert wane.backward_transfer(100 * history.matrix("loss")[:2, :2]) == pytest.approx(-630)
    steps, tasks, _, values = history.by_task("loss")
    assert wane.min_acc(steps, tasks, values) == pytest.approx(7.3)
    import pickle

    again = pickle.loads(pickle.dumps(history.matrix("loss")))
    assert again.signal == "loss"
    np.testing.assert_array_equal(again, history.matrix("loss"))


def test_means_over_samples_and_over_classes():
    nan = np.nan
    history = unbalanced([[1.0, 0.0, nan, nan], [1.0, 0.0, 0.5, 0.5]])
    assert history.matrix("accuracy")[1, 0] == pytest.approx(0.9)
    assert history.matrix("accuracy", over="classes")[1, 0] == pytest.approx(0.5)
    assert history.by_task("accuracy", over="classes").values[0, 0] == pytest.approx(0.5)
    with pytest.raises(ValueError, match="over is 'tasks': choose samples or classes"):
        history.matrix("accuracy", over="tasks")


@pytest.mark.parametrize("setting", ["", "_task"])
def test_the_upper_triangle_and_the_untrained_model(setting):
    nan = np.nan
    history = unbalanced([[0.8, 0.8, nan, nan], [0.5, 0.5, 0.9, 0.9]], split=f"test{setting}")
    assert np.isnan(history.matrix("cm", split=f"test{setting}")[0, 1])
    assert history.untrained("cm", split=f"test{setting}") is None
    unbalanced([[nan, nan, 0.3, 0.3]], split=f"future{setting}", into=history)
    unbalanced([[0.1, 0.1, 0.2, 0.2]], split=f"untrained{setting}", into=history)
    matrix = history.matrix("cm", split=f"test{setting}")
    np.testing.assert_allclose(matrix, [[0.8, 0.3], [0.5, 0.9]])
    baseline = history.untrained("cm", split=f"test{setting}")
    np.testing.assert_allclose(baseline, [0.1, 0.2])
    assert wane.forward_transfer(matrix, baseline) == pytest.approx(0.1)


def test_two_evaluations_of_one_step_stay_two(tmp_path):
    history = History()
    for _ in range(2):
        history.record(evaluation([4, 4]), step=7, task=0)
    history.write(tmp_path / "h.parquet")
    again = History.read(tmp_path / "h.parquet")
    assert [e.classes.tolist() for e in again.evaluations] == [[0, 1], [0, 1]]


def test_a_growing_head():
    history = History([0, 0, 1, 1])
    history.record(evaluation([5, 5]), step=0, task=0)
    history.record(evaluation([5, 5, 5, 5]), step=1, task=1)
    np.testing.assert_array_equal(np.isfinite(history.matrix("cm")), [[True, False], [True, True]])
    assert history.seen.tolist() == [True] * 4


@pytest.mark.parametrize("given", [[], [0], [0, 0]])
def test_a_head_that_grows_beyond_the_tasks_given_tells_them_itself(given, tmp_path):
    history = History(given)
    history.record(evaluation([5, 5]), step=0, task=0)
    history.record(evaluation([5, 5, 0, 5]), step=1, task=1)
    history.record(evaluation([5, 5, 0, 5, 4]), step=1, task=1, split="future")  # not learnt yet: it tells no task
    assert history.class_to_task.tolist() == [0, 0, -1, 1]
    history.write(tmp_path / "h.parquet")
    for of in (history, History.read(tmp_path / "h.parquet")):
        of.record(evaluation([5, 5, 5, 5, 5]), step=2, task=2)  # class 2 had no sample before
        assert of.class_to_task.tolist() == [0, 0, 2, 1, 2]
        finite = [[True, False, False], [True, True, True], [True, True, True]]  # (1, 2) is from split future
        np.testing.assert_array_equal(np.isfinite(of.matrix("cm")), finite)


def test_a_group_that_was_given_no_task_keeps_none():
    history = History([0, -1])
    history.record(evaluation([5, 5, 5]), step=0, task=0)
    assert history.class_to_task.tolist() == [0, -1, 0]
    longer = History([0, -1, 0, 1])
    history.append(longer)
    assert history.class_to_task.tolist() == [0, -1, 0, 1]


def test_a_history_says_what_run_it_is_of(history, tmp_path):
    history.title, history.method, history.seed, history.data = "Mine", "my method", 3, "digits"
    history.names = ("ape", "猫", "🐈", "<b>")
    history.write(tmp_path / "h.parquet")
    again = History.read(tmp_path / "h.parquet")
    assert (again.title, again.method, again.seed, again.data) == ("Mine", "my method", 3, "digits")
    assert again.names == history.names
    bare = History()
    assert (bare.title, bare.method, bare.seed, bare.data) == (None, None, None, None)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"n": [3, -1]}, "n holds -1: give the number of samples of each class, whole and at least 0"),
        ({"n": [3, 0.5]}, "n holds 0.5"),
        ({"n": [3]}, r"accuracy has shape \(2,\), but n has 1 entries"),
        ({"cm": [0.1, 0.2, 0.3]}, r"cm has shape \(3,\), but n has 2 entries"),
    ],
)
def test_what_cannot_be_recorded(change, sentence):
    history = History()
    with pytest.raises(ValueError, match=sentence):
        history.record(evaluation([3, 4]) | change, step=0, task=0)
    assert len(history) == 0
    with pytest.raises(ValueError, match="a mapping needs n and signals such as accuracy, but has n, acc"):
        history.record({"n": [1], "acc": [0.5]}, step=0, task=0)


def test_kind_and_names_are_checked():
    with pytest.raises(ValueError, match="1 names for 2 entries of class_to_task"):
        History([0, 1], names=["a"])
    with pytest.raises(ValueError, match="kind is 'task', which another column"):
        History(kind="task")


def test_a_checkpoint_keeps_the_names_of_the_signals(history):
    from wane.training.state import _pack, unpack

    packed = _pack(history)
    file = io.BytesIO()
    torch.save(packed, file)
    file.seek(0)
    evaluations, names = unpack(torch.load(file, weights_only=True))
    assert names == history.signals
    assert all(np.array_equal(a.values, b.values) for a, b in zip(evaluations, history.evaluations, strict=True))
    del packed["signals"]  # as before they were named
    assert unpack(packed)[1] == tuple(wane.SIGNALS)
