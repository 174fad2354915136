"""A killed command, a full disk, half precision: what is promised of `wane tokens` when things go wrong."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import polars as pl
import pytest

pytest.importorskip("transformers")

from language.tiny_models import TOKENIZERS, gpt2, save, write_texts

from wane.errors import RunError
from wane.language import token_files
from wane.language.causal_model import load_model
from wane.language.token_files import TokenSettings, score_texts

SMALL = TokenSettings(stride=8, part_tokens=60, batch_tokens=100)


@pytest.fixture(scope="module")
def problem(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reliability")
    tokenizer = TOKENIZERS["byte-level"]()
    return save(gpt2(tokenizer), tokenizer, folder / "model"), write_texts(folder / "texts")


def test_a_full_disk_is_one_sentence_and_costs_only_what_was_not_written(problem, tmp_path, monkeypatch):
    name, texts = problem
    model, out = load_model(name), tmp_path / "out.parquet"
    real, calls = token_files.replace_file, []

    def full(path, data, **options):
        calls.append(path)
        if len(calls) > 3:
            raise OSError(28, "No space left on device")
        real(path, data, **options)

    monkeypatch.setattr(token_files, "replace_file", full)
    with pytest.raises(RunError, match=r"could not be written \(No space left on device\): make room"):
        score_texts(model, [texts], out, settings=SMALL)
    assert not out.exists()
    monkeypatch.undo()
    score_texts(model, [texts], out, settings=SMALL)
    score_texts(model, [texts], tmp_path / "again.parquet", settings=SMALL)
    assert out.read_bytes() == (tmp_path / "again.parquet").read_bytes()


def test_half_precision_is_near_and_is_said_by_the_fingerprint(problem, tmp_path):
    name, texts = problem
    found = []
    for dtype in ("float32", "bfloat16"):
        model = load_model(name, dtype=dtype)
        score_texts(model, [texts], tmp_path / f"{dtype}.parquet", settings=SMALL)
        found.append(pl.read_parquet(tmp_path / f"{dtype}.parquet")["loss"].to_numpy())
    assert not np.array_equal(*found)
    np.testing.assert_allclose(*found, atol=0.1)


@pytest.mark.slow
def test_killed_at_any_moment_the_same_command_ends_with_the_same_file(problem, tmp_path):
    name, texts = problem
    long = tmp_path / "long"
    long.mkdir()
    for i in range(40):
        (long / f"t{i:02d}.txt").write_text((texts / "story.txt").read_text(encoding="utf-8"), encoding="utf-8")
    program = (
        "import sys; from wane.language.causal_model import load_model\n"
        "from wane.language.token_files import TokenSettings, score_texts\n"
        "how = TokenSettings(stride=8, part_tokens=400, batch_tokens=400)\n"
        "score_texts(load_model(sys.argv[1]), [sys.argv[2]], sys.argv[3], settings=how)\n"
    )

    def start(out):
        arguments = [sys.executable, "-c", program, name, str(long), str(out)]
        return subprocess.Popen(arguments, env={**os.environ, "HF_HUB_OFFLINE": "1"}, stderr=subprocess.DEVNULL)

    assert start(tmp_path / "whole.parquet").wait(200) == 0
    out, kills = tmp_path / "killed.parquet", 0
    while not out.exists():
        process, folder = start(out), tmp_path / ".killed.parquet.parts"
        before, since = len(list(folder.glob("*.parquet"))), time.monotonic()
        while process.poll() is None and time.monotonic() - since < 60:
            if kills < 3 and len(list(folder.glob("*.parquet"))) >= before + 3:
                process.send_signal(signal.SIGKILL)
                kills += 1
            time.sleep(0.01)
        process.wait()
    assert kills == 3
    assert out.read_bytes() == (tmp_path / "whole.parquet").read_bytes()
    assert not list(tmp_path.glob(".killed*"))
