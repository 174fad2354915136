"""Whatever happens to the disk, the files or the loss: one clear sentence, and a run that can go on."""

import errno
import json
import os
import pickle
import re
import shutil
import subprocess
import zipfile

import pytest
import torch
from training.tiny_problem import damaged, results, saved_tensor_bytes, stop, tiny_config, tiny_dataset

from wane.errors import CheckpointError, DamagedError
from wane.runs.config import ConfigError
from wane.runs.folder import list_runs, read_config
from wane.runs.lock import LostError
from wane.runs.writing import write_atomically
from wane.training import evaluation
from wane.training.checkpoint import load_checkpoint, save_checkpoint
from wane.training.loop import DivergedError
from wane.training.run import run

CONFIG = tiny_config(record={"samples": "tasks", "flow": True})
NEWEST, PREVIOUS = "checkpoint.pt", "checkpoint.previous.pt"


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "run"
    run(CONFIG, folder, dataset=tiny_dataset())
    return results(folder)


@pytest.fixture(scope="module")
def stopped_files(tmp_path_factory):
    """The files of a run that was stopped after 4 of its 6 epochs."""
    folder = tmp_path_factory.mktemp("stopped") / "run"
    stop(CONFIG, folder, dataset=tiny_dataset(), epochs=4)
    return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.startswith("lock.")}


@pytest.fixture
def stopped(tmp_path, stopped_files):
    folder = tmp_path / "run"
    folder.mkdir()
    for name, data in stopped_files.items():
        (folder / name).write_bytes(data)
    return folder


def go_on(folder):
    run(CONFIG, folder, dataset=tiny_dataset())
    return results(folder)


def epochs_done(folder):
    position = load_checkpoint(folder)["position"]
    return 3 * position["task"] + position["epoch"]


# damaged checkpoints


@pytest.mark.parametrize("kind", ["empty", "half", "noise", "tail"])
def test_a_damaged_newest_checkpoint_costs_an_epoch_and_no_more(kind, stopped, uninterrupted):
    (stopped / NEWEST).write_bytes(damaged((stopped / NEWEST).read_bytes(), kind))
    assert epochs_done(stopped) == 3
    assert go_on(stopped) == uninterrupted


def test_a_missing_newest_checkpoint_costs_an_epoch_and_no_more(stopped, uninterrupted):
    (stopped / NEWEST).unlink()
    assert go_on(stopped) == uninterrupted


def test_a_damaged_checkpoint_never_takes_the_place_of_a_good_one(stopped, monkeypatch):
    """Killed between the two moves of the next checkpoint, the run must still have a good one."""
    (stopped / NEWEST).write_bytes(b"damaged")
    goods, real = [], os.replace

    def loads(path):
        return path.exists() and zipfile.is_zipfile(path) and torch.load(path) is not None

    def replace(source, target):
        real(source, target)
        goods.append(any(loads(stopped / name) for name in (NEWEST, PREVIOUS)))

    monkeypatch.setattr("os.replace", replace)
    stop(CONFIG, stopped, dataset=tiny_dataset(), epochs=1)
    assert len(goods) >= 3
    assert all(goods)


def test_both_checkpoints_damaged_says_what_to_do(stopped, uninterrupted):
    for name in (NEWEST, PREVIOUS):
        (stopped / name).write_bytes(damaged((stopped / name).read_bytes(), "half"))
    with pytest.raises(DamagedError) as error:
        go_on(stopped)
    for part in (str(stopped), NEWEST, PREVIOUS, "delete them to start the run over"):
        assert part in str(error.value)
    for name in (NEWEST, PREVIOUS):
        (stopped / name).unlink()
    assert go_on(stopped) == uninterrupted


def test_nobody_is_advised_to_load_what_may_execute_code(stopped, tmp_path):
    (stopped / "sums.sha256").unlink()
    for name in (NEWEST, PREVIOUS):
        (stopped / name).write_bytes(saved_tensor_bytes(Malicious(tmp_path / "executed")))
    with pytest.raises(DamagedError, match="it holds more than tensors and plain values") as error:
        go_on(stopped)
    assert "weights_only" not in str(error.value)
    assert not (tmp_path / "executed").exists()


