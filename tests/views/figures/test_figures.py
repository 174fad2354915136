"""Figures by the data that they carry: what the artists hold against the history, never pixels."""

import json
import warnings
from itertools import pairwise

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import ConnectionPatch
from PIL import Image
from typer.testing import CliRunner
from views.hand_made import TASK_OF, default, made_history, made_recovery, made_replay, write_run
from views.tables.test_run_tables import command, matrix

from wane.cli import app
from wane.runs.folder import find_runs
from wane.views.figures import (
    FIGURES,
    conditional,
    draw,
    draw_figure,
    flow,
    heatmap,
    save_figure,
    smoothness,
    tradeoff,
    trajectories,
    windows,
)
from wane.views.figures.fonts import _charmap, _installed, families_for, letters_of, usual_families, what_to_install
from wane.views.figures.style import label_ends, new_figure
from wane.views.observations import box, changes
from wane.views.palette import short_name, signal_colour

NAN = np.nan
RANDOM = np.random.default_rng(0)
#: Two tasks of eight epochs.
ACCURACY = np.round(RANDOM.uniform(0, 1, (16, 4)), 2)
ACCURACY[:8, 2:] = NAN
ACCURACY[10:, 0] = 0.0
DRAWN = RANDOM.integers(1, 9, (16, 4)) * np.where(np.arange(16)[:, None] < 8, [1, 1, 0, 0], 1)
FLOW = {
    "flow": np.array([
        [[0.8, 0.2, 0.0, 0.0], [0.1, 0.9, 0.0, 0.0], [NAN] * 4, [NAN] * 4],
        [[0.1, 0.2, 0.3, 0.4], [0.05, 0.7, 0.05, 0.2], [0.0, 0.0, 1.0, 0.0], [0.0, 0.1, 0.1, 0.8]],
    ]),
    "step": np.array([80, 160]),
    "task": np.array([0, 1]),
}  # fmt: skip


@pytest.fixture
def run(tmp_path):
    replay = made_replay(DRAWN, [0] * 8 + [1] * 8)
    lost = made_recovery([(1, 0, 0, 0.2, 0.1), (1, 1, 0, 0.3, 0.2)])
    return write_run(tmp_path / "er0", history=made_history(ACCURACY), replay=replay, flow=FLOW, recovery=lost)


def lines_of(axes):
    return {line.get_label(): line for line in axes.lines if not line.get_label().startswith("_")}


def texts_of(axes):
    return [text.get_text() for text in axes.texts]


def test_trajectories(run):
    figure = trajectories([run], signals=("accuracy", "cm", "loss"))
    bounded, loss = figure.axes
    lines = lines_of(bounded)
    assert list(lines) == ["accuracy", "cm"]
    np.testing.assert_array_equal(lines["accuracy"].get_xdata(), np.arange(-7, 9))  # 0: the end of task 1
    np.testing.assert_allclose(lines["accuracy"].get_ydata(), ACCURACY[:, :2].mean(1))
    np.testing.assert_allclose(lines["cm"].get_ydata(), default("cm", ACCURACY)[:, :2].mean(1))
    np.testing.assert_allclose(lines_of(loss)["loss"].get_ydata(), (3 - 2 * ACCURACY[:, :2]).mean(1))
    assert not bounded.collections, "a band of two classes would fill the axes"
    assert bounded.get_ylabel() == "mean"
    assert to_hex(lines["cm"].get_color()) == signal_colour("cm")
    assert {"Accuracy", "CM"} <= {*texts_of(bounded)}
    assert "epochs since task 2 began" in loss.get_xlabel()


def test_trajectories_of_the_new_task_and_near_the_boundary(run):
    line = lines_of(trajectories([run], task=2, around=3).axes[0])["tlr"]
    np.testing.assert_array_equal(line.get_xdata(), [1, 2, 3])
    np.testing.assert_allclose(line.get_ydata(), default("tlr", ACCURACY)[8:11, 2:].mean(1))
    with pytest.raises(ValueError, match=r"there is no boundary 2: the runs have come to task 2, so choose one of 1"):
        trajectories([run], boundary=2)
    with pytest.raises(ValueError, match="the classes of task 3 are not evaluated near boundary 1"):
        trajectories([run], task=3)
    with pytest.raises(ValueError, match="unknown signal 'acc'"):
        trajectories([run], signals=("acc",))


