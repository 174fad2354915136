"""Runs in TensorBoard, W&B (offline) and MLflow (a real server): every value once, killed or not, and no run harmed."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest
from loggers.logger_readers import NAMES, READERS, final_of, points_of, read_mlflow, read_tensorboard
from sweeps.sweep_problem import planned
from training.tiny_problem import results, stop, tiny_config, tiny_dataset
from typer.testing import CliRunner

import wane.loggers.follow as follow
import wane.runs.remote as mirror_module
from wane.cli import app, listeners
from wane.cli.listeners import draw_figures
from wane.loggers import LOGGERS
from wane.loggers.follow import send_run
from wane.runs.lock import held
from wane.sweeps.engines import Outcome
from wane.sweeps.engines.worker import carry_out
from wane.sweeps.execute import plan_jobs
from wane.training.events import Listener
from wane.training.run import run
from wane.views import figures

pytestmark = pytest.mark.timeout(600)  # MLflow's server takes its time to start

DATA = tiny_dataset(class_names=NAMES)
CONFIG = tiny_config(record={"eval_every": 3})  # also in the middle of epochs


@pytest.fixture(autouse=True)
def tools(monkeypatch):
    """Nothing leaves this machine; one figure instead of all is quicker."""
    for name, value in {"WANDB_MODE": "offline", "WANDB_ERROR_REPORTING": "false", "MLFLOW_DISABLE_TELEMETRY": "true",
                        "DO_NOT_TRACK": "true"}.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(figures, "FIGURES", {"heatmap": figures.heatmap})


class Server:
    """MLflow's own, in a process of its own."""

    def __init__(self, folder):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        self.folder, self.url = folder, f"http://127.0.0.1:{self.port}"

    def start(self):
        command = [Path(sys.executable).parent / "mlflow", "server", "--host", "127.0.0.1", "--port", self.port,
                   "--workers", 1, "--backend-store-uri", f"sqlite:///{self.folder}/mlflow.db",
                   "--artifacts-destination", self.folder / "artifacts"]  # fmt: skip
        with (self.folder / "server.log").open("a") as log:
            self.process = subprocess.Popen(
                [str(part) for part in command], stdout=log, stderr=log, cwd=self.folder, start_new_session=True
            )
        for _ in range(600):
            try:
                urllib.request.urlopen(f"{self.url}/health").close()
                return
            except OSError:
                assert self.process.poll() is None, (self.folder / "server.log").read_text()
                time.sleep(0.2)
        raise AssertionError((self.folder / "server.log").read_text())

    def stop(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    pytest.importorskip("mlflow", reason="needs mlflow")
    server = Server(tmp_path_factory.mktemp("mlflow"))
    server.start()
    yield server
    server.stop()


SLOW = pytest.mark.slow


@pytest.fixture(params=["tensorboard", pytest.param("wandb", marks=SLOW), pytest.param("mlflow", marks=SLOW)])
def logger(request, monkeypatch):
    pytest.importorskip(request.param, reason=f"needs {request.param}")
    if request.param == "mlflow":
        monkeypatch.setenv("MLFLOW_TRACKING_URI", request.getfixturevalue("server").url)
    return request.param


def assert_complete(logger, folder):
    """Every value of the history is there, once, and the summary, the settings and the figures."""
    found = READERS[logger](folder)
    wanted = points_of(folder)
    assert found.points.keys() == wanted.keys()
    assert {key for key, values in found.points.items() if len(values) != 1} == set(), "sent more than once"
    exact = 1e-6 if logger == "tensorboard" else 1e-12  # which keeps float32
    assert {key: values[0] for key, values in found.points.items()} == pytest.approx(wanted, rel=exact, abs=1e-12)
    assert found.final == pytest.approx(final_of(folder), rel=exact)
    assert float(found.settings["learner.lr"]) == 0.1
    assert found.settings["model.hidden"] == "[16]"
    assert "learner.trend" not in found.settings
    assert list(found.figures) == ["figures/heatmap"]
    assert found.figures["figures/heatmap"].startswith(b"\x89PNG")
    assert json.loads((folder / f"logged.{logger}.json").read_text())["done"]


def test_a_run_as_it_goes(logger, tmp_path):
    """All that the tool has; and the run is the same as without it."""
    run(CONFIG, tmp_path / "alone", dataset=DATA)
    run(CONFIG, tmp_path / "seen", dataset=DATA, listeners=[listeners.follow(logger, tmp_path / "seen")])
    assert_complete(logger, tmp_path / "seen")
    assert results(tmp_path / "seen") == results(tmp_path / "alone")
    assert (tmp_path / "seen/config.toml").read_bytes() == (tmp_path / "alone/config.toml").read_bytes()


def test_a_run_that_was_stopped(logger, tmp_path):
    """It goes on in the same run of the tool; and a logger that was not there at first gets all."""
    stop(CONFIG, tmp_path / "run", dataset=DATA, epochs=1)
    stop(CONFIG, tmp_path / "run", dataset=DATA, epochs=2, listeners=[listeners.follow(logger, tmp_path / "run")])
    run(CONFIG, tmp_path / "run", dataset=DATA, listeners=[listeners.follow(logger, tmp_path / "run")])
    assert_complete(logger, tmp_path / "run")


KILLED = """
import os, sys
from pathlib import Path
from loggers.test_loggers import CONFIG, DATA
from wane.cli import listeners
from wane.loggers import follow
from wane.training.run import run

note, folder = follow.Follower._write_down, Path(sys.argv[1])

def killed_before_it_is_written_down(self, **what):
    if what.get("step", 0) >= 8:  # the second epoch was sent
        os.kill(os.getpid(), 9)
    note(self, **what)

follow.Follower._write_down = killed_before_it_is_written_down
run(CONFIG, folder, dataset=DATA, listeners=[listeners.follow(sys.argv[2], folder)])
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "logger", ["tensorboard", "mlflow"], indirect=True
)  # offline nothing drops what W&B's server does
def test_a_run_that_was_killed_between_sending_and_writing_it_down(logger, tmp_path):
    paths = os.pathsep.join([str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "src")])
    command = [sys.executable, "-c", KILLED, str(tmp_path / "run"), logger]
    assert subprocess.run(command, env={**os.environ, "PYTHONPATH": paths}).returncode == -9
    sent = json.loads((tmp_path / f"run/logged.{logger}.json").read_text())
    assert sent["step"] == 4
    assert ("test/cm/mean", 8) in READERS[logger](tmp_path / "run").points
    run(CONFIG, tmp_path / "run", dataset=DATA, listeners=[listeners.follow(logger, tmp_path / "run")])
    assert_complete(logger, tmp_path / "run")


@pytest.mark.parametrize("moment", [{"step": 8}, {"done": True}], ids=str)
def test_a_run_that_was_stopped_between_sending_and_writing_it_down(moment, tmp_path, monkeypatch):
    """As the test above, also for the summary and the figures, which come last."""
    note = follow.Follower._write_down

    def stopped(self, **what):
        if what == moment:
            raise KeyboardInterrupt
        note(self, **what)

    with monkeypatch.context() as patched:
        patched.setattr(follow.Follower, "_write_down", stopped)
        with pytest.raises(KeyboardInterrupt):
            run(CONFIG, tmp_path / "run", dataset=DATA, listeners=[listeners.follow("tensorboard", tmp_path / "run")])
    run(CONFIG, tmp_path / "run", dataset=DATA, listeners=[listeners.follow("tensorboard", tmp_path / "run")])
    assert_complete("tensorboard", tmp_path / "run")


@pytest.mark.parametrize("text", ["", "[]", '{"id": 3}', '{"step": "a"}', '{"odd": 1}', '{"step": -2}', "damaged"])
def test_a_damaged_note_stops_no_run(text, tmp_path):
    folder = tmp_path / "run"
    stop(CONFIG, folder, dataset=DATA, epochs=1, listeners=[listeners.follow("tensorboard", folder)])
    (folder / "logged.tensorboard.json").write_text(text)
    if text != "damaged":  # as if it had been written so
        (folder / "sums.sha256").unlink()
    with pytest.warns(UserWarning, match=r"logged.tensorboard.json .*delete it.*the run goes on without it"):
        run(CONFIG, folder, dataset=DATA, listeners=[listeners.follow("tensorboard", folder)])
    (folder / "logged.tensorboard.json").unlink()
    time.sleep(1.1)  # TensorBoard orders event files by the second in their names
    send_run(folder, "tensorboard", draw_figures)
    assert_complete("tensorboard", folder)


def test_a_run_that_is_done_is_sent_once(logger, tmp_path):
    run(CONFIG, tmp_path / "run", dataset=DATA)
    send = ["log", str(tmp_path), "--to", logger]
    done = CliRunner().invoke(app, send)
    assert done.exit_code == 0, done.output
    assert_complete(logger, tmp_path / "run")
    assert CliRunner().invoke(app, send).stdout == f"{tmp_path / 'run'}: {logger} has it\n"
    run(CONFIG, tmp_path / "run", dataset=DATA, listeners=[listeners.follow(logger, tmp_path / "run")])
    assert_complete(logger, tmp_path / "run")


def test_a_run_that_is_not_done_is_not_sent(tmp_path):
    stop(CONFIG, tmp_path / "run", dataset=DATA, epochs=1)
    done = CliRunner().invoke(app, ["log", str(tmp_path), "--to", "tensorboard"])
    assert (done.exit_code, done.stderr) == (0, f"{tmp_path / 'run'} is left out: it is not done\n")
    assert not list(tmp_path.glob("run/events*"))


def test_a_run_that_someone_is_at_is_left_out_and_the_next_is_sent(tmp_path):
    for name in ("a", "b"):
        run(CONFIG, tmp_path / name, dataset=DATA)
    with held(tmp_path / "a"):
        done = CliRunner().invoke(app, ["log", str(tmp_path), "--to", "tensorboard"])
    assert done.exit_code == 0
    assert f"{tmp_path / 'a'} is left out: {tmp_path / 'a'} is being run by process" in done.stderr
    assert not list(tmp_path.glob("a/events*"))
    assert list(tmp_path.glob("b/events*"))


def test_all_figures_of_a_run(tmp_path, monkeypatch):
    monkeypatch.undo()
    run(CONFIG, tmp_path / "run", dataset=DATA)
    drawn = listeners.draw_figures(tmp_path / "run", tmp_path)
    assert list(drawn) == ["trajectories", "smoothness", "conditional", "heatmap", "draw", "compass"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in drawn.values())


def test_a_figure_that_cannot_be_drawn_is_left_out(tmp_path, monkeypatch):
    def broken(runs, *, width):
        raise ZeroDivisionError("of nothing")

    monkeypatch.setattr(figures, "FIGURES", {"broken": broken, "heatmap": figures.heatmap})
    with pytest.warns(UserWarning, match="figure broken of .* is left out .ZeroDivisionError: of nothing"):
        run(CONFIG, tmp_path / "run", dataset=DATA, listeners=[listeners.tensorboard(tmp_path / "run")])
    assert_complete("tensorboard", tmp_path / "run")


# what goes wrong


class Unreliable:
    """Fails from its second epoch on, until it is well again."""

    id, where, well, tries = "7", "nowhere", False, 0

    def __init__(self, folder, settings, *, id, step):
        type(self).seen = getattr(type(self), "seen", {})

    def log_values(self, step, values):
        type(self).tries += 1
        if not self.well and step > 4:
            raise ConnectionError("the server is gone\nand a long story")
        self.seen[step] = values

    def log_summary(self, step, values):
        self.seen["summary"] = values

    def log_figures(self, step, figures):
        self.seen["figures"] = figures

    def close(self, *, done):
        self.seen["done"] = done


def test_a_logger_that_fails_does_not_stop_a_run(tmp_path, monkeypatch):
    class Gone(Unreliable):
        pass

    monkeypatch.setattr(follow, "load_logger", lambda name: Gone)
    config = tiny_config()
    with pytest.warns(UserWarning, match="goes on without it") as warned:
        run(config, tmp_path / "run", dataset=DATA, listeners=[listeners.mlflow(tmp_path / "run")])
    said = [str(w.message) for w in warned if "mlflow" in str(w.message)]
    assert said == [
        f"mlflow did not take run (ConnectionError: the server is gone): once the run is done, `wane log "
        f"{tmp_path / 'run'} --to mlflow` sends what is missing; the run goes on without it"
    ]
    assert Gone.tries == 4  # the untrained model and epoch 1, epoch 2, and once more at the end
    assert list(Gone.seen) == [0, 4, "done"]
    run(config, tmp_path / "alone", dataset=DATA)
    assert results(tmp_path / "run") == results(tmp_path / "alone")
    with pytest.raises(OSError, match="mlflow did not take run"):
        send_run(tmp_path / "run", "mlflow")
    Gone.well = True
    assert send_run(tmp_path / "run", "mlflow") == "nowhere"
    assert list(Gone.seen) == [0, 4, "done", 8, 12, 16, 20, 24, "summary", "figures"]
    assert Gone.seen["done"] is True


@pytest.mark.slow
def test_a_server_that_goes_and_comes_back(tmp_path, monkeypatch):
    pytest.importorskip("mlflow", reason="needs mlflow")
    server = Server(tmp_path)
    server.start()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.url)

    class Stopping(Listener):
        def epoch_done(self, session, task, epoch):
            if (task, epoch) == (0, 1):
                server.stop()

    began = time.monotonic()
    with pytest.warns(UserWarning, match="mlflow did not take run .*; the run goes on without it"):
        run(CONFIG, tmp_path / "run", dataset=DATA, listeners=[listeners.mlflow(tmp_path / "run"), Stopping()])
    assert time.monotonic() - began < 120
    assert json.loads((tmp_path / "run/logged.mlflow.json").read_text())["step"] == 8
    server.start()
    try:
        assert send_run(tmp_path / "run", "mlflow", draw_figures).startswith(server.url)
        assert_complete("mlflow", tmp_path / "run")
    finally:
        server.stop()


def test_a_package_that_is_not_there(tmp_path, monkeypatch):
    for name in LOGGERS:
        for loaded in [module for module in sys.modules if module.startswith((f"{name}.", f"wane.loggers.{name}"))]:
            monkeypatch.delitem(sys.modules, loaded)
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(
            ValueError, match=rf"^logger '{name}' needs the package {name}\S*: pip install 'wane\[{name}\]'$"
        ):
            listeners.follow(name, tmp_path / "run")
        with pytest.raises(ValueError, match="needs the package"):
            listeners.references([name])
    assert not (tmp_path / "run").exists()
    assert not (tmp_path / "runs").exists()


def test_an_unknown_logger(tmp_path):
    done = CliRunner().invoke(app, ["run", "diagnostics", "--out", str(tmp_path / "run"), "--logger", "wandv"])
    assert done.exit_code == 2
    assert done.stderr == "wane: unknown logger 'wandv'; did you mean 'wandb'? Known: tensorboard, wandb, mlflow\n"
    assert not (tmp_path / "run").exists()


# sweeps


def test_the_runs_of_a_sweep_in_a_store_far_away(tmp_path, monkeypatch):
    """Folders within a run folder are copied, too."""
    import fsspec

    fs = fsspec.filesystem("memory")
    fs.store.clear()
    monkeypatch.setattr(mirror_module, "SETTLE", 0.01)
    seen = []

    class WithAFolder(listeners.Follow):
        def run_started(self, session):
            inner = session.folder / "inner"
            inner.mkdir(exist_ok=True)
            seen.append((inner / "file").exists())
            (inner / "file").write_text("a")
            super().run_started(session)

    monkeypatch.setattr(listeners, "Follow", WithAFolder)
    plan = planned(tmp_path)[0]
    (job,) = plan_jobs([plan], "memory://runs", listeners.references(["tensorboard"]))
    with monkeypatch.context() as dying:
        dying.setattr("wane.training.loop.save_checkpoint", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            carry_out(job.settings, job.place, listeners=job.listeners)
    assert carry_out(job.settings, job.place, listeners=job.listeners) == Outcome("done")
    assert seen == [False, True]
    fs.get("/runs", str(tmp_path / "copy"), recursive=True)
    found = read_tensorboard(tmp_path / "copy" / plan.name)
    assert (
        found.final["summary/steps"]
        == json.loads((tmp_path / "copy" / plan.name / "summary.json").read_text())["steps"]
    )
    assert {len(values) for values in found.points.values()} == {1}


@pytest.mark.slow
def test_a_sweep_with_loggers(server, tmp_path, monkeypatch):
    """Two processes at once make one experiment of the server's."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.url)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "a sweep")
    runs = planned(tmp_path)
    command = ["sweep", str(tmp_path / "tiny.toml"), "--over", "seed=0,1", "--out", str(tmp_path / "runs"), "--logger",
               "mlflow", "--logger", "tensorboard"]  # fmt: skip
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    for plan in runs:
        folder = tmp_path / "runs" / plan.name
        assert set(read_mlflow(folder).points) == set(read_tensorboard(folder).points)
        assert len(read_mlflow(folder).figures) > 3
    from mlflow import MlflowClient

    experiment = MlflowClient().get_experiment_by_name("a sweep")
    found = MlflowClient().search_runs([experiment.experiment_id])
    assert {run.info.run_name for run in found} == {plan.name for plan in runs}