class Malicious:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("pack", [pickle.dumps, saved_tensor_bytes])
def test_a_malicious_checkpoint_is_not_executed(pack, stopped, tmp_path, uninterrupted):
    (stopped / NEWEST).write_bytes(pack(Malicious(tmp_path / "executed")))
    assert go_on(stopped) == uninterrupted
    assert not (tmp_path / "executed").exists()
    torch.load(stopped / NEWEST, weights_only=True)


def test_a_checkpoint_holds_no_code(stopped):
    state = torch.load(stopped / NEWEST, weights_only=True)
    assert {"learner", "memory", "history", "generators", "optimiser", "position"} <= state.keys()


def test_no_checkpoint_is_none(tmp_path):
    assert load_checkpoint(tmp_path) is None


# a disk that is full


def is_full(*_, **__):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("where", ["os.fsync", "os.replace"])
def test_a_checkpoint_that_cannot_be_written_leaves_the_older_one(where, stopped, uninterrupted, monkeypatch):
    state = load_checkpoint(stopped)
    sentence = f"{stopped / NEWEST} could not be written .No space left on device.: make room"
    with monkeypatch.context() as full:
        full.setattr(where, is_full)
        with pytest.raises(CheckpointError, match=sentence):
            save_checkpoint(stopped, {**state, "position": {"task": 1, "epoch": 2, "step": 20}})
    assert epochs_done(stopped) == 4
    assert not list(stopped.glob(".*"))
    assert go_on(stopped) == uninterrupted