def test_trajectories_pool_the_classes_of_all_runs(run, tmp_path):
    other = write_run(tmp_path / "er1", [{"seed": 1}], history=made_history(ACCURACY / 2))
    figure = trajectories([run, other])
    np.testing.assert_allclose(lines_of(figure.axes[0])["accuracy"].get_ydata(), 0.75 * ACCURACY[:, :2].mean(1))
    assert figure.axes[0].get_title(loc="left") == "Classes of task 1 (n = 4)"
    band = figure.axes[0].collections[0].get_paths()[0].vertices
    pooled = np.concatenate([ACCURACY[0, :2], ACCURACY[0, :2] / 2])
    at_start = band[band[:, 0] == -7, 1]
    expected = pooled.mean() - pooled.std(ddof=1), pooled.mean() + pooled.std(ddof=1)
    assert (at_start.min(), at_start.max()) == pytest.approx(expected)
    assert figure.axes[0].get_ylabel() == "mean ± std"


def test_smoothness(run):
    figure = smoothness([run], signals=("accuracy", "tlr", "loss"), around=2)
    bounded, loss = figure.axes
    moved = changes([run], around=2)
    for axes, names in ((bounded, ["accuracy", "tlr"]), (loss, ["loss"])):
        drawn = iter([(np.asarray(p.get_path().vertices)[:, 1]) for p in axes.patches])
        for name in names:
            for phase in ("transition", "stable"):
                b = box(moved.filter(moved["phase"] == phase)[name].to_numpy())
                y = next(drawn)
                assert (y.min(), y.max()) == pytest.approx((b.q1, b.q3))
        heights = np.concatenate([line.get_ydata() for line in axes.lines])
        assert heights.max() == pytest.approx(max(
            box(moved.filter(moved["phase"] == p)[n].to_numpy()).whisker_high for n in names
            for p in ("transition", "stable")
        ))  # fmt: skip
    assert [t.get_text() for t in bounded.get_xticklabels()] == ["Accuracy", "TLR"]
    said = [t.get_text() for t in figure.legends[0].get_texts()]
    assert said[0].startswith("transition: ± 2 epochs of a boundary (n = 10)")  # 2 x 2 before, 2 x 2 + 2 after


def test_smoothness_says_when_nothing_is_stable(run):
    said = [t.get_text() for t in smoothness([run], around=50).legends[0].get_texts()]
    assert said[1] == "stable: none, tasks are too short"


def test_conditional(run):
    figure = conditional([run], signals=("cm", "nkl"), levels=(0.0, 0.333))
    cm, nkl = figure.axes[:2]
    zero = default("nkl", ACCURACY[ACCURACY <= 0.005])
    assert len(zero) >= 6
    body = nkl.collections[0].get_paths()[0].vertices[:, 1]
    assert (body.min(), body.max()) == pytest.approx((zero.min(), zero.max()))
    assert [t.get_text().splitlines()[:2] for t in nkl.get_xticklabels()] == [
        ["0 %", f"n = {len(zero)}"],
        ["33.3 %", "n = 0"],
    ]
    assert nkl.get_xticklabels()[0].get_text().splitlines()[2] == f"{np.median(zero):.2f}".lstrip("0")
    assert texts_of(cm) == ["no observation"]
    assert cm.get_title(loc="left") == "CM"


def test_conditional_shows_few_observations_one_by_one(tmp_path):
    rows = [[0.25, 0.5, NAN, NAN], [0.5, 0.5, 0.5, 0.25]]
    figure = conditional([write_run(tmp_path / "a", history=made_history(rows))], signals=("cm",), levels=(0.25,))
    assert not figure.axes[0].collections
    np.testing.assert_allclose(figure.axes[0].lines[0].get_ydata(), default("cm", np.array([0.25, 0.25])))


