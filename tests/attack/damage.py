"""Files of runs, stopped and finished, with flipped bits, cut short, deleted or in each other's place."""

from collections.abc import Callable
from pathlib import Path
from random import Random

from tests.attack.bench import RUN, STAGES, SWEEP, VIEWS, Bench, complaint, contents, difference, shown_by
from tests.attack.children import Ended, wane


def stopped_case(bench: Bench, index: int, random: Random) -> str | None:
    """A damaged file of a stopped run: it ends with the right bytes, or says what is wrong; restored, it goes on."""
    with bench.box(box_of(bench, index)) as box:
        path, said = damage(box / "store", random)
        before = path.read_bytes() if path.exists() else None
        done = (path.parent / "summary.json").exists()
        ended = wane(box, *RUN)
        if wrong := complaint(ended):
            return f"{said}: {wrong}"
        if ended.code == 0:
            wrong = difference(bench.run, contents(box))
            if wrong and done and is_noticed(path, before):
                return None
            return wrong and f"{said}, and nobody noticed: {wrong}"
        if (path.read_bytes() if path.exists() else None) != before:
            return f"{said}: what could not be read was changed"
        path.write_bytes((bench.root / box_of(bench, index) / path.relative_to(box)).read_bytes())
        ended = wane(box, *RUN)
        wrong = complaint(ended, codes=(0,)) or difference(bench.run, contents(box))
        return wrong and f"{said}, restored: {wrong}"


def is_noticed(path: Path, before: bytes | None) -> bool:
    """Whether a finished run, of which only the summary was needed, left a damaged file for its readers to notice."""
    from wane.errors import DamagedError
    from wane.runs.reading import MAY_LACK, read_file

    if (path.read_bytes() if path.exists() else None) != before:
        return False
    try:
        read_file(path.parent, path.name)
    except DamagedError:
        return True
    return before is None and path.name in MAY_LACK


def box_of(bench: Bench, index: int) -> str:
    """The name of the folder that a case of `stopped_case` starts from."""
    return f"stopped.{STAGES[index % len(STAGES)]}"


def finished_case(bench: Bench, index: int, random: Random) -> str | None:
    """A damaged file of a finished run: every view shows what it did before, or says what is wrong."""
    name = random.choice([*VIEWS, "runs", "report", "table", "run", "sweep"])
    command, like = {"run": (RUN, "run"), "sweep": (SWEEP, "sweep")}.get(name, (VIEWS.get(name, ()), "sweep"))
    with bench.box(f"finished.{like}") as box:
        path, said = damage(box / "store", random)
        ended = wane(box, *command)
        if wrong := complaint(ended):
            return f"{said}, {' '.join(command[:2])}: {wrong}"
        if ended.code != 0 or "unreadable" in ended.out:
            return None
        if path.name == "summary.json" and not path.exists() and is_said_to_be_open(ended, box):
            return None
        if name in VIEWS:
            expected, found = bench.shown[name], shown_by(ended, box)
            wrong = None if found == expected else f"shows {first_difference(expected, found)}"
        else:  # what was finished is not done over, and not changed
            wrong = None if ended.out == bench.shown[name][0] else f"shows {ended.out[:300]!r}"
        return wrong and f"{said}, {' '.join(command[:2])}, and nobody noticed: {wrong}"


def is_said_to_be_open(ended: Ended, box: Path) -> bool:
    """Whether a view says of a run without summary that it is not done."""
    printed, written = shown_by(ended, box)
    page = written.decode(errors="replace") if written.startswith(b"<!doctype") else ""
    return any(words in printed + ended.err + page for words in ("stopped", "not done", "This run is not finished"))


def damage(store: Path, random: Random) -> tuple[Path, str]:
    """Damage one file below a folder; which, and how."""
    files = sorted(path for path in store.rglob("*") if path.is_file() and not path.name.startswith("lock"))
    path = random.choice(files)
    data = path.read_bytes()
    how = random.choices([*HOW], weights=[weight for weight, _ in HOW.values()])[0]
    new, where = HOW[how][1](data, random, files)
    if new is None:
        path.unlink()
    else:
        path.write_bytes(new)
    return path, f"{path.relative_to(store)} ({len(data)} bytes) {how} {where}".strip()


def _flip(data: bytes, random: Random, _files: list[Path]) -> tuple[bytes, str]:
    if not data:
        return b"\0", ""
    # regions alike: headers and footers are short, and the middle is long
    near = random.choice([range(min(64, len(data))), range(len(data)), range(max(0, len(data) - 512), len(data))])
    at, bit = random.choice(near), random.randrange(8)
    return data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :], f"in bit {bit} of byte {at}"


def _cut(data: bytes, random: Random, _files: list[Path]) -> tuple[bytes, str]:
    length = random.randrange(max(1, len(data)))
    return data[:length], f"to {length} bytes"


def _blank(data: bytes, random: Random, _files: list[Path]) -> tuple[bytes, str]:
    start = random.randrange(max(1, len(data)))
    length = random.choice([1, 16, 512, 4096])
    return data[:start] + bytes(len(data[start : start + length])) + data[start + length :], f"{length} from {start}"


def _swap(data: bytes, random: Random, files: list[Path]) -> tuple[bytes, str]:
    other = random.choice(files)
    return other.read_bytes(), f"by {other.name}"


HOW: dict[str, tuple[float, Callable[[bytes, Random, list[Path]], tuple[bytes | None, str]]]] = {
    "flipped": (10, _flip),
    "cut": (3, _cut),
    "blanked": (2, _blank),
    "replaced": (1, _swap),
    "lengthened": (1, lambda data, random, _: (data + random.randbytes(random.randrange(1, 99)), "")),
    "deleted": (1, lambda *_: (None, "")),
}


def first_difference(expected: tuple[object, ...], found: tuple[object, ...]) -> str:
    """Where two outputs begin to differ."""
    for a, b in zip(expected, found, strict=True):
        if a == b:
            continue
        at = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))  # type: ignore[call-overload,arg-type]
        return f"{b[max(0, at - 40) : at + 60]!r}, not {a[max(0, at - 40) : at + 60]!r}"  # type: ignore[index]
    return "the same"
