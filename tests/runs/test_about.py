"""What a reader needs to know beyond the config: from about.json, or derived for runs that have none."""

import json
from pathlib import Path

import pytest
from training.tiny_problem import tiny_config, tiny_dataset
from views.hand_made import made_history, made_replay, write_run

from wane.runs.about import About, parse_about
from wane.runs.folder import RunFolder, list_runs
from wane.training.run import run

RESULTS = Path(__file__).parents[2] / "results" / "runs"


def test_a_run_writes_it(tmp_path):
    run(tiny_config(), tmp_path / "er", dataset=tiny_dataset(class_names=("a", "b", "c", "d")))
    about = RunFolder(tmp_path / "er").about
    assert about.has_memory
    assert about.class_names == about.group_names == ("a", "b", "c", "d")
    assert len(about.task_names) == 2
    assert about.schema > 0
    assert about.split == RunFolder(tmp_path / "er").split == "test"
    run(tiny_config(learner={"name": "finetune"}), tmp_path / "finetune", dataset=tiny_dataset())
    assert not RunFolder(tmp_path / "finetune").about.has_memory


def test_names_of_classes_are_known_before_a_run_is_done(tmp_path):
    run(tiny_config(), tmp_path, dataset=tiny_dataset(class_names=("a", "b", "c", "d")))
    (tmp_path / "summary.json").unlink()
    assert RunFolder(tmp_path).class_names == ("a", "b", "c", "d")


@pytest.mark.parametrize(("learner", "replay", "expected"), [
    ("er", False, True), ("finetune", False, False), ("some.where:Else", True, True), ("some.where:Else", False, False),
])  # fmt: skip
def test_an_old_run_is_told_by_its_files_or_its_method(learner, replay, expected, tmp_path):
    made = write_run(tmp_path / "run", [{"learner": {"name": learner}}], history=made_history([[0.5] * 4]))
    if replay:
        made_replay([[1, 1, 1, 1]], [0]).write_parquet(made.path / "replay.parquet")
    about = RunFolder(made.path).about
    assert about.has_memory is expected
    assert (about.settings, about.split, about.schema) == (("class",), "test", 0)


def test_a_run_that_was_tested_with_the_task_only(tmp_path):
    made = write_run(tmp_path / "run")
    summary = {"class_names": ["a", "b", "c", "d"], "metrics": None, "task_incremental": {"accuracy": {"average": 1.0}}}
    (made.path / "summary.json").write_text(json.dumps(summary))
    assert RunFolder(made.path).split == "test_task"


def test_all_published_runs_tell(tmp_path):
    for path in list_runs(RESULTS)[::20]:
        found = RunFolder(path)
        assert found.about.has_memory is (found.replay is not None)
        assert len(found.class_names) in (100, 200)


@pytest.mark.parametrize("data", [b"", b"[]", b'{"has_memory": true', b"{}"])
def test_a_damaged_file_is_named(data, tmp_path):
    made = write_run(tmp_path / "run")
    (made.path / "about.json").write_bytes(data)
    with pytest.raises(ValueError, match=r"run/about\.json is damaged"):
        _ = made.about


def test_what_a_later_version_adds_is_passed_over():
    assert parse_about(b'{"has_memory": true, "schema": 9, "colour": "red"}', "about.json") == About(True, schema=9)