def test_tradeoff(tmp_path):
    for seed, old in enumerate((0.4, 0.5)):
        write_run(tmp_path / f"er-{seed}", [{"seed": seed}], matrix=matrix(old))
    write_run(tmp_path / "loss", [{"learner": {"trend": {"signal": "loss"}}}], matrix=matrix(0.6))
    write_run(tmp_path / "alone", [{"learner": {"name": "finetune"}}], matrix=matrix(0.0))  # no memory, no point
    [axes] = tradeoff(find_runs(tmp_path)).axes
    rings = {c.get_label(): c for c in axes.collections if not c.get_label().startswith("_")}
    assert set(rings) == {"er", "er, trend loss"}
    np.testing.assert_allclose(rings["er"].get_offsets(), [[85, 45]])  # learnt 80 and 90; kept 40 and 50
    np.testing.assert_allclose(rings["er, trend loss"].get_offsets(), [[85, 60]])
    assert to_hex(rings["er, trend loss"].get_edgecolor()[0]) == signal_colour("loss").lower()
    assert {"ER", "trend loss"} == {*texts_of(axes)}
    assert axes.get_title(loc="left") == "cifar100, n = 1–2"
    with pytest.raises(ValueError, match="of 1 runs, no two methods"):
        tradeoff(find_runs(tmp_path / "loss"))


def test_windows(tmp_path):
    values = {3: (0.40, 0.50, 0.60), 10: (0.50, 0.52, 0.54), 20: (0.70,)}
    for window, of_seeds in values.items():
        for seed, old in enumerate(of_seeds):
            trend = {"learner": {"trend": {"signal": "loss", "window": window}}, "seed": seed}
            write_run(tmp_path / f"w{window}-{seed}", [trend], matrix=matrix(old))
    for seed in range(2):
        write_run(tmp_path / f"er-{seed}", [{"seed": seed}], matrix=matrix(0.2 + seed / 10))
    past = {"learner": {"trend": {"signal": "loss", "window": 3, "scope": "past"}}}
    write_run(tmp_path / "past", [past], matrix=matrix(0.9))
    write_run(tmp_path / "weights", [{"learner": {"weights": {"signal": "loss"}}}])  # neither trend nor control
    write_run(tmp_path / "half", [past, {"seed": 5}], done=False)
    [axes] = windows(find_runs(tmp_path)).axes
    lines = lines_of(axes)
    assert set(lines) == {"loss", "loss past", "er"}
    np.testing.assert_array_equal(lines["loss"].get_xdata(), [3, 10, 20])
    np.testing.assert_allclose(lines["loss"].get_ydata(), [70, 71, 80])  # (old + 0.9) / 2
    np.testing.assert_allclose(lines["loss past"].get_ydata(), [90])
    assert lines["loss"].get_linestyle() != lines["loss past"].get_linestyle()
    assert lines["loss"].get_color() == lines["loss past"].get_color() == signal_colour("loss")
    np.testing.assert_allclose(lines["er"].get_ydata(), 57.5)
    span = axes.patches[0].get_extents().transformed(axes.transData.inverted())
    std = 12.5**0.5  # of 55 and 60
    assert (span.y0, span.y1) == pytest.approx((57.5 - std, 57.5 + std))
    assert {"Loss", "Loss, past", "ER"} == {*texts_of(axes)}
    assert axes.get_title(loc="left") == "cifar100, n = 1–3"
    forgotten = windows(find_runs(tmp_path), measure="forgetting").axes[0]
    np.testing.assert_allclose(lines_of(forgotten)["loss"].get_ydata(), [30, 28, 10])
    with pytest.raises(ValueError, match="has a trend of cm: run some with --set learner"):
        windows(find_runs(tmp_path), signals=("cm",))
    with pytest.raises(ValueError, match="unknown measure 'acc': choose one of accuracy"):
        windows(find_runs(tmp_path), measure="acc")


