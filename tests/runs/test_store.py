"""The run store: what is in it, here and on a server; and runs that are mirrored there."""

import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import polars as pl
import pytest
from sweeps.sweep_problem import LONG, LONGER, all_results, alone, planned
from training.tiny_problem import results

import wane.runs.remote as mirror_module
import wane.runs.status as status_module
from wane.files import replace_file
from wane.runs.config import ConfigError, to_toml
from wane.runs.lock import HeldError, LostError, held
from wane.runs.remote import mirrored
from wane.runs.store import load_runs, read_runs, statuses, write_config
from wane.sweeps.engines import Options, Outcome
from wane.sweeps.engines.worker import carry_out, report_failure
from wane.sweeps.execute import plan_jobs, run_sweep
from wane.training import evaluation


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A run of every state."""
    root = tmp_path_factory.mktemp("store")
    runs = [*planned(root), *planned(root, {"learner": {"lr": 1e30}}, seed=[0]), *planned(root, seed=[7])]
    for plan, job in list(zip(runs, plan_jobs(runs, root), strict=True))[:3]:
        carry_out(job.settings, job.place)
        assert plan.name == job.name
    write_config(f"{root}/{runs[3].name}", to_toml(runs[3].config))
    return root, runs


def test_states(store):
    root, runs = store
    assert [statuses(root)[plan.name].state for plan in runs] == ["done", "done", "failed", "waiting"]
    with held(root / runs[3].name):
        status = statuses(root)[runs[3].name]
        assert status.words(4) == f"running, 0 of 4 epochs, process {os.getpid()} on {os.uname().nodename}"
    assert statuses(root)[runs[3].name].state == "waiting"


def test_load_runs(store):
    root, runs = store
    frame = load_runs(root)
    assert frame.columns[:3] == ["name", "state", "title"]
    assert frame["name"].to_list() == sorted(plan.name for plan in runs)
    rows = {row["name"]: row for row in frame.to_dicts()}
    first = rows[runs[0].name]
    summary = results(root / runs[0].name)["summary"]
    assert first["state"] == "done"
    assert first["title"] == "er"
    assert first["learner.lr"] == 0.1
    assert first["model.hidden"] == "[16]"
    assert first["learner.trend"] is None
    assert first["accuracy.forgetting"] == summary["metrics"]["accuracy"]["forgetting"]
    assert rows[runs[2].name]["accuracy.average"] is None
    assert frame.schema["seconds"] == pl.Float64
    assert frame.schema["seed"] == pl.Int64


def test_a_run_folder_itself_is_a_store_of_one(store):
    root, runs = store
    assert [run.name for run in read_runs(root / runs[0].name)] == [runs[0].name]


def test_no_such_store_is_empty_and_an_unknown_protocol_an_error(tmp_path):
    assert statuses(tmp_path / "nowhere") == {}
    with pytest.raises((ConfigError, ValueError), match="nosuch"):
        load_runs("nosuch://bucket/runs")


# URLs: fsspec's memory store is one too


@pytest.fixture
def memory_store(monkeypatch):
    import fsspec

    monkeypatch.setattr(mirror_module, "SETTLE", 0.01)
    fs = fsspec.filesystem("memory")
    fs.store.clear()
    fs.pseudo_dirs[:] = [""]
    return fs


def test_a_run_at_a_url_is_that_of_a_folder(memory_store, tmp_path):
    runs = planned(tmp_path)
    for job in plan_jobs(runs, "memory://runs"):
        assert carry_out(job.settings, job.place) == Outcome("done")
    memory_store.get("/runs", str(tmp_path / "copy"), recursive=True)
    assert all_results(tmp_path / "copy", runs) == alone(runs, tmp_path / "alone")
    assert load_runs("memory://runs")["state"].to_list() == ["done", "done"]
    assert not [path for path in memory_store.find("/runs") if "lock" in path]


def test_a_run_at_a_url_goes_on_from_what_was_copied(memory_store, tmp_path, monkeypatch):
    """The machine dies after the last copy: another one begins with that."""
    monkeypatch.setattr(mirror_module, "EVERY", 0.0)
    plan = planned(tmp_path, *LONG, seed=[0])[0]
    job = plan_jobs([plan], "memory://runs")[0]
    copies, real = [], type(memory_store).put_file

    def put_file(self, *arguments, **keywords):
        real(self, *arguments, **keywords)
        copies.append(arguments[1])
        if copies.count("/runs/" + plan.name + "/checkpoint.pt") == 3:
            raise KeyboardInterrupt

    with monkeypatch.context() as dying:
        dying.setattr(type(memory_store), "put_file", put_file)
        with pytest.raises(KeyboardInterrupt):
            carry_out(job.settings, job.place)
    assert statuses("memory://runs")[plan.name].state == "stopped"
    assert statuses("memory://runs")[plan.name].epochs == 3
    assert carry_out(job.settings, job.place) == Outcome("done")
    memory_store.get("/runs", str(tmp_path / "copy"), recursive=True)
    assert "going on after 3 of 60 epochs" in (tmp_path / "copy" / plan.name / "log.txt").read_text()
    assert all_results(tmp_path / "copy", [plan]) == alone([plan], tmp_path / "alone")


def test_the_lock_at_a_url(memory_store, monkeypatch):
    with mirrored("memory://runs/a"):
        assert mirror_module.object_owner(memory_store, "/runs/a/lock.json")[0].pid == os.getpid()
        with pytest.raises(HeldError, match="memory://runs/a is being run by process"), mirrored("memory://runs/a"):
            pass
        monkeypatch.setattr(mirror_module, "STALE", -1.0)
        assert mirror_module.object_owner(memory_store, "/runs/a/lock.json") is None


def test_the_lock_at_the_url_of_a_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(mirror_module, "SETTLE", 0.01)
    plan = planned(tmp_path)[0]
    write_config(f"file://{tmp_path}/{plan.name}", to_toml(plan.config))
    with mirrored(f"file://{tmp_path}/{plan.name}"):
        for root in (f"file://{tmp_path}", tmp_path):
            assert statuses(root)[plan.name] == ("running", 0, f"process {os.getpid()} on {os.uname().nodename}")
    assert statuses(tmp_path)[plan.name].state == "waiting"


def test_a_folder_given_as_a_url_is_the_folder(tmp_path, monkeypatch):
    """Files there are replaced in one move, and its lock is one that the system grants; a mirror could do neither."""
    plan = planned(tmp_path)[0]
    monkeypatch.chdir(tmp_path)
    assert {plan_jobs([plan], root)[0].place for root in (f"file://{tmp_path}/", tmp_path, ".")} == {
        f"{tmp_path}/{plan.name}"
    }


def test_a_run_that_is_moved_away_meanwhile_hides_no_other(store, monkeypatch):
    root, runs = store
    listing = status_module._listing
    gone = {"config.toml": 0, "history.parquet": 1}
    monkeypatch.setattr(status_module, "_listing", lambda *args: {**listing(*args), "gone": gone})
    states = {run.name: run.status for run in read_runs(root)}
    assert states["gone"].state == statuses(root)["gone"].state == "unreadable"
    assert "gone" in states["gone"].note
    assert [states[plan.name].state for plan in runs] == ["done", "done", "failed", "waiting"]


def test_who_wakes_up_after_another_has_finished_copies_nothing_over_it(memory_store, monkeypatch):
    monkeypatch.setattr(mirror_module, "SETTLE", 0.01)

    def wake_up():
        with mirrored("memory://runs/a") as (folder, push):
            (folder / "history.parquet").write_text("half")
            memory_store.rm_file("/runs/a/lock.json")  # whoever took over has finished, and is gone
            for name in ("history.parquet", "summary.json"):
                memory_store.pipe_file(f"/runs/a/{name}", b"whole")
            push(always=True)
            time.sleep(60)  # interrupted at once

    with pytest.raises(LostError, match="memory://runs/a was taken over"):
        wake_up()
    assert memory_store.cat_file("/runs/a/history.parquet") == b"whole"
    assert sorted(memory_store.ls("/runs/a", detail=False)) == ["/runs/a/history.parquet", "/runs/a/summary.json"]


def test_a_run_that_was_taken_over_has_not_failed(tmp_path, monkeypatch):
    plan = planned(tmp_path)[0]
    job = plan_jobs([plan], tmp_path)[0]
    folder, record_split = Path(job.place), evaluation.record_split

    def taken_over(*args, **options):
        evaluated = record_split(*args, **options)
        (folder / "lock.9").write_text(json.dumps({"host": "elsewhere", "pid": 1}))
        for staging in folder.glob(".writing-*"):
            shutil.rmtree(staging)
        return evaluated

    monkeypatch.setattr(evaluation, "record_split", taken_over)
    outcome = carry_out(job.settings, job.place)
    assert outcome.state == "held"
    assert "was taken over by process 1 on elsewhere" in outcome.note
    assert not (folder / "failed.json").exists()
    assert not (folder / "history.parquet").exists()


def test_a_failure_at_a_url(memory_store, tmp_path):
    plan = planned(tmp_path, {"learner": {"lr": 1e30}})[0]
    job = plan_jobs([plan], "memory://runs")[0]
    write_config(job.place, to_toml(plan.config))
    first = carry_out(job.settings, job.place)
    assert first.state == "failed"
    assert statuses("memory://runs")[plan.name].note == first.note
    assert b"DivergedError" in memory_store.cat_file(f"/runs/{plan.name}/log.txt")
    assert report_failure(job.place, "another reason").state == "failed"
    assert statuses("memory://runs")[plan.name].note == "another reason"
    good = planned(tmp_path)[0]
    assert statuses("memory://runs").keys() == {plan.name}
    assert good.name not in statuses("memory://runs")


# a real server


@pytest.fixture
def bucket(free_port, monkeypatch):
    """An S3 server of moto's on this machine; `WANE_MOTO_SERVER` names one of another environment."""
    pytest.importorskip("s3fs")
    server = os.environ.get("WANE_MOTO_SERVER") or shutil.which("moto_server", path=str(Path(sys.executable).parent))
    if server is None or (find_spec("moto") is None and "WANE_MOTO_SERVER" not in os.environ):
        pytest.skip("needs moto[server]")
    url = f"http://127.0.0.1:{free_port}"
    for name, value in {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_DEFAULT_REGION": "us-east-1",
                        "AWS_ENDPOINT_URL": url, "FSSPEC_S3_ENDPOINT_URL": url}.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    process = subprocess.Popen([server, "-H", "127.0.0.1", "-p", str(free_port)], stderr=subprocess.DEVNULL)
    for _ in range(1200):
        assert process.poll() is None, f"{server} has ended"
        try:
            urllib.request.urlopen(url)
            break
        except OSError:
            time.sleep(0.1)
    else:
        process.kill()
        pytest.fail(f"{server} does not answer")
    import s3fs

    s3fs.S3FileSystem.clear_instance_cache()
    fs = s3fs.S3FileSystem(endpoint_url=url)
    fs.mkdir("lab")
    yield fs
    process.kill()
    process.wait()
    s3fs.S3FileSystem.clear_instance_cache()


