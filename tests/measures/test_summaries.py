"""The registry of summaries against the functions of `wane.measures.transfer`."""

import numpy as np
import polars as pl
import pytest

import wane
from wane.measures.ladder import COLUMNS, Ladder
from wane.measures.summaries import SUMMARIES, Summary, summarise

T = 3


def history_of(*, splits=("test",), tasks=T, seed=0, until=T):
    """Three tasks of two classes, two evaluations each, on these splits."""
    rng = np.random.default_rng(seed)
    history = wane.History(np.repeat(np.arange(tasks), 2))
    for step in range(2 * until):
        task = step // 2
        for split in splits:
            future = split.startswith("future")
            inside = np.repeat(np.arange(tasks) > task if future else np.arange(tasks) <= task, 2)
            inside |= split.startswith("untrained")
            if split.startswith("untrained") and step:
                continue
            values = {name: np.where(inside, rng.random(2 * tasks), np.nan) for name in wane.SIGNALS}
            history.record({**values, "n": inside * np.tile([30, 10], tasks)}, step=step, task=task, split=split)
    return history


CL_SCORE = [name for name, row in SUMMARIES.items() if row.family == "CLScore"]


@pytest.mark.parametrize("split", ["test", "test_task"])
def test_every_summary_is_the_function_of_that_name(split):
    future, untrained = ("future", "untrained") if split == "test" else ("future_task", "untrained_task")
    history = history_of(splits=(split, future, untrained, f"{split}_steps"))
    found = summarise(history, split=split)
    assert list(found) == list(wane.SIGNALS)
    for signal, values in found.items():
        assert list(values) == list(SUMMARIES)
        matrix = np.asarray(history.matrix(signal, split=split))
        for name in ("average", "forgetting", "retention", "plasticity", "backward_transfer"):
            assert values[name] == getattr(wane, name)(matrix, signal=signal), name
        baseline = history.untrained(signal, split=split)
        assert values["forward_transfer"] == wane.forward_transfer(matrix, baseline, signal=signal)
        steps, tasks, _, series = history.by_task(signal, split=f"{split}_steps")
        for name in ("min_acc", "wc_acc", "windowed_forgetting", "windowed_plasticity"):
            assert values[name] == getattr(wane, name)(steps, tasks, np.asarray(series), signal=signal), name
        if signal == "loss":  # CLScore is of shares
            assert {values[name] for name in CL_SCORE} == {None}
        else:
            assert values["cl_accuracy"] == wane.cl_score(matrix)["A"]
            assert values["cl_forward"] == wane.cl_score(matrix)["FWT"]
        assert all(
            type(value) is float
            for name, value in values.items()
            if SUMMARIES[name].source == "history" and name not in CL_SCORE
        )


def test_rungs_of_a_ladder_are_summaries_of_accuracy():
    """Means over tasks of means over test rows: class 1 has three times as many as class 0."""
    rows = [(4, 0, 0, 0, 10, "now", 0.9), (8, 1, 0, 0, 10, "head_all", 0.5), (8, 1, 1, 0, 30, "head_all", 0.9),
            (8, 1, 2, 1, 10, "head_all", 0.4)]  # fmt: skip
    ladder = Ladder(pl.DataFrame(rows, schema=COLUMNS[:7], orient="row"))
    found = summarise(history_of(), ladder=ladder)
    assert found["accuracy"]["head_all"] == pytest.approx((0.8 + 0.4) / 2)
    assert found["accuracy"]["bias_memory"] is None
    assert found["loss"]["head_all"] is None
    assert (
        summarise(history_of(splits=("test_task",)), split="test_task", ladder=ladder)["accuracy"]["head_all"] is None
    )


def test_a_table_of_something_else_is_no_ladder():
    with pytest.raises(ValueError, match="a ladder has no column 'rung': it has step, task"):
        Ladder(pl.DataFrame({"step": [1], "task": [0], "class": [0], "class_task": [0], "n": [1], "accuracy": [0.5]}))


def test_what_was_not_recorded_is_none():
    found = summarise(history_of())["cm"]
    undefined = {"forward_transfer", "min_acc", "wc_acc", "windowed_forgetting", "windowed_plasticity"}
    undefined |= {name for name, row in SUMMARIES.items() if row.source == "ladder"}
    costs = {"cl_forward", "cl_model_size", "cl_storage", "cl_computation", "cl_score"}
    assert {name for name, value in found.items() if value is None} == undefined | costs
    single = summarise(history_of(tasks=1, until=1))["cm"]
    assert {name for name, value in single.items() if value is not None} == {"average", "plasticity", "cl_accuracy"}
    assert set(summarise(wane.History([0, 1]))["cm"].values()) == {None}
    assert set(summarise(history_of(), split="test_task")["cm"].values()) == {None}


def test_an_unfinished_run_has_the_summaries_of_its_tasks_so_far():
    history = history_of(until=2)
    found = summarise(history)["loss"]
    matrix = history.matrix("loss")[:2, :2]
    assert found["average"] == wane.average(matrix)
    assert found["forgetting"] == wane.forgetting(matrix)


def test_another_row_is_another_summary():
    SUMMARIES["first"] = Summary("first", "First", "The first task at the end.", "signal",
                                 lambda history, signal, split: history.matrix(signal, split=split)[-1, 0])  # fmt: skip
    try:
        history = history_of()
        assert summarise(history)["nkl"]["first"] == history.matrix("nkl")[-1, 0]
    finally:
        del SUMMARIES["first"]
    assert "first" not in summarise(history)["nkl"]


def test_which_way_is_better():
    better = {name: (row.higher_is_better("accuracy"), row.higher_is_better("loss")) for name, row in SUMMARIES.items()}
    assert better["average"] == better["min_acc"] == (True, False)
    assert better["forgetting"] == better["windowed_forgetting"] == (False, False)
    assert better["backward_transfer"] == better["windowed_plasticity"] == (True, True)
    assert all(row.title and row.description.endswith(".") for row in SUMMARIES.values())