def test_a_setting_with_one_window_has_a_panel_only_where_there_is_no_other(tmp_path):
    for data, window in (("cifar100", 3), ("cifar100", 10), ("tiny_imagenet", 10)):
        settings = {"data": {"name": data}, "learner": {"trend": {"signal": "loss", "window": window}}}
        write_run(tmp_path / f"{data}-{window}", [settings], matrix=matrix(0.4))
    assert [axes.get_title(loc="left") for axes in windows(find_runs(tmp_path)).axes] == ["cifar100, n = 1"]
    [alone] = windows(find_runs(tmp_path / "tiny_imagenet-10")).axes
    assert alone.get_title(loc="left") == "tiny_imagenet, n = 1"


def test_heatmap(run):
    figure = heatmap([run], signal="rtlr")
    shown = figure.axes[0].images[0].get_array()
    np.testing.assert_allclose(shown.filled(NAN), default("rtlr", ACCURACY).T)
    assert shown.mask[2:, :8].all()  # not learnt yet
    assert not shown.mask[:, 8:].any()
    assert [t.get_text() for t in figure.axes[0].get_yticklabels()] == ["cat", r"\$dog\$", "<b>", "eel"]
    vertical = [line.get_xdata()[0] for line in figure.axes[0].lines if line.get_xdata()[0] == line.get_xdata()[1]]
    assert vertical == [8.5]
    assert figure.axes[1].get_ylabel() == "Reciprocal true-label rank"


def test_heatmap_is_the_mean_over_runs(run, tmp_path):
    other = write_run(tmp_path / "er1", [{"seed": 1}], history=made_history(ACCURACY / 3))
    shown = heatmap([run, other], signal="accuracy").axes[0].images[0].get_array()
    np.testing.assert_allclose(shown.filled(NAN), ACCURACY.T * 2 / 3)
    shorter = write_run(tmp_path / "er2", [{"seed": 2}], history=made_history(ACCURACY[:12]))
    with pytest.raises(ValueError, match=r"er0 and er2 have not come equally far \(16 and 12 records\)"):
        heatmap([run, shorter])


def test_draw(run):
    figure = draw([run])
    above, axes = figure.axes[:2]
    shown = axes.images[0].get_array()
    even = DRAWN / DRAWN.sum(1, keepdims=True) * np.where(np.arange(16) < 8, 2, 4)[:, None]
    np.testing.assert_allclose(shown[:2], even.T[:2])
    np.testing.assert_allclose(shown[2:, 8:], even.T[2:, 8:])
    assert shown.mask[2:, :8].all()
    lines = lines_of(above)
    np.testing.assert_allclose(lines["effective classes of those seen"].get_ydata(), [100] * 8 + [75] * 8)
    np.testing.assert_allclose(lines["rows of the current task"].get_ydata(), [100] * 8 + [25] * 8)


def test_a_class_never_drawn_is_not_a_class_to_come(tmp_path):
    drawn = [[4, 0, 0, 0], [1, 1, 1, 1]]
    run = write_run(tmp_path / "a", history=made_history(ACCURACY[[0, 8]]), replay=made_replay(drawn, [0, 1]))
    shown = draw([run]).axes[1].images[0].get_array()
    assert not shown.mask[1, 0]
    assert shown[1, 0] < 0.25
    assert shown.mask[2, 0]


def test_flow(run):
    figure = flow([run], top=2, takers=2)
    left, right = figure.axes
    table = left.images[0].get_array()
    # Task 1: 0.1 and 0.7 on the label, 0.2 and 0.05 on the other class, 0.7 and 0.25 on task 2.
    np.testing.assert_allclose(table, [[40, 12.5, 47.5], [90, 5, 5]], atol=1e-9)
    assert texts_of(left) == ["40", "12", "48", "90", "5", "5"]
    # Class 0 fell by 0.7, class 1 by 0.2; the others were learnt just now.
    assert [t.get_text() for t in right.get_yticklabels()] == ["cat", r"\$dog\$"]
    widths = [bar.get_width() for bar in right.patches]
    np.testing.assert_allclose(widths, [10, 40, 30, 20, 70, 20, 5, 5], atol=1e-9)
    assert texts_of(right)[:3] == ["cat", "eel", "<b>"]


