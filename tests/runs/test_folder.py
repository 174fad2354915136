"""Run folders as views find them: each once, and what cannot be read is named."""

import errno
import json
import os
import threading
from pathlib import Path

import pytest
from typer.testing import CliRunner
from views.hand_made import made_history, write_run

from wane.cli import app
from wane.files import replace_file
from wane.runs.folder import RunFolder, find_runs
from wane.runs.store import load_runs, read_runs, statuses
from wane.sweeps.engines.worker import carry_out


def test_a_run_given_twice_counts_once(tmp_path, monkeypatch):
    write_run(tmp_path / "runs" / "er0")
    write_run(tmp_path / "runs" / "er1", [{"seed": 1}])
    os.symlink(tmp_path / "runs" / "er0", tmp_path / "link")
    monkeypatch.chdir(tmp_path)
    found = find_runs("runs/er0", tmp_path / "runs", "runs", "link")
    assert [str(run.path) for run in found] == ["runs/er0", str(tmp_path / "runs" / "er1")]


@pytest.mark.parametrize("part", ["history", "replay"])
def test_a_table_that_is_replaced_meanwhile_is_read_as_it_was_or_as_it_is(part, tmp_path):
    """What a report sees of a run that is going on; Polars itself opens a path twice, and mixes two tables."""
    path, wholes, ended = tmp_path / f"{part}.parquet", [], threading.Event()
    for epochs in (1, 60):
        made_history([[0.5, 0.25, 0.5, 0.75]] * epochs).write(path)
        wholes.append(path.read_bytes())

    def write():
        while not ended.is_set():
            for whole in wholes:
                replace_file(path, whole)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        seen, reads = set(), 0
        while reads < 500 or len(seen) < 2:  # on a slow disk more
            seen.add(len(getattr(RunFolder(tmp_path), part)))
            reads += 1
    finally:
        ended.set()
        writer.join()
    assert seen == {8, 480}  # two splits, four classes


#: What may lie in a store beside whole runs: the file, what is in it, and what is then said of it.
HARM = {
    "foreign": ("config.toml", b'baseURL = "/"', "unknown setting baseURL"),
    "not toml": ("config.toml", b"\xff", "is not TOML"),
    "empty": ("summary.json", b"", "is not JSON"),
    "of another tool": ("summary.json", b"[]", "is not the summary of a run"),
    "history": ("history.parquet", b"PAR1", "is not a whole"),
}


@pytest.fixture(params=HARM)
def harmed(request, tmp_path):
    """A store with a whole run and one with a file that cannot be read; that file, and what is wrong with it."""
    name, data, why = HARM[request.param]
    metrics = {"metrics": {"accuracy": {}}, "class_names": ["a", "b", "c", "d"], "seconds": 1.0}
    for run in ("a", "b"):
        path = write_run(tmp_path / run, history=made_history([[0.5, 0.5, 0.5, 0.5]]), done=run == "b").path
        if run == "b" or name == "summary.json":
            (path / "summary.json").write_text(json.dumps(metrics))
    (tmp_path / "a" / name).write_bytes(data)
    return tmp_path / "a" / name, why


def test_what_cannot_be_read_is_listed_and_hides_nothing(harmed):
    path, why = harmed
    store = path.parent.parent
    first, second = read_runs(store)
    assert first.status.state == "unreadable"
    assert str(path) in first.status.note
    assert why in first.status.note
    assert second.status.state == "done"
    assert load_runs(store)["state"].to_list() == ["unreadable", "done"]
    shown = CliRunner().invoke(app, ["runs", str(store)])
    assert shown.exit_code == 0
    assert f"unreadable: {path}" in shown.output
    assert statuses(store)["b"].state == "done"


def test_views_name_what_they_cannot_read(harmed, tmp_path):
    path, why = harmed
    out = str(tmp_path / "out.html")
    said = CliRunner().invoke(app, ["report", str(path.parent.parent), "-o", out])
    assert said.exit_code == 2
    assert f"wane: {path}" in said.output
    assert why in said.output
    assert said.output.count("\n") == 1


@pytest.mark.parametrize(
    "name", ["replay.parquet", "samples.parquet", "recovery.parquet", "ladder.parquet", "flow.npz"]
)
@pytest.mark.parametrize("data", [b"", b"PK", b"PAR1"])
def test_every_file_of_a_run_is_named_when_it_is_damaged(name, data, tmp_path):
    run = write_run(tmp_path / "run")
    (run.path / name).write_bytes(data)
    with pytest.raises(ValueError, match=f"run/{name} is damaged"):
        getattr(run, name.split(".")[0])


def test_a_failure_that_does_not_say_why(tmp_path):
    run = write_run(tmp_path / "run", done=False)
    (run.path / "failed.json").write_bytes(b"")
    assert statuses(tmp_path)["run"].state == "failed"
    assert carry_out(run.config.model_dump(mode="json"), str(run.path)).note.endswith("failed.json does not say why")


def test_a_folder_that_cannot_be_written_is_one_sentence_in_every_command(tmp_path, monkeypatch):
    run = write_run(tmp_path / "run")
    real = Path.open

    def read_only(path, mode="r", **options):
        if "x" in mode:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        return real(path, mode, **options)

    monkeypatch.setattr(Path, "open", read_only)
    said = CliRunner().invoke(app, ["log", str(run.path), "--to", "tensorboard"])
    assert said.exit_code == 1
    assert said.output.startswith(f"wane: {run.path / 'lock.1'} could not be written (Read-only file system)")
