"""The files of a run are named in one module."""

import ast
from pathlib import Path

import wane.runs.layout as layout

SOURCE = Path(layout.__file__).parents[1]
NAMES = {value for name, value in vars(layout).items() if name.isupper() and isinstance(value, str)}


def texts(path):
    """The strings of a module, docstrings aside, with their lines; also the parts of f-strings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    bodies = [n for n in ast.walk(tree) if isinstance(n, ast.Module | ast.ClassDef | ast.FunctionDef)]
    docs = {
        id(e.value) for n in bodies for e in n.body if isinstance(e, ast.Expr) and isinstance(e.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node.lineno, node.value


def test_no_other_module_spells_a_file_of_a_run():
    assert {"config.toml", "history.parquet", "summary.json", "lock.json"} <= NAMES
    spelled = [
        f"{path.relative_to(SOURCE)}:{line}: {text!r}"
        for path in sorted(SOURCE.rglob("*.py"))
        if path.name != "layout.py"
        for line, text in texts(path)
        if text.rpartition("/")[2] in NAMES
    ]
    assert spelled == []