def test_flow_passes_over_a_class_without_test_images(tmp_path):
    untested = {**FLOW, "flow": FLOW["flow"].copy()}
    untested["flow"][:, 1] = np.nan
    left, _ = flow([write_run(tmp_path / "a", history=made_history(ACCURACY), flow=untested)]).axes
    assert texts_of(left) == ["10", "20", "70", "90", "5", "5"]


def test_what_a_run_lacks_is_said(tmp_path):
    run = write_run(tmp_path / "a", history=made_history(ACCURACY))
    with pytest.raises(ValueError, match=r"a has no flow\.npz: run it with --set record\.flow=true"):
        flow([run])
    with pytest.raises(ValueError, match=r"a has no replay\.parquet"):
        draw([run])


def test_a_run_that_stopped_has_room_for_the_classes_to_come(tmp_path):
    first = {name: part[:1] for name, part in FLOW.items()}
    replay = made_replay(DRAWN[:8], [0] * 8)
    run = write_run(tmp_path / "a", done=False, history=made_history(ACCURACY[:8]), replay=replay, flow=first)
    for figure in (draw([run]), heatmap([run])):
        shown = next(axes.images[0] for axes in figure.axes if axes.images).get_array()
        assert shown.mask.tolist() == [[False] * 8] * 2 + [[True] * 8] * 2
    left = flow([run]).axes[0]
    assert texts_of(left) == ["85", "15"]  # of the one task learnt: on the label, and on the other class


def test_classes_in_other_tasks_are_not_averaged(run, tmp_path):
    history = made_history(ACCURACY)
    history.class_to_task = np.array(TASK_OF[::-1])
    other = write_run(tmp_path / "b", [{"seed": 1}], history=history)
    with pytest.raises(ValueError, match="er0 and b do not have the same classes in each task"):
        heatmap([run, other])


def test_many_classes_are_named_by_task(tmp_path):
    from wane.views.figures.classes import _mark_tasks

    figure = new_figure("column", 2)
    axes = figure.subplots()
    _mark_tasks(axes, np.array([0, 1]), np.repeat([0, 1], 50), [str(c) for c in range(100)])
    assert [t.get_text() for t in axes.get_yticklabels()] == ["task 1", "task 2"]
    assert axes.get_yticks().tolist() == [24.5, 74.5]


def test_labels_at_the_ends_do_not_touch():
    axes = new_figure("column", 2).subplots()
    axes.set_ylim(0, 1)
    label_ends(axes, [(0.99, "a", "k"), (0.98, "b", "k"), (0.5, "c", "k")], height=1.5)
    y = {text.get_text(): text.get_position()[1] for text in axes.texts}
    assert y["c"] == 0.5
    tied = sorted((tie.xy1[1], tie.xy2[1]) for tie in axes.patches + axes.artists if isinstance(tie, ConnectionPatch))
    assert tied == [(0.5, 0.5), (0.98, y["b"]), (0.99, y["a"])]  # each to its own
    assert y["a"] - y["b"] >= 0.078  # 8.5 points of 1.5 inches
    assert y["a"] <= 1


def test_names_and_colours_cover_every_signal():
    from wane.softmax.signals import SIGNALS

    assert len({*map(short_name, SIGNALS)}) == len({*map(signal_colour, SIGNALS)}) == len(SIGNALS)


def test_settings_of_matplotlib_are_neither_used_nor_changed(run):
    with mpl.rc_context({"font.size": 31, "axes.facecolor": "red", "lines.linewidth": 9}):
        before = dict(mpl.rcParams)
        figure = trajectories([run])
        assert dict(mpl.rcParams) == before
    assert isinstance(figure, Figure)
    assert figure.axes[0].xaxis.label.get_fontsize() == 8
    assert to_hex(figure.axes[0].get_facecolor()) == "#ffffff"
    assert figure.get_size_inches()[0] == 3.4
    assert trajectories([run], width="page").get_size_inches()[0] == 7
    with pytest.raises(ValueError, match=r"unknown width 'wide'\. Known: column, page"):
        trajectories([run], width="wide")


