"""Statistics by group against literal ones, and errors that know of documents."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wane.predictions.comparison import compare
from wane.predictions.groups import Groups, grouped
from wane.predictions.predictions import PredictionsError
from wane.predictions.samples import Samples


def literal(x, of, clusters, size):
    """Mean, clustered standard error and clusters of each group, one sample at a time."""
    found = []
    for group in range(size):
        rows = [i for i in range(len(x)) if of[i] == group and np.isfinite(x[i])]
        if not rows:
            found.append((np.nan, np.nan, 0))
            continue
        mean = sum(x[i] for i in rows) / len(rows)
        sums = {}
        for i in rows:
            sums[clusters[i]] = sums.get(clusters[i], 0) + x[i] - mean
        m = len(sums)
        error = np.sqrt(m / (m - 1) * sum(s**2 for s in sums.values())) / len(rows) if m > 1 else np.nan
        found.append((mean, error, m))
    return found


@given(st.data())
def test_spread_is_the_literal_one(data):
    n, size = data.draw(st.integers(1, 30)), data.draw(st.integers(1, 4))
    x = np.array(data.draw(st.lists(st.sampled_from([0.0, 1.0, -2.5, np.nan, np.inf, 0.25]), min_size=n, max_size=n)))
    of = np.array(data.draw(st.lists(st.integers(0, size - 1), min_size=n, max_size=n)))
    clusters = np.array(data.draw(st.lists(st.integers(0, 6), min_size=n, max_size=n)))
    for given_clusters in (clusters, None):
        groups = Groups(of, size, given_clusters)
        wanted = literal(x, of, clusters if given_clusters is not None else np.arange(n), size)
        found = [*zip(*groups.spread(x), strict=True)]
        np.testing.assert_allclose(np.array(found), np.array(wanted, dtype=float), rtol=1e-9, atol=1e-12)


def test_one_sample_a_document_is_no_cluster():
    x = np.random.default_rng(0).normal(size=50)
    of = np.arange(50) % 3
    alone, clustered = Groups(of, 3).spread(x), Groups(of, 3, np.arange(50)).spread(x)
    for a, b in zip(alone, clustered, strict=True):
        np.testing.assert_allclose(a, b)


def test_clustered_intervals_cover():
    """Tokens of a document move together: intervals that take them as independent miss far too often."""
    rng, missed = np.random.default_rng(1), {"samples": 0, "documents": 0}
    for _ in range(300):
        documents = np.repeat(np.arange(40), 25)
        x = rng.normal(size=40)[documents] + rng.normal(size=1000)
        of = np.zeros(1000, dtype=np.int64)
        for name, clusters in (("samples", None), ("documents", documents)):
            mean, error, _ = Groups(of, 1, clusters).spread(x)
            missed[name] += bool(abs(mean[0]) > 2.02 * error[0])
    assert missed["samples"] > 150
    assert missed["documents"] <= 28  # 5 % of 300, and what chance adds once in 1,000 times


def test_units_are_documents():
    groups = Groups(np.array([0, 0, 0, 1]), 2, np.array([5, 5, 2, 5]))
    means, of = groups.units(np.array([1.0, 3.0, 7.0, 4.0]))
    assert sorted(zip(of.of.tolist(), means.tolist(), strict=True)) == [(0, 2.0), (0, 7.0), (1, 4.0)]
    totals, _ = groups.units(np.array([1.0, np.nan, 7.0, 4.0]), total=True)
    assert sorted(totals.tolist()) == [1.0, 4.0, 7.0]


def samples(values, **more):
    n = len(values["accuracy"])
    return Samples(np.zeros(n, dtype=np.int64), values, 2, **more)


def test_groups_by_several_columns_with_gaps():
    columns = {"a": pl.Series(["x", "y", None, "x"]), "b": pl.Series([2, 1, 1, 1])}
    groups, what = grouped(samples({"accuracy": np.ones(4)}, columns=columns), ("a", "b"))
    assert what["name"].to_list() == ["x · 1", "x · 2", "y · 1", "– · 1"]
    assert groups.of.tolist() == [1, 2, 3, 0]
    by_category = {name: column.cast(pl.Categorical) if name == "a" else column for name, column in columns.items()}
    again, same = grouped(samples({"accuracy": np.ones(4)}, columns=by_category), ("a", "b"))
    assert same.equals(what)
    assert again.of.tolist() == groups.of.tolist()
    with pytest.raises(PredictionsError, match="no column 'c' to group by: choose from class, a, b"):
        grouped(samples({"accuracy": np.ones(4)}, columns=columns), ("c",))


def test_repeated_class_names_have_numbers():
    given = Samples(np.array([0, 1, 2]), {}, 3, class_names=("the", " the", "the"))
    assert grouped(given, ("class",))[1]["name"].to_list() == ["the (0)", " the", "the (2)"]


def test_documents_are_what_tests_count():
    """Four documents of 50 tokens that all fell are four coins, not two hundred."""
    rng = np.random.default_rng(0)
    old = rng.uniform(0.5, 0.9, size=200)
    values = [
        {"accuracy": np.ones(200), "ctl": old - fall, "cm": old - fall, "rank": np.ones(200)} for fall in (0, 0.1)
    ]
    documents = pl.Series(np.repeat(np.arange(4), 50))
    first, second = (samples(v, columns={"document": documents}) for v in values)
    clustered = compare(first, second)
    assert clustered.clustered
    assert clustered.groups["verdict"].to_list() == ["too few"]
    assert "1 with fewer than 5 documents cannot be judged" in clustered.notes[-1]
    alone = compare(*(samples(v) for v in values))
    assert not alone.clustered
    assert alone.groups["verdict"].to_list() == ["hidden decline"]


@given(st.data())
def test_medians_of_ranks_need_no_sorting(data):
    n = data.draw(st.integers(1, 40))
    ranks = np.array(data.draw(st.lists(st.integers(1, 9), min_size=n, max_size=n)))
    of = np.array(data.draw(st.lists(st.integers(0, 3), min_size=n, max_size=n)))
    found = Groups(of, 4).medians(ranks)
    wanted = [np.median(ranks[of == group]) if (of == group).any() else np.nan for group in range(4)]
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(Groups(of, 4).medians(ranks.astype(float)), wanted)


def test_sums_in_parts_are_the_whole(monkeypatch):
    rng = np.random.default_rng(0)
    x, of, clusters = rng.normal(size=1000), rng.integers(5, size=1000), rng.integers(40, size=1000)
    whole = Groups(of, 5, clusters).spread(x)
    monkeypatch.setattr("wane.predictions.groups.PART", 64)
    groups = Groups(of, 5, clusters)
    for a, b in zip(whole, groups.spread(x), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    np.testing.assert_array_equal(groups.count(x > 0), np.bincount(of[x > 0], minlength=5))


def test_documents_that_are_missing_or_asked_for():
    columns = {"document": pl.Series(["a", None, None, "b"]), "kind": pl.Series(["x", "x", "y", "y"])}
    groups, _ = grouped(samples({"accuracy": np.ones(4)}, columns=columns), ("kind",))
    assert groups.clusters.tolist() == [1, 0, 0, 2]
    assert grouped(samples({"accuracy": np.ones(4)}, columns=columns), ("document", "kind"))[0].clusters is None
