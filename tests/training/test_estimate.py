"""What a run will take, told before it starts."""

import pytest
from training.tiny_problem import tiny_config
from typer.testing import CliRunner

import wane.cli.lab as lab
from wane.cli import app
from wane.runs.recipes import load_recipe
from wane.training import estimate as module
from wane.training.estimate import Estimate, Extent, estimate, extent_of

EXTENT = Extent(400, 100, 4, (1, 6, 6))


def passes(monkeypatch, step=1.0, row=0.0, extent=EXTENT, **layers):
    """Seconds of a run if a step took `step` and the evaluation of a row `row`."""
    config = tiny_config(**layers)
    monkeypatch.setattr(module, "_seconds", lambda call, rows, device: row * 512 if rows == 512 else step)
    return estimate(config, extent=extent).seconds


def test_steps_and_evaluations_are_counted(monkeypatch):
    # 2 tasks of 200 rows in batches of 10, 3 epochs
    assert passes(monkeypatch) == 2 * 20 * 3
    assert passes(monkeypatch, learner={"name": "joint"}) == (20 + 40) * 3
    # half of the 100 test rows in the first task, all in the second
    assert passes(monkeypatch, step=0.0, row=1.0) == pytest.approx((50 + 100) * 3)
    every = passes(monkeypatch, step=0.0, row=1.0, record={"eval_every": 10})
    assert every == pytest.approx((50 + 100) * 3 * 3)


def test_memory_and_disk_grow_with_what_is_kept():
    small = estimate(tiny_config(), extent=EXTENT)
    large = estimate(tiny_config(memory={"capacity": 100_012}), extent=EXTENT)
    assert large.bytes - small.bytes == 100_000 * 36
    assert large.disk - small.disk == 2 * 100_000 * 36
    assert 0 < small.seconds < 60
    assert estimate(tiny_config(learner={"name": "finetune"}), extent=EXTENT).how.startswith("10 rows a step")


def test_a_data_set_that_is_not_here_is_not_fetched(tmp_path):
    config = load_recipe("diagnostics", scale="small", settings=({"data": {"root": str(tmp_path), "holdout": 10}},))
    assert extent_of(config) == Extent(100 * 240, 10_000, 100, (3, 16, 16))
    paper = load_recipe("diagnostics", scale="paper", settings=({"data": {"name": "tiny_imagenet"}},))
    assert extent_of(paper) == Extent(100_000, 10_000, 200, (3, 64, 64))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("seconds", "lines"), [(500, []), (7200, ["takes about 2.0 h"]), (1e6, ["takes about 12 days", "use a GPU"])]
)
def test_a_long_run_says_so(seconds, lines, monkeypatch, capsys):
    monkeypatch.setattr(
        "wane.training.estimate.estimate", lambda config: Estimate(seconds, 10**9, 10**6, "timed on cpu")
    )
    lab._say_what_it_takes(tiny_config())
    said = capsys.readouterr().err.splitlines()
    assert len(said) == len(lines)
    assert all(expected in line for expected, line in zip(lines, said, strict=True))


def test_a_dry_run_has_a_total(tmp_path, monkeypatch):
    """Review 3.4."""
    monkeypatch.setattr("wane.training.estimate.estimate", lambda config: Estimate(3600, 10**9, 10**8, "timed on cpu"))
    arguments = ["sweep", "diagnostics", "--over", "seed=0,1,2", "--out", str(tmp_path), "--dry-run"]
    said = CliRunner().invoke(app, arguments)
    assert said.exit_code == 0, said.output
    *runs, total = said.output.splitlines()
    assert len(runs) == 3
    assert total == "3 runs, 0 done; to do: 150 epochs, about 3.0 h one run after the other, 300 MB on disk"


def test_a_folder_is_counted_and_not_decoded(tmp_path):
    from PIL import Image

    for name in ("a", "b"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for i in range(10):
            (tmp_path / "photos" / name / f"{i}.png").write_bytes(b"not an image")
    Image.new("L", (8, 6)).save(tmp_path / "photos" / "a" / "0.png")
    name = str(tmp_path / "photos")
    assert extent_of(tiny_config(data={"name": name})) == Extent(16, 4, 2, (3, 6, 8))
    reduced = tiny_config(data={"name": name, "resolution": 4, "per_class": 3})
    assert extent_of(reduced) == Extent(6, 4, 2, (3, 4, 4))
