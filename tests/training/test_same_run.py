"""What the same run is: whatever has the same name. It goes on in its folder, and another run does not."""

import pytest
from sweeps.sweep_problem import LONG, planned
from training.tiny_problem import results, stop, tiny_config, tiny_dataset

from wane.runs.config import ConfigError, build_config, differences, to_toml
from wane.runs.folder import read_config
from wane.runs.identity import fingerprint
from wane.sweeps.engines import Outcome
from wane.sweeps.engines.worker import carry_out
from wane.sweeps.execute import plan_jobs
from wane.training.run import run

TREND = {"learner": {"trend": {"signal": "loss", "window": 2, "gamma": 20.0}}}


@pytest.mark.parametrize(
    ("layer", "same"),
    [
        ({"recipe": "b", "device": "cpu", "data": {"root": "/data"}}, True),
        ({"memory": {"draw": "class_uniform", "scope": "past"}}, True),  # the trend has its place
        ({"memory": {"capacity": 5}}, False),
        ({"learner": {"trend": None}}, False),
        ({"threads": 1}, False),
    ],
)
def test_differences_are_those_that_give_a_run_another_name(layer, same):
    old, new = build_config(TREND), build_config(TREND, layer)
    assert (differences(old, new) == []) is same
    assert (fingerprint(old) == fingerprint(new)) is same


def test_the_same_run_goes_on_elsewhere_with_the_settings_it_was_begun_with(tmp_path):
    """Device, root, and what a trend replaces, are in no run's name: they may change, and the bytes do not."""
    config = tiny_config(**TREND, device="cpu")
    run(config, tmp_path / "whole", dataset=tiny_dataset())
    stop(config, tmp_path / "run", dataset=tiny_dataset(), epochs=4)
    elsewhere = {"data": {"root": "/elsewhere"}, "memory": {"draw": "class_uniform", "scope": "past"}, "device": "auto"}
    run(build_config(config.model_dump(), elsewhere), tmp_path / "run", dataset=tiny_dataset())
    assert results(tmp_path / "run") == results(tmp_path / "whole")
    assert read_config(tmp_path / "run") == config


def test_a_wrong_place_is_corrected_before_anything_is_done(tmp_path):
    (tmp_path / "config.toml").write_text(to_toml(tiny_config(data={"root": "/wrong"})))
    run(tiny_config(data={"root": "/right"}), tmp_path, dataset=tiny_dataset())
    assert read_config(tmp_path).data.root == "/right"


def test_a_finished_run_without_its_checkpoint_is_not_taken_for_one_that_never_began(tmp_path):
    run(tiny_config(record={"flow": True}), tmp_path, dataset=tiny_dataset())
    (tmp_path / "checkpoint.pt").unlink()  # as in an archive
    with pytest.raises(ConfigError, match="holds another run"):
        run(tiny_config(seed=3), tmp_path, dataset=tiny_dataset())
    assert (tmp_path / "flow.npz").exists()


def test_another_run_in_the_folder_did_not_fail(tmp_path):
    """A folder whose config was edited: who asks for what its name says hears so, and the run in it goes on."""
    first, other = planned(tmp_path, *LONG)
    folder = tmp_path / first.name
    stop(other.config, folder, epochs=1)
    [job] = plan_jobs([first], tmp_path)
    outcome = carry_out(job.settings, job.place)
    assert outcome.state == "failed"
    assert "holds another run (seed: 1 -> 0)" in outcome.note
    assert not (folder / "failed.json").exists()
    assert carry_out(other.config.model_dump(mode="json"), job.place) == Outcome("done")
