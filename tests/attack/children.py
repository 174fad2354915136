"""Commands of wane in forked processes, that can be watched, limited, killed or suspended at any file operation."""

import faulthandler
import fcntl
import itertools
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

MEMORY = 3 << 30  # bytes that a command may map beyond what its parent has
CPU = 60  # seconds of the processor
WALL = 60.0  # seconds after which a process that does not even compute is given up

#: Events of Python's audit hooks that touch the file system, each with the positions of its paths.
WATCHED = {
    "open": (0,), "os.rename": (0, 1), "os.remove": (0,), "os.mkdir": (0,), "os.rmdir": (0,), "os.link": (0, 1),
    "os.symlink": (1,), "os.truncate": (0,), "os.utime": (0,), "os.listdir": (0,), "os.scandir": (0,),
    "os.chmod": (0,), "shutil.rmtree": (0,), "shutil.move": (0, 1),
}  # fmt: skip
READING = {"os.listdir", "os.scandir"}
FSYNC = "fsync"  # no audit event; it is counted among the operations all the same
ELSEWHERE = ("/dev/", "/proc/")  # where writing is no escape

Attack = Callable[[str, object], None]


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int  # negative: the signal that killed it
    out: str
    err: str
    escaped: tuple[str, ...]  # paths outside the box that it opened for writing, made, moved or removed
    operations: tuple[str, ...]  # on files in the box, in order


class Child:
    """A process that was forked for a command."""

    def __init__(self, pid: int, notes: Path, printed: tuple[int, int]) -> None:
        self.pid, self.notes, self.printed = pid, notes, printed

    def wait(self, *, until_stopped: bool = False) -> Ended | None:
        """How it ended; None if it was suspended instead, which is only noticed with `until_stopped`."""
        deadline = time.monotonic() + WALL
        pause = 0.0005
        while True:
            pid, status = os.waitpid(self.pid, os.WNOHANG | (os.WUNTRACED if until_stopped else 0))
            if pid:
                break
            if time.monotonic() > deadline:  # it prints where it hangs, see faulthandler
                os.killpg(self.pid, signal.SIGABRT if time.monotonic() < deadline + 5 else signal.SIGKILL)
                pause = 1
            time.sleep(pause)
            pause = min(pause * 1.2, 0.02)
        if os.WIFSTOPPED(status):
            return None
        code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        out, err = (_drain(end) for end in self.printed)
        escaped, ops = ((self.notes / name).read_text().splitlines() for name in ("escaped", "ops"))
        return Ended(code, out, err, tuple(escaped), tuple(ops))

    def go_on(self) -> None:
        """Wake it up."""
        os.kill(self.pid, signal.SIGCONT)

    def end(self) -> None:
        """Kill it, if it is still there."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass


def wane(box: Path, *arguments: object, **options: object) -> Ended:
    """Run a command of wane in the folder `box` to its end; options as of `start`."""
    ended = start(box, arguments, **options).wait()  # type: ignore[arg-type]
    assert ended is not None
    return ended


def start(
    box: Path,
    arguments: Sequence[object],
    *,
    attack: Attack | None = None,
    at: int = -1,
    file_size: int | None = None,
    dies_of_size: bool = False,
    before: Callable[[], None] | None = None,
) -> Child:
    """Fork a process that runs `wane ARGUMENTS` in the folder `box`.

    Args:
        box: working folder; what is touched outside of it is written down.
        arguments: of the command.
        attack: called with the event and its argument just before the file operation of number `at`, from 0.
        at: that number.
        file_size: no file can grow beyond it, as on a full disk.
        dies_of_size: a write beyond `file_size` kills the process, after that many bytes of it.
        before: called in the process first.
    """
    notes = box.with_name(f"{box.name}.notes.{time.monotonic_ns()}")
    notes.mkdir()
    escaped, ops = (os.open(notes / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND) for name in ("escaped", "ops"))
    out, err = _pipe(), _pipe()  # not files, which have a limit
    sys.stdout.flush(), sys.stderr.flush()
    pid = os.fork()
    if pid:
        for end in (out[1], err[1], escaped, ops):
            os.close(end)
        return Child(pid, notes, (out[0], err[0]))
    code = 3
    try:
        os.setpgid(0, 0)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0), os.dup2(out[1], 1), os.dup2(err[1], 2)
        for end in (*out, *err):
            os.close(end)
        faulthandler.enable(2)
        os.chdir(box)
        _limit(file_size, dies_of_size)
        _watch(os.path.realpath(box), escaped, ops, attack, at)
        if before is not None:
            before()
        code = _call([str(argument) for argument in arguments])
        sys.stdout.flush(), sys.stderr.flush()
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(code)


def _pipe() -> tuple[int, int]:
    """A pipe that is read once the writer has ended, and holds all that is printed until then."""
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 1 << 20)
    os.set_blocking(reading, False)
    return reading, writing


def _drain(end: int) -> str:
    parts = []
    try:
        while part := os.read(end, 1 << 20):
            parts.append(part)
    except BlockingIOError:  # a grandchild has it still
        pass
    os.close(end)
    return b"".join(parts).decode(errors="backslashreplace")


def _call(arguments: list[str]) -> int:
    """What the script `wane` would do, and its exit code."""
    from wane.cli import app

    sys.argv = ["wane", *arguments]
    try:
        app(arguments, prog_name="wane")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _limit(file_size: int | None, dies_of_size: bool) -> None:
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + MEMORY,) * 2)
    resource.setrlimit(resource.RLIMIT_CPU, (CPU, CPU))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if file_size is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL if dies_of_size else signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_size, file_size))


def _watch(box: str, escaped: int, ops: int, attack: Attack | None, at: int) -> None:
    """Write down every operation on files in the box, and every writing one outside of it; attack the one at `at`."""
    inside, numbers = box + os.sep, itertools.count()  # one that threads can share
    real_fsync = os.fsync

    def note(event: str, path: str, what: object) -> None:
        if next(numbers) == at and attack is not None:
            attack(event, what)
        os.write(ops, f"{event} {path.removeprefix(inside)!r}\n".encode(errors="backslashreplace"))

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if event not in WATCHED:
            return
        paths = [os.fsdecode(path) for i in WATCHED[event] if isinstance(path := arguments[i], str | bytes)]
        absolute = [os.path.normpath(os.path.join(box, path)) for path in paths]
        ours = [path for path in absolute if path.startswith(inside)]
        if ours:
            note(event, ours[-1], arguments[0])
        if event in READING or (event == "open" and not _writes(arguments[1], arguments[2])):
            return
        for path in absolute:
            if not path.startswith(inside) and path != box and not path.startswith(ELSEWHERE):
                os.write(escaped, f"{event} {path!r}\n".encode(errors="backslashreplace"))

    def fsync(number: int) -> None:
        note(FSYNC, os.readlink(f"/proc/self/fd/{number}"), number)
        real_fsync(number)

    os.fsync = fsync
    sys.addaudithook(hook)


def _writes(mode: object, flags: object) -> bool:
    if isinstance(mode, str):
        return any(letter in mode for letter in "wax+")
    return isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
