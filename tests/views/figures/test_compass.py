"""The CLEVA-Compass and the reliability diagram by what they carry: levels, fields, bars."""

import json

import numpy as np
import pytest
from matplotlib.patches import Rectangle
from training.tiny_problem import tiny_config, tiny_dataset
from typer.testing import CliRunner
from views.hand_made import write_run

from wane.cli import app
from wane.runs.folder import RunFolder, find_runs
from wane.training.run import run
from wane.views.compass import INNER, OUTER, cleva_json, compass_entries
from wane.views.figures import compass, reliability


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """ER, iCaRL, progressive networks and a trend, each run once."""
    place = tmp_path_factory.mktemp("compass")
    for name in ("er", "icarl", "pnn"):
        run(tiny_config(learner={"name": name}, record={"signals": ["ece"]}), place / name, dataset=tiny_dataset())
    once = {"epochs": 1, "trend": {"signal": "log_tlr"}}
    run(tiny_config(learner=once), place / "online_trend", dataset=tiny_dataset())
    return place


def entries(folder):
    return {entry["label"]: entry for entry in compass_entries(find_runs(folder))}


def test_what_methods_assume(folder):
    found = entries(folder)
    inner = {name: {k: v for k, v in entry["inner_level"].items() if v} for name, entry in found.items()}
    assert inner == {
        "er": {"task_agnostic": 2, "episodic_memory": 2},
        "icarl": {"task_agnostic": 2, "episodic_memory": 1},  # herding looks at labels
        "pnn": {"multiple_models": 1},
        "er, trend log_tlr": {"online": 1, "active_data_query": 1, "task_agnostic": 2, "episodic_memory": 2},
    }
    assert all(
        tuple(entry["inner_level"]) == INNER and tuple(entry["outer_level"]) == OUTER for entry in found.values()
    )
    assert len({entry["color"] for entry in found.values()}) == 4


def test_what_is_reported(folder):
    found = entries(folder)
    never = {"communication", "openness", "generated_data"}
    assert {name for name, value in found["er"]["outer_level"].items() if not value} == never
    assert {name for name, value in found["pnn"]["outer_level"].items() if not value} == never | {"forward_transfer"}


def test_a_run_of_an_earlier_version_reports_less(tmp_path):
    write_run(tmp_path / "old")
    (entry,) = compass_entries(find_runs(tmp_path))
    assert {name for name, value in entry["outer_level"].items() if value} == {"per_task_metric", "task_order"}
    write_run(tmp_path / "going" / "on", done=False)
    with pytest.raises(ValueError, match="none of 1 runs is done"):
        compass_entries(find_runs(tmp_path / "going"))


def test_labels_are_escaped_and_a_method_may_speak_for_itself(folder, monkeypatch):
    text = cleva_json(find_runs(folder))
    assert (
        sorted(json.loads(text)["entries"], key=lambda entry: -len(entry["label"]))[0]["label"] == r"er, trend log\_tlr"
    )
    from wane.learners import LEARNERS

    monkeypatch.setattr(LEARNERS["er"], "compass", {"uncertainty": 2})
    assert entries(folder)["er"]["inner_level"]["uncertainty"] == 2
    monkeypatch.setattr(LEARNERS["er"], "compass", {"certainty": 2})
    with pytest.raises(ValueError, match=r"er says compass\['certainty'\] = 2 of itself"):
        entries(folder)


def test_the_figure_has_a_star_for_each_method_and_a_field_for_each_report(folder):
    runs = find_runs(folder)
    (axes,) = compass(runs).axes
    found = compass_entries(runs)
    stars = [line.get_ydata() for line in axes.lines if len(line.get_xdata()) == len(INNER) + 1][3:]  # after the rings
    levels = np.unique(np.concatenate(stars))
    for star, entry in zip(stars, found, strict=True):
        assert np.searchsorted(levels, star[:-1]).tolist() == list(entry["inner_level"].values())
    fields = [bar for bar in axes.patches if isinstance(bar, Rectangle) and bar.get_fill()]
    assert len(fields) == sum(sum(entry["outer_level"].values()) for entry in found)


def test_the_command_writes_what_the_generator_takes(folder, tmp_path):
    made = CliRunner().invoke(app, ["export", "cleva", str(folder), "-o", str(tmp_path / "compass.json")])
    assert made.exit_code == 0, made.output
    assert json.loads((tmp_path / "compass.json").read_text()) == json.loads(cleva_json(find_runs(folder)))
    made = CliRunner().invoke(app, ["export", "clever", str(folder), "-o", str(tmp_path / "compass.json")])
    assert made.exit_code == 2
    assert "unknown export 'clever'; did you mean 'cleva'?" in made.output


def test_a_reliability_diagram_shows_the_bins_of_the_history(folder):
    one = RunFolder(folder / "er")
    figure = reliability([one])
    titles = [axes.get_title() for axes in figure.axes[:3]]
    assert titles == ["all classes", "earlier tasks", "task 2"]
    last = one.history.tail(1, split="test")[0]
    for axes, below, chosen in zip(figure.axes[:3], figure.axes[3:], ([0, 1, 2, 3], [0, 1], [2, 3]), strict=True):
        bins = last.bins[chosen].sum(0)
        filled = bins[:, 0] > 0
        bars = [bar for bar in axes.patches if bar.get_fill()]
        np.testing.assert_allclose([bar.get_height() for bar in bars], bins[filled, 2] / bins[filled, 0])
        np.testing.assert_allclose([bar.get_height() for bar in below.patches], bins[:, 0] / bins[:, 0].sum())
    first = reliability([one], task=1, width="column")
    assert [axes.get_title() for axes in first.axes[::2]] == ["all classes", "task 1"]
    with pytest.raises(ValueError, match="did not record bins of confidence"):
        reliability([RunFolder(folder / "online_trend")])
    with pytest.raises(ValueError, match="was not evaluated in task 7"):
        reliability([one], task=7)
