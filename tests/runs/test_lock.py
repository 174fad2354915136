"""Locks: one owner, a dead one is replaced by exactly one other, and nothing is left behind."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from sweeps.sweep_problem import wait_for

from wane.runs import lock
from wane.runs.lock import FileLock, HeldError, LostError, Owner, held, is_dead, owner, tidy


def locks(folder):
    return sorted(path.name for path in folder.glob("lock.*"))


def a_lock(folder, *, number=1, host=None, pid=None, age=0.0):
    path = folder / f"lock.{number}"
    path.write_text(json.dumps({"host": host or lock.socket.gethostname(), "pid": pid or os.getpid()}))
    os.utime(path, (time.time() - age,) * 2)


def dead_pid():
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_one_holds_and_the_other_is_told_who(tmp_path):
    with held(tmp_path):
        assert owner(tmp_path).pid == os.getpid()
        with (
            pytest.raises(HeldError, match=f"{tmp_path} is being run by process {os.getpid()} on .*: wait for it"),
            held(tmp_path),
        ):
            pass
    assert owner(tmp_path) is None
    with held(tmp_path):
        pass


def test_who_is_killed_while_looking_at_the_clock_leaves_nothing_for_good(tmp_path, monkeypatch):
    (tmp_path / "summary.json").touch()
    (tmp_path / "lock.1").write_text('{"host": "elsewhere", "pid": 1}')
    os.utime(tmp_path / "lock.1", (0, 0))

    class KilledError(BaseException):
        pass

    def killed(*_, **__):
        raise KilledError

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rmdir", killed)
        patched.setattr(Path, "unlink", killed)
        with pytest.raises(KilledError):
            held(tmp_path).__enter__()
    (left,) = {path.name for path in tmp_path.iterdir()} - {"summary.json", "lock.1"}
    (tmp_path / left).rename(tmp_path / left.replace(str(os.getpid()), "99"))  # it was another process
    tidy(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["summary.json"]


def test_nothing_stays_where_there_is_no_run_or_a_run_that_is_done(tmp_path):
    with held(tmp_path):
        pass
    assert locks(tmp_path) == []
    (tmp_path / "config.toml").touch()
    with held(tmp_path):
        assert locks(tmp_path) == ["lock.1"]
        (tmp_path / "summary.json").touch()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.toml", "summary.json"]


@pytest.mark.parametrize(
    ("host", "dead", "age", "free"),
    [(None, True, 0, True), (None, False, 0, False), ("elsewhere", True, 0, False), ("elsewhere", False, 61, True),
     ("elsewhere", False, 30, False), (None, False, 61, True)],
)  # fmt: skip
def test_who_counts_as_dead(host, dead, age, free, tmp_path):
    """Here a process can be looked up; elsewhere, and where the number was given to another, only silence tells."""
    a_lock(tmp_path, host=host, pid=dead_pid() if dead else None, age=age)
    assert (owner(tmp_path) is None) is free
    if free:
        with held(tmp_path):
            assert "lock.2" in locks(tmp_path)
    else:
        with pytest.raises(HeldError), held(tmp_path):
            pass


def test_a_killed_child_that_nobody_waited_for_is_dead():
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    known = Owner(lock.socket.gethostname(), process.pid)
    assert not is_dead(known)
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert is_dead(known)
    process.wait()


def test_a_lock_that_is_not_yet_written_is_held(tmp_path):
    (tmp_path / "lock.1").touch()
    with pytest.raises(HeldError, match="an unknown host"), held(tmp_path):
        pass


def test_patience(tmp_path):
    with held(tmp_path):
        waiting = threading.Thread(target=lambda: held(tmp_path, patience=20).__enter__())
        waiting.start()
        time.sleep(0.3)
        assert locks(tmp_path) == ["lock.1"]
    waiting.join(10)
    assert not waiting.is_alive()


def contend(folder, start, answers, all_answered):
    start.wait()
    try:
        with held(Path(folder)):
            answers.put("won")
            all_answered.wait(120)  # whoever comes late must find the lock held too
    except HeldError:
        answers.put("lost")


def test_who_took_a_dead_mans_lock_over_is_not_taken_over_by_one_who_looked_before(tmp_path):
    """Both found the owner dead; the second must not then take the first one's lock for the dead man's."""
    a_lock(tmp_path, number=1, pid=dead_pid())
    first, second = FileLock(tmp_path), FileLock(tmp_path)
    assert first.holder() is None
    assert second.holder() is None
    assert first.claim()
    assert not second.claim()
    assert first.is_ours()


def test_of_many_who_want_a_dead_mans_lock_exactly_one_gets_it(tmp_path):
    context = multiprocessing.get_context("fork")
    for trial in range(3):
        folder = tmp_path / str(trial)
        folder.mkdir()
        (folder / "config.toml").touch()
        a_lock(folder, number=trial + 1, pid=dead_pid())
        start, answers, all_answered = context.Event(), context.Queue(), context.Event()
        contenders = [context.Process(target=contend, args=(folder, start, answers, all_answered)) for _ in range(8)]
        for process in contenders:
            process.start()
        start.set()
        said = [answers.get(timeout=60) for _ in contenders]
        all_answered.set()
        assert sorted(said) == ["lost"] * 7 + ["won"]
        for process in contenders:
            process.join()


@pytest.fixture
def on_ctrl_c():
    """Sets what SIGINT does, which differs between a terminal and the background of a script."""
    before = signal.getsignal(signal.SIGINT)
    yield lambda handler: signal.signal(signal.SIGINT, handler)
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("handler", [signal.default_int_handler, signal.SIG_IGN])
def test_who_was_asleep_finds_the_lock_taken_over_and_stops(tmp_path, monkeypatch, on_ctrl_c, handler):
    monkeypatch.setattr(lock, "BEAT", 0.1)
    on_ctrl_c(handler)

    def sleeper():
        with held(tmp_path):
            a_lock(tmp_path, number=2)
            for _ in range(100):
                time.sleep(0.1)

    with pytest.raises(LostError, match=r"was taken over by process .*nothing is lost"):
        sleeper()
    assert owner(tmp_path) is not None  # the other's is left alone
    assert signal.getsignal(signal.SIGINT) is handler


def test_signs_of_life_keep_a_lock(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "BEAT", 0.1)
    with held(tmp_path):
        for _ in range(3):
            os.utime(tmp_path / "lock.1", (time.time() - 2 * lock.STALE,) * 2)
            wait_for(lambda: owner(tmp_path))


def test_ctrl_c_stays_ignored_where_it_is(tmp_path, on_ctrl_c):
    on_ctrl_c(signal.SIG_IGN)
    with held(tmp_path / "outer"), held(tmp_path / "inner"):
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_ctrl_c_is_ctrl_c_and_frees_the_lock(tmp_path, on_ctrl_c):
    on_ctrl_c(signal.default_int_handler)
    (tmp_path / "config.toml").touch()
    with pytest.raises(KeyboardInterrupt), held(tmp_path):
        signal.raise_signal(signal.SIGINT)
    assert owner(tmp_path) is None


@pytest.mark.parametrize("text", ["[]", '{"host": 3, "pid": "x"}', '{"host": "here", "pid": -1}', '{"pid": 1e99}'])
def test_an_odd_lock_is_held_until_it_is_stale(tmp_path, text):
    (tmp_path / "lock.1").write_text(text)
    assert owner(tmp_path) == Owner("an unknown host", 0)
    os.utime(tmp_path / "lock.1", (time.time() - 2 * lock.STALE,) * 2)
    with held(tmp_path):
        assert owner(tmp_path).pid == os.getpid()


def test_a_lock_from_the_future_does_not_hold_for_ever(tmp_path):
    a_lock(tmp_path, host="elsewhere", age=-86_400)
    with held(tmp_path):
        assert owner(tmp_path).pid == os.getpid()


def test_files_that_only_look_like_locks(tmp_path):
    (tmp_path / "lock.1x").touch()
    (tmp_path / "lock.9.bak").touch()
    with held(tmp_path):
        assert locks(tmp_path) == ["lock.1", "lock.1x", "lock.9.bak"]


def test_what_ended_a_run_is_not_hidden_by_the_release_of_its_lock(tmp_path, monkeypatch):
    def read_only(*_):
        raise OSError(30, "Read-only file system")

    def fail():
        with held(tmp_path):
            monkeypatch.setattr(Path, "unlink", read_only)
            monkeypatch.setattr(os, "utime", read_only)
            raise RuntimeError("the real reason")

    with pytest.raises(RuntimeError, match="the real reason"):
        fail()
