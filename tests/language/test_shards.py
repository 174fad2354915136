"""Shards of the texts on engines: the same file, also where a worker dies."""

import os

import pytest

pytest.importorskip("transformers")

from language.tiny_models import TOKENIZERS, gpt2, save, write_texts

from wane.language import shards
from wane.language.causal_model import load_model, wrap_model
from wane.language.token_files import TokenSettings, score_texts
from wane.sweeps.engines import Options
from wane.sweeps.engines.worker import do_job

SMALL = TokenSettings(stride=8, part_tokens=60, batch_tokens=100)


@pytest.fixture(scope="module")
def problem(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shards")
    tokenizer = TOKENIZERS["byte-level"]()
    name = save(gpt2(tokenizer), tokenizer, folder / "model")
    texts = write_texts(folder / "texts")
    score_texts(load_model(name), [texts], folder / "alone.parquet", settings=SMALL)
    return name, texts, (folder / "alone.parquet").read_bytes()


def test_jobs_of_neighbours_make_the_same_file(problem, tmp_path, monkeypatch):
    name, texts, alone = problem
    done = []

    def in_this_process(jobs, options):
        for job in jobs:
            done.append(job.name)
            yield job, do_job(job)

    monkeypatch.setattr(shards, "load_engine", lambda _: in_this_process)
    out = tmp_path / "out.parquet"
    score_texts(load_model(name), [texts], out, settings=SMALL, run_parts=shards.by_engine("x"))
    assert out.read_bytes() == alone
    assert len(done) > 2


def test_a_shard_that_dies_is_done_again_and_one_that_cannot_be_done_is_said(problem, tmp_path, monkeypatch):
    name, texts, alone = problem
    rounds = []

    def dies_once(jobs, options):
        rounds.append(len(jobs))
        for i, job in enumerate(jobs):
            if len(rounds) == 1 and i == 1:
                continue  # its worker died, and left nothing
            yield job, do_job(job)

    monkeypatch.setattr(shards, "load_engine", lambda _: dies_once)
    out = tmp_path / "out.parquet"
    score_texts(load_model(name), [texts], out, settings=SMALL, run_parts=shards.by_engine("x"))
    assert out.read_bytes() == alone
    assert len(rounds) == 2

    from wane.errors import RunError
    from wane.sweeps.engines import Outcome

    monkeypatch.setattr(
        shards, "load_engine", lambda _: lambda jobs, o: iter([(jobs[0], Outcome("failed", "no room"))])
    )
    with pytest.raises(RunError, match=r"parts of the texts could not be scored \(no room\)"):
        score_texts(load_model(name), [texts], tmp_path / "b.parquet", settings=SMALL, run_parts=shards.by_engine("x"))


def test_a_model_in_memory_cannot_be_shared_out(tmp_path, problem):
    tokenizer = TOKENIZERS["byte-level"]()
    with pytest.raises(ValueError, match="needs models that other processes can load"):
        score_texts(wrap_model(gpt2(tokenizer), tokenizer), [problem[1]], tmp_path / "o.parquet",
                    run_parts=shards.by_engine("local"))  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["local", "ray", "slurm"])
def test_real_engines_make_the_same_file(problem, tmp_path, engine, monkeypatch):
    name, texts, alone = problem
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    options = Options(workers=2, cpus=1, cluster="local" if engine == "slurm" else None, logs=str(tmp_path / "logs"))
    out = tmp_path / "out.parquet"
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    score_texts(load_model(name), [texts], out, settings=SMALL, run_parts=shards.by_engine(engine, options))
    assert out.read_bytes() == alone
