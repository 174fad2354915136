"""Sweeps on this machine: equal to runs alone, whatever dies meanwhile; nothing lost, nothing twice."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from rich.console import Console
from sweeps.sweep_problem import LONGER, all_results, alone, attempts, driver, planned, recipe, wait_for
from typer.testing import CliRunner

from wane.runs.config import ConfigError
from wane.runs.lock import HeldError, held, is_dead, owner
from wane.runs.store import statuses
from wane.sweeps.engines import Options, Outcome, load_engine
from wane.sweeps.engines.worker import carry_out
from wane.sweeps.execute import parse_over, plan_jobs, run_sweep
from wane.training.run import run

ONE_CORE = Options(cpus=1)


def in_thread(*arguments, **keywords):
    """A sweep that goes on while the test does something to it."""
    ended = {}
    thread = threading.Thread(target=lambda: ended.update(run_sweep(*arguments, **keywords)), daemon=True)
    thread.start()
    return thread, ended


def killed(folder, number=signal.SIGKILL):
    """Kill the process that runs a folder, once it has trained for a while; returns its id."""
    wait_for(lambda: (folder / "checkpoint.previous.pt").exists())
    pid = owner(folder).pid
    os.kill(pid, number)
    return pid


def test_every_run_of_a_sweep_is_as_if_it_were_alone(tmp_path):
    runs = planned(tmp_path, **{"learner.trend.signal": ["loss", "log_tlr"]})
    with (tmp_path / "seen").open("w") as screen:
        ended = run_sweep(runs, tmp_path / "runs", options=ONE_CORE, console=Console(file=screen))
    assert ended == {plan.name: Outcome("done") for plan in runs}
    assert len(ended) == 4
    assert all_results(tmp_path / "runs", runs) == alone(runs, tmp_path / "alone")
    said = (tmp_path / "seen").read_text()
    assert all(f"{plan.name}: done" in said for plan in runs)
    assert not list((tmp_path / "runs").rglob("*lock*"))
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("*")}
    assert run_sweep(runs, tmp_path / "runs") == ended
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("*")} == times


def test_what_fails_is_kept_and_reported_and_stops_nothing(tmp_path):
    root = tmp_path / "runs"
    good = planned(tmp_path)
    diverging = planned(tmp_path, {"learner": {"lr": 1e30}}, seed=[0])
    unknown = planned(tmp_path, {"model": {"name": "mlpp"}}, seed=[0])
    runs = [*diverging, *unknown, *good]
    ended = run_sweep(runs, root, options=ONE_CORE)
    assert [ended[plan.name].state for plan in runs] == ["failed", "failed", "done", "done"]
    assert "the loss became nan" in ended[diverging[0].name].note
    assert ended[unknown[0].name].note.startswith("unknown model 'mlpp'; did you mean 'mlp'")
    assert "DivergedError" in (root / diverging[0].name / "log.txt").read_text()
    assert run_sweep(runs, root) == ended  # failed runs are left alone ...
    assert attempts(root / diverging[0].name) == 1
    assert run_sweep(runs, root, options=Options(cpus=1, retry_failed=True)) == ended  # ... unless they are not to be
    assert attempts(root / diverging[0].name) == 2
    assert attempts(root / good[0].name) == 1


def test_an_unknown_method_or_option_is_said_before_anything_runs(tmp_path):
    with pytest.raises(ConfigError, match="unknown learner 'err'; did you mean 'er'"):
        planned(tmp_path, {"learner": {"name": "err"}})
    with pytest.raises(ConfigError, match=r"learner\.options\.alpha"):
        planned(tmp_path, {"learner": {"options": {"alpha": 1}}})


@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGSEGV, marks=pytest.mark.slow)])
def test_a_killed_worker_is_a_failed_run_which_goes_on_later(number, tmp_path):
    root, runs = tmp_path / "runs", [*planned(tmp_path, *LONGER, seed=[0]), *planned(tmp_path, seed=[1])]
    thread, ended = in_thread(runs, root, options=ONE_CORE)
    killed(root / runs[0].name, number)
    thread.join(120)
    assert ended[runs[1].name] == Outcome("done")
    assert ended[runs[0].name].state == "failed"
    assert f"its process was killed by {number.name}" in ended[runs[0].name].note
    log = (root / runs[0].name / "log.txt").read_text()
    assert ("Segmentation fault" in log) is (number == signal.SIGSEGV)
    assert "task 1 epoch 1/80" in log
    assert statuses(root)[runs[0].name].state == "failed"
    again = run_sweep(runs, root, options=Options(cpus=1, retry_failed=True))
    assert {outcome.state for outcome in again.values()} == {"done"}
    assert "going on after" in (root / runs[0].name / "log.txt").read_text()
    assert not (root / runs[0].name / "failed.json").exists()
    assert all_results(root, runs) == alone(runs, tmp_path / "alone")


def test_a_process_that_cannot_be_started_is_a_failed_run_and_not_waited_for(tmp_path, monkeypatch):
    def refused(process):
        raise OSError("too many processes")

    monkeypatch.setattr("multiprocessing.process.BaseProcess.start", refused)
    thread, ended = in_thread(planned(tmp_path, seed=[0]), tmp_path / "runs", options=ONE_CORE)
    thread.join(30)
    assert list(ended.values()) == [Outcome("failed", "too many processes")]


SERVER_DIES = """
import multiprocessing.forkserver, os, signal, sys, threading, time
from sweeps.sweep_problem import planned
from wane.sweeps.engines import Options
from wane.sweeps.execute import run_sweep

