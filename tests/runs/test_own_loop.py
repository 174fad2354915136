"""Runs of someone's own loop: digits with plain torch, two methods, three seeds; everywhere the lab's runs go."""

import json
import re

import numpy as np
import polars as pl
import pytest
from own_loops import NAMES, train
from scipy import stats
from sklearn.metrics import log_loss, recall_score
from typer.testing import CliRunner
from views.hand_made import write_run

import wane
from wane.cli import app
from wane.measures.normal_form import normal_form
from wane.runs.archive import archive
from wane.runs.config import ConfigError
from wane.runs.folder import RunFolder, find_runs
from wane.runs.own_loop import OwnLoop, parse_own_loop
from wane.views.comparable_runs import by_setting
from wane.views.observations import at_level, observations
from wane.views.report.data import prepare
from wane.views.tables.run_tables import run_table

METHODS, SEEDS = ("plain", "rehearsal"), range(3)


@pytest.fixture(scope="module")
def trained():
    return {(method, seed): train(method, seed) for method in METHODS for seed in SEEDS}


@pytest.fixture(scope="module")
def root(trained, tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    for (method, seed), (history, _, _) in trained.items():
        wane.save_run(history, root / f"{method}-{seed}", settings={"lr": 0.2, "net": {"hidden": (48,)}})
    return root


def invoke(*command):
    return CliRunner().invoke(app, [str(part) for part in command])


def test_the_numbers_are_scikit_learns_on_the_same_logits(trained, root):
    for (method, seed), (_, logits, labels) in trained.items():
        frame = RunFolder(root / f"{method}-{seed}").history.frame.filter(pl.col("split") == "test")
        last = frame.filter(pl.col("step") == frame["step"].max())
        recalls = recall_score(labels, logits.argmax(1), average=None, labels=range(10), zero_division=0)
        np.testing.assert_allclose(last["accuracy"], recalls, atol=1e-12)
        p = logits.double().softmax(1).numpy()
        losses = [log_loss(labels[labels == c], p[labels == c], labels=range(10)) for c in range(10)]
        np.testing.assert_allclose(last["loss"], losses, rtol=1e-5)


def test_a_table_of_ones_own_methods(trained, root):
    frame = run_table("auto", find_runs(root), baseline="plain").frame
    row = frame.filter(pl.col("method") == "rehearsal", pl.col("measure") == "accuracy").row(0, named=True)
    values = {
        method: np.array([100 * float(wane.average(trained[method, s][0].matrix("accuracy"))) for s in SEEDS])
        for method in METHODS
    }
    assert (row["n"], row["seeds"], row["best"]) == (3, "0, 1, 2", True)
    assert row["mean"] == pytest.approx(values["rehearsal"].mean())
    assert row["std"] == pytest.approx(values["rehearsal"].std(ddof=1))
    found = stats.ttest_rel(values["rehearsal"], values["plain"])
    assert row["er_difference"] == pytest.approx((values["rehearsal"] - values["plain"]).mean())
    low, high = found.confidence_interval(0.95)
    assert (row["er_low"], row["er_high"]) == (pytest.approx(low), pytest.approx(high))
    done = invoke("table", "auto", root)
    assert "Choose another row to compare with by --baseline" in done.output
    assert "control class_uniform" not in done.output
    assert "the table has no row 'x' to compare with: there are plain; rehearsal" in (
        invoke("table", "auto", root, "--baseline", "x").output
    )


def test_beside_the_labs_er_in_one_table(root, tmp_path):
    """Five tasks of digits: the lab's three seeds of ER, and someone's own method, paired by seed."""
    rng, lab = np.random.default_rng(0), {}
    for seed in SEEDS:
        matrix = np.tril(rng.uniform(0.3, 0.9, (5, 5)))
        lab[seed] = 100 * matrix[-1].mean()
        rows = [[None if x == 0 else x for x in row] for row in matrix.tolist()]
        write_run(tmp_path / f"er-{seed}", [{"data": {"name": "digits", "tasks": 5}, "seed": seed}], matrix=rows)
    mine = [RunFolder(root / f"rehearsal-{seed}") for seed in SEEDS]
    made = run_table("auto", [*find_runs(tmp_path), *mine])
    assert made.frame["setting"].unique().to_list() == ["digits"]
    row = made.frame.filter(pl.col("method") == "rehearsal", pl.col("measure") == "accuracy").row(0, named=True)
    values = [100 * run.summary["metrics"]["accuracy"]["average"] for run in mine]
    low, high = stats.ttest_rel(values, list(lab.values())).confidence_interval(0.95)
    assert (row["er_n"], row["er_low"], row["er_high"]) == (3, pytest.approx(low), pytest.approx(high))
    assert any("Not trained by wane: rehearsal. That their data" in note for note in made.notes)
    # two settings of the lab's fit: then it is with neither; unless it says which it is of
    write_run(tmp_path / "other", [{"data": {"name": "digits", "tasks": 5}, "memory": {"capacity": 9}}])
    titles = [setting.title for setting in by_setting([*find_runs(tmp_path), *mine])]
    assert titles == ["digits (memory.capacity 2000)", "digits (memory.capacity 9)", "digits (own loop)"]
    wane.save_run(mine[0].history, tmp_path / "said", settings={"memory.capacity": 9})
    joined = {run.name: s.title for s in by_setting(find_runs(tmp_path)) for run in s.runs}
    assert joined["said"] == "digits (memory.capacity 9)"
    write_run(tmp_path / "ten", [{"data": {"name": "digits", "tasks": 10}}])
    joined = {run.name: s.title for s in by_setting(find_runs(tmp_path)) for run in s.runs}
    assert joined["said"] == "digits (data.tasks 5, memory.capacity 9)"


def test_an_own_er_is_not_the_labs(root, tmp_path):
    write_run(tmp_path / "lab", [{"data": {"name": "digits", "tasks": 5}}], matrix=[[0.5] * 5] * 5)
    wane.save_run(RunFolder(root / "plain-0").history, tmp_path / "own", method="er")
    table = run_table("auto", find_runs(tmp_path))
    assert table.frame["method"].unique(maintain_order=True).to_list() == ["er", "er [own loop]"]


def test_a_file_a_history_and_a_folder_are_the_same_run(trained, root, tmp_path):
    history = trained["rehearsal", 1][0]
    history.write(tmp_path / "mine.parquet")
    folder, file, memory = find_runs(root / "rehearsal-1", tmp_path / "mine.parquet", history)
    assert [run.name for run in (folder, file, memory)] == ["rehearsal-1", "mine", "rehearsal"]
    assert folder.summary == file.summary == memory.summary
    assert folder.history.frame.equals(file.history.frame)
    assert folder.history.frame.equals(memory.history.frame)
    assert file.status.state == "done"
    assert file.method == folder.method
    assert find_runs(root / "rehearsal-1/history.parquet") == [folder]
    unnamed = wane.History([0])
    unnamed.record({"n": [5], "accuracy": [0.5]}, step=0, task=0)
    unnamed.write(tmp_path / "a.parquet")
    assert find_runs(tmp_path / "a.parquet")[0].method.title == "a"


def test_every_command_takes_them(trained, root, tmp_path):
    trained["plain", 0][0].write(tmp_path / "mine.parquet")
    for source in (root / "plain-0", tmp_path / "mine.parquet"):
        assert invoke("report", source, "-o", tmp_path / "page.html").exit_code == 0
        assert "recorded in a loop of its owner" in (tmp_path / "page.html").read_text()
        for name in ("trajectories", "smoothness", "conditional", "heatmap"):
            assert invoke("figure", name, source, "-o", tmp_path / f"{name}.png").exit_code == 0
        assert "plain" in invoke("table", "auto", source).output
        listed = invoke("at-risk", source)
        assert listed.exit_code == 0
        assert listed.output.strip()
    assert invoke("figure", "tradeoff", root, "-o", tmp_path / "tradeoff.png").exit_code == 0
    pooled = invoke("figure", "heatmap", root, "--method", "plain", "-o", tmp_path / "three.png")
    assert pooled.exit_code == 0
    for name in ("draw", "flow", "windows", "recovery"):  # what no history has
        done = invoke("figure", name, root / "plain-0", "-o", tmp_path / "no.png")
        assert done.exit_code == 2
        assert done.output.count("\n") == 1
    runs = wane.load_runs(root)
    assert runs["net.hidden"].to_list() == ["[48]"] * 6
    assert runs["title"].to_list() == ["plain"] * 3 + ["rehearsal"] * 3
    assert "(own loop)" in invoke("runs", root).output


def test_a_logger(tmp_path, trained):
    pytest.importorskip("tensorboard")
    from loggers.logger_readers import read_tensorboard

    folder = wane.save_run(trained["rehearsal", 0][0], tmp_path / "run")
    done = invoke("log", folder, "--to", "tensorboard")
    assert done.exit_code == 0, done.output
    points, _, _, final = read_tensorboard(folder)
    steps = [step for name, step in points if name == "test/accuracy/mean"]
    assert steps == sorted(set(steps)), "steps begin anew with every task, and go on in the folder"
    assert len(steps) == 15
    summary = RunFolder(folder).summary["metrics"]["accuracy"]["forgetting"]
    assert final["summary/accuracy/forgetting"] == pytest.approx(summary)
    assert "tensorboard has it" in invoke("log", folder, "--to", "tensorboard").output
    wane.save_run(trained["rehearsal", 1][0], folder)
    assert "tensorboard has it" not in invoke("log", folder, "--to", "tensorboard").output
    trained["plain", 0][0].write(tmp_path / "mine.parquet")
    refused = invoke("log", tmp_path / "mine.parquet", "--to", "tensorboard")
    assert (refused.exit_code, "wane.save_run makes one of it" in refused.output) == (2, True)


def test_the_archive_keeps_the_table(root, tmp_path):
    archive(find_runs(root), tmp_path / "kept")
    assert not list((tmp_path / "kept").rglob("history.parquet"))
    kept = run_table("auto", find_runs(tmp_path / "kept"), baseline="plain")
    assert kept.frame.equals(run_table("auto", find_runs(root), baseline="plain").frame)
    archive(find_runs(root), tmp_path / "whole", histories=["rehearsal"])
    assert len(list((tmp_path / "whole").rglob("history.parquet"))) == 3
    other = wane.save_run(RunFolder(root / "plain-0").history, tmp_path / "b/plain-1", method="plain", seed=9)
    with pytest.raises(ValueError, match="are different runs"):
        archive([RunFolder(root / "plain-1"), RunFolder(other)], tmp_path / "c")


def test_what_was_never_taught_is_neither_forgotten_nor_drawn(trained):
    taught, (everything, _, _) = trained["plain", 0][0], train("plain", 0, everything=True)
    assert len(everything) > len(taught)
    ours = normal_form(everything)
    assert ours.splits == ("test", "future")
    there = ours.frame.filter(pl.col("split") == "test").select(pl.exclude("step"))
    assert there.equals(taught.frame.select(pl.exclude("step")))
    assert everything.splits == ("test",), "the history itself stays as it was recorded"
    one, other = find_runs(everything, taught)
    for signal, values in other.summary["metrics"].items():
        here = one.summary["metrics"][signal]
        ahead = ("forward_transfer", "cl_forward")  # what was measured before it was taught is for these
        assert {k: v for k, v in here.items() if k not in ahead} == {k: v for k, v in values.items() if k not in ahead}
    lost = [at_level(observations([run]), 0.0).drop("run") for run in (one, other)]
    assert lost[0].equals(lost[1])
    assert normal_form(ours) is ours


def test_a_folder_says_what_is_known_and_no_more(root, tmp_path):
    run = RunFolder(root / "plain-2")
    assert not run.has("config.toml")
    assert run.own == OwnLoop("plain", 2, "digits", "", 5, {"lr": 0.2, "net": {"hidden": [48]}})
    assert run.about.has_memory is None
    assert "seconds" not in run.summary
    assert "machine" not in run.summary
    assert run.class_names == tuple(NAMES)
    with pytest.raises(ConfigError, match="was not trained by wane, so it has no config"):
        _ = run.config
    history = wane.History()
    history.record({"n": [5, 5], "accuracy": [0.5, 1]}, step=0, task=0)
    bare = RunFolder(wane.save_run(history, tmp_path / "bare"))
    assert (bare.method.title, bare.seed, bare.data) == ("own loop", None, "")
    assert (tmp_path / "bare/own_loop.toml").read_text().count("=") == 1
    assert bare.summary["metrics"]["accuracy"]["average"] is None
    assert "does not say the task of each class" in invoke("table", "auto", tmp_path / "bare").output


@pytest.mark.parametrize("recipe", ["plain-0", "plain-0/own_loop.toml", "diagnostics"])
def test_the_lab_does_not_touch_it(root, recipe, monkeypatch):
    monkeypatch.chdir(root)
    before = {file.name: file.read_bytes() for file in (root / "plain-0").iterdir()}
    done = invoke("run", recipe, "--out", "plain-0")
    assert done.exit_code == 2
    assert re.fullmatch(r"wane: plain-0\S* (is of|holds) a run that wane did not train.*\n", done.output)
    assert before == {file.name: file.read_bytes() for file in (root / "plain-0").iterdir()}


def test_unknown_seeds_are_averaged_but_not_paired(trained, tmp_path):
    for seed in SEEDS:
        history = trained["plain", seed][0]
        again = history.with_evaluations(history.evaluations)
        again.seed = None
        wane.save_run(again, tmp_path / f"a{seed}", method="a")
        wane.save_run(history, tmp_path / f"b{seed}", method="b")
    frame = run_table("auto", find_runs(tmp_path), baseline="b").frame
    row = frame.filter(pl.col("method") == "a", pl.col("measure") == "accuracy").row(0, named=True)
    assert (row["n"], row["seeds"], row["er_n"]) == (3, "?, ?, ?", 0)


@pytest.mark.parametrize("split", ["val", "test_task"])
def test_another_split_leads(split, tmp_path):
    history, _, _ = train("plain", 0, split=split)
    run = find_runs(history)[0]
    assert run.split == split
    assert history.report(tmp_path / "page.html").exists()
    key = "task_incremental" if split == "test_task" else "metrics"
    assert run.summary[key]["accuracy"]["average"] == pytest.approx(
        float(wane.average(history.matrix("accuracy", split=split)))
    )


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"seed": 1.5}, "seed is 1.5: give a whole number of at least 0"),
        ({"seed": -1}, "seed is -1"),
        ({"settings": {"net": {"f": print}}}, "setting net.f is <built-in function print>: give a number"),
        ({"settings": {"lr": float("nan")}}, "setting lr is nan"),
    ],
)
def test_what_cannot_be_said(trained, tmp_path, options, sentence):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        wane.save_run(trained["plain", 0][0], tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()


def test_where_it_cannot_be_saved(trained, tmp_path):
    history = trained["plain", 0][0]
    write_run(tmp_path / "lab")
    with pytest.raises(ValueError, match="holds a run of the lab"):
        wane.save_run(history, tmp_path / "lab")
    with pytest.raises(ValueError, match="is not empty and holds no run"):
        wane.save_run(history, tmp_path)
    with pytest.raises(ValueError, match="is a URL"):
        wane.save_run(history, "memory://runs/a")
    with pytest.raises(ValueError, match="the history is empty"):
        wane.save_run(wane.History(), tmp_path / "empty")
    folder = wane.save_run(history, tmp_path / "run", method="a", settings={"lr": np.float32(0.5), "none": None})
    assert json.loads((wane.save_run(history, folder, seed=np.int64(3)) / "summary.json").read_text())["seed"] == 3


@pytest.mark.parametrize("text", ["method = 3", "seed = 0", "nonsense", 'method = "a"\nseed = "b"'])
def test_a_damaged_file_is_named(text, tmp_path):
    with pytest.raises(ConfigError, match=r"own_loop\.toml"):
        parse_own_loop(text.encode(), "own_loop.toml")
    (tmp_path / "run").mkdir()
    (tmp_path / "run/own_loop.toml").write_text(text)
    assert "unreadable" in invoke("runs", tmp_path).output


def test_a_report_of_histories_names_each(trained, tmp_path):
    page = wane.report([trained["plain", 0][0], trained["rehearsal", 0][0]], tmp_path / "page.html", title="Mine")
    text = page.read_text()
    assert "<h1>Mine</h1>" in text
    for label in ("plain, seed 0", "rehearsal, seed 0"):
        assert f">{label}<" in text


def test_histories_of_one_method_are_as_many_runs(trained, tmp_path):
    histories = [history for history, _, _ in trained.values()]
    runs = find_runs(*histories, histories[0], RunFolder(tmp_path))
    assert len({run.place for run in runs}) == 7
    page = wane.report(histories, tmp_path / "page.html").read_text()
    for method in METHODS:
        assert [f">{method}, seed {seed}<" in page for seed in SEEDS] == [True] * 3
    text = wane.table(histories, baseline="plain", format="csv")
    assert pl.read_csv(text.encode()).filter(pl.col("measure") == "accuracy")["n"].to_list() == [3, 3]
    (tmp_path / "a").mkdir()
    histories[0].write(tmp_path / "a/history.parquet")
    assert find_runs(tmp_path / "a/history.parquet")[0].name == "a"


@pytest.mark.slow
@pytest.mark.parametrize("tasks", [None, [0, 0, 1], [0, -1, 1], []])
@pytest.mark.parametrize("signals", [["accuracy"], ["accuracy", "ctl", "log_tlr"]])
def test_whatever_was_recorded_can_be_looked_at(tasks, signals, tmp_path):
    """Domains, accuracy alone, no tasks, a head that grew, splits that no view knows: a page, or a sentence."""
    rng = np.random.default_rng(0)
    history = wane.History(tasks, names=["north", "east", "west"], kind="domain")
    for step in range(8):
        n = [5, 6, 7 * (step > 3)]
        for split in ("test", "corrected", "ladder/head", "test_steps", "x"):
            values = {name: rng.uniform(0, 1, 3) for name in signals}
            history.record({"n": n, **values}, step=step, task=step // 4, split=split)
    page = history.report(tmp_path / "page.html").read_text()
    assert "north" in page
    for name in ("heatmap", "conditional", "smoothness", "trajectories"):
        history.write(tmp_path / "h.parquet")
        done = invoke("figure", name, tmp_path / "h.parquet", "-o", tmp_path / "f.png")
        assert done.exit_code in (0, 2), done.output
        assert done.exit_code == 0 or done.output.count("\n") == 1
        assert name != "heatmap" or "accuracy" not in signals or len(signals) == 1 or done.exit_code == 0
    table = invoke("table", "auto", tmp_path / "h.parquet")
    assert (table.exit_code, "does not say the task" in table.output) == ((2, True) if tasks is None else (0, False))
    assert invoke("at-risk", tmp_path / "h.parquet").exit_code == 0


@pytest.mark.filterwarnings("error")
def test_accuracy_alone_is_enough_for_a_report(tmp_path):
    history = wane.History([0, 0, 1, 1], names="abcd")
    for step in range(8):
        task = step // 4
        values = {"n": [5, 6, 7 * task, 7 * task], "accuracy": [1 - 0.25 * task, 1 - task, 0.5, 0.9]}
        history.record(values, step=step, task=task)
    found = prepare(find_runs(history)[0], "mine")
    assert found["sentences"][0].startswith("Accuracy on the 2 classes of earlier tasks went from 100%")
    assert found["sentences"][1] == "Accuracy alone was recorded: what it hides is not known."
    assert found["curves"]["names"] == ["accuracy"]
    assert [row["class"] for row in found["near"]] == [1]
    assert history.report(tmp_path / "page.html").exists()