def test_by_name(run):
    assert draw_figure("heatmap", [run], signals=("cm",), width=None).axes[1].get_ylabel() == "Confusion margin"
    with pytest.raises(ValueError, match=r"unknown figure 'heatmp'; did you mean 'heatmap'\? Known: trajectories,"):
        draw_figure("heatmp", [run])
    with pytest.raises(ValueError, match="figure heatmap has no option boundary; it has signal, width"):
        draw_figure("heatmap", [run], boundary=1)
    with pytest.raises(ValueError, match=r"figure heatmap shows one signal, but 2 were given \(cm, tlr\)"):
        draw_figure("heatmap", [run], signals=("cm", "tlr"))


def test_files_are_written(run, tmp_path):
    for suffix, start in ((".png", b"\x89PNG"), (".pdf", b"%PDF"), (".svg", b"<?xml")):
        path = tmp_path / f"out{suffix}"
        save_figure(heatmap([run]), path)
        first = path.read_bytes()
        assert first.startswith(start)
        save_figure(heatmap([run]), path)
        assert path.read_bytes() == first  # the same runs, the same bytes
    with Image.open(tmp_path / "out.png") as image:
        assert image.size == (1020, 780)  # 3.4 x 2.6 inches at 300 dots
    assert not [*tmp_path.glob(".*")]
    with pytest.raises(ValueError, match=r"out\.jpg does not end in \.png, \.pdf, \.svg"):
        save_figure(Figure(), tmp_path / "out.jpg")
    with pytest.raises(NotADirectoryError, match="is not a folder: make it first"):
        save_figure(Figure(), tmp_path / "no" / "out.png")


@pytest.mark.parametrize(
    "name", [n for n in FIGURES if n not in ("windows", "tradeoff", "ladder", "reliability", "power", "scales")]
)
def test_the_command(run, tmp_path, name):
    made = command("figure", name, run.path, "-o", tmp_path / "f.pdf")
    assert made.exit_code == 0, made.output
    assert (tmp_path / "f.pdf").read_bytes().startswith(b"%PDF")
    assert made.stderr.startswith("wrote ")


def test_the_command_passes_options_on(run, tmp_path):
    made = command("figure", "trajectories", run.path, "-o", tmp_path / "f.png", "--boundary", "4")
    assert made.exit_code == 2
    assert "there is no boundary 4" in made.stderr
    made = command("figure", "smoothness", run.path, "-o", tmp_path / "f.png", "--method", "der")
    assert "no run is of method 'der': there are 'er'" in made.stderr


def test_methods_in_a_tradeoff_can_be_told_apart(tmp_path):
    """Four methods without a signal were black rings; two trends of one signal were the same ring."""
    settings = {
        "er": {},
        "cu": {"memory": {"draw": "class_uniform"}},
        "past": {"memory": {"draw": "class_uniform", "scope": "past"}},
        "loss": {"learner": {"trend": {"signal": "loss"}}},
        "loss3": {"learner": {"trend": {"signal": "loss", "window": 3}}},
    }
    for place, (name, given) in enumerate(settings.items()):
        write_run(tmp_path / name, [given], matrix=matrix(0.4 + place / 20))
    [axes] = tradeoff(find_runs(tmp_path)).axes
    rings = [c for c in axes.collections if not c.get_label().startswith("_")]
    looks = {(to_hex(c.get_edgecolor()[0]), c.get_paths()[0].vertices.tobytes()) for c in rings}
    assert len(looks) == len(settings)


def test_a_run_without_memory_is_known_by_its_learner_not_by_a_name(tmp_path):
    joint = write_run(tmp_path / "joint", [{"learner": {"name": "joint"}}])
    assert not joint.about.has_memory
    assert write_run(tmp_path / "er").about.has_memory


