"""What the report embeds, against hand-made run folders: packed values, rows, sentences, and what is missing."""

import dataclasses
import json
import re

import numpy as np
import polars as pl
import pytest

from wane.measures.history import History
from wane.measures.transfer import average, forgetting, plasticity, retention
from wane.runs.config import build_config, to_toml
from wane.runs.folder import RunFolder, find_runs
from wane.softmax.signals import SIGNALS
from wane.views.figures import heatmap, trajectories
from wane.views.palette import is_bounded
from wane.views.report.data import conditional, draw, flow, group_runs, prepare, smoothness, summaries, summary_rows
from wane.views.report.findings import hidden_decline, near_zero, timeline
from wane.views.report.pack import MISSING, pack, script_json, unpack
from wane.views.report.page import report_page, write_report

EVIL = ("<script>alert(1)</script>", "<b>x</b><img src=x onerror=alert(1)>", "</script><!--", '" onmouseover="alert(2)')


def make_run(
    path, *, values=None, tasks=2, per_task=2, epochs=3, names=None, seed=0, finished=True, replay=True, with_flow=True,
    stop=None, **layers,
):  # fmt: skip
    """A run folder with random signals, or `values(epoch, class) -> dict` over them; `stop` ends it early."""
    path.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    classes = tasks * per_task
    task_of = np.repeat(np.arange(tasks), per_task)
    learner = {"name": "er" if replay else "finetune", "epochs": epochs}
    config = build_config({"seed": seed, "data": {"tasks": tasks}, "learner": learner}, layers)
    (path / "config.toml").write_text(to_toml(config), encoding="utf-8")
    history, log = History(task_of), []
    for epoch in range(tasks * epochs if stop is None else stop):
        task = epoch // epochs
        seen = task_of <= task
        rows = {name: rng.random(classes) * (4 if name == "loss" else 1) for name in SIGNALS}
        rows["accuracy"] = np.round(rows["accuracy"] * 20) / 20
        for c in range(classes) if values else ():
            for name, value in values(epoch, c).items():
                rows[name][c] = value
        history.record({**rows, "n": 20 * seen}, step=10 * (epoch + 1), task=task)
        drawn = rng.integers(1, 9, classes) * seen
        share = float(drawn[task_of == task].sum() / drawn.sum())
        log.append({"step": 10 * (epoch + 1), "task": task, "effective_classes": float(seen.sum()),
                    "current_share": share, "drawn": drawn.tolist()})  # fmt: skip
    history.write(path / "history.parquet")
    if replay:
        pl.DataFrame(log).write_parquet(path / "replay.parquet")
    if with_flow:
        soft = rng.dirichlet(np.ones(classes), (tasks, classes))
        np.savez(path / "flow.npz", flow=soft, step=np.arange(tasks), task=np.arange(tasks))
    if finished:
        matrices = {name: history.matrix(name) for name in SIGNALS}
        metrics = {
            name: {f.__name__: None if (v := float(f(m, signal=name))) != v else v
                   for f in (average, forgetting, retention, plasticity)} for name, m in matrices.items()
        }  # fmt: skip
        summary = {
            "metrics": metrics, "class_names": list(names or [f"class {c}" for c in range(classes)]), "steps": 60,
            "accuracy_matrix": [[None if x != x else x for x in row] for row in matrices["accuracy"].tolist()],
            "seconds": 1.5, "versions": {"wane": "0"}, "machine": {"platform": "here"}, "seed": seed, "recipe": "test",
        }  # fmt: skip
        (path / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    return RunFolder(path)


def embedded(page):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)[1])


def test_packed_values_come_back_to_four_digits():
    rng = np.random.default_rng(0)
    values = rng.random((7, 30, 11))
    values[:, :10, 5:] = np.nan
    back = unpack(pack(values))
    assert np.array_equal(np.isnan(back), np.isnan(values))
    assert np.nanmax(np.abs(back - values)) <= 0.5e-4 + 1e-12
    large = values[0] * 40
    assert np.nanmax(np.abs(unpack(pack(large)) - large)) <= 40 / (MISSING - 1)
    assert unpack(pack(np.full((2, 2), np.nan))).shape == (2, 2)


def test_no_text_leaves_its_script_element():
    text = script_json({"names": EVIL, "line": "\u2028"})
    assert not re.search(r"[<>&\u2028]", text)
    assert json.loads(text)["names"] == list(EVIL)


