"""A signal that is registered at run time goes through a sweep, its files and its table, with no other line changed."""

import json

import wane
from wane.runs.folder import find_runs
from wane.sweeps.engines import ENGINES
from wane.sweeps.engines.worker import carry_out
from wane.sweeps.execute import run_sweep
from wane.sweeps.plan import expand
from wane.views.report.page import report_page
from wane.views.tables.run_tables import run_table


def in_this_process(jobs, options):
    """An engine: another process would not know a signal that was registered in this one."""
    for job in jobs:
        yield job, carry_out(job.settings, job.place, threads=1, retry=options.retry_failed)


def test_a_ninth_signal_is_swept_recorded_and_shown(tmp_path, monkeypatch):
    row = wane.Signal("top5", "Among the first five", "t", "rank", r"[r_y \le 5]", True, of=lambda s: s.rank <= 5)
    monkeypatch.setitem(wane.SIGNALS, "top5", row)
    monkeypatch.setitem(ENGINES, "here", in_this_process)
    small = {"learner": {"epochs": 1}, "data": {"per_class": 4, "tasks": 2}, "model": {"width": 4}}
    planned = expand("diagnostics", scale="demo", settings=(small,), over={"learner.trend.signal": ["top5", "cm"]})
    ended = run_sweep(planned, tmp_path, engine="here")
    assert [outcome.state for outcome in ended.values()] == ["done", "done"]
    assert sum("trend_top5" in name for name in ended) == 1
    runs = find_runs(tmp_path)
    for run in runs:
        assert "top5" in run.history.frame.columns
        recorded = json.loads((run.path / "summary.json").read_text())["metrics"]
        assert recorded["top5"]["average"] >= recorded["accuracy"]["average"]
    assert "er, trend top5" in run_table("auto", runs).frame["method"].to_list()
    assert "Among the first five" in report_page(runs)