@pytest.mark.parametrize("failing", [1, 2, 3, 4, 5, 6, 13, 14, 15])
def test_whichever_file_does_not_fit_the_run_goes_on_later(failing, tmp_path, uninterrupted, monkeypatch):
    """Config, checkpoint, history, samples, flow, replay log, summary: every write is one that may fail."""
    calls, real, folder = [0], os.fsync, tmp_path / "run"

    def fsync(number):
        calls[0] += 1
        return is_full() if calls[0] == failing else real(number)

    with monkeypatch.context() as full:
        full.setattr("os.fsync", fsync)
        with pytest.raises(CheckpointError, match="No space left on device"):
            go_on(folder)
    assert go_on(folder) == uninterrupted


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 200 kB of its own, which only root can have."""
    disk = tmp_path / "disk"
    disk.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", disk], capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"cannot mount a small disk: {done.stderr.decode().strip()}")
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


@pytest.mark.parametrize("room", [0, 4, 12, 24, 40])
def test_a_really_full_disk(room, small_disk, uninterrupted):
    stop(CONFIG, small_disk / "run", dataset=tiny_dataset(), epochs=2)
    ballast = small_disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass
        file.truncate(max(0, file.tell() // 4096 - room // 4) * 4096)
    with pytest.raises(CheckpointError, match="make room"):
        go_on(small_disk / "run")
    assert epochs_done(small_disk / "run") >= 2
    assert not list((small_disk / "run").glob(".*"))
    ballast.unlink()
    assert go_on(small_disk / "run") == uninterrupted


def test_write_atomically_is_all_or_nothing(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def half(file):
        file.write(b"ne")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_atomically(path, half)
    assert path.read_bytes() == b"old"
    write_atomically(path, lambda file: file.write(b"new"))
    assert path.read_bytes() == b"new"
    assert sorted(found.name for found in tmp_path.iterdir()) == ["file", "sums.sha256"]


def test_save_keeps_exactly_the_two_newest(tmp_path):
    for value in range(4):
        save_checkpoint(tmp_path, {"value": value})
    assert {path.name: torch.load(path)["value"] for path in tmp_path.glob("*.pt")} == {NEWEST: 3, PREVIOUS: 2}


# the folder


def test_another_config_in_the_folder_is_an_error_that_names_the_settings(stopped, uninterrupted):
    other = tiny_config(record={"samples": "tasks"}, learner={"lr": 0.2}, seed=3)
    with pytest.raises(ConfigError) as error:
        run(other, stopped, dataset=tiny_dataset())
    for part in (str(stopped), "learner.lr: 0.1 -> 0.2", "seed: 0 -> 3", "record.flow: True -> False"):
        assert part in str(error.value)
    assert "momentum" not in str(error.value)
    assert go_on(stopped) == uninterrupted


def test_the_name_of_the_recipe_is_no_setting(stopped):
    run(CONFIG.model_copy(update={"recipe": "renamed"}), stopped, dataset=tiny_dataset())
    assert read_config(stopped).recipe == "custom"


def test_a_run_that_never_got_anywhere_may_be_corrected(tmp_path):
    """A misspelt learner, a learning rate too high: the folder is not lost to it."""
    folder = tmp_path / "run"
    with pytest.raises(ValueError, match="unknown learner 'err'; did you mean 'er'"):
        run(tiny_config(learner={"name": "err"}), folder, dataset=tiny_dataset())
    with pytest.raises(DivergedError):
        run(tiny_config(learner={"lr": 1e30}), folder, dataset=tiny_dataset())
    run(CONFIG, folder, dataset=tiny_dataset())
    assert read_config(folder) == CONFIG


def test_rows_of_a_corrected_run_do_not_stay(tmp_path, monkeypatch, uninterrupted):
    """Killed between samples.parquet and the first checkpoint, then given other settings."""
    folder = tmp_path / "run"
    with monkeypatch.context() as killed:
        killed.setattr("wane.training.loop.save_checkpoint", is_full)
        with pytest.raises(OSError, match="No space"):
            run(
                tiny_config(
                    learner={"epochs": 1}, record={"samples": "tasks", "flow": True, "recovery": {}, "ladder": {}}
                ),
                folder,
                dataset=tiny_dataset(),
            )
    assert (folder / "samples.parquet").exists()
    assert (folder / "recovery.parquet").exists()
    assert (folder / "ladder.parquet").exists()
    assert go_on(folder) == uninterrupted


def test_a_folder_with_other_things_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(ConfigError, match=f"{re.escape(str(tmp_path))} is not empty and holds no run"):
        run(CONFIG, tmp_path, dataset=tiny_dataset())
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="file is not a folder"):
        run(CONFIG, tmp_path / "file", dataset=tiny_dataset())


def test_scratch_files_of_killed_attempts_neither_block_nor_pile_up(tmp_path, uninterrupted):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / ".config.toml.123.tmp").write_bytes(b"recipe = ")  # killed while the very first file was written
    stop(CONFIG, folder, dataset=tiny_dataset(), epochs=2)
    (folder / ".checkpoint.pt.124.tmp").write_bytes(b"PK")
    (folder / ".history.parquet.125.tmp").write_bytes(b"PAR1")
    assert go_on(folder) == uninterrupted
    assert not list(folder.glob(".*"))


def test_a_run_that_is_done_is_only_read(tmp_path):
    """Whoever finished it may still be writing down what a logger took; and a second starter of a new run its lock."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / ".lock.123.4.tmp").touch()
    summary = run(CONFIG, folder, dataset=tiny_dataset())
    (folder / ".logged.tensorboard.json.123.tmp").touch()
    assert run(CONFIG, folder) == summary
    assert (folder / ".logged.tensorboard.json.123.tmp").exists()


