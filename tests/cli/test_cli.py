"""The commands as a user runs them: real files, exit codes, and what goes where."""

import csv
import io
import json
import os
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

import wane
from wane.cli import app

LOGITS = np.array([[2.0, -1.0, 0.5], [0.0, 3.0, 1.0], [1.0, 0.25, -2.0], [0.5, 0.0, 4.0]], dtype=np.float32)
LABELS = np.array([0, 1, 2, 2])
PAIR = ["example:digits_before", "example:digits_after"]


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def save(path, **arrays):
    np.savez(path, **({"logits": LOGITS, "labels": LABELS} | arrays))
    return path


def python(*arguments, **environment):
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={**os.environ, **environment},
    )


def test_help_does_not_import_torch():
    code = (
        "import sys; from wane.cli import main; sys.argv = ['wane', '--help']\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code\n"
        "heavy = {'torch', 'polars', 'scipy', 'numpy'} & {*sys.modules}; assert not heavy, heavy"
    )
    done = python("-c", code)
    assert done.returncode == 0, done.stderr
    assert "score" in done.stdout
    assert "compare" in done.stdout


def test_version():
    assert run("--version").output == f"wane {wane.__version__}\n"


def test_score_table():
    result = run("score", PAIR[1])
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert lines[0].split() == ["class", "n", "acc", "loss", "cm", "tlr", "log_tlr", "rtlr", "ctl", "nkl", "rank"]
    assert lines[2].split()[:4] == ["digit", "3", "92", "0%"]
    assert any(line.startswith("all") for line in lines)
    assert max(map(len, lines)) <= 80


def test_score_top():
    lines = run("score", PAIR[1], "--top", 2).output.splitlines()
    assert [line[:7] for line in lines[2:4]] == ["digit 3", "digit 1"]
    assert "8 more classes, all better." in lines
    assert run("score", PAIR[1], "--top", 0).exit_code == 2


def test_score_json():
    found = json.loads(run("score", PAIR[1], "--json").stdout)
    assert [*found] == ["overall", "groups", "notes", "recoverable"]
    assert [*found["groups"][0]][:4] == ["class", "name", "n", "accuracy"]
    assert len(found["groups"]) == 10
    assert found["overall"]["accuracy"] == pytest.approx(0.69967, abs=1e-4)


def test_score_csv():
    rows = list(csv.DictReader(io.StringIO(run("score", PAIR[1], "--csv").stdout)))
    assert len(rows) == 10
    assert rows[0]["name"] == "digit 3"
    assert float(rows[0]["accuracy"]) == 0


def test_json_has_no_nan(tmp_path):
    p = np.tile([0.0, 1.0], (6, 1))  # the label has probability 0 everywhere: no finite loss
    path = save(tmp_path / "p.npz", logits=np.zeros((6, 2)), labels=np.zeros(6, dtype=int))
    np.savez(tmp_path / "q.npz", probabilities=p, labels=np.zeros(6, dtype=int))
    for arguments in (["score", tmp_path / "q.npz"], ["compare", path, tmp_path / "q.npz"]):
        found = json.loads(run(*arguments, "--json").stdout, parse_constant=pytest.fail)
        assert found["groups"][0]["loss" if arguments[0] == "score" else "loss_after"] is None
        assert "probability 0" in found["notes"][1]
        assert run(*arguments).exit_code == 0


def test_compare_tables():
    result = run("compare", *PAIR)
    assert result.exit_code == 0, result.output
    titles = ["▼ Lost accuracy", "▽ Hidden decline", "At 0 %", "▲ Gained accuracy"]
    places = [result.output.index(title) for title in titles]
    assert places == sorted(places)
    assert "4 of 10 classes lost accuracy" in result.output
    assert "and 3 more." in run("compare", *PAIR, "--top", 1).output


def test_compare_json():
    found = json.loads(run("compare", *PAIR, "--json", "--alpha", "0.01").stdout)
    keys = ["sentences", "notes", "by", "heads", "clustered", "alpha", "interval", "smallest", "overall", "groups",
            "at_zero", "takers", "flips", "recoverable"]  # fmt: skip
    assert [*found] == keys
    assert found["alpha"] == 0.01
    assert found["at_zero"] == ["digit 1", "digit 3"]
    assert found["groups"][0]["verdict"] == "lost"
    few = json.loads(run("compare", *PAIR, "--json", "--alpha", "0.01", "--top", 2).stdout)
    assert few == {**found, "groups": found["groups"][:2], "flips": found["flips"][:2]}


def test_compare_html(tmp_path):
    result = run("compare", *PAIR, "--json", "--html", tmp_path / "out.html")
    assert result.exit_code == 0, result.output
    json.loads(result.stdout)  # the word that a file was written goes elsewhere
    assert "out.html" in result.stderr
    assert (tmp_path / "out.html").read_text().startswith("<!doctype html>")
    assert [path.name for path in tmp_path.iterdir()] == ["out.html"]


def test_no_colour_where_there_is_no_terminal():
    done = python("-m", "wane.cli", "compare", *PAIR, PYTHONIOENCODING="utf-8")
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    assert "▼" in done.stdout


def bad(row, column, value):
    values = LOGITS.copy()
    values[row, column] = value
    return values


