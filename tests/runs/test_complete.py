"""Complete configs: data folders by absolute path and content, so that moved data is the same run, changed data not."""

import shutil
import tomllib

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from wane.cli import app
from wane.runs.complete import complete
from wane.runs.config import ConfigError, build_config, differences
from wane.runs.identity import fingerprint, run_name
from wane.runs.store import statuses

TINY = {"data": {"name": "photos", "padding": 0, "tasks": 2}, "model": {"name": "mlp", "hidden": [4]},
        "learner": {"epochs": 1, "batch_size": 4, "replay_size": 4}, "memory": {"capacity": 4}}  # fmt: skip


@pytest.fixture
def photos(tmp_path, monkeypatch):
    """A folder with a folder for each class; the working folder is that which holds it."""
    random = np.random.default_rng(0)
    for name in "abcd":
        (tmp_path / "photos" / name).mkdir(parents=True)
        for i in range(6):
            pixels = random.integers(0, 255, (6, 6, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{i}.png")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "photos"


def change(folder):
    Image.new("RGB", (6, 6)).save(folder / "a" / "0.png")


def config_for(name):
    return complete(build_config(TINY, {"data": {"name": str(name)}}))


def test_the_path_is_absolute_and_the_content_counts(photos, tmp_path):
    first = config_for("photos")
    assert first.data.name == str(photos)
    assert first.data.fingerprint
    assert complete(first) == first
    moved = shutil.copytree(photos, tmp_path / "elsewhere" / "photos")
    assert run_name(config_for(moved)) == run_name(first)
    assert differences(first, config_for(moved)) == []
    change(photos)
    assert fingerprint(config_for(photos)) != fingerprint(first)
    with pytest.raises(ConfigError, match=r"photos are not those that this run was planned with"):
        complete(first)


def test_a_folder_that_is_not_there_and_a_data_set_by_name(photos, tmp_path):
    first = config_for("photos")
    shutil.rmtree(photos)
    assert complete(first) == first  # a run that is done can be read
    (tmp_path / "glyphs").mkdir()
    plain = complete(build_config({"data": {"name": "glyphs", "root": "data"}}))
    assert (plain.data.name, plain.data.fingerprint, plain.data.root) == ("glyphs", None, str(tmp_path / "data"))


def test_the_config_of_a_run_runs_from_another_folder(photos, tmp_path, monkeypatch):
    """Review 2.10: config.toml kept a relative path."""
    settings = [f"--set={key}" for key in ("data.name=photos", "data.tasks=2", "data.padding=0", "model.name=mlp",
                "model.hidden=[4]", "learner.epochs=1", "learner.batch_size=4", "memory.capacity=4")]  # fmt: skip
    (tmp_path / "mine.toml").write_text("")
    said = CliRunner().invoke(app, ["run", "mine.toml", *settings, "--out", "first", "--quiet"])
    assert (said.exit_code, said.output) == (0, "")
    written = tomllib.loads((tmp_path / "first" / "config.toml").read_text())
    assert written["data"]["name"] == str(photos)
    (tmp_path / "far").mkdir()
    monkeypatch.chdir(tmp_path / "far")
    again = ["run", str(tmp_path / "first" / "config.toml"), "--out", "second", "--quiet"]
    assert CliRunner().invoke(app, again).exit_code == 0
    change(photos)
    changed = CliRunner().invoke(app, ["run", str(tmp_path / "first" / "config.toml"), "--out", "third"])
    assert changed.exit_code == 2
    assert "are not those that this run was planned with" in changed.output
    other = CliRunner().invoke(app, ["run", str(tmp_path / "mine.toml"), *settings[1:], f"--set=data.name={photos}",
                                     "--out", str(tmp_path / "first")])  # fmt: skip
    assert other.exit_code == 2
    assert "holds another run (data.fingerprint: " in other.output


def test_a_sweep_after_the_data_changed_runs_again(photos, tmp_path):
    """Review 2.10: it said that all runs were done."""
    from wane.sweeps.engines.worker import carry_out
    from wane.sweeps.execute import plan_jobs
    from wane.sweeps.plan import expand

    (tmp_path / "mine.toml").write_text("")
    jobs = plan_jobs(expand("mine.toml", settings=(TINY,)), "runs")
    assert carry_out(jobs[0].settings, jobs[0].place).state == "done"
    change(photos)
    (again,) = plan_jobs(expand("mine.toml", settings=(TINY,)), "runs")
    assert again.name != jobs[0].name
    assert again.name not in statuses("runs")
    # a worker on a machine with other files does not pretend
    assert "are not those" in carry_out(jobs[0].settings, f"{tmp_path}/runs/other").note


def test_a_run_begun_before_data_had_a_fingerprint_goes_on(photos, tmp_path):
    from wane.runs.config import to_toml
    from wane.training.run import run

    config = config_for("photos")
    summary = run(config, tmp_path / "run")
    old = config.model_copy(update={"data": config.data.model_copy(update={"name": "photos", "fingerprint": None})})
    (tmp_path / "run" / "config.toml").write_text(to_toml(old))
    (tmp_path / "run" / "sums.sha256").unlink()  # such runs had none
    assert run(config, tmp_path / "run") == summary
