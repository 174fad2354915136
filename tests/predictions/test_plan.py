"""Plans against the power that is counted out exactly, and on files."""

import json

import numpy as np
import polars as pl
import pytest
from scipy import stats
from typer.testing import CliRunner

from wane.cli import app
from wane.predictions.paired_tests import answers_p
from wane.predictions.plan import PairedRows, built_in_plan, paired_rows, plan_from
from wane.predictions.predictions import read_predictions
from wane.views.compare.plan import plan_text


def lost_only(share, n=1000):
    """A class of which a share of the rows turned wrong; its signals say nothing."""
    answers = np.zeros(n)
    answers[: round(share * n)] = -1
    return PairedRows(answers, np.zeros(n))


def test_the_rows_for_accuracy_are_those_of_the_exact_power():
    def power(k, share, level):
        lost = np.arange(k + 1)
        alarms = np.array([answers_p(int(x), 0, k) <= level for x in lost])
        return float(stats.binom.pmf(lost, k, share) @ alarms)

    table = plan_from([lost_only(0.2)], "simulated", judged=50, draws=1000).table.filter(pl.col("fall") == 0.2)
    for row in table.iter_rows(named=True):
        level = 0.05 / row["judged"] / 2
        assert power(row["accuracy"], 0.2, level) > 0.77  # of 1,000 draws
        assert power(int(row["accuracy"] * 0.75), 0.2, level) < 0.82
        assert row["signals"] is None


def test_signals_that_fell_for_sure_need_the_fewest_rows_that_can_tell():
    rows = PairedRows(lost_only(0.1, 100).answers, np.linspace(-0.2, -0.1, 100))
    alone, together = plan_from([rows] * 3, "simulated").table.filter(pl.col("fall") == 0.1)["signals"]
    assert alone == 6  # two-sided 2 / 2^6 is the first below 0.05
    assert together == 12  # and 2 / 2^12 the first below 0.0005


def test_a_plan_of_files_is_of_the_classes_that_fell_about_so_much():
    files = [read_predictions(f"example:digits_{when}") for when in ("before", "after")]
    rows = paired_rows(*files)
    assert len(rows) == 10
    assert sum(len(part.answers) for part in rows) == 899
    fell = np.array([-part.answers.mean() for part in rows])
    table = plan_from(rows, "digits", draws=50).table
    for fall, classes in table.select("fall", "classes").unique().iter_rows():
        assert classes == (np.abs(fell - fall) <= max(0.02, fall / 5)).sum()


def test_the_built_in_plan_is_in_order():
    plan = built_in_plan()
    more = plan.table.with_columns(pl.col("accuracy", "signals").fill_null(9999))
    for judged in (1, 100):
        part = more.filter(pl.col("judged") == judged).sort("fall")
        assert part["accuracy"].is_sorted(descending=True)
        assert part["signals"].is_sorted(descending=True)
        assert (part["signals"] < part["accuracy"]).all()
    assert "one of 100" in plan_text(plan)


def test_the_command():
    run = CliRunner().invoke
    assert "McNemar" in run(app, ["compare", "--plan"]).output
    both = run(app, ["compare", "example:digits_before", "example:digits_after", "--plan"])
    assert both.exit_code == 0
    assert "None fell by about 10, 20 or 30 points" in " ".join(both.output.split())
    found = json.loads(run(app, ["compare", "--plan", "--json"]).output)
    assert found["power"] == 0.8
    assert len(found["table"]) == 8


@pytest.mark.parametrize(("options", "said"), [({"power": 1.0}, "power is 1.0"), ({"alpha": 0}, "alpha is 0")])
def test_bad_input_is_quoted(options, said):
    with pytest.raises(ValueError, match=said):
        plan_from([lost_only(0.1)], "simulated", **options)
