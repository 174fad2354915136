"""The house: a module imports only from the rooms above its own, and no two modules import each other."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "wane"

#: From top to bottom. What is not in a room (registry, files, errors) stands above all of them.
ROOMS = (
    "softmax", "measures", "interventions", "predictions", "streams", "models", "memory", "learners", "runs",
    "training", "sweeps", "loggers", "language", "plugins", "views", "paper", "cli",
)  # fmt: skip


def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name."""
    found = {}
    for path in SOURCE.rglob("*.py"):
        parts = ("wane", *path.relative_to(SOURCE).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(name: str, path: Path, known: dict[str, Path]) -> set[str]:
    """The modules of the package that a module imports anywhere in it, functions included; not for types alone."""
    found: set[str] = set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):  # what is imported for a type checker is not imported
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            node.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.split(".")[0] == "wane"}
        elif isinstance(node, ast.ImportFrom):
            package = name if path.name == "__init__.py" else name.rpartition(".")[0]
            above = ".".join(package.split(".")[: len(package.split(".")) - node.level + 1])
            base = node.module or "" if not node.level else ".".join(part for part in (above, node.module) if part)
            if base.split(".")[0] == "wane":
                found |= {f"{base}.{a.name}" if f"{base}.{a.name}" in known else base for a in node.names}
    return found - {name}


def room(name: str) -> int:
    """How far down a module is; -1 for what stands above all rooms."""
    part = name.split(".")[1] if "." in name else ""
    return ROOMS.index(part) if part in ROOMS else -1


def graph() -> dict[str, set[str]]:
    known = modules()
    return {name: imports(name, path, known) for name, path in known.items()}


def test_every_folder_is_a_room():
    folders = {path.name for path in SOURCE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders <= set(ROOMS), f"{sorted(folders - set(ROOMS))} have no place in the order of rooms"


def test_no_import_against_the_order():
    wrong = [
        f"{name} imports {other}"
        for name, others in sorted(graph().items())
        for other in sorted(others)
        # `import wane` for the version is free: its names are loaded when they are used
        if other != "wane" and name != "wane" and room(other) > room(name)
    ]
    assert not wrong, "\n".join(wrong)


def test_no_cycle():
    links = {name: others - {"wane"} for name, others in graph().items() if name != "wane"}
    done: set[str] = set()

    def visit(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            pytest.fail("a cycle of imports: " + " -> ".join((*path[path.index(name) :], name)))
        if name in done:
            return
        for other in sorted(links.get(name, ())):
            # a package's __init__ is imported with any of its modules; it may in turn gather those
            visit(other, (*path, name))
        done.add(name)

    for name in sorted(links):
        visit(name, ())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("from wane.views import palette", {"wane.views.palette"}),
        ("def f():\n    from wane.cli import main", {"wane.cli"}),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from wane.views import palette", set()),
        ("from . import loop", {"wane.training.loop"}),
    ],
)
def test_the_reader_of_imports(text, expected, tmp_path):
    path = tmp_path / "some.py"
    path.write_text(text)
    assert imports("wane.training.some", path, modules()) == expected


#: Methods that ask the front of the house (`import wane`) for a function of a lower room, by name, when they are
#: called: a history shows itself, as users expect of it, and still no module of measures imports one of views.
AT_THE_FRONT = {"wane.measures.history": {"figure", "report"}}


def test_only_named_methods_go_by_the_front():
    found: dict[str, set[str]] = {}
    for name, path in modules().items():
        if room(name) < 0 or room(name) == ROOMS.index("cli"):
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        known = {f"wane.{part}" for part in ROOMS}
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "wane":
                used = f"wane.{node.attr}"
                if used not in known and node.attr != "__version__":
                    found.setdefault(name, set()).add(node.attr)
    assert found == AT_THE_FRONT