@pytest.mark.parametrize("finished", [False, True])
def test_who_wakes_up_to_find_the_run_taken_over_writes_nothing(finished, stopped, uninterrupted, monkeypatch):
    """Suspended in the evaluation of the last epoch, which has samples and flow to write as well."""
    record_split, before = evaluation.record_split, {}

    def suspended(session, *args, **options):
        evaluated = record_split(session, *args, **options)
        if session.state.position.step == 24:
            for path in stopped.glob("lock.*"):
                path.unlink()
            for path in stopped.glob(".writing-*"):
                shutil.rmtree(path)
            other = {"host": "elsewhere", "pid": 1}
            (stopped / ("summary.json" if finished else "lock.9")).write_text(json.dumps(other))
            before.update({path.name: path.read_bytes() for path in stopped.iterdir()})
        return evaluated

    with monkeypatch.context() as patch:
        patch.setattr(evaluation, "record_split", suspended)
        with pytest.raises(LostError, match=r"was taken over by (another process|process 1 on elsewhere)"):
            run(CONFIG, stopped, dataset=tiny_dataset())
    assert {path.name: path.read_bytes() for path in stopped.iterdir()} == before
    (stopped / ("summary.json" if finished else "lock.9")).unlink()
    assert go_on(stopped) == uninterrupted


def test_a_name_with_brackets_is_a_name(tmp_path, uninterrupted):
    assert go_on(tmp_path / "run[1]") == uninterrupted


def test_a_folder_named_as_a_data_set_does_not_hide_it(tmp_path, monkeypatch):
    (tmp_path / "digits").mkdir()
    monkeypatch.chdir(tmp_path)
    config = tiny_config(data={"name": "digits", "tasks": 5, "per_class": 3}, learner={"epochs": 1})
    assert len(run(config, tmp_path / "run")["class_names"]) == 10


def test_the_run_folder_says_all(tmp_path):
    summary = run(CONFIG, tmp_path / "a" / "run", dataset=tiny_dataset())
    assert {path.name for path in (tmp_path / "a" / "run").iterdir()} >= {
        "config.toml", "history.parquet", "summary.json", NEWEST, "samples.parquet", "flow.npz",
    }  # fmt: skip
    assert json.loads((tmp_path / "a" / "run" / "summary.json").read_text()) == summary
    assert summary["versions"]["torch"] == torch.__version__
    assert list_runs(tmp_path) == [tmp_path / "a" / "run"]


def test_a_single_task_has_a_summary_too(tmp_path):
    metrics = run(tiny_config(data={"tasks": 1}), tmp_path / "run", dataset=tiny_dataset())["metrics"]
    assert metrics["accuracy"]["average"] > 0.3
    assert metrics["accuracy"]["forgetting"] is None


# a loss that is no number


@pytest.mark.parametrize("lr", [1e20, 1e30])
def test_a_loss_that_is_no_number_stops_the_run_and_says_where(lr, tmp_path):
    folder = tmp_path / "run"
    with pytest.raises(DivergedError) as error:
        run(tiny_config(learner={"lr": lr}), folder, dataset=tiny_dataset())
    where = r"the loss became (nan|inf) at step [2-4] of 4 in task 1, epoch 1: lower learner\.lr \(it is 1e\+[23]0\)"
    assert re.match(where, str(error.value))
    assert not (folder / "summary.json").exists()


def test_divergence_later_leaves_the_last_good_checkpoint(tmp_path):
    config = tiny_config(learner={"milestones": [2], "decay": 1e30})
    with pytest.raises(DivergedError, match=r"the loss became nan at step \d of 4 in task 1, epoch 3"):
        run(config, tmp_path / "run", dataset=tiny_dataset())
    assert epochs_done(tmp_path / "run") == 2
    weights = load_checkpoint(tmp_path / "run")["learner"]
    assert all(bool(value.isfinite().all()) for value in weights.values())


def test_weights_broken_by_the_last_step_of_an_epoch_are_not_saved_as_good(tmp_path):
    """The loss of that step was still finite: it came before the step."""
    config = tiny_config(learner={"batch_size": 40, "milestones": [2], "decay": 1e38})  # one step an epoch
    with pytest.raises(DivergedError, match="the test signals became nan in task 1, epoch 3"):
        run(config, tmp_path / "run", dataset=tiny_dataset())
    assert epochs_done(tmp_path / "run") == 2