def test_curves_are_those_of_the_history(tmp_path):
    run = make_run(tmp_path / "run")
    made = prepare(run, "er")
    curves = unpack(made["curves"]["bounded"])
    names = [name for name in SIGNALS if name != "loss"]
    assert curves.shape == (7, 6, 4)
    for i, name in enumerate(names):
        assert np.allclose(curves[i], run.history.trajectory(name).values, atol=0.6e-4, equal_nan=True)
    loss = unpack(made["curves"]["others"]["loss"])
    assert np.allclose(loss, run.history.trajectory("loss").values, atol=1e-3, equal_nan=True)
    assert made["boundaries"] == [3]
    assert made["class_task"] == [0, 0, 1, 1]


def test_shuffled_classes_are_in_the_order_of_their_tasks():
    history = History([1, 0, 1, 0])
    rows = {name: np.array([0.1, 0.2, 0.3, 0.4]) for name in SIGNALS}
    history.record({**rows, "n": np.array([0, 5, 0, 5])}, step=0, task=0)
    history.record({**rows, "n": np.array([5, 5, 5, 5])}, step=1, task=1)
    t = timeline(history)
    assert t.classes.tolist() == [1, 3, 0, 2]
    assert t.of("cm")[-1].tolist() == [0.2, 0.4, 0.1, 0.3]
    assert t.learnt().tolist() == [0, 0, 1, 1]


def test_hidden_decline_and_near(tmp_path):
    high = dict.fromkeys(SIGNALS, 0.9)

    def values(epoch, c):
        if c == 0:  # accuracy holds, the rest falls
            return {**dict.fromkeys(SIGNALS, 0.9 if epoch < 3 else 0.6), "accuracy": 0.9}
        if c == 1:  # lost altogether; rank 2 of 4 on average
            return high if epoch < 3 else {**dict.fromkeys(SIGNALS, 0.5), "accuracy": 0.0}
        return high

    run = make_run(tmp_path / "run", values=values, names=["held", "gone", "c", "d"])
    t = timeline(run.history)
    (row,) = hidden_decline(t)
    assert (row["class"], row["accuracy"], row["ctl"]) == (0, (0.9, 0.9), (0.9, 0.6))
    assert row["drift"] == pytest.approx(-0.3)
    (row,) = near_zero(t, 4)
    assert (row["class"], row["rank"]) == (1, pytest.approx(2))
    first, second, third = prepare(run, "er")["sentences"]
    assert first == (
        "Accuracy on the 2 classes of earlier tasks went from 90.0%, right after each was learnt, to 45.0% "
        "(mean over classes): "
        "1 lost more than 10 points, most of all “gone” (90.0% to 0%)."
    )
    assert "“gone” stands at 0 %, with its label typically ranked 2nd; “held” kept its accuracy" in second
    assert third.startswith("Had another task followed, it would likely cost “")


def test_conditional_and_smoothness_count_what_there_is(tmp_path):
    def values(epoch, c):
        return {"accuracy": (0.0, 0.25, 0.5, 0.75)[c], "cm": 0.1 * epoch, "tlr": 0.5}

    run = make_run(tmp_path / "run", values=values)
    found = {(row["level"], row["signal"]): row for row in conditional(run).to_dicts()}
    assert [found[level, "cm"]["n"] for level in (0, 0.25, 0.5, 0.75)] == [6, 6, 3, 3]
    assert found[0.5, "cm"]["median"] == pytest.approx(0.4)
    assert sum(found[0, "cm"]["density"]) == pytest.approx(1)
    boxes, width = smoothness(run)
    moved = {(row["signal"], row["phase"]): row for row in boxes.to_dicts()}
    assert width == 1
    assert moved["cm", "transition"]["median"] == pytest.approx(0.1)
    assert moved["tlr", "stable"]["max"] == 0
    assert moved["accuracy", "transition"]["n"] + moved["accuracy", "stable"]["n"] == 2 * 5 + 2 * 2


def test_flow_and_draw(tmp_path):
    run = make_run(tmp_path / "run")
    t = timeline(run.history)
    got, soft = flow(run, t), run.flow["flow"]
    assert got["own"][-1].tolist() == pytest.approx(np.diag(soft[-1]).tolist())
    assert np.allclose(got["own"] + got["by_task"].sum(-1), 1)
    taker, share = got["takers"][0][0]
    assert share == pytest.approx(soft[-1, 0, 1:].max())
    assert taker == 1 + soft[-1, 0, 1:].argmax()
    drawn = np.array(run.replay["drawn"].to_list())
    assert np.allclose(unpack(draw(run, t)["share"]), drawn / drawn.sum(1, keepdims=True), atol=0.6e-4)


