"""What attacks start from: an unhindered run and sweep, their files at several moments, and fresh copies of all."""

import hashlib
import importlib
import json
import os
import pkgutil
import shutil
import signal
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.attack.children import Ended, start, wane
from tests.attack.problem import CONFIG

RUN = ("run", "attacked.toml", "--out", "store/run", "--quiet")
SWEEP = (
    "sweep", "attacked.toml", "--over", "seed=0,1", "--out", "store", "--engine", "tests.attack.problem:one_by_one",
)  # fmt: skip
#: How far into its file operations a run is stopped, for attacks on stopped runs.
STAGES = (0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.88, 0.91, 0.95)

#: Of a run, what says nothing of its result: who ran it, when, and how long it took.
PASSING = ("lock.", "log.txt", ".notes")
WRONG = b" is wrong"  # marks a line of sums.sha256
TIMED = ("seconds", "machine", "versions")  # of its summary
Files = dict[str, bytes]
Shown = tuple[str, bytes]  # what a view printed, and what it wrote

#: Commands that show the finished sweep; what they write is called `shown`.
VIEWS: dict[str, tuple[str, ...]] = {
    "runs": ("runs", "store"),
    "report": ("report", "store", "-o", "shown.html"),
    "table": ("table", "auto", "store"),
    "at-risk": ("at-risk", "store"),
    "export": ("export", "cleva", "store", "-o", "shown.json"),
    "trajectories": ("figure", "trajectories", "store", "-o", "shown.svg"),
    "ladder": ("figure", "ladder", "store", "-o", "shown.svg"),
    "flow": ("figure", "flow", "store", "-o", "shown.svg"),
    "archive": ("archive", "store", "-o", "shown", "--history", "*"),
}


def preload() -> None:
    """Import all that commands import, so that a forked process does not; nothing may start a thread."""
    import wane as package

    for module in pkgutil.walk_packages(package.__path__, "wane."):
        if ".plugins" not in module.name and module.name not in UNNEEDED:
            try:
                importlib.import_module(module.name)
            except ModuleNotFoundError:  # of a package that is optional
                continue
    for name in PRELOADED:
        importlib.import_module(name)
    from wane.sweeps import execute

    execute.POLL = 0.01  # seconds that a sweep waits for runs of other processes


UNNEEDED = ("wane.cli.__main__", "wane.sweeps.engines.ray", "wane.loggers.mlflow", "wane.loggers.wandb")
PRELOADED = (
    "encodings.cp437", "encodings.unicode_escape", "fsspec.implementations.chained", "matplotlib.backends.backend_agg",
    "PIL.PngImagePlugin", "polars._utils.parquet", "rich._emoji_codes", "rich._unicode_data.unicode17-0-0",
    "rich.console", "rich.live", "rich.progress", "rich.table", "tomli_w", "torch._dynamo", "torchmetrics",
    "torch.profiler._cupti_monitor", "torch.utils.serialization.config", "typer._adapters", "typer._click.decorators",
)  # fmt: skip


@dataclass
class Bench:
    """The unhindered run and sweep, and where cases get their folders."""

    root: Path
    run: Files = field(default_factory=dict)  # the files of the finished run
    sweep: Files = field(default_factory=dict)
    operations: dict[str, int] = field(default_factory=dict)  # of each command, by its name
    shown: dict[str, Shown] = field(default_factory=dict)  # what each command showed
    made: int = 0

    @contextmanager
    def box(self, like: str = "empty") -> Iterator[Path]:
        """A fresh folder with the files of a moment; removed afterwards."""
        self.made += 1
        outer = self.root / f"case.{os.getpid()}.{self.made}"
        outer.mkdir()
        shutil.copytree(self.root / like, outer / "box")
        try:
            yield outer / "box"
        finally:
            shutil.rmtree(outer, ignore_errors=True)


def make_bench(root: Path, kinds: Collection[str]) -> Bench:
    """Do the unhindered run and sweep, and keep what is there at each stage of the run: as far as attacks need it."""
    bench = Bench(root)
    (root / "empty").mkdir()
    (root / "empty" / "attacked.toml").write_text(CONFIG)
    if not {*kinds} - {"config", "predictions"}:
        return bench
    for name, command in (("run", RUN), ("sweep", SWEEP)):
        shutil.copytree(root / "empty", root / f"finished.{name}")
        ended = must(wane(root / f"finished.{name}", *command))
        bench.operations[name] = len(ended.operations)
    bench.run, bench.sweep = contents(root / "finished.run"), contents(root / "finished.sweep")
    untrue = [name for name, data in (bench.run | bench.sweep).items() if name.endswith("sums.sha256") if WRONG in data]
    assert not untrue, f"the unhindered command wrote a wrong {untrue[0]}"
    for stage in STAGES if "stopped" in kinds else ():
        box = root / f"stopped.{stage}"
        shutil.copytree(root / "empty", box)
        child = start(box, RUN, attack=kill, at=round(stage * bench.operations["run"]))
        ended = child.wait()
        assert ended is not None
        assert ended.code == -signal.SIGKILL, f"not stopped at {stage}: {ended}"
    views = {**VIEWS, "run": RUN, "sweep": SWEEP} if "finished" in kinds else {}
    for name, command in views.items():
        with bench.box("finished.run" if name == "run" else "finished.sweep") as box:
            bench.shown[name] = shown_by(must(wane(box, *command)), box)
    return bench


