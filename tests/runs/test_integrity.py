"""Damaged, deleted, foreign: the right bytes, or a sentence that names the file. Who lost a run writes nothing."""

import os
import random
import shutil
import subprocess

import pytest
from training.tiny_problem import results, run, stop, tiny_config, tiny_dataset

from wane.errors import DamagedError
from wane.runs.folder import RunFolder, find_runs
from wane.runs.lock import LostError, held, tidy
from wane.runs.status import statuses
from wane.runs.sums import ABSENT, parse_sums, render_sums
from wane.runs.writing import fence, staging_in
from wane.streams import DataError
from wane.training.checkpoint import load_checkpoint, save_checkpoint

CONFIG = tiny_config(record={"samples": "tasks", "flow": True, "ladder": True, "recovery": {"below": 0.99, "steps": 2}})
FILES = ("config.toml", "about.json", "history.parquet", "replay.parquet", "samples.parquet", "flow.npz",
         "ladder.parquet", "recovery.parquet", "checkpoint.pt", "checkpoint.previous.pt", "sums.sha256")  # fmt: skip


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("integrity")
    run(CONFIG, root / "whole", dataset=tiny_dataset())
    stop(CONFIG, root / "stopped", dataset=tiny_dataset(), epochs=4)
    return root


@pytest.fixture
def stopped(folders, tmp_path):
    return shutil.copytree(folders / "stopped", tmp_path / "run")


def ends(folder, whole, name):
    """Whether the run goes on to the right bytes; a sentence that names the file is the other good end."""
    try:
        run(CONFIG, folder, dataset=tiny_dataset())
    except DamagedError as error:
        said = str(error)
    else:
        said = ""
    if said:
        assert name in said
        assert "restore" in said
        return False
    assert results(folder) == results(whole)
    return True


@pytest.mark.parametrize("name", FILES)
def test_a_bit_flip_in_any_file_of_a_stopped_run(name, stopped, folders):
    data = bytearray((stopped / name).read_bytes())
    bits = random.Random(name)
    data[bits.randrange(len(data))] ^= 1 << bits.randrange(8)
    (stopped / name).write_bytes(data)
    healed = ends(stopped, folders / "whole", name)
    rewritten = ("about.json", "history.parquet", "replay.parquet", "checkpoint.pt", "checkpoint.previous.pt")
    assert healed == (name in rewritten)


@pytest.mark.parametrize("name", ["history.parquet", "replay.parquet", "checkpoint.pt"])
def test_a_damaged_file_of_a_run_that_only_lacks_its_summary(name, folders, tmp_path):
    folder = shutil.copytree(folders / "whole", tmp_path / "run")
    (folder / "summary.json").unlink()
    data = bytearray((folder / name).read_bytes())
    data[len(data) // 2] ^= 4
    (folder / name).write_bytes(data)
    assert ends(folder, folders / "whole", name) == (name != "checkpoint.pt")


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_was_deleted_from_a_stopped_run(name, stopped, folders):
    (stopped / name).unlink()
    healed = ends(stopped, folders / "whole", name)
    assert healed == (name not in ("config.toml", "samples.parquet", "flow.npz", "ladder.parquet", "recovery.parquet"))


@pytest.mark.parametrize("part", ["history", "replay", "samples", "flow", "ladder", "recovery", "summary", "about"])
def test_views_do_not_show_what_was_changed(part, folders, tmp_path):
    folder = shutil.copytree(folders / "whole", tmp_path / "run")
    (path,) = (p for p in folder.iterdir() if p.stem == part)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)
    with pytest.raises(DamagedError, match=f"{path.name} is not as it was written"):
        getattr(RunFolder(folder), part)
    path.unlink()
    if part != "summary":
        with pytest.raises(DamagedError, match=f"{path.name} is missing"):
            getattr(RunFolder(folder), part)
        with pytest.raises(DamagedError, match=f"{path.name} is missing"):
            RunFolder(folder).has(path.name)  # views leave out what a run does not have


def test_sha256sum_can_check_a_finished_run(folders):
    said = subprocess.run(["sha256sum", "--strict", "-c", "sums.sha256"], cwd=folders / "whole", capture_output=True,
                          text=True, check=True)  # fmt: skip
    checked = {line.partition(":")[0] for line in said.stdout.splitlines()}
    assert checked == {path.name for path in (folders / "whole").iterdir()} - {"sums.sha256"}


def test_a_config_changed_by_hand(stopped):
    path = stopped / "config.toml"
    path.write_text(path.read_text().replace("lr = 0.1", "lr = 0.2"))
    with pytest.raises(DamagedError, match=r"config.toml is not as it was written .*give another --out"):
        run(CONFIG, stopped, dataset=tiny_dataset())


def test_an_older_run_without_sums_goes_on(stopped, folders):
    (stopped / "sums.sha256").unlink()
    run(CONFIG, stopped, dataset=tiny_dataset())
    assert results(stopped) == results(folders / "whole")
    assert (stopped / "sums.sha256").exists()


def test_other_data_is_noticed(stopped):
    with pytest.raises(DataError, match=r"the data is not what the run in .* was trained on until now"):
        run(CONFIG, stopped, dataset=tiny_dataset(noise=0.4))