WORKER = """
import json, sys
from wane.runs import remote
from wane.sweeps.engines.worker import carry_out

remote.EVERY = 0.0
carry_out(json.loads(sys.argv[1]), sys.argv[2], threads=1)
"""


@pytest.mark.slow
def test_a_sweep_on_a_real_s3_server(bucket, tmp_path):
    """A worker is killed in the middle; a sweep somewhere else then goes on from the store."""
    runs = [*planned(tmp_path, *LONGER, seed=[0]), *planned(tmp_path, seed=[1])]
    job = plan_jobs(runs, "s3://lab/runs")[0]
    write_config(job.place, to_toml(runs[0].config))
    worker = subprocess.Popen([sys.executable, "-c", WORKER, json.dumps(job.settings), job.place])
    until = time.monotonic() + 120
    while not bucket.exists(f"lab/runs/{job.name}/checkpoint.previous.pt") and time.monotonic() < until:
        bucket.invalidate_cache()
        time.sleep(0.1)
    status = statuses("s3://lab/runs")[job.name]
    assert (status.state, status.note) == ("running", f"process {worker.pid} on {os.uname().nodename}")
    assert carry_out(job.settings, job.place).state == "held"
    worker.kill()
    worker.wait()
    assert statuses("s3://lab/runs")[job.name].state == "stopped"
    ended = run_sweep(runs, "s3://lab/runs", options=Options(cpus=1))
    assert ended == {plan.name: Outcome("done") for plan in runs}
    bucket.invalidate_cache()
    bucket.get("lab/runs", str(tmp_path / "copy"), recursive=True)
    assert "going on after" in (tmp_path / "copy" / job.name / "log.txt").read_text()
    assert all_results(tmp_path / "copy", runs) == alone(runs, tmp_path / "alone")
    assert load_runs("s3://lab/runs")["state"].to_list() == ["done", "done"]