def test_what_is_ahead_of_the_history_is_not_shown(tmp_path):
    """Beside a run that is going on: it writes the flow of a task, then the history, then the log of the replay."""
    whole, early = make_run(tmp_path / "whole"), make_run(tmp_path / "early", stop=3, finished=False)
    for name in ("flow.npz", "replay.parquet"):
        (early.path / name).write_bytes((whole.path / name).read_bytes())
    parts = dict(whole.flow, step=np.array([30, 60]))
    np.savez(early.path / "flow.npz", **parts)
    t = timeline(early.history)
    got = flow(early, t)
    assert got["after"].tolist() == [0]
    assert np.allclose(got["own"][0], np.diag(parts["flow"][0])[:2])
    assert draw(early, t)["task"] == [0, 0, 0]
    np.savez(early.path / "flow.npz", **dict(parts, step=np.array([40, 60])))
    assert flow(RunFolder(early.path), t) is None


def test_methods_and_their_mean(tmp_path):
    runs = [make_run(tmp_path / f"er{s}", seed=s) for s in range(3)]
    runs += [make_run(tmp_path / "cu", memory={"draw": "class_uniform"})]
    runs += [make_run(tmp_path / "begun", seed=3, stop=0, finished=False, with_flow=False)]
    groups = group_runs(runs)
    assert [(g.title, len(g.runs)) for g in groups] == [("er", 4), ("er, class_uniform", 1)]
    values = {str(run.path): summaries(run) for run in runs[:-1]}
    er, control = summary_rows(groups, values, "accuracy")
    expected = [run.summary["metrics"]["accuracy"]["average"] for run in runs[:3]]
    assert er["average"] == pytest.approx((np.mean(expected), np.std(expected, ddof=1), 3))
    assert (er["n"], er["missing"], control["average"][1:]) == (3, 1, (None, 1))


def test_unfinished_runs_are_summed_up_so_far(tmp_path):
    run = make_run(tmp_path / "run", finished=False, stop=4)
    made = prepare(run, "er")
    assert made["notes"] == ["This run is not finished: 4 of 6 epochs. All numbers are those so far."]
    assert summaries(run)["class"]["accuracy"]["average"] == pytest.approx(
        float(average(run.history.matrix("accuracy")))
    )
    assert made["names"] == ["0", "1", "2", "3"]


def test_ranks_of_an_unfinished_run_are_among_all_classes(tmp_path):
    def lost(epoch, c):
        return {"accuracy": 0.0, "log_tlr": 0.5} if c == 0 else {}

    run = make_run(tmp_path / "run", values=lost, per_task=8, finished=False, stop=1)
    (row,) = [row for row in prepare(run, "er")["near"] if row["class"] == 0]
    assert row["rank"] == pytest.approx(4)  # the root of 16, of which 8 are yet to come


@pytest.mark.parametrize(
    ("options", "missing"),
    [
        ({"replay": False, "with_flow": False}, {"draw", "flow"}),
        ({"tasks": 1}, {"flow"}),
        ({"tasks": 1, "epochs": 1}, {"flow", "smoothness"}),
        ({"stop": 1, "finished": False, "with_flow": False}, {"flow", "smoothness"}),
        ({"stop": 0, "finished": False, "with_flow": False}, set()),
    ],
)
def test_what_is_missing_is_said(tmp_path, options, missing):
    run = make_run(tmp_path / "run", **options)
    made = prepare(run, "method")
    assert set(made["missing"]) == missing
    assert made["notes"] if options.get("finished") is False else len(made["sentences"]) == 3
    page = report_page([run])
    assert not re.search(r"\b(nan|NaN|None|Infinity)\b", script_json(embedded(page)))


def test_names_are_inert_and_the_policy_is_strict(tmp_path):
    run = make_run(tmp_path / "<b>run", names=EVIL)
    page = report_page([run], title=EVIL[0])
    head, tail = page.split('id="data">')
    assert not any(name in head for name in EVIL)
    assert not any(name in tail for name in EVIL)
    assert embedded(page)["runs"][0]["names"] == list(EVIL)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1]
    assert policy.startswith("default-src 'none'")
    assert "script-src 'sha256-" in policy.replace("&#39;", "'")
    assert "unsafe-inline" not in policy.split("script-src")[1]
    assert not re.search(r"<(link|img|iframe|object)\b|@import|\burl\(", head)