@pytest.mark.parametrize(
    "change",
    [{"position": {"task": -1, "epoch": 0, "step": 0}}, {"position": {"task": "x", "epoch": 0, "step": 0}},
     {"position": {"task": 1, "epoch": 0, "step": 12}}, {"position": {"task": 0, "epoch": 2, "step": 8}},
     {"position": {"task": 1, "epoch": 1, "step": 15}}, {"learner": {}}, {"position": {"odd": 1}}, {"memory": {}},
     {"memory": None}, {"history": {}}, {"generators": {"order": 3}}, {"generators": {}}, {"seconds": "long"},
     {"seconds": float("nan")}, {"global_generator": None}, {"optimiser": None}, {"replay_log": {}}, {"run": "another"},
     "learner in half precision", "memory of other labels", "memory that saw nothing", "a shorter log"],
    ids=str,
)  # fmt: skip
def test_a_checkpoint_with_foreign_content(change, stopped):
    state = load_checkpoint(stopped)
    (stopped / "sums.sha256").unlink()
    if change == "learner in half precision":
        change = {"learner": {name: value.half() for name, value in state["learner"].items()}}
    elif change == "memory of other labels":
        change = {"memory": {**state["memory"], "labels": state["memory"]["labels"] + 3}}
    elif change == "memory that saw nothing":
        change = {"memory": {**state["memory"], "seen": state["memory"]["seen"] * 0}}
    elif change == "a shorter log":
        change = {"replay_log": {**state["replay_log"], "at": state["replay_log"]["at"][:-1]}}
    save_checkpoint(stopped, {**state, **change})
    with pytest.raises(DamagedError, match=r"the checkpoint in .*delete the checkpoints there"):
        run(CONFIG, stopped, dataset=tiny_dataset())


@pytest.mark.parametrize("moment", range(0, 34, 3))
def test_who_was_suspended_before_any_move_and_lost_the_run_changes_nothing(moment, tmp_path, monkeypatch):
    """At the move of that number another takes the run over, writes and is gone; the first one wakes up and goes on."""
    folder, real, moves, after = tmp_path / "run", os.replace, [0], {}

    def contents():
        return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}

    def suspended(source, target):
        moves[0] += 1
        if moves[0] == moment + 1:
            mine = staging_in(folder)
            fence(folder, mine)
            for name in ("history.parquet", "checkpoint.pt", "checkpoint.previous.pt", "sums.sha256", "failed.json"):
                (folder / name).write_bytes(b"of the other")
            mine.rmdir()
            after.update(contents())
        real(source, target)

    monkeypatch.setattr(os, "replace", suspended)
    with pytest.raises(LostError):
        run(tiny_config(learner={"epochs": 2}), folder, dataset=tiny_dataset())
    assert contents() == after


@pytest.mark.parametrize(("previous", "lock"), [(True, True), (False, True), (False, False)])
def test_what_a_kill_after_the_summary_left_is_cleared_away(previous, lock, folders, tmp_path):
    folder = shutil.copytree(folders / "whole", tmp_path / "run")
    sums = (folder / "sums.sha256").read_bytes()
    if previous:
        shutil.copy(folder / "checkpoint.pt", folder / "checkpoint.previous.pt")
    left = parse_sums(sums, "sums.sha256") | {"checkpoint.previous.pt": ("0" * 64, ABSENT)}
    (folder / "sums.sha256").write_bytes(render_sums(left))
    if lock:
        (folder / "lock.3").write_text('{"host": "elsewhere", "pid": 1}')
        os.utime(folder / "lock.3", (0, 0))
        (folder / ".writing-dead").mkdir()
    run(CONFIG, folder)
    assert {path.name for path in folder.iterdir()} == {path.name for path in (folders / "whole").iterdir()}
    assert (folder / "sums.sha256").read_bytes() == sums


@pytest.mark.parametrize("name", ["summary.json", "sums.sha256"])
def test_a_damaged_run_is_not_cleared_away(name, folders, tmp_path):
    folder = shutil.copytree(folders / "whole", tmp_path / "run")
    (folder / "lock.3").write_text('{"host": "elsewhere", "pid": 1}')
    os.utime(folder / "lock.3", (0, 0))
    (folder / name).write_bytes((folder / name).read_bytes() + b" ")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    tidy(folder)  # a sweep does so with every run that is done: one must not stop it
    with pytest.raises(DamagedError, match=name):
        run(CONFIG, folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_kill_between_two_names_of_one_checkpoint(tmp_path):
    with held(tmp_path) as files:
        files.write("checkpoint.pt", b"first")
    os.link(tmp_path / "checkpoint.pt", tmp_path / "checkpoint.previous.pt")
    with held(tmp_path) as files:
        files.write("checkpoint.pt", b"second", keep_as="checkpoint.previous.pt")
        assert (tmp_path / "checkpoint.previous.pt").read_bytes() == b"first"
        files.write("checkpoint.previous.pt", None)
        assert not (tmp_path / "checkpoint.previous.pt").exists()


def test_a_read_only_place_is_named(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", disk], capture_output=True, check=False).returncode:
        pytest.skip("cannot mount a disk")
    try:
        with pytest.raises(RuntimeError, match=f"{disk}.*Read-only file system"), held(disk / "run"):
            pass
    finally:
        subprocess.run(["umount", "-l", disk], check=True)


def test_a_run_without_its_config_is_not_left_out(folders, tmp_path):
    store = tmp_path / "store"
    for name in ("a", "b"):
        shutil.copytree(folders / "whole", store / name)
    (store / "b" / "config.toml").unlink()
    assert [found.name for found in find_runs(store)] == ["a", "b"]
    assert statuses(store).keys() == {"a", "b"}
    assert RunFolder(store / "b").status.state == "unreadable"
    assert "config.toml is missing" in RunFolder(store / "b").status.note
