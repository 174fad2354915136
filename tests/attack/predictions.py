"""Random files of predictions: sound, odd, damaged, foreign; through score, compare, correct, measure and plan."""

import json
import warnings
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from tests.attack.bench import Bench, complaint
from tests.attack.children import Ended, wane

Columns = dict[str, Any]
FORMATS = ("npz", "npz", "npy", "csv", "parquet", "jsonl", "pt")
TYPES = ("f2", "f4", ">f8", "i1", "u1", "i8", "c8", "?", "O", "U8", "g", "M8[s]")
VALUES = (float("nan"), float("inf"), float("-inf"), 3e38, 1e308, -1e308, 1e-320, 0.0)
TEXTS = ("a", "a", "", "a\nb", "\x1b[2J", "<b>", "=1+1", "🙂", "x" * 500, "nan", "0_duplicated_0", "\\input{x}", "a,b")


def prediction_case(bench: Bench, index: int, random: Random) -> str | None:
    """What is shown of a sound file is right; any other is shown or refused in one sentence."""
    sound = random.random() < 0.25
    files = [_columns(random), _columns(random)]
    if random.random() < 0.7:  # the same rows under another model
        noise = np.random.default_rng(0).normal(0, 1, files[0]["logits"].shape)
        files[1] = {**files[0], "logits": files[0]["logits"] + noise}
    oddities: list[str] = []
    if not sound:
        for columns in files[: random.choice([1, 1, 2])]:
            oddities += [_make_odd(columns, random) for _ in range(random.choice([1, 1, 2]))]
    names = [f"{name}.{random.choice(FORMATS)}" for name in ("first", "second")]
    damage = None if sound or random.random() < 0.6 else random.randrange(1 << 30)
    command = _command(names, random)

    def prepare() -> None:
        for name, columns in zip(names, files, strict=True):
            _write(Path(name), columns)
        if damage is not None:
            _damage(Path(names[0]), Random(damage))

    with bench.box() as box:
        ended = wane(box, *command, before=prepare)
        wrong = complaint(ended) or _wrong_numbers(ended, command, files[0] if sound else None)
        how = ", ".join(oddities) or "sound"
        return wrong and f"wane {' '.join(command)} ({how}{'' if damage is None else ', damaged'}): {wrong}"


def _command(names: list[str], random: Random) -> list[str]:
    first, second = names
    return random.choice(
        [
            ["score", first], ["score", first, "--json"], ["score", first, "--csv"], ["score", first, "--by", "group"],
            ["compare", first, second], ["compare", first, second, "--json"], ["compare", first, first, "--json"],
            ["compare", first, second, "--html", "page.html"], ["compare", first, second, "--common"],
            ["compare", first, second, "--plan"], ["compare", first, first, "--plan", "--json"],
            ["correct", first, "-o", "out.npz"], ["correct", first, "-o", "out.npz", "--fit", second],
            ["correct", first, "-o", "out.npz", "--by", "group"], ["measure", first, "-o", "out.parquet"],
        ]
    )  # fmt: skip


def _columns(random: Random) -> Columns:
    """Logits of some rows, with labels and perhaps more."""
    numbers = np.random.default_rng(random.randrange(1 << 30))
    rows, classes = random.choice([1, 2, 7, 40]), random.choice([2, 3, 5])
    columns: Columns = {
        "logits": numbers.normal(0, 3, (rows, classes)).astype(random.choice(["f4", "f8"])),
        "labels": numbers.integers(0, classes, rows),
    }
    if random.random() < 0.3:
        columns["ids"] = numbers.permutation(rows)
    if random.random() < 0.3:
        columns["group"] = np.array([f"g{label % 2}" for label in columns["labels"]])
    return columns


