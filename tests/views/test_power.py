"""The study of power on simulated samples, where it is known what changed; and `compare` on real pairs that did not."""

from itertools import combinations
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from wane.cli import app
from wane.predictions.comparison import compare
from wane.predictions.samples import Samples
from wane.runs.folder import find_runs
from wane.softmax.registry import SIGNALS
from wane.views.figures.power import draw_power, power
from wane.views.power import power_table

SAMPLES = Path(__file__).parents[2] / "results" / "samples"


def simulated(seed, falls=(0.0, 0.05, 0.1, 0.2), n=100):
    """A run of two tasks: every class loses what it is given, of answers and of every signal alike."""
    rng = np.random.default_rng(seed)
    rows = []
    for task in range(2):
        for label, fall in enumerate(falls * 5):
            right = np.arange(n) < round((0.6 - task * fall) * n)
            sure = np.clip(0.6 - task * fall + 0.1 * rng.standard_normal(n), 0, 1)
            rows.append(pl.DataFrame({
                "task": task, "split": "test", "sample": label * n + np.arange(n), "class": label,
                **{name: (1 - sure if name == "loss" else sure) for name in SIGNALS}, "accuracy": right.astype(float),
            }))  # fmt: skip
    return SimpleNamespace(samples=pl.concat(rows), split="test", place="here")


def test_the_table_knows_what_changed():
    table = power_table([simulated(0), simulated(1)], draws=80, rows=(5, 20))
    nothing = table.filter(pl.col("kind").is_in(["flipped", "halves"]))
    assert nothing["found"].max() <= 0.05 + 4 * np.sqrt(0.05 * 0.95 / 80)
    sure = table.filter(pl.col("kind") == "fall", pl.col("signal") == "ctl").sort("rows", "fall")
    assert sure.filter(pl.col("fall") == 20, pl.col("rows") == 20)["found"].item() > 0.9
    for _, part in sure.group_by("rows"):
        assert part["found"].is_sorted()
    assert table.filter(pl.col("kind") == "fall")["equal_held"].null_count() == 0


def test_the_figure_shows_every_signal_and_refuses_other_falls():
    figure = draw_power(power_table([simulated(0), simulated(1)], draws=10, rows=(5, 20)), fall=20)
    assert [len(axes.lines) for axes in figure.axes] == [len(SIGNALS) + 2] * 3
    with pytest.raises(ValueError, match="fall is 7"):
        power([simulated(0)], fall=7)
    with pytest.raises(ValueError, match="several methods or data sets"):
        power(find_runs(SAMPLES))
    with pytest.raises(ValueError, match="no pair of the kind seeds"):
        power_table([simulated(0)], draws=1)


def as_samples(frame):
    values = {name: frame[name].to_numpy().astype(np.float64) for name in (*SIGNALS, "rank")}
    return Samples(frame["class"].to_numpy(), values, 100)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["flipped", "halves"])
def test_compare_seldom_alarms_on_real_rows_where_nothing_changed(kind):
    """Of comparisons in which no class changed, at most 5 % may show any verdict."""
    run = next(run for run in find_runs(SAMPLES) if run.data == "cifar100")
    ends = [run.samples.filter(pl.col("task") == task).sort("class", "sample") for task in (3, 4)]
    ends[1] = ends[1].filter(pl.col("class").is_in(ends[0]["class"].unique().implode()))
    rng, repeats, alarms = np.random.default_rng(0), 12, 0
    for _ in range(repeats):
        if kind == "flipped":
            turned = rng.random(len(ends[0])) < 0.5
            columns = [*SIGNALS, "rank"]
            mixed = [
                a.select("class", *(pl.when(pl.Series(turned)).then(b[c]).otherwise(a[c]).alias(c) for c in columns))
                for a, b in (ends, ends[::-1])
            ]
        else:
            order = [rng.permutation(100) for _ in range(ends[0]["class"].n_unique())]
            first, second = (np.concatenate([100 * i + o[half] for i, o in enumerate(order)])
                             for half in (slice(50), slice(50, None)))  # fmt: skip
            mixed = [ends[0][first], ends[0][second]]
        verdicts = {*compare(*map(as_samples, mixed)).groups["verdict"]}
        alarms += bool(verdicts - {"steady"})
    assert alarms <= 3  # if 5 %, more than this happens once in 350 times


@pytest.mark.slow
def test_compare_seldom_alarms_where_two_seeds_are_equally_accurate():
    runs = [run.samples for run in find_runs(SAMPLES) if run.data == "cifar100"]
    equal = alarms = 0
    for pair in combinations(runs, 2):
        ends = [frame.filter(pl.col("task") == 4).sort("class", "sample") for frame in pair]
        groups = compare(*map(as_samples, ends)).groups.filter(pl.col("accuracy_change").abs() < 0.0101)
        equal, alarms = equal + len(groups), alarms + int((groups["verdict"] != "steady").sum())
    assert equal > 40
    assert alarms <= 0.05 * equal


@pytest.mark.slow
def test_the_command_draws_it_from_saved_samples(tmp_path):
    folders = [str(run.path) for run in find_runs(SAMPLES) if run.data == "cifar100"]
    made = CliRunner().invoke(app, ["figure", "power", *folders, "--fall", "20", "-o", str(tmp_path / "f.png")])
    assert made.exit_code == 0, made.output
    assert (tmp_path / "f.png").read_bytes().startswith(b"\x89PNG")
