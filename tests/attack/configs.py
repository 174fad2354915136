"""Random settings: sound and hostile, of every key that the config knows and of some that it does not."""

from dataclasses import fields, is_dataclass
from pathlib import Path
from random import Random
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from tests.attack.bench import Bench, complaint
from tests.attack.children import wane
from tests.attack.problem import CONFIG

NAMES = (
    "", " ", ".", "..", "/", "/../x", "../../x", "a/../../../b", "~", "C:x", "a\nb", "\\input{x}", "\x1b[31mred", "\0",
    "<script>", "x" * 5000, "=1+1", "🙂", "\udcff", "os:getcwd", "wane:nothing", "no.module:f", "-o", "{}", "%s", "nan",
)  # fmt: skip
NUMBERS: tuple[Any, ...] = (
    0, -1, 1, 2, 3, 0.5, -0.0, 1e-320, 1e308, float("nan"), float("inf"), 10**6, 10**9, 10**15, 2**63, 2**64, -(2**63),
    10**400, 1.5,
)  # fmt: skip
SHAPES: tuple[Any, ...] = (True, False, [], [[]], [1, "a"], {}, {"a": 1}, [[0, 1], [2, 3]], [[0], [0]], ["ece", "top9"])
UNKNOWN = ("learner.learning_rate", "x", "data.x.y", "learner.options.alpha", "learner.options.x", "", ".", "record.")

#: More of these is more to do, and no fault: they are never made huge.
LONG = {"learner.epochs", "record.recovery.steps", "record.ladder.folds", "record.recovery.beside"}
#: Names that start a download or several processes.
UNTOUCHED = {"devices"}
KNOWN = {
    "data.name": ["tests.attack.problem:tiny"], "model.name": ["mlp", "cnn", "resnet18"], "device": ["cpu", "auto"],
    "record.correction.by": ["nkl", "prior", "accuracy"], "record.ladder.by": ["nkl", "loss"], "data.fingerprint": [""],
    "record.signals": [["ece"], ["mrr", "top2"], ["brier"]], "learner.trend.signal": ["loss", "cm", "mrr"],
    "learner.weights.signal": ["loss", "nkl", "brier"], "model.width": [2, 3], "memory.capacity": [1, 4, 30],
}  # fmt: skip


def config_case(bench: Bench, _index: int, random: Random) -> str | None:
    """A run, or a sweep, with random settings: it runs, or one sentence says what is wrong; nothing lands elsewhere."""
    settings = [_setting(random) for _ in range(random.choice([1, 1, 2, 3]))]
    said = "; ".join(f"{key} = {value!r}"[:200] for key, value in settings)
    command = random.choice(
        [
            ["run", "c.toml", "--quiet"],
            ["run", "c.toml", "--quiet", "--out", "store/run"],
            ["sweep", "c.toml", "--dry-run"],
            ["sweep", "c.toml", "--out", "store", "--engine", "tests.attack.problem:one_by_one"],
        ]
    )
    with bench.box() as box:
        if random.random() < 0.4:
            (box / "c.toml").write_text(CONFIG)
            command += [part for key, value in settings for part in ("--set", _as_text(key, value))]
            if any("\0" in part for part in command):  # no shell could pass it on
                return None
        else:
            _write(box / "c.toml", settings)
        ended = wane(box, *[part.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")
                            for part in command])  # fmt: skip
        wrong = complaint(ended)
        others = [path.name for path in box.parent.iterdir() if path != box and ".notes." not in path.name]
        if wrong is None and others:
            wrong = f"wrote {others[0]} beside its folder"
        return wrong and f"{' '.join(command[:2])} with {said}: {wrong}"


def _setting(random: Random) -> tuple[str, Any]:
    from wane.runs.config import Config

    if random.random() < 0.08:
        return random.choice(UNKNOWN), random.choice([*NUMBERS, *NAMES])
    keys = {key: kind for key, kind in leaves(Config).items() if key not in UNTOUCHED}
    key = random.choice([*keys])
    if random.random() < 0.5:
        return key, _sound(key, keys[key], random)
    value = random.choice(random.choice([NAMES, NUMBERS, SHAPES]))
    huge = isinstance(value, int | float) and value > 3
    return key, 2 if huge and key in LONG else value


def leaves(model: Any, prefix: str = "") -> dict[str, Any]:
    """Every setting by its dotted name, with its type, read off the model."""
    found: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        kind = field.annotation
        parts = [part for part in (kind, *get_args(kind)) if isinstance(part, type)]
        section = next((part for part in parts if issubclass(part, BaseModel)), None)
        plain = next((part for part in parts if is_dataclass(part)), None)
        if section is not None:
            found |= leaves(section, f"{prefix}{name}.")
        elif plain is not None:
            found |= {f"{prefix}{name}.{part.name}": str for part in fields(plain)}
        else:
            found[prefix + name] = kind
    return found


def _sound(key: str, kind: Any, random: Random) -> Any:
    if key == "learner.name":
        from wane.learners import LEARNERS

        return random.choice([*LEARNERS])
    if key in KNOWN:
        return random.choice(KNOWN[key])
    kinds = [kind, *get_args(kind), *(inner for k in get_args(kind) for inner in get_args(k))]
    literals = [value for k in kinds if get_origin(k) is Literal for value in get_args(k)]
    if literals:
        return random.choice(literals)
    if bool in kinds:
        return random.random() < 0.5
    if any(get_origin(k) is tuple for k in kinds):
        return [random.choice([1, 2, 3]) for _ in range(random.choice([1, 2]))]
    return random.choice([1, 2, 3]) if int in kinds else random.choice([0.01, 0.3, 0.9])


def _as_text(key: str, value: Any) -> str:
    import tomli_w

    try:
        return f"{key}={tomli_w.dumps({'v': value})[4:].strip()}" if not isinstance(value, str) else f"{key}={value}"
    except (ValueError, TypeError, UnicodeError):
        return f"{key}={value}"


def _write(path: Path, settings: list[tuple[str, Any]]) -> None:
    import tomllib

    import tomli_w

    layers = tomllib.loads(CONFIG)
    for key, value in settings:
        section, parts = layers, key.split(".")
        for part in parts[:-1]:
            if not isinstance(section.get(part), dict):
                section[part] = {}
            section = section[part]
        section[parts[-1]] = value
    try:
        text = tomli_w.dumps(layers)
    except Exception:
        text = CONFIG + f"\n{settings[0][0]} = {settings[0][1]}\n"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
