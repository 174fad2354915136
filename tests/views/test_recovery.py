"""Rank correlations against scipy, intervals against a simulation, and what the figure holds."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from views.hand_made import made_history, made_recovery, write_run
from views.tables.test_run_tables import command

from wane.paper.claims import CLAIMS
from wane.paper.judging import judge
from wane.paper.reproduction import write_reproduction
from wane.runs.config import build_config
from wane.softmax.signals import SIGNALS
from wane.sweeps.plan import Planned
from wane.views.figures import recovery
from wane.views.recovery import WITHIN, correlate, curves, recovery_table, recovery_text, spearman, speeds


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=3, max_size=40))
def test_spearman_is_that_of_scipy(pairs):
    x, y = np.array(pairs, dtype=float).T
    if len({*x}) == 1 or len({*y}) == 1:
        assert np.isnan(spearman(x, y))
    else:
        assert spearman(x, y) == pytest.approx(stats.spearmanr(x, y).statistic, abs=1e-12)


def test_within_groups_of_one_size_it_is_the_mean_of_theirs():
    random = np.random.default_rng(1)
    groups = np.repeat([3, 1, 7], 20)
    x, y = random.normal(size=60) + 5 * groups, random.normal(size=60) - 9 * groups
    each = [stats.spearmanr(x[groups == g], y[groups == g]).statistic for g in (1, 3, 7)]
    assert spearman(x, y, groups) == pytest.approx(np.mean(each), abs=1e-12)
    assert spearman(x, y) < -0.5  # which the difference between groups alone would make


def observed(x, y, run, c, task=None):
    n = len(x)
    task = np.ones(n, int) if task is None else task
    signals = {s: -x if s == "loss" else np.zeros(n) if s == "accuracy" else x for s in SIGNALS}
    return pl.DataFrame({"run": run, "task": task, "class": c, "class_task": task - 1, **signals, "speed": y, "net": y})


def test_weights_of_the_bootstrap_are_repeated_rows():
    """What the weights do, against rows that are there so many times, by scipy."""
    from wane.views.recovery import _correlation, _ranker

    random = np.random.default_rng(2)
    x, y = random.integers(0, 5, (2, 30)).astype(float)
    times = random.integers(0, 4, 30)
    one = np.zeros(30, np.int64)
    weights = times.astype(float)
    found = _correlation(_ranker(x, one)(weights), _ranker(y, one)(weights), weights)
    assert found == pytest.approx(stats.spearmanr(np.repeat(x, times), np.repeat(y, times)).statistic, abs=1e-12)


def test_every_signal_is_turned_so_that_more_is_better():
    x = np.arange(12.0)
    found = correlate(observed(x, x, ["a", "b"] * 6, np.arange(12) // 2), draws=20)
    assert found["accuracy"] == (12, None, None, None)
    assert {name: c.rho for name, c in found.items() if name != "accuracy"} == pytest.approx(
        dict.fromkeys([s for s in SIGNALS if s != "accuracy"], 1.0)
    )
    assert found["loss"].low == pytest.approx(1.0)


@pytest.mark.parametrize("strength", [0.0, 1.0])
def test_the_interval_covers_though_observations_are_not_independent(strength):
    """Classes have an ease of their own, seen in all six runs and at two task ends: the truth is in the interval.

    An interval that takes each row for itself is far too narrow here, and the test would tell.
    """
    random = np.random.default_rng(4)
    runs, classes = 6, 25

    def sample(classes):
        shape = (runs, classes, 2)
        own = random.normal(size=(2, 1, classes, 1))
        x = own[0] + 0.5 * random.normal(size=shape)
        y = own[1] + strength * x + 0.5 * random.normal(size=shape)
        codes = np.indices(shape).reshape(3, -1)
        return x.ravel(), y.ravel(), codes

    x, y, _ = sample(20000)
    truth = stats.spearmanr(x, y).statistic
    covered, naive = 0, 0
    for _ in range(60):
        x, y, (run, c, task) = sample(classes)
        found = correlate(observed(x, y, run, c, task), draws=150)["cm"]
        assert found.rho == pytest.approx(stats.spearmanr(x, y).statistic)
        covered += found.low <= truth <= found.high
        half = 1.96 / np.sqrt(len(x) - 3)
        naive += abs(np.arctanh(found.rho) - np.arctanh(truth)) <= half
    assert covered >= 52  # 57 are expected
    assert naive < 45


def lost(seed=0, *, sign=1, tasks=(1, 2), classes=8, beside=(0, 16)):
    random = np.random.default_rng(seed)
    rows = []
    for task in tasks:
        before = random.permutation(classes) / classes
        for c in range(classes):
            for b in beside:
                rows.append((task, c, b, before[c] + task, 0.1 + sign * 0.05 * before[c] / (1 + b)))
    return made_recovery(rows)


def test_speeds_by_hand(tmp_path):
    run = write_run(tmp_path / "a", recovery=made_recovery([(1, 3, 0, 0.4, 0.1), (1, 3, 8, 0.4, 0.2)]))
    seen = speeds([run])
    assert seen.select("run", "task", "class", "class_task", "beside", "n").rows() == [
        ("a", 1, 3, 0, 0, 50),
        ("a", 1, 3, 0, 8, 50),
    ]
    assert seen["speed"].to_list() == pytest.approx([0.25, 0.5])  # (0.1 + 0.2 + 0.3 + 0.4) / 4
    assert seen["net"].to_list() == pytest.approx([0.225, 0.45])
    assert seen["cm"].to_list() == [0.4, 0.4]


def test_the_table(tmp_path):
    runs = [write_run(tmp_path / f"{s}", [{"seed": s}], recovery=lost(s)) for s in range(3)]
    table = recovery_table(runs, draws=50)
    assert len(table) == 2 * 2 * len(WITHIN) * len(SIGNALS)
    within = table.filter(within="run and task", signal="cm", measure="speed")
    assert within["n"].to_list() == [48, 48]
    assert within["rho"].to_list() == pytest.approx([1, 1])
    mixed = table.filter(within="all", signal="cm", measure="speed", beside=0)["rho"][0]
    seen = speeds(runs).filter(beside=0)
    assert mixed == pytest.approx(stats.spearmanr(seen["cm"], seen["speed"]).statistic)
    assert mixed < 0.9  # the signal is higher in task 2 without being faster
    text = recovery_text(table)
    assert "er, alone: speed, n = 48" in text
    assert "| cm | +0." in text
    assert "| accuracy | all the same |" in text


def test_methods_are_not_thrown_together(tmp_path):
    """In one the better signal is the faster, in the other the slower: each is told."""
    er = write_run(tmp_path / "er", recovery=lost(0, beside=(0,)))
    other = write_run(tmp_path / "other", [{"learner": {"name": "finetune"}}], recovery=lost(1, sign=-1, beside=(0,)))
    rho = {row["method"]: row["rho"] for row in recovery_table([er, other], draws=0).filter(
        signal="cm", within="run and task", measure="speed").to_dicts()}  # fmt: skip
    assert rho == pytest.approx({"er": 1.0, "finetune": -1.0})
    left, right = recovery([er, other]).axes
    assert len(left.lines) == 6
    assert [t.get_text() for t in right.get_legend().get_texts()] == ["er, alone (n = 16)", "finetune, alone (n = 16)"]


def test_what_is_missing_is_said(tmp_path):
    plain = write_run(tmp_path / "plain", history=made_history([[0.5] * 4]))
    with pytest.raises(ValueError, match=r"of 1 runs none has a recovery\.parquet: use `wane sweep recovery`"):
        speeds([plain])
    none_lost = write_run(tmp_path / "none", recovery=lost().clear())
    with pytest.raises(ValueError, match="of 2 runs no class was lost"):
        curves([plain, none_lost])
    other = write_run(tmp_path / "other", [{"data": {"name": "tiny_imagenet"}}], recovery=lost())
    with pytest.raises(ValueError, match=r"several data sets \(tiny_imagenet is one\)"):
        speeds([write_run(tmp_path / "a", recovery=lost()), other])


def test_the_figure(tmp_path):
    runs = [write_run(tmp_path / f"{s}", [{"seed": s}], recovery=lost(s, classes=9)) for s in range(2)]
    left, right = recovery(runs, signal="cm").axes
    lines = {line.get_label(): line.get_ydata() for line in left.lines}
    assert list(lines) == [
        f"{t}, {m}" for m in ("er, alone", "er, 16 others beside") for t in ("low", "middle", "high")
    ]
    # the nine classes before are 0, 1/9 ... 8/9: a rate of 0.1 and 0.05 x 1/9, 4/9, 7/9 in the mean
    for third, mean in zip(("low", "middle", "high"), (1 / 9, 4 / 9, 7 / 9), strict=True):
        np.testing.assert_allclose(lines[f"{third}, er, alone"], 100 * (0.1 + 0.05 * mean) * np.arange(5))
    assert [t.get_text() for t in right.get_yticklabels()] == ["Loss", "CM", "TLR", "Log-TLR", "RTLR", "CTL", "NKL"]
    dots = [line for line in right.lines if line.get_marker() in "os" and not np.isnan(line.get_xdata()[0])]
    assert [dot.get_xdata()[0] for dot in dots] == pytest.approx([1.0] * 14)
    assert "within run and task" in right.get_xlabel()
    net = recovery(runs, signal="cm", measure="net", within="all", width="column").axes[0].lines[0].get_ydata()
    np.testing.assert_allclose(net, 0.9 * lines["low, er, alone"])
    with pytest.raises(ValueError, match="unknown measure 'fast': choose speed or net"):
        recovery(runs, measure="fast")
    with pytest.raises(ValueError, match="unknown within 'run': choose one of all; run and task;"):
        recovery(runs, within="run")


def test_the_command(tmp_path):
    run = write_run(tmp_path / "a", recovery=lost())
    made = command("figure", "recovery", run.path, "-o", tmp_path / "f.png", "--signal", "cm", "--measure", "net")
    assert made.exit_code == 0, made.output
    assert (tmp_path / "f.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(("sign", "verdict"), [(1, "holds"), (-1, "does not hold")])
def test_the_claim(tmp_path, sign, verdict):
    claim = next(c for c in CLAIMS if c.recipe == "recovery")
    runs = [write_run(tmp_path / f"{s}", [{"seed": s}], recovery=lost(s, sign=sign)) for s in range(3)]
    judged = judge(claim, runs)
    assert judged.parts["log_tlr, er"].difference == pytest.approx(sign)
    assert judged.verdict == verdict
    assert judge(claim, [write_run(tmp_path / "plain")]).verdict == "cannot tell"


def test_reproduction(tmp_path):
    made = []
    for s in range(2):
        run = write_run(tmp_path / "runs" / f"{s}", [{"seed": s}], recovery=lost(s))
        made.append((Planned("ER", build_config(run.config.model_dump(), {"recipe": "recovery-small"})), run))
    planned, runs = zip(*made, strict=True)
    page = write_reproduction({"recovery": planned}, runs, tmp_path / "out")
    assert {"recovery_cifar100.txt", "recovery_cifar100.csv", "recovery_cifar100.png"} <= {
        path.name for path in (tmp_path / "out").iterdir()
    }
    assert "er, alone: speed, n = 32" in page.page.read_text()
    assert pl.read_csv(tmp_path / "out" / "recovery_cifar100.csv")["rho"].max() == pytest.approx(1)
    lean = write_run(tmp_path / "runs" / "lean", [{"seed": 9}], recovery=lost().clear())
    plan = [Planned("ER", build_config(lean.config.model_dump(), {"recipe": "recovery-small"}))]
    assert "no class was lost" in write_reproduction({"recovery": plan}, [lean], tmp_path / "lean").page.read_text()


def test_claims_are_judged_on_the_runs_of_their_own_recipe(tmp_path):
    """ER with a tiny memory belongs to the recovery, and must not stand in for the ER of Table 2."""
    made = []
    trend = {"learner": {"trend": {"signal": "log_tlr"}}}
    for s in range(3):
        for recipe, extra, end in (
            ("table2", {}, 0.40),
            ("table2", trend, 0.5),
            ("recovery", {"memory": {"capacity": 9}}, 0.0),
        ):
            config = [extra, {"seed": s}]
            table = lost(s) if recipe == "recovery" else None
            run = write_run(
                tmp_path / f"{len(made)}", config, matrix=((0.8, None), (end + 0.001 * s, 0.9)), recovery=table
            )
            made.append((Planned(recipe, build_config(run.config.model_dump(), {"recipe": f"{recipe}-small"})), run))
    planned, runs = zip(*made, strict=True)
    by_part = {part: [plan for plan in planned if plan.variant == part] for part in ("table2", "recovery")}
    text = write_reproduction(by_part, runs, tmp_path / "out").page.read_text()
    row = text[text.index("Log-TLR trend sampling gives higher accuracy than ER") :]
    assert "+5.00" in row[:600]
