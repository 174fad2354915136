"""The effect of a draw against scale: marks and intervals by the numbers of runs made by hand."""

import numpy as np
import pytest
from views.hand_made import write_run
from views.tables.test_run_tables import command

from wane.paper.values import PAPER
from wane.runs.folder import find_runs
from wane.views.figures import draw_figure, scales
from wane.views.figures.scales import DRAWS, replays_a_slot
from wane.views.palette import signal_colour

PAST = {"memory": {"draw": "class_uniform", "scope": "past"}}
TREND = {"learner": {"trend": {"signal": "log_tlr"}}}
PAST_COLOUR = next(colour for name, colour in DRAWS.values() if name == "class-uniform, past")


def runs_at(root, scale, steps, gains, settings=PAST):
    """ER, which keeps 40 % of the old task, and a draw that keeps so much more; 100 slots, 10 of them a step."""
    shared = {"recipe": f"regime-{scale}", "memory": {"capacity": 100},
              "learner": {"replay_size": 10, "epochs": steps}}  # fmt: skip
    for seed, gain in enumerate(gains):
        for name, own, end in (("er", {}, 0.4), ("draw", settings, 0.4 + gain)):
            write_run(root / f"{scale}-{name}{seed}", [shared, own, {"seed": seed}], steps=2 * steps,
                      matrix=((0.8, None), (end, 0.9)))  # fmt: skip
    return find_runs(root)


def marks(axes, colour, shape="o"):
    """(x, y) of the marks of a draw, and whether each is filled."""
    lines = [line for line in axes.lines if line.get_marker() == shape and line.get_color() == colour]
    return [(*line.get_xydata()[0], line.get_markerfacecolor() == colour) for line in lines if len(line.get_xydata())]


def bars(axes, colour):
    """The intervals of a draw: vertical lines."""
    ends = [line.get_xydata() for line in axes.lines if line.get_color() == colour and len(line.get_xydata()) == 2]
    return [tuple(xy[:, 1]) for xy in ends if xy[0, 0] == xy[1, 0]]


def test_a_slot_is_replayed_so_often_in_a_task(tmp_path):
    [run, _] = runs_at(tmp_path, "small", 300, [0.0])
    assert replays_a_slot(run) == 30  # 300 steps of 10 rows, 100 slots
    assert replays_a_slot(write_run(tmp_path / "old")) is None  # its summary does not say the steps
    assert PAPER.replays == 256


def test_marks_are_paired_differences_at_their_scale(tmp_path):
    runs_at(tmp_path, "small", 300, (0.10, 0.12, 0.14))
    figure = scales(runs_at(tmp_path, "regime", 2560, (0.30, 0.32)))
    accuracy, forgetting = figure.axes
    (x1, y1, filled1), (x2, y2, filled2) = marks(accuracy, PAST_COLOUR)
    assert [x1, x2] == pytest.approx(np.log10([30, 256]))
    assert [y1, y2] == pytest.approx([6.0, 15.5])  # half of what the old task gained
    assert (filled1, filled2) == (True, False)  # two seeds are too few
    [(low, high)] = bars(accuracy, PAST_COLOUR)
    assert [low, high] == pytest.approx([6 - 2.4841, 6 + 2.4841], abs=1e-3)  # t(0.975; 2) = 4.3027, deviation 1
    assert [y for _, y, _ in marks(forgetting, PAST_COLOUR)] == pytest.approx([-12, -31])
    labels = [label.get_text() for label in accuracy.get_xticklabels()]
    assert labels == ["30\nsmall, n = 3", "256\nregime, n = 2"]
    said = [text.get_text() for text in figure.legends[0].get_texts()]
    assert "fewer than 3 seeds: no interval" in said


def test_the_paper_stands_at_its_own_place(tmp_path):
    runs = runs_at(tmp_path, "small", 300, (0.0, 0.01, 0.02), TREND)
    accuracy = draw_figure("scales", runs, printed=PAPER).axes[0]
    colour = signal_colour("log_tlr")
    [(x, y, _)] = marks(accuracy, colour, "*")
    assert (x, y) == (pytest.approx(np.log10(256)), pytest.approx(41.71 - 36.33))
    half = 2.7764 * ((0.73**2 + 0.55**2) / 3) ** 0.5
    assert bars(accuracy, colour)[-1] == pytest.approx((5.38 - half, 5.38 + half), abs=1e-3)
    assert [label.get_text() for label in accuracy.get_xticklabels()][-1] == "256\nthe paper, n = 3"
    assert not marks(draw_figure("scales", runs).axes[0], colour, "*")


def test_by_the_command(tmp_path):
    runs_at(tmp_path / "runs", "small", 300, (0.1,))
    made = command("figure", "scales", tmp_path / "runs", "-o", tmp_path / "f.png", "--width", "column")
    assert made.exit_code == 0, made.output
    alone = command("figure", "scales", tmp_path / "runs" / "small-er0", "-o", tmp_path / "g.png")
    assert "none of a draw is done beside ER" in alone.output