def test_letters_that_no_font_has_make_one_sentence(tmp_path, recwarn):
    run = write_run(tmp_path / "a", history=made_history(ACCURACY))
    summary = json.loads((run.path / "summary.json").read_text())
    (run.path / "summary.json").write_text(json.dumps(summary | {"class_names": ["猫", "🦊", "c", "d"]}))
    made = heatmap(find_runs(run.path))
    save_figure(made, tmp_path / "f.png")
    _, missing = families_for(letters_of(made))
    said = [str(w.message) for w in recwarn]
    assert said == ([what_to_install(missing)] if missing else [])  # on a machine with such fonts, nothing
    done = CliRunner().invoke(app, ["figure", "heatmap", str(run.path), "-o", str(tmp_path / "g.png")])
    assert done.output.splitlines() == [*(f"wane: {text}" for text in said), f"wrote {tmp_path / 'g.png'}"]


def test_letters_are_drawn_with_whatever_font_has_them(tmp_path):
    """STIXGeneral, which comes with matplotlib, has letters that DejaVu Sans lacks."""
    from matplotlib.font_manager import get_font
    from matplotlib.textpath import TextPath

    installed = _installed()
    lacking = sorted(_charmap(installed["STIXGeneral"]) - _charmap(installed["DejaVu Sans"]))
    letter = next(chr(c) for c in lacking if chr(c).isalpha())
    families, missing = families_for(frozenset(f"a{letter}"))
    assert not missing
    assert families[: len(usual_families())] == usual_families()
    assert any(ord(letter) in get_font(installed[name]).get_charmap() for name in families)
    figure = Figure()
    figure.text(0.5, 0.5, letter)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        save_figure(figure, tmp_path / "f.svg")
    box_of_nothing = TextPath((0, 0), "\U0010fffd", size=10)
    assert len(TextPath((0, 0), letter, prop={"family": list(families)}).vertices) != len(box_of_nothing.vertices)
    assert families_for(frozenset("\n\u200d\ufe0f")) == (usual_families(), frozenset())


@pytest.mark.parametrize(
    ("letter", "font"),
    [("한", "Noto Sans CJK"), ("の", "Noto Sans CJK"), ("🦊", "Noto Emoji"), ("ก", "Noto Sans Thai")],
)
def test_the_sentence_names_the_font(letter, font):
    assert what_to_install(letter) == f"no installed font has {letter}, drawn as boxes: install {font}"


def test_epochs_are_whole_numbers(tmp_path):
    run = write_run(tmp_path / "a", history=made_history(ACCURACY))
    for figure in (heatmap([run]), trajectories([run])):
        figure.draw_without_rendering()
        assert all(float(tick).is_integer() for axes in figure.axes[:1] for tick in axes.get_xticks())


def test_many_methods_get_the_room_that_their_names_need(tmp_path):
    for window in range(2, 32):
        settings = {"learner": {"trend": {"signal": "loss", "window": window}}}
        write_run(tmp_path / f"w{window}", [settings], matrix=matrix(0.4 + window / 100))
    figure = tradeoff(find_runs(tmp_path))
    figure.draw_without_rendering()
    [axes] = figure.axes
    boxes = sorted((t.get_window_extent() for t in axes.texts), key=lambda box: box.y0)
    assert len(boxes) == 30
    assert all(low.y1 <= high.y0 + 1 for low, high in pairwise(boxes)), "no two names overlap"
    edge = figure.bbox
    assert all(box.x1 <= edge.x1 + 1 and box.y0 >= edge.y0 and box.y1 <= edge.y1 for box in boxes), "nor is one cut"
    assert axes.get_xlim()[1] <= 103


def test_names_of_groups_come_from_the_history(tmp_path):
    history = made_history(ACCURACY)
    history.names, history.kind = ("north", "south", "east", "west"), "class"
    run = write_run(tmp_path / "a", history=history)
    vars(run)["history"] = history  # as a history of another room would be read
    assert [t.get_text() for t in heatmap([run]).axes[0].get_yticklabels()] == ["north", "south", "east", "west"]
