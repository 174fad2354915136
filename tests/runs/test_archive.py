"""What is kept of a run is enough for its tables."""

import subprocess
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from views.hand_made import made_history, write_run

from wane.errors import DamagedError
from wane.runs.archive import archive
from wane.runs.folder import find_runs
from wane.views.tables.run_tables import run_table

ROWS = [[0.8, 0.7, np.nan, np.nan]] * 2 + [[0.1, 0.0, 0.5, 0.6]] * 2


def test_the_small_files_make_the_same_table(tmp_path):
    history = made_history(ROWS)
    runs = [
        write_run(tmp_path / "runs" / f"{s}", [{"seed": s, "recipe": "table1-small"}], history=history) for s in (0, 1)
    ]
    (runs[0].path / "checkpoint.pt").write_bytes(b"large")
    kept = archive(runs, tmp_path / "kept")
    assert [folder.name for folder in kept] == ["0", "1"]
    assert {file.name for folder in kept for file in folder.iterdir()} == {"config.toml", "summary.json", "sums.sha256"}
    assert run_table("auto", find_runs(tmp_path / "kept")).frame.equals(run_table("auto", runs).frame)


@pytest.mark.parametrize("wanted", ["table1", "er", "first-*"])
def test_histories_are_kept_where_asked(tmp_path, wanted):
    run = write_run(tmp_path / "first-run", [{"recipe": "table1-small"}], history=made_history(ROWS))
    (folder,) = archive([run], tmp_path / "kept", histories=[wanted])
    assert find_runs(folder)[0].history.frame.equals(run.history.frame)


@pytest.mark.parametrize("other", ["table2", "er, class_uniform", "second-*"])
def test_histories_of_others_are_not(tmp_path, other):
    run = write_run(tmp_path / "first-run", [{"recipe": "table1-small"}], history=made_history(ROWS))
    (folder,) = archive([run], tmp_path / "kept", histories=[other])
    assert not (folder / "history.parquet").exists()


def test_the_log_of_the_replay_is_kept_to_seven_digits_and_stays_as_it_is(tmp_path):
    run = write_run(tmp_path / "run", [], history=made_history(ROWS))
    drawn = np.random.default_rng(0).multinomial(640, np.full(100, 0.01), size=60)
    log = pl.DataFrame({"probabilities": (drawn / 640 + 1e-12).tolist(), "drawn": drawn.tolist()})
    log.write_parquet(run.path / "replay.parquet")
    once = archive(find_runs(run.path), tmp_path / "once")[0] / "replay.parquet"
    twice = archive(find_runs(once.parent), tmp_path / "twice")[0] / "replay.parquet"
    assert once.read_bytes() == twice.read_bytes()
    kept = find_runs(once.parent)[0].replay
    assert kept["drawn"].to_list() == log["drawn"].to_list()
    np.testing.assert_allclose(kept["probabilities"].to_list(), log["probabilities"].to_list(), rtol=1e-7)


def test_different_runs_of_one_name_are_not_written_over_each_other(tmp_path):
    first, second = (write_run(tmp_path / store / "run", [{"seed": i}]) for i, store in enumerate("ab"))
    with pytest.raises(ValueError, match=r"a/run and .*b/run are different runs \(seed: 0 -> 1\) of the same name"):
        archive([first, second], tmp_path / "kept")
    assert not (tmp_path / "kept").exists()
    same = write_run(tmp_path / "c" / "run", [{"seed": 0, "device": "cpu"}])
    assert len(archive([first, same], tmp_path / "kept")) == 1


@pytest.mark.parametrize("wanted", ["my-study", "my-study-small", "my-study*"])
@pytest.mark.parametrize("recipe", ["my-study", "my-study-small"])
def test_a_recipe_may_have_a_hyphen(recipe, wanted, tmp_path):
    run = write_run(tmp_path / "run", [{"recipe": recipe}], history=made_history(ROWS))
    (folder,) = archive([run], tmp_path / "kept", histories=[wanted])
    assert (folder / "history.parquet").exists() is (wanted != "my-study-small" or recipe == wanted)


def test_a_killed_copy_leaves_the_log_of_before(tmp_path, monkeypatch):
    run = write_run(tmp_path / "run", [])
    pl.DataFrame({"probabilities": [[0.5, 0.5]]}).write_parquet(run.path / "replay.parquet")
    (folder,) = archive([run], tmp_path / "kept")
    before = (folder / "replay.parquet").read_bytes()

    def half(frame, file):
        Path(file).write_bytes(b"PAR1") if isinstance(file, str | Path) else file.write(b"PAR1")
        raise KeyboardInterrupt

    monkeypatch.setattr(pl.DataFrame, "write_parquet", half)
    with pytest.raises(KeyboardInterrupt):
        archive([run], tmp_path / "kept")
    assert (folder / "replay.parquet").read_bytes() == before
    assert len(list(folder.iterdir())) == 4


def test_a_copy_has_sums_of_its_own(tmp_path):
    run = write_run(tmp_path / "run", [], history=made_history(ROWS))
    pl.DataFrame({"probabilities": [[0.5, 0.5]]}).write_parquet(run.path / "replay.parquet")
    for _ in range(2):  # also where a copy is written over
        (folder,) = archive([run], tmp_path / "kept", histories=["*"])
        subprocess.run(["sha256sum", "--strict", "-c", "sums.sha256"], cwd=folder, capture_output=True, check=True)
        (kept,) = find_runs(folder)
        assert kept.history.frame.equals(run.history.frame)
        (folder / "history.parquet").write_bytes((folder / "history.parquet").read_bytes()[:-1] + b"0")
        with pytest.raises(DamagedError, match=r"history.parquet is not as it was written"):
            _ = find_runs(folder)[0].history


def test_a_copy_has_its_summary_when_it_is_whole(tmp_path, monkeypatch):
    run = write_run(tmp_path / "run", [], history=made_history(ROWS))

    def stopped_at_the_history(path, data):
        if path.name == "history.parquet":
            raise KeyboardInterrupt
        path.write_bytes(data)

    monkeypatch.setattr("wane.runs.archive.replace_file", stopped_at_the_history)
    with pytest.raises(KeyboardInterrupt):
        archive([run], tmp_path / "kept", histories=["*"])
    assert [path.name for path in (tmp_path / "kept" / "run").iterdir()] == ["config.toml"]


def test_nothing_done_is_an_error(tmp_path):
    run = write_run(tmp_path / "run", [], history=made_history(ROWS))
    (run.path / "summary.json").unlink()
    with pytest.raises(ValueError, match="none of 1 runs is done"):
        archive(find_runs(run.path), tmp_path / "kept")