BAD = {
    "missing file": (lambda d: ["score", d / "no.npz"], "no.npz is not a file: check the path"),
    "unknown suffix": (lambda d: ["score", d / "p.npx"], "did you mean '.npz'?"),
    "unknown example": (lambda d: ["score", "example:digit_after"], "did you mean 'digits_after'?"),
    "missing key": (lambda d: ["score", "logits_only"], "has no labels (it has 'logits')"),
    "shapes differ": (lambda d: ["score", save(d / "p.npz", labels=LABELS[:3])], "labels of shape (3,) for 4 rows"),
    "label out of range": (lambda d: ["score", save(d / "p.npz", labels=LABELS + 1)], "label 3 in row 2"),
    "nan": (lambda d: ["score", save(d / "p.npz", logits=bad(2, 1, np.nan))], "the logit of class 1 in row 2 is nan"),
    "other samples": (
        lambda d: ["compare", save(d / "p.npz"), save(d / "q.npz", labels=LABELS[::-1])],
        "are not of the same samples, as row 0 has label 0 in one and 2 in the other",
    ),
    "other ids": (
        lambda d: ["compare", save(d / "p.npz", ids=[1, 2, 3, 4]), save(d / "q.npz", ids=[1, 2, 3, 5])],
        "1 ids are only in the first",
    ),
    "other classes": (lambda d: ["compare", save(d / "p.npz"), PAIR[0]], "have 4 and 899 rows"),
    "alpha": (lambda d: ["compare", *PAIR, "--alpha", "2"], "alpha is 2.0: give"),
    "json and csv": (lambda d: ["score", PAIR[0], "--json", "--csv"], "choose one"),
    "no such folder": (lambda d: ["compare", *PAIR, "--html", d / "no" / "o.html"], "is not a folder: make it first"),
    "html is a folder": (lambda d: ["compare", *PAIR, "--html", d], "is a folder: give the name of a file"),
    "html not writable": (
        lambda d: ["compare", *PAIR, "--html", d / ("x" * 300)],
        "cannot be written (File name too long)",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_ends_in_one_sentence(tmp_path, case):
    make, message = BAD[case]
    np.savez(tmp_path / "logits_only.npz", logits=LOGITS)
    arguments = [tmp_path / "logits_only.npz" if a == "logits_only" else a for a in make(tmp_path)]
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("wane: ")
    assert result.stderr.count("\n") == 1
    assert message in result.stderr


def test_no_traceback_from_a_real_process(tmp_path):
    done = python("-m", "wane.cli", "score", str(tmp_path / "no.csv"))
    assert done.returncode == 2
    assert done.stderr == f"wane: {tmp_path / 'no.csv'} is not a file: check the path\n"
    assert done.stdout == ""


def test_data_describes_a_folder(tmp_path):
    from PIL import Image

    for name in ("ant", "bee"):
        (tmp_path / "insects" / name).mkdir(parents=True)
        for i in range(5):
            Image.new("RGB", (8, 6), (i, i, i)).save(tmp_path / "insects" / name / f"{i}.png")
    result = run("data", tmp_path / "insects")
    assert result.exit_code == 0, result.output
    assert "insects: 2 classes, 8 training and 2 test images of 3 x 6 x 8" in result.output
    assert "domains Sans, Mono, Serif" in run("data", "glyphs").output
    listed = run("data").output
    assert "glyphs" in listed
    assert "[embedded]" in listed


def test_data_of_an_unknown_name_mentions_folders():
    result = python("-m", "wane.cli", "data", "cifar_100")
    assert result.returncode == 2
    assert "did you mean 'cifar100'" in result.stderr
    assert "path of a folder" in result.stderr.replace("\n", " ")


def test_measured_files_compare_as_logits_do(tmp_path):
    for name in PAIR:
        done = run("measure", name, "-o", tmp_path / f"{name[8:]}.parquet")
        assert done.exit_code == 0, done.output
        assert "wrote 899 samples" in done.stderr
    files = [tmp_path / f"{name[8:]}.parquet" for name in PAIR]
    said, more = run("compare", *files).stdout, run("compare", *PAIR).stdout
    assert more.startswith(said)
    assert more[len(said) :].startswith("Bias of the second:")  # for which signals are not enough
    assert run("score", PAIR[0]).stdout.startswith(run("score", files[0]).stdout)


def test_groups_and_common_ids(tmp_path):
    labels = np.arange(60) % 3
    logits = np.eye(3)[labels] * 4
    light = np.where(np.arange(60) % 2, "day", "night")
    np.savez(tmp_path / "a.npz", logits=logits, labels=labels, light=light, ids=np.arange(60))
    np.savez(tmp_path / "b.npz", logits=-logits[5:], labels=labels[5:], light=light[5:], ids=np.arange(5, 60))
    assert "5 ids are only in the first" in run("compare", tmp_path / "a.npz", tmp_path / "b.npz").stderr
    done = run("compare", tmp_path / "a.npz", tmp_path / "b.npz", "--common", "--by", "light, class", "--json")
    found = json.loads(done.stdout)
    assert found["by"] == ["light", "class"]
    assert {row["name"] for row in found["groups"]} == {f"{a} · {b}" for a in ("day", "night") for b in range(3)}
    assert found["overall"]["n"] == 55
    assert "55 samples are in both files; 5 only in the first" in found["notes"][0]
    assert "choose from class, light" in run("score", tmp_path / "a.npz", "--by", "dark").stderr
