"""Runs and sweeps that are killed, stopped, torn amid a write, out of room or suspended, at each of their steps."""

import os
import signal
import time
from pathlib import Path
from random import Random

from tests.attack.bench import RUN, SWEEP, Bench, Files, complaint, contents, difference, kill, suspend
from tests.attack.children import Ended, start, wane

COMMANDS = {"run": RUN, "sweep": SWEEP}


def kill_case(bench: Bench, index: int, random: Random) -> str | None:
    """Killed at each file operation; once all had their turn, killed again while it goes on."""
    at, again = _moment(bench, index, random)
    name, at = at
    with bench.box() as box:
        if wrong := _killed(start(box, COMMANDS[name], attack=kill, at=at).wait()):
            return wrong
        if again is not None:
            ended = start(box, COMMANDS[name], attack=kill, at=again).wait()
            assert ended is not None
            if ended.code != -signal.SIGKILL and (wrong := complaint(ended, codes=(0,))):
                return f"the second time: {wrong}"
        return _goes_on(bench, box, name)


def interrupt_case(bench: Bench, index: int, random: Random) -> str | None:
    """Ctrl-C at each file operation: one sentence, and the same command goes on."""
    (name, at), _ = _moment(bench, index, random)

    def interrupt(_event: str, _what: object) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    with bench.box() as box:
        ended = start(box, COMMANDS[name], attack=interrupt, at=at, before=_hear_interrupts).wait()
        assert ended is not None
        if wrong := complaint(ended, codes=(0, 130)):
            return wrong
        return _goes_on(bench, box, name)


def tear_case(bench: Bench, index: int, random: Random) -> str | None:
    """Killed amid a write, when a file has so many bytes; or told that there is no room for more."""
    size = random.choice([random.randrange(64), random.randrange(1000), random.randrange(50_000)])
    name, dies = ("run", "sweep")[index % 2], index % 4 < 2
    with bench.box() as box:
        ended = wane(box, *COMMANDS[name], file_size=size, dies_of_size=dies)
        died = dies and ended.code == -signal.SIGXFSZ
        if not died and (wrong := complaint(ended)):
            return f"files of {size} bytes at most: {wrong}"
        return _goes_on(bench, box, name, retry=True)


def suspend_case(bench: Bench, index: int, random: Random) -> str | None:
    """Suspended at each file operation, taken over by another that finishes, is suspended or is killed; then woken."""
    (name, at), then = _moment(bench, index, random)
    how = "finishes" if then is None else random.choice(["finishes", "suspended", "killed"])
    command = COMMANDS[name]
    with bench.box() as box:
        sleeper = start(box, command, attack=suspend, at=at)
        other = None
        try:
            if (early := sleeper.wait(until_stopped=True)) is not None:
                return complaint(early, codes=(0,)) or _goes_on(bench, box, name)
            attack = {"finishes": None, "suspended": suspend, "killed": kill}[how]
            other = start(box, command, attack=attack, at=then or -1, before=_take_over)
            ended = other.wait(until_stopped=how == "suspended")
            if ended is not None and ended.code != -signal.SIGKILL and (wrong := complaint(ended, codes=(0,))):
                return f"who took over ({how}): {wrong}"
            for lock in box.rglob("lock.*") if ended is None else ():  # as if that was an hour ago
                os.utime(lock, (lock.stat().st_atime, time.time() - 3600))
            finished = contents(box) if ended is not None and ended.code == 0 else None
            sleeper.go_on()
            woken = sleeper.wait()
            assert woken is not None
            if wrong := complaint(woken, codes=(0, 1, 2)):
                return f"who woke up: {wrong}"
            if finished is not None and (wrong := difference(finished, contents(box))):
                return f"who woke up changed what was finished: {wrong}"
            if ended is None:
                other.go_on()
                last = other.wait()
                assert last is not None
                if wrong := complaint(last, codes=(0, 1, 2)):
                    return f"who took over, suspended itself: {wrong}"
            return _goes_on(bench, box, name, retry=True)
        finally:
            sleeper.end()
            if other is not None:
                other.end()


def _moment(bench: Bench, index: int, random: Random) -> tuple[tuple[str, int], int | None]:
    """The command and the operation of a case, one after the other; later ones have a second operation."""
    sizes = bench.operations
    place = index % sum(sizes.values())
    again = random.randrange(max(sizes.values())) if index >= sum(sizes.values()) else None
    return (("run", place) if place < sizes["run"] else ("sweep", place - sizes["run"])), again


def moments(bench: Bench) -> int:
    """How many operations there are to attack."""
    return sum(bench.operations.values())


def _killed(ended: Ended | None) -> str | None:
    assert ended is not None
    return None if ended.code == -signal.SIGKILL else complaint(ended, codes=(0,))


def _goes_on(bench: Bench, box: Path, name: str, *, retry: bool = False) -> str | None:
    """The same command must end with the files of the unhindered one."""
    command = (*COMMANDS[name], "--retry-failed") if retry and name == "sweep" else COMMANDS[name]
    if wrong := complaint(wane(box, *command), codes=(0,)):
        return f"the same command does not go on: {wrong}"
    expected: Files = bench.run if name == "run" else bench.sweep
    return difference(expected, contents(box))


def _take_over() -> None:
    """Take every owner for dead: its signs of life are older than no time at all."""
    from wane.runs import lease

    lease.STALE = 0.0


def _hear_interrupts() -> None:
    """Background jobs of a shell ignore Ctrl-C; these must not."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
