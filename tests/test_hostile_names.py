"""One hostile name through everything that writes names: files, tables, pages, listings."""

import ast
import os
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner
from views.hand_made import made_history, write_run

import wane
from wane.cli import app
from wane.escaping import csv_cell, csv_table, latex, markdown, visible
from wane.names import safe_name
from wane.paper.reproduction import write_reproduction
from wane.runs.archive import archive
from wane.runs.folder import find_runs
from wane.sweeps.plan import Planned

SOURCE = Path(__file__).parent.parent / "src" / "wane"
HOSTILE = "=1+1\n\\input{x}<script>alert(1)</script>\x1b[31m|`[link](x)`[red]:x:C:x\u202eevil & 50% $x$ _{#}"
NAMES = [
    "\n\\input{x}", "<script>", "=1+1", "\x1b[31m", "|", "`", "[link](x)", "C:x", "\u202eabc", "../../x", "/etc/passwd",
    "..", ".", "", "-rf", "a\x00b", "CON", "x" * 400, "@sum", "+1+1", "\t=1", "日本語", "👩‍🔬", HOSTILE,
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_never_a_path(name, tmp_path):
    for distinct in (False, True):
        made = safe_name(name, distinct=distinct)
        assert made == os.path.basename(made) not in ("", ".", "..")
        assert (tmp_path / made).resolve().parent == tmp_path.resolve()
        (tmp_path / made).write_text("x")
    assert len({safe_name(n, distinct=True) for n in NAMES}) == len(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_format_escapes(name):
    for escape in (visible, latex, markdown, csv_cell):
        shown = escape(name)
        assert not re.search(r"[\x00-\x1f\x7f\u202a-\u202e\u2066-\u2069]", shown)
    assert "\\input" not in latex(name)
    assert not re.search(r"(?<!\\)[|<`\[]", markdown(name))
    assert not re.match(r"\s*[=@]", csv_cell(name))
    line = csv_table(pl.DataFrame({"name": [name], "number": [-1.5]})).splitlines()
    assert len(line) == 2
    assert line[1].endswith(",-1.5")


def test_nothing_else_prints():
    wrong = []
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            allowed = path.name == "output.py" or "engines" in path.parts or path.name == "progress.py"
            if name in ("print", "typer.echo", "click.echo", "rich.print") and not allowed:
                wrong.append(f"{path}:{node.lineno} calls {name}")
            if name.endswith(".write_csv") and path.name != "escaping.py":
                wrong.append(f"{path}:{node.lineno} calls {name}")
    assert not wrong, "\n".join(wrong)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Two runs of methods and classes with hostile names, in a folder of such a name."""
    root = tmp_path_factory.mktemp("store")
    for seed in (0, 1):
        history = wane.History(class_to_task=[0, 0, 1, 1], names=[HOSTILE, "<script>", "=1+1", "[red]"])
        for task, accuracy in enumerate([(0.9, 0.8, 0.1, 0.1), (0.4, 0.5, 0.8, 0.9)]):
            rows = {name: np.array(accuracy) for name in wane.SIGNALS} | {"n": [10] * 4}
            history.record(rows, step=task, task=task)
        folder = root / f"a\x1b[31m\n\\input{{y}}<script>{seed}"
        wane.save_run(history, folder, method=HOSTILE, seed=seed, data=HOSTILE, title=HOSTILE)
    return root


def plain(text):
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069]", text), repr(text)
    return text


@pytest.mark.parametrize("form", ["text", "markdown", "latex", "csv"])
def test_tables(store, form):
    said = plain(CliRunner().invoke(app, ["table", "auto", str(store), "--format", form]).stdout)
    assert "script" in said
    if form == "latex":
        code = [line for line in said.splitlines() if not line.startswith("%")]  # notes are comments, a line each
        assert "\\input" not in "\n".join(code)
    if form == "markdown":
        assert not re.search(r"(?<!\\)<script", said)
    if form == "csv":
        frame = pl.read_csv(said.encode())
        assert not any(str(value).startswith(("=", "@")) for column in frame.iter_columns() for value in column)


def test_listings(store):
    runner = CliRunner()
    for command in (["runs", str(store)], ["at-risk", str(store)]):
        found = runner.invoke(app, command)
        assert found.exit_code == 0, found.output
        assert "script" in plain(found.output)
    for command in (["runs", str(store / "no\x1b[31m")], ["report", str(store / "no\x1b[31m")]):
        plain(runner.invoke(app, command).output)


def test_pages(store, tmp_path):
    page = wane.report(find_runs(store), tmp_path / "report.html").read_text()
    shown = re.sub(r"<script.*?</script>", "", page, flags=re.S)
    assert "<script>alert(1)" not in page
    assert "\u202e" not in shown


@pytest.fixture
def predictions(tmp_path):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 60)
    for name in ("before", "after"):
        np.savez(
            tmp_path / f"{name}.npz", logits=rng.normal(size=(60, 3)), labels=labels,
            class_names=np.array([HOSTILE, "=1+1", "[red]C:x:"]),
        )  # fmt: skip
    return tmp_path


def test_saved_predictions(predictions):
    before, after = (str(predictions / f"{name}.npz") for name in ("before", "after"))
    runner, page = CliRunner(), predictions / "page.html"
    for command in (["score", before], ["score", before, "--csv"], ["compare", before, after, "--html", str(page)]):
        found = runner.invoke(app, command)
        assert found.exit_code == 0, found.output
        plain(found.output)
        if "--csv" in command:
            assert not re.search(r"(^|,)\"?[=@]", found.stdout, flags=re.M)
        else:
            assert "C:x:" in found.stdout
    assert "<script>alert" not in page.read_text()
    assert "\u202e" not in page.read_text()


@pytest.mark.parametrize(
    "setting",
    ["record.signals=['/../../y']", "learner.trend.signal=/../../y", "learner.weights.signal=../y",
     "learner.name=../../y", "model.name=../../y", "data.name=../../y"],
)  # fmt: skip
def test_an_unknown_name_is_said_before_a_folder_is_made(setting, tmp_path, monkeypatch):
    inside = tmp_path / "a" / "b"
    inside.mkdir(parents=True)
    monkeypatch.chdir(inside)
    found = CliRunner().invoke(app, ["run", "diagnostics", "--quiet", "--set", setting])
    assert found.exit_code == 2
    assert [*tmp_path.rglob("*")] == [tmp_path / "a", inside]


def test_a_recipe_is_no_path(tmp_path, monkeypatch):
    inside = tmp_path / "a" / "b"
    inside.mkdir(parents=True)
    monkeypatch.chdir(inside)
    ran = []
    monkeypatch.setattr("wane.training.run.run", lambda _config, folder, **_: ran.append(folder) or {})
    CliRunner().invoke(app, ["run", "diagnostics", "--quiet", "--set", "recipe=../../x"])
    assert ran == [Path("runs/_.._.._x-seed0")]


def test_files_of_a_reproduction(tmp_path):
    """Data sets of which one is called as the other with a suffix, or hostile, have files of their own."""
    history, names = made_history([[0.8, 0.8, np.nan, np.nan]] * 2 + [[0.1, 0.0, 0.5, 0.6]] * 2), ("x.v1", "x.v2")
    runs = [
        write_run(tmp_path / f"{data[:4]}{seed}{'past' if more else ''}",
                  [{"data": {"name": data}, "seed": seed}, more], history=history)
        for data in (*names, "<img src=x>|../..")
        for seed in range(2)
        for more in ({}, {"memory": {"draw": "class_uniform", "scope": "past"}})
    ]  # fmt: skip
    write_reproduction({"diagnostics": [Planned("er", run.config) for run in runs]}, runs, tmp_path / "out")
    for name in names:
        assert (tmp_path / "out" / f"diagnostics_{name}.json").exists()
        assert (tmp_path / "out" / f"trajectories_{name}.png").exists()
    written = [path for path in (tmp_path / "out").rglob("*") if path.suffix in (".md", ".html")]
    assert not re.search(r"(?<!\\)<img src=x", "".join(path.read_text() for path in written))
    assert len(list(tmp_path.iterdir())) == len(runs) + 1


#: What writes to a page, a table or a terminal, each with the files where it may stand.
WAYS = {
    r"\bEnvironment\(": {"page_template.py"},
    r"\bMarkup\(|from markupsafe": {"page_template.py", "page.py", "svg.py"},
    r"\\\\begin\{": {"formats.py"},
    r"csv\.writer|DictWriter|\.to_csv\(": set(),
    r"sys\.std(out|err)\.write": set(),
}


@pytest.mark.parametrize("way", WAYS)
def test_nothing_else_writes_names(way):
    found = {path.name for path in SOURCE.rglob("*.py") if re.search(way, path.read_text(encoding="utf-8"))}
    assert found <= WAYS[way]


#: What decodes files, and the argument without which it would decode more than is meant; None: it is for ourselves.
DECODERS = {"Image.open": "formats", "torch.load": "weights_only", "pickle.loads": None, "pickle.load": None}


def test_only_what_is_meant_is_decoded():
    wrong = []
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            given = {word.arg: ast.unparse(word.value) for word in node.keywords} if name else {}
            own = path.name == "launch.py"  # what a run sends to its own processes
            if name in DECODERS and not own and (DECODERS[name] not in given or given.get("weights_only") == "False"):
                wrong.append(f"{path}:{node.lineno} calls {name}")
            if given.get("allow_pickle") == "True":
                wrong.append(f"{path}:{node.lineno} unpickles")
    assert not wrong, "\n".join(wrong)


def test_an_archive_is_never_the_runs_themselves(tmp_path):
    history = wane.History(class_to_task=[0, 1])
    history.record({"accuracy": [0.5, 0.5], "n": [1, 1]}, step=0, task=0)
    run = wane.save_run(history, tmp_path / "store" / "deep" / "x", method="mine", seed=0)
    (tmp_path / "link").symlink_to(tmp_path / "store")
    before = {file: file.read_bytes() for file in run.iterdir()}
    places = ("store/deep", "store", "link", "link/deep", "store/deep/x", "store/deep/x/kept", ".")
    for place in places:
        with pytest.raises(ValueError, match=r"give another --out|give a folder outside"):
            archive(find_runs(tmp_path / "store"), tmp_path / place)
    assert {file: file.read_bytes() for file in run.rglob("*") if file.is_file()} == before
    assert archive(find_runs(tmp_path / "store"), tmp_path / "kept") == [tmp_path / "kept" / "x"]
