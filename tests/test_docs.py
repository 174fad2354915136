"""Every example of README and docs is run, in order, page by page; and the built site needs no other host."""

import contextlib
import doctest
import importlib.util
import io
import os
import re
import runpy
import shlex
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from plugins import torchvision_stub
from typer.testing import CliRunner

import wane
from wane.cli import app

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"(?ms)^(?P<indent> *)```(?P<language>\w+)[^\n]*\n(?P<text>.*?)^(?P=indent)```$")
RUN = {"python", "pycon", "console", "bash"}
OPTIONS = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS


@dataclass
class Block:
    language: str
    text: str
    line: int  # of the page, where the text begins


def blocks_of(markdown):
    return [
        Block(m["language"], textwrap.dedent(m["text"]), markdown.count("\n", 0, m.start("text")) + 1)
        for m in FENCE.finditer(markdown)
    ]


def run_page(markdown, name, folder):
    """Run the blocks of a page in order: Python in one namespace, commands and files in one folder."""
    namespace = {"__name__": "__main__"}
    with contextlib.chdir(folder):
        for block in blocks_of(markdown):
            if block.language in ("python", "pycon"):
                run_python(block, name, namespace)
            elif block.language in ("console", "bash"):
                run_commands(block, name)


def run_python(block, name, namespace):
    if ">>>" in block.text:
        example = doctest.DocTestParser().get_doctest(block.text, namespace, name, name, block.line - 1)
        report = io.StringIO()
        doctest.DocTestRunner(optionflags=OPTIONS).run(example, out=report.write, clear_globs=False)
        assert not report.getvalue(), report.getvalue()
        namespace.update(example.globs)  # a copy is what ran
    else:
        exec(compile("\n" * (block.line - 1) + block.text, name, "exec"), namespace)


def run_commands(block, name):
    """Lines such as `wane ...` must end well; below `$ wane ...` stands what it prints."""
    lines = block.text.splitlines()
    prompt = "$ " if any(line.startswith("$ ") for line in lines) else ""
    starts = [i for i, line in enumerate(lines) if line.startswith(f"{prompt}wane ")]
    for i, end in pairwise([*starts, len(lines)]):
        # In this process: torch is imported already. test_cli.py has the commands as processes of their own.
        command = shlex.split(lines[i].removeprefix(prompt), comments=True)[1:]
        done = CliRunner().invoke(app, command, env={"COLUMNS": "120", "NO_COLOR": "1"})
        where = f"{name}:{block.line + i}: {lines[i]}"
        assert done.exit_code == 0, f"{where}\n{done.output}"
        want = "\n".join(lines[i + 1 : end])
        if prompt and want.strip():
            same = doctest.OutputChecker().check_output(want, done.stdout, OPTIONS)
            assert same, f"{where}\nprinted\n{done.stdout}\nand not\n{want}"


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "avalanche.md"], ids=lambda page: page.name)
def test_every_example_of_a_page_runs(page, tmp_path):
    run_page(page.read_text(encoding="utf-8"), str(page.relative_to(ROOT)), tmp_path)


@pytest.mark.filterwarnings("ignore")
def test_every_example_of_the_page_on_avalanche_runs(tmp_path):
    """As above, but `make test-avalanche` installs what it needs."""
    if importlib.util.find_spec("avalanche") is None:
        pytest.skip("Avalanche is not installed: make test-avalanche")
    page = ROOT / "docs/plugins/avalanche.md"
    with torchvision_stub.stubbed():
        run_page(page.read_text(encoding="utf-8"), str(page.relative_to(ROOT)), tmp_path)


@pytest.mark.parametrize(
    "broken",
    [
        "```python\nx = 1\n```\n\n```python\nassert x == 2\n```",
        "```python\n>>> 1 + 1\n3\n```",
        "```python\n>>> 1 / 0\n```",
        '=== "tab"\n\n    ```python\n    nonsense\n    ```',
        "```bash\nwane no-such-command\n```",
        "```bash\nmake demo\nwane score missing.npz\n```",
        "```console\n$ wane --version\nwane 0.0.0\n```",
    ],
)
def test_a_broken_example_fails(broken, tmp_path):
    with pytest.raises((AssertionError, NameError)):
        run_page(broken, "broken.md", tmp_path)


def test_blocks_share_a_namespace_and_a_folder(tmp_path):
    python = "```python\nfrom pathlib import Path\nx = Path('a.txt').write_text('a')\n```\n"
    doctests = "```python\n>>> x, Path('a.txt').read_text()\n(1, 'a')\n>>> y = x\n```\n```python\nassert y == 1\n```\n"
    console = f"```console\n$ wane --version\nwane {wane.__version__}\n```\n"
    run_page(python + doctests + console, "good.md", tmp_path)