def test_without_room_the_first_of_each_method_keeps_its_curves(tmp_path):
    for seed in range(3):
        make_run(tmp_path / f"er{seed}", seed=seed)
        make_run(tmp_path / f"cu{seed}", seed=seed, memory={"draw": "class_uniform"})
    whole = report_page(find_runs(tmp_path))
    assert all(run["curves"] for run in embedded(whole)["runs"])
    bulk = sum(len(script_json(embedded(whole)["runs"][0][part])) for part in ("curves", "draw", "flow"))
    page = report_page(find_runs(tmp_path), most_bytes=len(script_json(embedded(whole)["runs"])) - 3 * bulk)
    kept = [run["label"] for run in embedded(page)["runs"] if run["curves"]]
    assert {"er, seed 0", "er, class_uniform, seed 0"} <= {*kept}
    assert len(kept) < 6
    assert f"embedded for {len(kept)} of 6 runs; left out: " in page
    assert embedded(page)["runs"][0]["curves"]


def test_written_whole_or_not_at_all(tmp_path, monkeypatch):
    run, target = make_run(tmp_path / "run"), tmp_path / "report.html"
    target.write_text("old")
    with pytest.raises(IsADirectoryError, match="is a folder: give the name of a file in it"):
        write_report([run], tmp_path)
    with pytest.raises(NotADirectoryError, match="make it first"):
        write_report([run], tmp_path / "none" / "report.html")
    with pytest.raises(ValueError, match="no run was given"):
        write_report([], target)
    assert target.read_text() == "old"
    assert write_report([run], target).read_text().startswith("<!doctype html>")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "run"]


def test_the_headline_says_which_mean_it_is(tmp_path):
    """A class of 4 images at 0 % and one of 20 at 100 %: 50 % over classes, 83 % over samples."""
    run = make_run(tmp_path / "run", values=lambda epoch, c: {"accuracy": float(c != 0 or epoch < 3)})
    even = prepare(run, "er")["sentences"][0]
    assert "to 50.0% (mean over classes):" in even
    for e in run.history.evaluations:
        e.n[e.classes == 0] = 4
    uneven = prepare(run, "er")["sentences"][0]
    assert (
        "to 50.0% (mean over classes; mean over the samples of each task, as in the summary: 100% to 83.3%)" in uneven
    )
    assert float(retention(run.history.matrix("accuracy"))) == pytest.approx(20 / 24)  # the library's


def test_both_settings_have_a_switch(tmp_path):
    run = make_run(tmp_path / "run")
    assert "summary-setting" not in report_page([run]).partition("<script")[0]
    summary = json.loads((run.path / "summary.json").read_text())
    values = {"average": 0.875, "forgetting": 0.0, "retention": 0.5, "plasticity": 0.5, "min_acc": 0.25}
    summary["task_incremental"] = dict.fromkeys(SIGNALS, values)
    (run.path / "summary.json").write_text(json.dumps(summary))
    page = report_page([RunFolder(run.path)])
    head = page.partition('<script type="application/json"')[0]
    assert '<option value="task">task-incremental</option>' in head
    assert "mean over its samples" in head
    data = embedded(page)
    assert [column["name"] for column in data["columns"]] == list(values)  # the stability gap, where it was recorded
    assert data["summary"]["task"]["accuracy"]["runs"][0]["average"] == [0.875, None, 1]
    assert data["summary"]["class"]["accuracy"]["runs"][0]["min_acc"] == [None, None, 0]


def test_a_ninth_signal_needs_no_change_here(tmp_path, monkeypatch):
    """One row of the registry is enough for report and figures, bounded or not."""
    ninth = dataclasses.replace(SIGNALS["loss"], name="ninth", title="The ninth")
    monkeypatch.setitem(SIGNALS, "ninth", ninth)
    run = make_run(tmp_path / "run")
    data = embedded(report_page([run]))
    assert data["signals"][-1]["name"] == "ninth"
    assert data["summary"]["class"]["ninth"]["runs"][0]["average"][2] == 1
    assert "ninth" in {*data["runs"][0]["curves"]["names"], *data["runs"][0]["curves"]["others"]}
    assert heatmap([run], signal="ninth").axes[1].get_ylabel() == "The ninth"
    assert len(trajectories([run], signals=("cm", "ninth")).axes) == 1 + (not is_bounded("ninth"))
