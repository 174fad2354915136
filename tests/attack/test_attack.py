"""A few cases of every kind of attack; and the harness itself, which must catch what is planted."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]

#: Defects, each with the kind of attack that must find it. They are planted before the first process is forked.
PLANTED = {
    "a file is written in its place, not moved there": (
        ["--kind", "tear", "--cases", "16"],
        """
import wane.files
def in_place(path, data):
    with path.open("wb") as file:
        file.write(data) if isinstance(data, bytes) else data(file)
wane.files.replace_file = in_place
""",
    ),
    "a run that goes on draws other random numbers": (
        ["--kind", "kill", "--cases", "24"],
        """
import wane.training.loop
real = wane.training.loop.load_checkpoint
def forgetful(*arguments, **options):
    saved = real(*arguments, **options)
    if saved is not None:
        saved["generators"] = {name: state * 0 for name, state in saved["generators"].items()}
    return saved
wane.training.loop.load_checkpoint = forgetful
""",
    ),
    "an error has no sentence": (
        ["--kind", "config", "--cases", "12"],
        """
import wane.cli
wane.cli.sentence = lambda error: 1 / 0
""",
    ),
    "labels are read in the wrong order": (
        ["--kind", "predictions", "--cases", "80"],
        """
import wane.predictions.contents as contents
real = contents._labels
contents._labels = lambda *arguments: real(*arguments).flip(0)
""",
    ),
}


def attack(*arguments, planted=""):
    """Run the harness in a process of its own: this one has threads, which do not survive a fork."""
    code = f"{planted}\nimport sys\nfrom tests.attack.__main__ import main\nsys.exit(main({[*arguments]!r}))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )


def test_no_attack_succeeds():
    done = attack("--cases", "150")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all             150       0" in done.stdout


@pytest.mark.parametrize("defect", PLANTED)
def test_a_planted_defect_is_found(defect):
    arguments, planted = PLANTED[defect]
    done = attack(*arguments, planted=planted)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "FAILED python -m tests.attack" in done.stdout
    assert "the harness failed" not in done.stdout


def test_a_failed_case_can_be_repeated():
    arguments, planted = PLANTED["an error has no sentence"]
    said = next(line for line in attack(*arguments, planted=planted).stdout.splitlines() if line.startswith("FAILED"))
    again = attack(*said.split()[4:], planted=planted)
    assert again.returncode == 1
    assert said in again.stdout
