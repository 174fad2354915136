"""What is kept of a run is enough for its tables."""

import numpy as np
import polars as pl
import pytest
from views.hand_made import made_history, write_run

from wane.lab.archive import archive
from wane.lab.folder import find_runs
from wane.views.run_tables import run_table

ROWS = [[0.8, 0.7, np.nan, np.nan]] * 2 + [[0.1, 0.0, 0.5, 0.6]] * 2


def test_the_small_files_make_the_same_table(tmp_path):
    history = made_history(ROWS)
    runs = [
        write_run(tmp_path / "runs" / f"{s}", [{"seed": s, "recipe": "table1-small"}], history=history) for s in (0, 1)
    ]
    (runs[0].path / "checkpoint.pt").write_bytes(b"large")
    kept = archive(runs, tmp_path / "kept")
    assert [folder.name for folder in kept] == ["0", "1"]
    assert {file.name for folder in kept for file in folder.iterdir()} == {"config.toml", "summary.json"}
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


def test_nothing_done_is_an_error(tmp_path):
    run = write_run(tmp_path / "run", [], history=made_history(ROWS))
    (run.path / "summary.json").unlink()
    with pytest.raises(ValueError, match="none of 1 runs is done"):
        archive(find_runs(run.path), tmp_path / "kept")
