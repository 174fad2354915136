"""The quoted numbers, from histories small enough to count by hand."""

import numpy as np
import polars as pl
import pytest
from matplotlib.cbook import boxplot_stats
from views.hand_made import made_history, write_run

from wane.runs.folder import find_runs
from wane.views.observations import (
    at_level,
    box,
    changes,
    choose,
    observations,
    one_method,
    transition_width,
)

NAN = np.nan
#: Six epochs of two tasks of three; classes 0 and 1 are lost to different degrees.
ACCURACY = [
    [0.50, 0.60, NAN, NAN],
    [0.75, 0.80, NAN, NAN],
    [0.75, 1.00, NAN, NAN],
    [0.25, 0.00, 0.50, 0.755],
    [0.00, 0.00, 0.75, 0.76],
    [0.00, 0.004, 1.00, 1.00],
]


@pytest.fixture
def run(tmp_path):
    return write_run(tmp_path / "er0", history=made_history(ACCURACY))


def test_observations_are_seen_classes_at_epochs(run):
    seen = observations([run])
    assert len(seen) == 3 * 2 + 3 * 4  # split replay is not there
    assert seen["epoch"].unique().sort().to_list() == [0, 1, 2, 3, 4, 5]
    assert seen.filter(pl.col("epoch") == 3)["accuracy"].to_list() == [0.25, 0.0, 0.5, 0.755]


def test_levels(run):
    seen = observations([run])
    assert len(at_level(seen, 0.0)) == 5  # 0.004 is within half a point
    assert sorted(at_level(seen, 0.75)["accuracy"]) == [0.75, 0.75, 0.75, 0.755]
    assert len(at_level(seen, 0.75, 0.02)) == 5
    with pytest.raises(ValueError, match=r"between 0 and 1, not 25: write 25 % as 0\.25"):
        at_level(seen, 25)


def test_changes_and_phases(run):
    moved = changes([run], around=1)
    # Classes 0 and 1 have 5 changes each, 2 and 3 two each: a class has none when it first appears.
    assert len(moved) == 14
    transition = moved.filter(pl.col("phase") == "transition")
    # One change before the boundary (to epoch 2) and one after (to epoch 3), of two classes.
    assert sorted(zip(transition["epoch"], transition["class"], transition["accuracy"].round(9), strict=True)) == [
        (2, 0, 0.0), (2, 1, 0.2), (3, 0, 0.5), (3, 1, 1.0),
    ]  # fmt: skip
    loss = moved.filter(pl.col("epoch") == 3)["loss"].to_list()
    assert sorted(loss) == pytest.approx([1.0, 2.0])  # 3 - 2 x accuracy: absolute, though it rose
    old = changes([run], around=1, classes="old")
    assert set(old["class"]) == {0, 1}
    assert old["epoch"].min() == 3
    with pytest.raises(ValueError, match="around is 0"):
        changes([run], around=0)
    with pytest.raises(ValueError, match="classes is 'new': choose all or old"):
        changes([run], around=1, classes="new")


def test_width_of_a_transition(tmp_path):
    def of(epochs):
        rows = [[0.5, 0.5, NAN, NAN]] * epochs + [[0.5] * 4] * epochs
        return transition_width([write_run(tmp_path / f"{epochs}", history=made_history(rows))])

    assert [of(e) for e in (3, 10, 12, 20, 50)] == [1, 2, 3, 5, 5]


@pytest.mark.parametrize("n", [1, 2, 5, 30, 101])
def test_box_is_that_of_matplotlib(n):
    values = np.random.default_rng(n).exponential(size=n)
    b, [other] = box(values), boxplot_stats(values)
    mine = (b.whisker_low, b.q1, b.median, b.q3, b.whisker_high)
    assert mine == pytest.approx([other[k] for k in ("whislo", "q1", "med", "q3", "whishi")])
    assert (b.n, b.min, b.max) == (n, values.min(), values.max())


def test_only_one_method_at_a_time(tmp_path):
    write_run(tmp_path / "a", [{"seed": 0}], history=made_history(ACCURACY))
    write_run(tmp_path / "b", [{"seed": 1, "recipe": "x", "device": "cpu"}], history=made_history(ACCURACY))
    one_method(find_runs(tmp_path))
    assert len(observations(find_runs(tmp_path))) == 36
    write_run(tmp_path / "c", [{"learner": {"lr": 0.5}}], history=made_history(ACCURACY))
    with pytest.raises(ValueError, match=r"a and c differ in more than the seed \(learner\.lr: 0\.03 -> 0\.5\)"):
        one_method(find_runs(tmp_path))
    write_run(tmp_path / "d", [{"memory": {"draw": "class_uniform"}}], history=made_history(ACCURACY))
    assert [run.name for run in choose(find_runs(tmp_path), "er, class_uniform")] == ["d"]
    with pytest.raises(ValueError, match="no run is of method 'der': there are 'er'; 'er, class_uniform'"):
        choose(find_runs(tmp_path), "der")


def test_an_unfinished_run_without_epochs(tmp_path):
    with pytest.raises(ValueError, match="has no evaluation on split 'test' yet"):
        observations([write_run(tmp_path / "a", history=made_history([]), done=False)])
