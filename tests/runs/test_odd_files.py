"""One odd file in one run: a sentence about that run, while the rest of the store is listed as ever."""

import json
import os
import shutil

import pytest
from rich.console import Console
from training.tiny_problem import run, stop, tiny_config, tiny_dataset

from wane.runs.folder import find_runs
from wane.runs.store import load_runs, read_runs
from wane.views.tables.terminal import runs_table

DEEP = "[" * 100_000


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    run(tiny_config(), root / "done", dataset=tiny_dataset())
    stop(tiny_config(), root / "stopped", dataset=tiny_dataset(), epochs=3)
    for lock in (root / "stopped").glob("lock.*"):
        lock.unlink()
    return root


@pytest.fixture
def store(runs, tmp_path):
    """A run that is done, and one beside it to be made odd; without sums, as others may have written it."""

    def beside(which):
        shutil.copytree(runs / "done", tmp_path / "good")
        shutil.copytree(runs / which, tmp_path / "odd")
        (tmp_path / "odd" / "sums.sha256").unlink(missing_ok=True)
        return tmp_path

    return beside


def states(root):
    """What every command that lists runs makes of the store."""
    with open(os.devnull, "w") as nowhere:
        Console(file=nowhere, width=200).print(runs_table(read_runs(root)))
    assert len(find_runs(root)) == 2
    found = dict(load_runs(root).select("name", "state").rows())
    assert found["good"] == "done"
    return found["odd"]


@pytest.mark.parametrize(
    "change",
    [{"metrics": 3}, {"metrics": {"accuracy": 3}}, {"metrics": {"accuracy": {"average": "x"}}}, {"seconds": "x"},
     {"metrics": {"accuracy": {"average": [1]}}}, {"metrics": float("nan")}, {"seconds": 10**400}, {"steps": [1]},
     {"class_names": 3}, {"class_names": [None]}, {"task_incremental": [1]}, {"seconds": float("nan")}],
    ids=str,
)  # fmt: skip
def test_an_odd_summary(change, store):
    root = store("done")
    path = root / "odd" / "summary.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    assert states(root) == "unreadable"
    odd = next(run for run in read_runs(root) if run.name == "odd")
    assert f"{path} is not the summary of a run ({next(iter(change))}" in odd.status.note
    assert "restore it, or delete it and run the config again" in odd.status.note


@pytest.mark.parametrize("text", ["", "null", "[]", "\ufeff{}", DEEP, '{"a": ' + "9" * 5000 + "}"], ids=len)
def test_a_summary_that_is_none(text, store):
    root = store("done")
    (root / "odd" / "summary.json").write_text(text)
    assert states(root) == "unreadable"


@pytest.mark.parametrize("name", ["lock.1", "lock.json", "failed.json", "about.json"])
@pytest.mark.parametrize(
    "text", ["", DEEP, '{"host": "x", "pid": true}', '{"host": "x", "pid": 1e99}', "\x00"], ids=len
)
def test_an_odd_lock_or_note(name, text, store):
    root = store("stopped")
    (root / "odd" / name).write_text(text)
    assert states(root) in ("stopped", "failed", "running")


@pytest.mark.parametrize("name", ["lock.1", "lock.json", "failed.json", "about.json", "history.parquet"])
@pytest.mark.parametrize("kind", ["folder", "link to itself"])
def test_a_file_that_is_no_file(name, kind, store):
    root = store("stopped")
    path = root / "odd" / name
    path.unlink(missing_ok=True)
    if kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(path)
    states(root)