def _make_odd(columns: Columns, random: Random) -> str:
    key = random.choice(["logits", "labels", random.choice([*columns])])
    if key not in columns:
        return "nothing"
    array = np.asarray(columns[key])
    how = random.choice(
        ["type", "type", "value", "value", "shape", "gone", "renamed", "label", "names", "twice", "empty"]
    )
    with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
        try:
            if how == "type":
                kind = random.choice(TYPES)
                columns[key] = array.astype(kind)
                return f"{key} as {kind}"
            if how == "value":
                new = array.astype("f8").copy()
                new.reshape(-1)[random.randrange(new.size)] = value = random.choice(VALUES)
                columns[key] = new
                return f"{value} in {key}"
            if how == "shape":
                columns[key] = random.choice(
                    [array[None], array[..., None], array.T, array[:1], array.ravel(), array[0]]
                )
            elif how == "gone":
                del columns[key]
            elif how == "renamed":
                columns[random.choice(["probs", "targets", "y", "id", "logit_0", "p0", "a\nb", "=x"])] = columns.pop(
                    key
                )
            elif how == "label":
                columns["labels"] = array.astype("i8").ravel() * 0 + random.choice([-1, 99, 2**40])
            elif how == "names":
                columns["class_names"] = np.array([random.choice(TEXTS) for _ in range(random.choice([1, 2, 3, 5]))])
            elif how == "twice":
                columns["ids"] = np.zeros(len(array), dtype="i8")
            elif how == "empty":
                columns.update({name: np.asarray(column)[:0] for name, column in columns.items()})
        except (ValueError, TypeError, IndexError, OverflowError, ZeroDivisionError):
            return "nothing"
    return f"{key} {how}"


def _write(path: Path, columns: Columns) -> None:
    """Write them as the suffix says; what a format cannot hold is written as text that is no such file."""
    try:
        _WRITERS[path.suffix](path, columns)
    except Exception as error:
        path.write_text(f"not written: {type(error).__name__}")


def _write_npy(path: Path, columns: Columns) -> None:
    np.save(path, columns["logits"])
    for name in columns.keys() - {"logits"}:
        np.save(path.with_name(f"{path.stem}_{name.replace('/', '')}.npy"), columns[name])


def _write_table(path: Path, columns: Columns) -> None:
    import polars as pl

    flat: Columns = {}
    for name, column in columns.items():
        array = np.asarray(column)
        wide = array.ndim == 2 and (path.suffix == ".csv" or len(array) % 2)
        flat |= {f"logit_{i}": array[:, i] for i in range(array.shape[1])} if wide else {name: array}
    frame = pl.DataFrame({name: pl.Series(array.tolist(), strict=False) for name, array in flat.items()})
    {".csv": frame.write_csv, ".parquet": frame.write_parquet, ".jsonl": frame.write_ndjson}[path.suffix](path)


def _write_torch(path: Path, columns: Columns) -> None:
    import torch

    def as_tensor(array: Any) -> Any:
        try:
            return torch.from_numpy(np.ascontiguousarray(array))
        except TypeError:
            return np.asarray(array).tolist()

    torch.save({name: as_tensor(column) for name, column in columns.items()}, path)


_WRITERS: dict[str, Any] = {
    ".npz": lambda path, columns: np.savez(path, **columns),
    ".npy": _write_npy, ".csv": _write_table, ".parquet": _write_table, ".jsonl": _write_table, ".pt": _write_torch,
}  # fmt: skip


def _damage(path: Path, random: Random) -> None:
    data = path.read_bytes()
    at = random.randrange(max(1, len(data)))
    flipped = data[:at] + bytes([data[at] ^ 1 << random.randrange(8)]) + data[at + 1 :] if data else b"\0"
    other = random.choice([b"", b"\0" * 100, b"PK\x05\x06" + bytes(18), b"PAR1PAR1", b"%!PS\n", b"\x80\x04.", b"{}\n"])
    path.write_bytes(random.choice([data[:at], flipped, flipped, data + data, other]))


def _wrong_numbers(ended: Ended, command: list[str], sound: Columns | None) -> str | None:
    """What is shown as JSON is JSON; the accuracy of a sound file is the share of rows whose label no class beats."""
    if ended.code or "--json" not in command:
        return (
            None if sound is None or ended.code == 0 or _may_refuse(command, ended) else f"refused: {ended.err[-300:]}"
        )
    try:
        found = json.loads(ended.out, parse_constant=_no_number)
    except ValueError as error:
        return f"not JSON: {error}"
    if sound is None or command[0] != "score":
        return None
    logits, labels = np.asarray(sound["logits"], "f8"), sound["labels"]
    right = float(np.mean(logits[np.arange(len(labels)), labels] >= logits.max(1)))
    shown = found["overall"]["accuracy"]
    return None if abs(shown - right) < 1e-9 else f"accuracy {shown}, not {right}"


def _may_refuse(command: list[str], ended: Ended) -> bool:
    """Two random files are mostly not of the same rows, and a few rows are not enough to fit on."""
    return command[0] != "score" or "--by" in command or "--json" in command


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no JSON")
