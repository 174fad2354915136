"""Run folders as views find them: each once, and what cannot be read is named."""

import os

from views.hand_made import write_run

from wane.lab.folder import find_runs


def test_a_run_given_twice_counts_once(tmp_path, monkeypatch):
    write_run(tmp_path / "runs" / "er0")
    write_run(tmp_path / "runs" / "er1", [{"seed": 1}])
    os.symlink(tmp_path / "runs" / "er0", tmp_path / "link")
    monkeypatch.chdir(tmp_path)
    found = find_runs("runs/er0", tmp_path / "runs", "runs", "link")
    assert [str(run.path) for run in found] == ["runs/er0", str(tmp_path / "runs" / "er1")]
