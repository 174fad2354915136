"""Ladders over tasks, seeds and methods: numbers that can be checked on paper, in every view."""

import json

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner
from views.hand_made import made_history, write_run

from wane.cli import app
from wane.measures.ladder import COLUMNS
from wane.runs.folder import RunFolder
from wane.views.figures import draw_figure
from wane.views.ladder import bars_of_methods, bars_of_run, joint_accuracy, ladder_sentence, with_ladders
from wane.views.palette import INK
from wane.views.report.page import report_page

HISTORY = [[0.8, 0.6, np.nan, np.nan], [0.3, 0.1, 0.9, 0.9]]
#: By rung: the four classes after the second task.
RUNGS = {
    "now": (0.3, 0.1, 0.9, 0.9), "bias_memory": (0.5, 0.3, 0.8, 0.8), "bias_oracle": (0.6, 0.4, 0.7, 0.7),
    "head_memory": (0.6, 0.3, 0.7, 0.7), "head_all": (0.7, 0.6, 0.8, 0.8),
}  # fmt: skip


def table(rungs=RUNGS, *, more=0.0, first=(0.8, 0.6)):
    rows = [(10, 0, c, 0, 100, "now", accuracy) for c, accuracy in enumerate(first)]
    for rung, values in rungs.items():
        rows += [(20, 1, c, c // 2, 100, rung, min(1.0, v + more)) for c, v in enumerate(values)]
    return pl.DataFrame(rows, schema=COLUMNS[:7], orient="row")


def write(path, frame, settings=None, **options):
    run = write_run(path, [{"record": {"ladder": True}}, settings or {}], history=made_history(HISTORY), **options)
    frame.write_parquet(run.path / "ladder.parquet")
    return counted(run)


def counted(run):
    """With what the report says of a finished run."""
    summary = json.loads((run.path / "summary.json").read_text())
    (run.path / "summary.json").write_text(json.dumps({**summary, "steps": 20, "seconds": 1.0}))
    return RunFolder(run.path)


def joint(path, *, seed=0, final=(0.75, 0.85)):
    settings = {"learner": {"name": "joint"}, "seed": seed}
    return counted(write_run(path, [settings], matrix=((0.8, None), final)))


def levels(bar):
    return {part: round(interval.difference, 3) for part, interval in bar.levels.items()}


def test_bars_of_a_run_by_hand(tmp_path):
    run = write(tmp_path / "er", table())
    (measured,) = with_ladders([run, joint(tmp_path / "joint")])
    first, second, old, everything = bars_of_run(measured)
    assert levels(first) == levels(old) == {"now": 20.0, "bias": 40.0, "head": 45.0, "features": 65.0}
    assert levels(second) == {"now": 90.0, "bias": 80.0, "head": 70.0, "features": 80.0}
    assert levels(everything) == {"now": 55.0, "bias": 60.0, "head": 57.5, "features": 72.5}
    assert [bar.label for bar in (first, second, old, everything)] == ["task 1", "task 2", "old tasks", "all tasks"]
    assert (first.oracle, first.joint, first.learnt) == pytest.approx((50.0, 75.0, 70.0))
    assert everything.joint == pytest.approx(80.0)


def test_the_sentence_by_hand(tmp_path):
    run = write(tmp_path / "er", table())
    assert ladder_sentence(with_ladders([run, joint(tmp_path / "joint")])) == (
        "Accuracy on old tasks fell from 70.0 %, right after each was learnt, to 20.0 %. One number added to the "
        "newest task's logits, fitted on the memory, brings back 20.0 points (all tasks together: 55.0 to 60.0 %); a "
        "new head on the memory brings 5.0 points more. The features still hold 65.0 %, for a head that sees all "
        "training rows; the 10.0 points between that and joint training (75.0 %) are gone."
    )


@pytest.mark.parametrize(
    ("rungs", "settings", "said"),
    [
        ({"now": (0.9, 0.9, 0.9, 0.9)}, {}, "Nothing was lost: old tasks stand at 90.0 %."),
        ({"now": RUNGS["now"]}, {}, "What the features still hold was not measured."),
        ({**RUNGS, "bias_memory": (0.1, 0.1, 0.9, 0.9)}, {}, "brings back nothing"),
        ({**RUNGS, "head_memory": (0.1, 0.1, 0.9, 0.9)}, {}, "a new head on the memory would be 30.0 points worse"),
        ({**RUNGS, "head_memory": RUNGS["bias_memory"]}, {}, "a new head on the memory brings nothing more"),
        ({**RUNGS, "bias_holdout": (0.6, 0.6, 0.8, 0.8)}, {}, "fitted on held-out rows, brings back 40.0 points"),
        ({"now": RUNGS["now"], "bias_oracle": RUNGS["bias_oracle"]}, {}, "by an oracle on the test rows"),
        (RUNGS, {"record": {"ladder": {"groups": "class"}}}, "One number for each class's logit, fitted on"),
        (RUNGS, {"record": {"ladder": {"groups": "task"}}}, "One number for each task's logits, fitted on"),
        (RUNGS, {}, "how much more is gone, a run of joint training would tell."),
    ],
)
def test_the_sentence_says_what_the_numbers_say(rungs, settings, said, tmp_path):
    assert said in ladder_sentence(with_ladders([write(tmp_path / "run", table(rungs), settings)]))


def test_features_that_hold_more_than_joint_training(tmp_path):
    runs = [write(tmp_path / "er", table()), joint(tmp_path / "joint", final=(0.6, 0.9))]
    assert "no less than joint training (60.0 %), so nothing is gone" in ladder_sentence(with_ladders(runs))


def test_one_task_has_lost_nothing(tmp_path):
    frame = table().filter(pl.col("task") == 0)
    run = write(tmp_path / "run", frame)
    assert ladder_sentence(with_ladders([run])) == "There is only one task so far, so nothing was lost yet."
    assert "Where did it go?" not in report_page([run])


def test_joint_runs_of_another_setting_are_not_the_top(tmp_path):
    run = write(tmp_path / "er", table())
    other = write_run(tmp_path / "other", [{"learner": {"name": "joint", "epochs": 3}}])
    unfinished = write_run(tmp_path / "unfinished", [{"learner": {"name": "joint"}}], done=False)
    assert joint_accuracy(run, [run, other, unfinished], 1) is None
    seeds = [joint(tmp_path / "j1", seed=1, final=(0.5, 0.5)), joint(tmp_path / "j2", seed=2, final=(0.7, 0.9))]
    np.testing.assert_allclose(joint_accuracy(run, [run, *seeds], 1), (0.6, 0.7))  # other seeds stand in
    np.testing.assert_allclose(joint_accuracy(run, [run, *seeds, joint(tmp_path / "j0")], 1), (0.75, 0.85))


def test_methods_over_seeds_have_intervals(tmp_path):
    seeds = [write(tmp_path / f"er{s}", table(more=0.02 * s), {"seed": s}) for s in range(3)]
    (bar,) = bars_of_methods([("er", with_ladders(seeds))], "old")
    interval = bar.levels["now"]
    assert interval.difference == pytest.approx(22.0)
    half = 4.302653 * 2 / 3**0.5  # t for two degrees of freedom, std 2
    assert (interval.low, interval.high) == pytest.approx((22 - half, 22 + half), abs=1e-3)
    assert bar.seeds == 3


def test_the_figure_of_a_run_of_seeds_and_of_methods(tmp_path):
    run = write(tmp_path / "er", table())
    one = draw_figure("ladder", [run, joint(tmp_path / "joint")])
    (axes,) = one.axes
    assert [text.get_text() for text in axes.get_xticklabels()] == ["task 1", "task 2", "old tasks", "all tasks"]
    heights = sorted(round(bar.get_height(), 3) for bar in axes.patches if bar.get_width() > 0.5)
    assert heights.count(20.0) >= 3  # kept, one number, out of reach
    assert "One number added" in axes.get_title(loc="left").replace("\n", " ")
    other = write(tmp_path / "der", table(more=0.1), {"learner": {"name": "der"}})
    several = draw_figure("ladder", [run, other], width="column")
    assert [a.get_title(loc="left") for a in several.axes] == ["cifar100: old tasks, at the end, n = 1",
                                                               "cifar100: all tasks, at the end, n = 1"]  # fmt: skip
    seeds = draw_figure("ladder", [run, write(tmp_path / "er1", table(more=0.1), {"seed": 1})])
    assert [text.get_text() for text in seeds.axes[0].get_xticklabels()] == ["old tasks", "all tasks"]


def test_bars_of_methods_have_intervals_from_three_seeds_on(tmp_path):
    """ER has three seeds, DER two: ER comes first whatever the order of the runs, and every bar says its seeds."""
    der = [write(tmp_path / f"der{seed}", table(more=0.02 * seed), {"learner": {"name": "der"}, "seed": seed})
           for seed in range(2)]  # fmt: skip
    er = [write(tmp_path / f"er{seed}", table(more=0.02 * seed), {"seed": seed}) for seed in range(3)]
    old, _ = draw_figure("ladder", [*der, *er]).axes
    assert [label.get_text().replace("\n", " ") for label in old.get_xticklabels()] == ["er, n = 3", "der, n = 2"]
    ends = [line.get_xydata() for line in old.lines if line.get_color() == INK[0] and len(line.get_xydata()) == 2]
    upright = [xy for xy in ends if xy[0, 0] == xy[1, 0]]
    assert len(upright) == 4  # kept, one number, new head, all rows: of ER alone
    assert all(0 < xy[0, 0] < 0.31 for xy in upright)  # right of the middle of the first bar, where no number stands
    numbers = [text.get_position()[0] for text in old.texts if text.get_position()[0] < 0.5]
    assert numbers
    assert all(x < 0 for x in numbers)


def test_runs_without_a_ladder_are_one_sentence(tmp_path):
    run = write_run(tmp_path / "run")
    done = CliRunner().invoke(app, ["figure", "ladder", str(run.path), "-o", str(tmp_path / "x.png")])
    assert done.exit_code == 2
    assert done.output == "wane: none of 1 runs has a ladder: run with --set record.ladder=true\n"


def test_the_report_leads_with_it(tmp_path):
    run, other = write(tmp_path / "er", table()), write(tmp_path / "der", table(), {"learner": {"name": "der"}})
    page = report_page([run, other, joint(tmp_path / "joint")])
    assert page.index('id="ladder"') < page.index('id="summary"')
    start = page.index('id="data">') + 10
    data = json.loads(page[start - 1 : page.index("</script>", start)].removeprefix(">"))
    shown = {entry["method"]: entry for entry in data["runs"]}
    assert shown["er"]["sentences"][0].startswith("Accuracy on old tasks fell from 70.0 %")
    assert shown["er"]["ladder"]["bars"][2]["levels"]["bias"]["mean"] == 40.0
    assert shown["joint"]["ladder"] is None
    assert [bar["label"] for bar in data["ladder"]["old"]] == ["er", "der"]
    assert "Bias corrected" not in [column["title"] for column in data["columns"]]
    assert "Where did it go?" not in report_page(
        [counted(write_run(tmp_path / "plain", history=made_history(HISTORY)))]
    )


def test_the_table_has_a_grid_of_the_rungs(tmp_path):
    run = write(tmp_path / "er", table())
    summary = json.loads((run.path / "summary.json").read_text())
    summary["metrics"] = {"accuracy": {"average": 0.55, "bias_memory": 0.6, "head_all": 0.725}}
    (run.path / "summary.json").write_text(json.dumps(summary))
    done = CliRunner().invoke(app, ["table", "auto", str(run.path)])
    assert "what comes back" in done.output
    header, values = done.output.split("what comes back\n")[1].splitlines()[0:3:2]
    assert header.split("  ")[-1].strip() == "head on all training rows ↑"
    assert values.split()[-2:] == ["60.00", "72.50"]
