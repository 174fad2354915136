"""Ray with a node that is killed, and Slurm's code path through submitit's local executor."""

import os
import signal
import threading
from dataclasses import replace

import pytest
from sweeps.sweep_problem import LONGER, all_results, alone, attempts, planned, wait_for

from wane.runs.lock import owner
from wane.sweeps.engines import Options, Outcome
from wane.sweeps.execute import run_sweep

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def cluster():
    """A head without cores, and two worker nodes with one core each."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
    cluster.wait_for_nodes()
    yield cluster, nodes
    ray.shutdown()
    cluster.shutdown()


def raylet_of(pid):
    """The ancestor of a worker that is its node's raylet."""
    import psutil

    return next(p.pid for p in psutil.Process(pid).parents() if "raylet" in p.name())


def test_a_ray_node_dies_mid_run(cluster, tmp_path):
    """The sweep still ends with every run done, and equal to those done here."""
    cluster, nodes = cluster
    root, runs = tmp_path / "runs", planned(tmp_path, *LONGER, seed=[0, 1, 2, 3])
    ended, victims = {}, []

    def kill_a_node():
        plan = wait_for(lambda: next((p for p in runs if (root / p.name / "checkpoint.previous.pt").exists()), None))
        worker = owner(root / plan.name).pid
        raylet = raylet_of(worker)
        node = next(n for n in nodes if any(p.process.pid == raylet for p in n.all_processes["raylet"]))
        os.kill(worker, signal.SIGKILL)  # as when the machine loses power: nobody gets to clean up
        cluster.remove_node(node, allow_graceful=False)
        victims.append(plan.name)

    thread = threading.Thread(target=kill_a_node)
    thread.start()
    options = Options(cpus=1, address=cluster.address)
    ended = run_sweep(runs, root, engine="ray", options=options)
    thread.join()
    assert ended == {plan.name: Outcome("done") for plan in runs}
    assert attempts(root / victims[0]) >= 2
    assert "going on after" in (root / victims[0] / "log.txt").read_text()
    assert all_results(root, runs) == alone(runs, tmp_path / "alone")


def test_ray_started_on_the_spot(tmp_path):
    pytest.importorskip("ray")
    runs = [*planned(tmp_path), *planned(tmp_path, {"learner": {"lr": 1e30}}, seed=[0])]
    ended = run_sweep(runs, tmp_path / "runs", engine="ray", options=Options(cpus=1))
    assert [ended[plan.name].state for plan in runs] == ["done", "done", "failed"]
    assert all_results(tmp_path / "runs", runs[:2]) == alone(runs[:2], tmp_path / "alone")


@pytest.fixture
def submitit_options(tmp_path):
    pytest.importorskip("submitit")
    return Options(cpus=1, cluster="local", logs=str(tmp_path / "logs"))


@pytest.mark.parametrize(("array", "workers"), [(1000, None), (2, 2)])
def test_slurms_code_path(array, workers, monkeypatch, submitit_options, tmp_path):
    """All runs in one array; and, with a limit on workers, one array after the other."""
    from wane.sweeps.engines import slurm

    monkeypatch.setattr(slurm, "ARRAY", array)
    options = replace(submitit_options, workers=workers)
    runs = [*planned(tmp_path), *planned(tmp_path, {"learner": {"lr": 1e30}}, seed=[0])]
    ended = run_sweep(runs, tmp_path / "runs", engine="slurm", options=options)
    assert [ended[plan.name].state for plan in runs] == ["done", "done", "failed"]
    assert all_results(tmp_path / "runs", runs[:2]) == alone(runs[:2], tmp_path / "alone")


@pytest.mark.parametrize("number", [signal.SIGUSR2, signal.SIGKILL])
def test_a_job_at_its_time_limit_is_queued_again_and_a_killed_one_has_failed(number, submitit_options, tmp_path):
    root, runs = tmp_path / "runs", planned(tmp_path, *LONGER, seed=[0])
    folder = root / runs[0].name

    def stop():
        wait_for(lambda: (folder / "checkpoint.previous.pt").exists())
        os.kill(owner(folder).pid, number)

    thread = threading.Thread(target=stop)
    thread.start()
    ended = run_sweep(runs, root, engine="slurm", options=submitit_options)
    thread.join()
    if number == signal.SIGKILL:
        assert ended[runs[0].name].state == "failed"
        assert "Slurm job" in ended[runs[0].name].note
        again = Options(cpus=1, cluster="local", logs=submitit_options.logs, retry_failed=True)
        ended = run_sweep(runs, root, engine="slurm", options=again)
    assert ended == {runs[0].name: Outcome("done")}
    assert attempts(folder) == 2
    assert "going on after" in (folder / "log.txt").read_text()
    assert all_results(root, runs) == alone(runs, tmp_path / "alone")