def kill_it_twice():
    server, killed = multiprocessing.forkserver._forkserver, set()
    while len(killed) < 2:
        pid = server._forkserver_pid
        if pid is not None and pid not in killed:
            os.kill(pid, signal.SIGKILL)
            killed.add(pid)
        time.sleep(0.01)

threading.Thread(target=kill_it_twice, daemon=True).start()
runs = planned(sys.argv[1], seed=[0, 1, 2])
ended = run_sweep(runs, sys.argv[1] + "/runs", options=Options(workers=3, cpus=1))
sys.exit(str([outcome for outcome in ended.values() if outcome.state != "done"] or ""))
"""


def test_the_server_of_processes_is_killed_while_it_starts(tmp_path):
    paths = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
    command = [sys.executable, "-c", SERVER_DIES, str(tmp_path)]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True)
    assert "failed" not in done.stderr, done.stderr
    assert len(list((tmp_path / "runs").glob("*/summary.json"))) == 3


def test_two_sweeps_of_the_same_runs_share_the_work(tmp_path):
    root, runs = tmp_path / "runs", planned(tmp_path, {"learner": {"epochs": 5}}, seed=[0, 1, 2])
    first, ended_first = in_thread(runs, root, options=ONE_CORE)
    second, ended_second = in_thread(runs, root, options=ONE_CORE)
    first.join(120)
    second.join(120)
    assert ended_first == ended_second == {plan.name: Outcome("done") for plan in runs}
    assert [attempts(root / plan.name) for plan in runs] == [1] * 3


def test_wane_run_respects_the_lock(tmp_path):
    plan = planned(tmp_path)[0]
    folder = tmp_path / plan.name
    with held(folder):
        with pytest.raises(HeldError, match=f"is being run by process {os.getpid()}"):
            run(plan.config, folder)
        outcome = carry_out(plan.config.model_dump(mode="json"), str(folder))
        assert outcome.state == "held"
    run(plan.config, folder)
    with held(folder):
        run(plan.config, folder)  # done: only read


def test_a_run_that_another_failed_at_is_not_tried_again(tmp_path):
    plan = planned(tmp_path, {"learner": {"lr": 1e30}})[0]
    job = plan_jobs([plan], tmp_path)[0]
    first = carry_out(job.settings, job.place)
    assert first.state == "failed"
    assert carry_out(job.settings, job.place) == first
    assert attempts(tmp_path / plan.name) == 1


def test_over():
    assert parse_over(["a.b=x,1,2.5,true", "seed=3"]) == {"a.b": ["x", 1, 2.5, True], "seed": [3]}
    assert parse_over(['s="a,b","c"']) == {"s": ["a,b", "c"]}
    for wrong in (["seed"], ["=1"], ["seed="]):
        with pytest.raises(ConfigError, match="such as seed=0,1,2"):
            parse_over(wrong)
    with pytest.raises(ConfigError, match="given twice"):
        parse_over(["seed=1", "seed=2"])


def test_an_engine_that_is_not_there(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "submitit", None)
    monkeypatch.delitem(__import__("sys").modules, "wane.sweeps.engines.slurm", raising=False)
    with pytest.raises(ValueError, match=r"engine 'slurm' needs the package submitit: pip install 'wane\[slurm\]'"):
        load_engine("slurm")


def test_the_command(tmp_path, monkeypatch):
    import typer

    from wane.cli import Commands
    from wane.cli import lab as commands
    from wane.cli.sweep import sweep

    app = typer.Typer(cls=Commands)
    app.command()(sweep)
    app.command()(commands.runs)
    monkeypatch.chdir(tmp_path)
    arguments = ["sweep", recipe(tmp_path), "--over", "seed=0,1", "--over", "learner.lr=0.1,1e30", "--cpus", "1"]
    dry = CliRunner().invoke(app, [*arguments, "--dry-run"])
    assert dry.output.count(": waiting") == 4
    assert not (tmp_path / "runs").exists()
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 1
    assert "2 of 4 runs in runs are done" in done.output
    assert done.output.count("failed: runs/digits-er") == 2
    assert "--retry-failed" in done.output
    listed = CliRunner().invoke(app, ["runs"]).output
    assert listed.count("failed: the loss") == 2
    unknown = CliRunner().invoke(app, [*arguments, "--engine", "sun"])
    assert unknown.exit_code == 2
    assert "unknown engine 'sun'. Known: local, ray, slurm" in unknown.output


# a driver in a process of its own


def a_long_sweep(tmp_path, seeds=(0, 1, 2), epochs=60):
    runs = planned(tmp_path, {"learner": {"epochs": epochs}}, seed=list(seeds))
    listed = ",".join(map(str, seeds))
    arguments = ("sweep", recipe(tmp_path), "--over", f"seed={listed}", "--set", f"learner.epochs={epochs}",
                 "--cpus", 1, "--out", tmp_path / "runs")  # fmt: skip
    return runs, arguments


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_the_driver_is_stopped_and_the_same_command_goes_on(number, tmp_path):
    runs, arguments = a_long_sweep(tmp_path)
    root = tmp_path / "runs"
    process = driver(tmp_path, *arguments)
    wait_for(lambda: any(root.glob("*/checkpoint.pt")), 120)
    workers = wait_for(lambda: [found for plan in runs if (found := owner(root / plan.name))])
    os.kill(process.pid, number)
    said = process.communicate(timeout=120)[0]
    wait_for(lambda: all(map(is_dead, workers)), 60)  # none lives on
    assert not all((root / plan.name / "summary.json").exists() for plan in runs)
    if number == signal.SIGINT:
        assert process.returncode == 130
        assert "stopped; the same command goes on" in said
    assert not list(root.glob("*/failed.json"))
    again = driver(tmp_path, *arguments)
    said = again.communicate(timeout=200)[0]
    assert again.returncode == 0, said
    assert "3 of 3 runs" in said
    assert all_results(root, runs) == alone(runs, tmp_path / "alone")


@pytest.mark.slow
def test_a_second_driver_takes_over_when_the_first_is_killed(tmp_path):
    runs, arguments = a_long_sweep(tmp_path)
    root = tmp_path / "runs"
    first, second = driver(tmp_path, *arguments), driver(tmp_path, *arguments)
    wait_for(lambda: any(root.glob("*/checkpoint.pt")), 120)
    first.kill()
    first.communicate()
    said = second.communicate(timeout=240)[0]
    assert second.returncode == 0, said
    assert all_results(root, runs) == alone(runs, tmp_path / "alone")


@pytest.mark.slow
def test_runs_are_listed_while_a_sweep_goes_on_elsewhere(tmp_path):
    _, arguments = a_long_sweep(tmp_path, seeds=(0, 1, 2, 3), epochs=1000)  # longer than anybody looks at it
    root = tmp_path / "runs"

    def states():
        return sorted(status.state for status in statuses(root).values())

    process = driver(tmp_path, *arguments, "--workers", 2)
    try:
        wait_for(lambda: any(root.glob("*/history.parquet")))
        wait_for(lambda: states() == ["running", "running", "waiting", "waiting"])
        said = driver(tmp_path, "runs", root).communicate(timeout=120)[0]
    finally:
        process.kill()
        process.communicate()
    assert "of 2000" in said
    assert "waiting" in said


def test_workers_have_the_environment_of_now(monkeypatch, tmp_path):
    """Not of when the first of them was started: whoever sets WANE_DATA in a notebook expects it to count."""
    runs = planned(tmp_path, seed=[0])
    run_sweep(runs, tmp_path / "first", options=Options(workers=1))  # the server that forks them is there now
    (tmp_path / "data" / "cifar-100-binary").mkdir(parents=True)  # present, so nothing is fetched; and damaged
    monkeypatch.setenv("WANE_DATA", str(tmp_path / "data"))
    other = planned(tmp_path, {"data": {"name": "cifar100"}}, seed=[0])
    ended = run_sweep(other, tmp_path / "second", options=Options(workers=1))
    assert ended[other[0].name].state == "failed"
    assert str(tmp_path / "data" / "cifar-100-binary") in ended[other[0].name].note
