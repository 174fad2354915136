"""The numbers that the paper quotes, from a history small enough to count by hand."""

import json

import numpy as np
import polars as pl
import pytest
from views.hand_made import made_history, write_run
from views.tables.test_run_tables import command
from views.test_observations import ACCURACY

from wane.paper.diagnostics import diagnose
from wane.softmax.signals import SIGNALS

NAN = np.nan


@pytest.fixture
def run(tmp_path):
    return write_run(tmp_path / "er0", history=made_history(ACCURACY))


def test_diagnose(run):
    found = diagnose([run], around=1)
    rows = {(r["part"], r["signal"]): r for r in found.frame.to_dicts()}
    assert len(rows) == (4 + 2 + 1) * len(SIGNALS)
    zero = rows["accuracy 0 %", "cm"]
    assert zero["n"] == 5
    assert (zero["min"], zero["median"], zero["max"]) == pytest.approx((0.5, 0.5, 0.501))
    assert "IQR [0.32, 0.50], max 0.85" in zero["paper"]
    assert rows["change, transition", "accuracy"]["median"] == pytest.approx(0.35)
    assert rows["range", "loss"]["max"] == pytest.approx(3.0)
    assert (rows["range", "accuracy"]["min"], rows["range", "accuracy"]["max"]) == (0.0, 1.0)
    plain = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert plain["conventions"]["whiskers"] == "the last observation within 1.5 IQR of the box"
    n = next(s for s in plain["paper"] if s["text"] == "n = 31")
    assert (n["values"], n["measured"], n["where"]) == ({"n": 31}, {"n": 5}, "section 1")


def test_an_empty_level_is_said(tmp_path):
    rows = [[0.5, 0.5, NAN, NAN]] * 4 + [[0.5] * 4] * 4
    found = diagnose([write_run(tmp_path / "a", history=made_history(rows, n=50))])
    said = "accuracy 25 %: no observation; with 50 test images a class accuracy moves in steps of 2 points."
    assert said in found.notes
    row = found.frame.filter(pl.col("part") == "accuracy 25 %").row(0, named=True)
    assert (row["n"], row["median"]) == (0, None)
    assert any("Tasks are short: a transition is 1 epoch on either side" in note for note in found.notes)


def test_the_command(run, tmp_path):
    shown = command("diagnostics", run.path, "--json", tmp_path / "out.json", "--level", "0", "--around", "1")
    assert shown.exit_code == 0, shown.output
    assert "accuracy 0 %" in shown.stdout
    assert "accuracy 25 %" not in shown.stdout
    assert "upper whisker > 0.35" in shown.stdout
    assert json.loads((tmp_path / "out.json").read_text())["method"] == "er"
    assert json.loads(command("diagnostics", run.path, "--json", "-").stdout)["runs"] == ["er0"]
    assert command("diagnostics", tmp_path / "none").exit_code == 2
