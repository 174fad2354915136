"""CLScore against the literal sums of the paper, and what is refused."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wane
from wane.measures.cl_score import CRITERIA


def literal(r, sizes, stored, data, operations, one_pass, epsilon):
    """The paper's sums, one term at a time, tasks counted from 1."""
    n = len(r)
    a = sum(r[i][j] for i in range(n) for j in range(n) if i >= j) / (n * (n + 1) / 2)
    bwt = sum(r[i][j] - r[j][j] for i in range(1, n) for j in range(i)) / (n * (n - 1) / 2)
    fwt = sum(r[i][j] for i in range(n) for j in range(n) if i < j) / (n * (n - 1) / 2)
    return {
        "A": a, "BWT": bwt, "REM": 1 - abs(min(bwt, 0)), "BWT+": max(bwt, 0), "FWT": fwt,
        "MS": min(1, sum(sizes[0] / size for size in sizes) / n),
        "SSS": 1 - min(1, sum(part / data for part in stored) / n),
        "CE": min(1, sum(epsilon * least / (1 + took) for least, took in zip(one_pass, operations, strict=True)) / n),
    }  # fmt: skip


@settings(max_examples=50)
@given(st.integers(2, 6), st.integers(0, 10**6), st.floats(0.5, 20))
def test_every_criterion_is_its_sum_in_the_paper(n, seed, epsilon):
    g = np.random.default_rng(seed)
    r, sizes, stored = g.random((n, n)), g.integers(1, 50, n), g.integers(0, 90, n)
    one_pass = g.integers(1, 100, n)
    operations, data = one_pass * g.integers(1, 9, n), int(g.integers(10, 100))
    costs = {"model_sizes": sizes, "memory_sizes": stored, "data_size": data, "operations": operations,
             "one_pass": one_pass, "epsilon": epsilon}  # fmt: skip
    expected = literal(
        r.tolist(), sizes.tolist(), stored.tolist(), data, operations.tolist(), one_pass.tolist(), epsilon
    )
    found = wane.cl_score(r, **costs)
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    assert found["CLscore"] == pytest.approx(sum(expected[name] for name in CRITERIA) / 7)
    assert all(-1e-12 <= found[name] <= 1 + 1e-12 for name in CRITERIA)
    assert math.isnan(found["CLstability"])
    weighted = wane.cl_score(r, **costs, weights={"A": 3, "MS": 1})
    assert weighted["CLscore"] == pytest.approx(0.75 * expected["A"] + 0.25 * expected["MS"])


def test_stability_is_about_each_criterion_over_runs():
    g = np.random.default_rng(0)
    costs = {"model_sizes": [1, 1, 1], "memory_sizes": [1, 1, 1], "data_size": 10, "operations": [4, 4, 4],
             "one_pass": [2, 2, 2]}  # fmt: skip
    scores = [wane.cl_score(g.random((3, 3)), **costs) for _ in range(4)]
    both = wane.mean_cl_score(scores)
    assert both["CLscore"] == pytest.approx(np.mean([score["CLscore"] for score in scores]))
    spread = [np.std([score[name] for score in scores]) for name in CRITERIA]
    assert both["CLstability"] == pytest.approx(1 - np.mean(spread))
    assert wane.mean_cl_score(scores[:1] * 3)["CLstability"] == pytest.approx(1)
    assert math.isnan(wane.mean_cl_score(scores[:1])["CLstability"])


def test_what_is_not_known_is_nan_and_needs_no_weight():
    found = wane.cl_score([[0.8], [0.5, 0.9]])
    assert [name for name, value in found.items() if math.isnan(value)] == [
        "FWT",
        "MS",
        "SSS",
        "CE",
        "CLscore",
        "CLstability",
    ]
    assert wane.cl_score([[0.8], [0.5, 0.9]], weights={"A": 1, "REM": 1})["CLscore"] == pytest.approx(
        (2.2 / 3 + 0.7) / 2
    )
    single = wane.cl_score([[0.8]])
    assert single["A"] == 0.8
    assert math.isnan(single["REM"])


@pytest.mark.parametrize(
    ("matrix", "options", "message"),
    [
        ([[80], [70, 82]], {}, "the matrix holds 80: CLScore takes shares"),
        ([[0.8], [math.nan, 0.8]], {}, r"R\[1, 0\] is NaN"),
        ([[0.8]], {"model_sizes": [1, 2, -3][1:]}, None),
        ([[0.8], [0.7, 0.8]], {"model_sizes": [1]}, r"model_sizes is \[1\]: give a number"),
        ([[0.8]], {"memory_sizes": [0], "data_size": 0}, "data_size is 0"),
        ([[0.8]], {"weights": {"BWT": 1}}, "unknown criterion 'BWT' in weights: choose among A, REM"),
        ([[0.8]], {"weights": {"A": 0}}, "at least one of them above"),
    ],
)
def test_bad_input_is_named(matrix, options, message):
    if message is None:
        assert wane.cl_score(matrix, **options)["MS"] == 1
        return
    with pytest.raises(ValueError, match=message):
        wane.cl_score(matrix, **options)


def test_a_signal_that_is_no_share_is_refused():
    history = wane.History(class_to_task=[0, 1])
    history.record({"n": np.array([1, 1]), "loss": np.array([0.1, 0.2])}, step=0, task=0)
    with pytest.raises(ValueError, match="not 'loss'"):
        wane.cl_score(history.matrix("loss")[:1, :1])
    with pytest.raises(ValueError, match="there is no run"):
        wane.mean_cl_score([])
