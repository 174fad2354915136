"""Run folders made by hand: a few classes, numbers that can be checked on paper."""

import json

import numpy as np
import polars as pl

from wane.measures.history import History
from wane.runs.config import build_config, to_toml
from wane.runs.folder import RunFolder
from wane.softmax.signals import SIGNALS

TASK_OF = [0, 0, 1, 1]


def write_run(
    path, settings=None, *, matrix=((0.8, None), (0.4, 0.9)), done=True, history=None, replay=None, flow=None,
    recovery=None, steps=None,
):  # fmt: skip
    """A run of 2 tasks with 2 classes each; what is not given is not written."""
    path.mkdir(parents=True)
    config = build_config({"data": {"name": "cifar100", "tasks": 2}}, *(settings or []))
    (path / "config.toml").write_text(to_toml(config), encoding="utf-8")
    if done:
        summary = {"accuracy_matrix": matrix, "class_names": ["cat", "$dog$", "<b>", "eel"], "seed": config.seed}
        summary |= {} if steps is None else {"steps": steps}
        (path / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    if history is not None:
        history.write(path / "history.parquet")
    if replay is not None:
        replay.write_parquet(path / "replay.parquet")
    if recovery is not None:
        recovery.write_parquet(path / "recovery.parquet")
    if flow is not None:
        np.savez(path / "flow.npz", **flow)
    return RunFolder(path)


def made_history(accuracy, *, n=100, of=None):
    """A history from accuracy (epochs, classes), NaN where not evaluated; other signals are `of(accuracy)`.

    The first task lasts as long as class 2 is NaN.
    """
    history = History(class_to_task=TASK_OF)
    accuracy = np.asarray(accuracy, dtype=float)
    for epoch, row in enumerate(accuracy):
        values = {name: row if name == "accuracy" else (of or default)(name, row) for name in SIGNALS}
        there = ~np.isnan(row)
        at = {"step": 10 * (epoch + 1), "task": int(there[2])}
        history.record({"n": np.where(there, n, 0), **{k: np.nan_to_num(v) for k, v in values.items()}}, **at)
        # The replayed rows are recorded too, and should show up nowhere.
        history.record({"n": np.where(there, 7, 0), **dict.fromkeys(SIGNALS, np.full(4, 0.123))}, split="replay", **at)
    return history


def default(name, row):
    """Signals that differ from accuracy, and from each other."""
    return 3 - 2 * row if name == "loss" else 0.5 + row / (2 + list(SIGNALS).index(name))


def made_replay(drawn, tasks):
    """A replay log from the rows drawn (epochs, classes)."""
    drawn = np.asarray(drawn)
    return pl.DataFrame(
        {
            "step": 10 * np.arange(1, len(drawn) + 1),
            "task": tasks,
            "effective_classes": [2.0 if t == 0 else 3.0 for t in tasks],
            "current_share": [1.0 if t == 0 else 0.25 for t in tasks],
            "drawn": drawn.tolist(),
        }
    )


def made_recovery(lost, *, steps=4):
    """A table of recoveries from (task, class, beside, signal before, rate): accuracy after k steps is `rate * k`.

    All signals but accuracy are the same number (the loss is minus it); a tenth of what is recovered is taken.
    """
    rows = [
        {"step": 10 * task, "task": task, "class": c, "class_task": task - 1, "n": 50}
        | {s: 0.0 if s == "accuracy" else -before if s == "loss" else before for s in SIGNALS}
        | {"beside": beside, "k": k, "recovered": rate * k, "taken": rate * k / 10}
        for task, c, beside, before, rate in lost
        for k in range(steps + 1)
    ]
    return pl.DataFrame(rows)