def test_a_run_that_begins_while_its_config_is_written_does_no_harm(tmp_path, monkeypatch):
    """It writes its own, and clears away what looks like the rest of a killed attempt."""
    real = Path.replace

    def beaten(scratch, target):
        Path(target).write_text("theirs")
        scratch.unlink()
        return real(scratch, target)

    monkeypatch.setattr(Path, "replace", beaten)
    write_config(str(tmp_path / "run"), "ours")
    assert (tmp_path / "run" / "config.toml").read_text() == "theirs"


def test_two_threads_can_write_one_file(tmp_path):
    def write(number):
        replace_file(tmp_path / "file", bytes([number]) * 1000)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(200)))
    assert len(set((tmp_path / "file").read_bytes())) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_views_read_runs_at_a_url(memory_store, tmp_path):
    """Review 1.7: one reader for folders and URLs."""
    from typer.testing import CliRunner

    from wane.cli import app
    from wane.runs.folder import find_runs

    runs = planned(tmp_path)
    for job in plan_jobs(runs, "memory://runs"):
        assert carry_out(job.settings, job.place) == Outcome("done")
    out = tmp_path / "report.html"
    said = CliRunner().invoke(app, ["report", "memory://runs", "-o", str(out)])
    assert said.exit_code == 0, said.output
    assert out.stat().st_size > 10_000
    first, second = find_runs("memory://runs", Path("memory://runs"))
    assert (first.name, first.status.state) == (min(run.name for run in runs), "done")
    assert first.place == f"memory://runs/{first.name}"
    assert first.history.matrix("accuracy").shape == (2, 2)
    assert second.replay.height == 4
    assert second.samples is None
    memory_store.pipe_file(f"/runs/{first.name}/history.parquet", b"PAR1")
    with pytest.raises(ValueError, match=f"^memory://runs/{first.name}/history.parquet is not"):
        _ = find_runs("memory://runs")[0].history
    with pytest.raises(ValueError, match="no run at or below memory://nothing"):
        find_runs("memory://nothing")


@pytest.mark.parametrize("text", [b"", b"[]", b'{"host": 3, "pid": "x"}', b'{"host": "here", "pid": 1}', b"\xff"])
def test_a_damaged_lock_at_a_url_hides_no_run_and_can_be_taken(memory_store, tmp_path, text):
    plan = planned(tmp_path)[0]
    write_config(f"memory://runs/{plan.name}", to_toml(plan.config))
    memory_store.pipe_file(f"/runs/{plan.name}/lock.json", text)
    assert statuses("memory://runs")[plan.name].state == "waiting"
    with mirrored(f"memory://runs/{plan.name}"):
        assert statuses("memory://runs")[plan.name].state == "running"