def test_every_fence_of_the_pages_has_a_known_language():
    """A fence without a language, or with an unknown one, would be an example that nobody runs."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        opening = re.findall(r"^ *```(.*)$", text, re.MULTILINE)[::2]
        assert len(opening) == len(blocks_of(text)), page
        assert {word.split()[0] for word in opening} <= RUN | {"bibtex", "text"}, page


def test_signals_page_has_every_formula_of_the_registry():
    page = (ROOT / "docs/signals.md").read_text(encoding="utf-8")
    for row in wane.SIGNALS.values():
        better = "↑" if row.higher_is_better else "↓"
        start = f"| `{row.name}` | {row.title} *({row.family})* | ${row.formula}$ | "
        assert re.search(rf"^{re.escape(start)}[^|]* {better} \|", page, re.MULTILINE), row.name


def test_measures_page_has_every_further_row():
    page = (ROOT / "docs/measures.md").read_text(encoding="utf-8")
    for row in wane.SIGNALS.further.values():
        formula = row.formula.replace(
            "|\\mathrm{acc}_b - \\mathrm{conf}_b|", r"\lvert\mathrm{acc}_b - \mathrm{conf}_b\rvert"
        )
        assert f"| `{row.name}` | {row.title} | ${formula}$ | " in page, row.name


@pytest.mark.parametrize("name", [*wane.__all__, "from_arrays", "from_folder"])
def test_api_page_has_every_name(name):
    page = (ROOT / "docs/api.md").read_text(encoding="utf-8")
    assert re.search(rf"^(:::|###) wane\.([a-z_]+\.)*{name}\b", page, re.MULTILINE)


def test_formulas_become_mathml():
    converter = runpy.run_path(str(ROOT / "docs/mathml.py"))["convert"]
    numerator, denominator = "<msub><mi>a</mi><mn>1</mn></msub>", "<mn>2.5</mn>"
    fraction = f"<mfrac><mrow>{numerator}</mrow><mrow>{denominator}</mrow></mfrac>"
    assert converter(r"\frac{a_1}{2.5}") == f"<math>{fraction}</math>"
    with pytest.raises(ValueError, match=r"\\sqrt is not understood"):
        converter(r"\sqrt{2}")


def test_the_pictures_are_those_that_make_draws(tmp_path):
    runpy.run_path(str(ROOT / "docs/pictures/make.py"))["main"](tmp_path)
    folder = ROOT / "docs/pictures"
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in folder.glob("*-*.svg")}
    for path in tmp_path.iterdir():
        drawn, committed = (shape_of(p.read_text(encoding="utf-8")) for p in (path, folder / path.name))
        # Half a pixel: another processor may round differently, another value would show.
        same = drawn[0] == committed[0] and np.allclose(drawn[1], committed[1], atol=0.5)
        assert same, f"{path.name} is out of date: run python docs/pictures/make.py"


def shape_of(svg):
    """What is drawn, and where: the text of the file without its numbers, and the numbers."""
    number = r"-?\b\d+\.\d+"
    return re.sub(r"#\w+|-?\b\d+(\.\d+)?", "", svg), np.array(re.findall(number, svg), dtype=float)


class Fetched(HTMLParser):
    """What a browser loads by itself; a link to click on is not."""

    def __init__(self):
        super().__init__()
        self.addresses = []

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        if tag == "link" and given.get("rel") in ("canonical", "prev", "next", "alternate"):
            return
        if tag in ("script", "link", "img", "source", "iframe", "video", "audio", "object", "use"):
            self.addresses += [given[key] for key in ("src", "href", "srcset", "data") if given.get(key)]


def test_the_site_builds_without_warnings_and_needs_no_other_host(tmp_path):
    site = tmp_path / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(site)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment, timeout=200)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    pages = sorted(site.rglob("*.html"))
    assert len(pages) >= 5
    for page in pages:
        text = page.read_text(encoding="utf-8")
        fetched = Fetched()
        fetched.feed(text)
        assert fetched.addresses, page
        assert not [a for a in fetched.addresses if re.match(r"(https?:)?//", a)], page
        assert "arithmatex" not in text, f"{page} has a formula that was not converted"
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(@import|url\()\s*['\"]?(https?:)?//", sheet.read_text(encoding="utf-8")), sheet
    assert "<math>" in (site / "signals/index.html").read_text(encoding="utf-8")


def test_results_come_into_the_pages(monkeypatch, tmp_path):
    hook = runpy.run_path(str(ROOT / "docs" / "results_files.py"))
    (tmp_path / "t.md").write_text("| a |")
    monkeypatch.setitem(hook["with_results"].__globals__, "RESULTS", tmp_path)
    page = "[The table](../results/t.md)\n\n![p](../results/p.png) and [a link](../results/t.md) in a line"
    shown = "| a |\n\n![p](results/p.png) and [a link](results/t.md) in a line"
    assert hook["with_results"](page) == shown