def shown_by(ended: Ended, box: Path) -> Shown:
    """What a view printed and wrote."""
    written = sorted(path for path in box.glob("shown*/**/*" if (box / "shown").is_dir() else "shown*"))
    return ended.out, b"".join(path.read_bytes() for path in written if path.is_file())


def kill(_event: str, _what: object) -> None:
    """An attack: as when memory runs out, or someone loses patience."""
    os.kill(os.getpid(), signal.SIGKILL)


def suspend(_event: str, _what: object) -> None:
    """An attack: as when a laptop is closed, or a virtual machine is moved."""
    os.kill(os.getpid(), signal.SIGSTOP)


def must(ended: Ended) -> Ended:
    """What ended well."""
    assert ended.code == 0, f"the unhindered command failed: {ended}"
    return ended


def contents(box: Path) -> Files:
    """The files that must be the same however a run was hindered, without what passes."""
    found = {}
    for path in sorted((box / "store").rglob("*")):
        name = path.relative_to(box).as_posix()
        if path.is_file() and not path.name.startswith(PASSING):
            found[name] = _lasting(path, path.read_bytes())
    return found


def _lasting(path: Path, data: bytes) -> bytes:
    if path.name == "summary.json":
        summary = json.loads(data)
        for key in TIMED:
            summary.pop(key, None)
        return json.dumps(summary).encode()
    if path.name.startswith("checkpoint"):
        return b""  # it holds the seconds that were needed; that it is there is what counts
    if path.name == "sums.sha256":
        return _lasting_sums(path.parent, data)
    return data


def _lasting_sums(folder: Path, data: bytes) -> bytes:
    """Each line, of a file that holds seconds without its sum; marked if it is not true of the file beside it."""
    *lines, last = data.splitlines(keepends=True)
    whole = last == f"# {hashlib.sha256(b''.join(lines)).hexdigest()}\n".encode()
    kept = []
    for line in lines:
        digest, name = line.decode().rstrip("\n").split("  ", 1)
        path = folder / name
        true = path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == digest
        timed = name == "summary.json" or name.startswith("checkpoint")
        kept.append(f"{name} {'its sum' if timed else digest}".encode() + (b"" if true else WRONG))
    return b"\n".join([*kept, b"" if whole else WRONG])


def difference(expected: Files, found: Files) -> str | None:
    """How files differ from what they should be, None if they do not."""
    for name in sorted({*expected, *found}):
        if expected.get(name) != found.get(name):
            what = "is missing" if name not in found else "is too many" if name not in expected else "has other bytes"
            return f"{name} {what}"
    return None


#: Lines that an error may have, and characters: a sentence, or what typer says of an argument.
LINES, LENGTH = 12, 3000


def _stacks(err: str) -> str:
    """What faulthandler printed, without the list of extensions."""
    return "\n".join(line for line in err.splitlines() if not line.startswith("Extension modules:"))[-3000:]


def complaint(ended: Ended, *, codes: Sequence[int] = (0, 1, 2)) -> str | None:
    """What is wrong with how a command ended, None if it ended well or in a sentence."""
    if ended.code < 0:
        return f"killed by {signal.Signals(-ended.code).name}: {_stacks(ended.err)}"
    if "Traceback (most recent call last)" in ended.err:
        return f"traceback: {ended.err.strip()[-800:]}"
    if ended.escaped:
        return f"wrote outside of its folder: {'; '.join(ended.escaped[:3])}"
    if ended.code not in codes:
        return f"exit code {ended.code}: {ended.err[-800:]}"
    lines = [line for line in ended.err.splitlines() if line.strip()]
    if ended.code in (1, 2) and not any(line.startswith("wane: ") or "Usage:" in line for line in lines):
        return f"exit code {ended.code} without a sentence: {ended.err[-800:]!r}"
    if ended.code and (len(lines) > LINES or len(ended.err) > LENGTH):
        return f"an error of {len(lines)} lines, {len(ended.err)} characters: {ended.err[:400]!r}"
    if bad := next((c for c in ended.out + ended.err if ord(c) < 32 and c not in "\n\t\r"), None):
        return f"printed the control character {bad!r}: {(ended.out + ended.err)[:300]!r}"
    return "told to load what may execute code" if "weights_only" in ended.err else None
