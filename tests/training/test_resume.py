"""Stopped anywhere and started again, a run ends as one that never was: the same bytes."""

import functools

import polars as pl
import pytest
import torch
from rich.console import Console
from training.tiny_problem import EPOCHS, STEPS, dropout_net, results, stop, tiny_config, tiny_dataset

from wane.measures.history import History
from wane.runs.config import build_config
from wane.training.progress import Progress
from wane.training.run import run

#: name: (settings, own model, images a class held out)
CASES = {
    "plain": ({}, False, 0),
    "everything": (
        {
            "data": {"class_order": "shuffled"},
            "learner": {"momentum": 0.9, "weight_decay": 1e-3, "milestones": [1, 2], "lr": 0.05},
            "memory": {"policy": "class_balanced", "draw": "class_uniform", "scope": "past"},
            "record": {
                "eval_every": 3,
                "samples": "tasks",
                "flow": True,
                "classes": "seen",
                "recovery": {"below": 0.99, "steps": 2, "beside": [0, 3]},
                "ladder": True,
            },
            "seed": 5,
        },
        True,
        4,
    ),
    "samples": ({"record": {"samples": [1, 2, 5], "flow": True}, "seed": 2}, False, 0),
    "interventions": (
        {"learner": {"weights": {"signal": "ctl"}, "trend": {"signal": "loss", "window": 2, "gamma": 20.0}}},
        False,
        0,
    ),
    "joint": ({"learner": {"name": "joint", "momentum": 0.5}}, True, 0),
    "cnn": ({"model": {"name": "cnn", "width": 4, "hidden": None}}, False, 0),
}


def case(name):
    settings, own_model, holdout = CASES[name]
    arguments = {"dataset": tiny_dataset(holdout=holdout)}
    return tiny_config(**settings), arguments, dropout_net if own_model else lambda: None


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    @functools.cache
    def result(name):
        config, arguments, model = case(name)
        folder = tmp_path_factory.mktemp(name) / "run"
        run(config, folder, model=model(), **arguments)
        return results(folder)

    return result


def go_on_and_compare(name, folder, expected):
    config, arguments, model = case(name)
    run(config, folder, model=model(), **arguments)
    found = results(folder)
    assert found.keys() == expected.keys()
    assert [key for key in found if found[key] != expected[key]] == []
    left = {path.name for path in folder.iterdir()}
    assert not [file for file in left if file.endswith(".tmp")]


@pytest.mark.parametrize("epochs", range(1, EPOCHS + 1))
def test_stopped_after_an_epoch(epochs, tmp_path, uninterrupted):
    config, arguments, model = case("everything")
    stop(config, tmp_path / "run", model=model(), epochs=epochs, **arguments)
    go_on_and_compare("everything", tmp_path / "run", uninterrupted("everything"))


def test_a_stopped_run_knows_the_tasks_of_classes_to_come(tmp_path):
    config, arguments, model = case("everything")
    stop(config, tmp_path / "run", model=model(), epochs=1, **arguments)
    stopped = History.read(tmp_path / "run" / "history.parquet").class_to_task
    run(config, tmp_path / "run", model=model(), **arguments)
    whole = pl.read_parquet(tmp_path / "run" / "history.parquet").unique("class").sort("class")
    assert stopped.tolist() == whole["class_task"].to_list()


@pytest.mark.parametrize("steps", [1, 6, 12, 13, 22])
def test_stopped_within_an_epoch(steps, tmp_path, uninterrupted):
    config, arguments, model = case("everything")
    stop(config, tmp_path / "run", model=model(), steps=steps, **arguments)
    go_on_and_compare("everything", tmp_path / "run", uninterrupted("everything"))


@pytest.mark.parametrize("name", CASES)
def test_never_more_than_an_epoch_at_a_sitting(name, tmp_path, uninterrupted):
    config, arguments, model = case(name)
    for _ in range(EPOCHS):
        stop(config, tmp_path / "run", model=model(), epochs=1, **arguments)
    go_on_and_compare(name, tmp_path / "run", uninterrupted(name))


def test_what_was_being_compared_is_not_trivial(uninterrupted):
    """The cases record all they ask for, and the options tested have an effect."""
    found = uninterrupted("everything")
    assert found.keys() == {"history", "summary", "samples", "flow", "replay", "recovery", "ladder"}
    frame = pl.read_parquet(found["history"])
    measured = {"test", "holdout", "future", "untrained"}
    assert set(frame["split"]) == {"test_steps", "replay", *measured, *(f"{name}_task" for name in measured)}
    assert frame.filter(split="test")["step"].unique().to_list() == [4, 8, 12, 16, 20, 24]
    assert len({uninterrupted(name)["history"] for name in CASES}) == len(CASES)
    assert uninterrupted("plain")["summary"]["steps"] == STEPS


def test_twice_the_same_and_another_seed_another(tmp_path, uninterrupted):
    go_on_and_compare("plain", tmp_path / "again", uninterrupted("plain"))
    config, arguments, _ = case("plain")
    run(config.model_copy(update={"seed": 1}), tmp_path / "other", **arguments)
    assert results(tmp_path / "other")["history"] != uninterrupted("plain")["history"]


def test_the_global_generator_neither_matters_nor_changes(tmp_path, uninterrupted):
    torch.manual_seed(123)
    before = torch.get_rng_state()
    go_on_and_compare("everything", tmp_path / "run", uninterrupted("everything"))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("every", [1, 5, 1000])
def test_any_eval_every_gives_the_same_history(every, tmp_path):
    """Also with dropout, batch norm and a model in training mode."""

    def rows(folder, **record):
        run(tiny_config(record=record), folder, dataset=tiny_dataset(), model=dropout_net())
        return pl.read_parquet(folder / "history.parquet")

    with_steps, without = rows(tmp_path / "a", eval_every=every), rows(tmp_path / "b")
    assert with_steps.filter(pl.col("split") != "test_steps").equals(without)
    evaluated = with_steps.filter(split="test_steps")["step"].unique().to_list()
    assert evaluated == list(range(every, STEPS + 1, every))


def test_the_step_evaluation_at_the_end_of_an_epoch_is_that_of_the_epoch(tmp_path):
    """But for the last epoch of a task, where a learner may have done more in between."""
    run(tiny_config(record={"eval_every": 4}), tmp_path / "run", dataset=tiny_dataset())
    frame = pl.read_parquet(tmp_path / "run" / "history.parquet")
    steps, epochs = (frame.filter(split=split).drop("split") for split in ("test_steps", "test"))
    assert steps.equals(epochs)
    assert len(steps) == 3 * 2 + 3 * 4


@pytest.mark.parametrize("terminal", [True, False])
def test_with_progress_shown_the_history_is_the_same(terminal, tmp_path, uninterrupted):
    config, arguments, model = case("everything")
    with (tmp_path / "seen").open("w") as screen:
        shown = Progress("a run", console=Console(file=screen, force_terminal=terminal, width=200))
        run(config, tmp_path / "run", model=model(), listeners=[shown], **arguments)
    go_on_and_compare("everything", tmp_path / "run", uninterrupted("everything"))
    text = (tmp_path / "seen").read_text()
    assert "images/s, accuracy" in text
    assert ("task 2 epoch 3/3: " in text) is not terminal
    assert ("\x1b[" in text) is terminal


class InterruptedProgress(Progress):
    def epoch_done(self, session, task, epoch):
        super().epoch_done(session, task, epoch)
        if (task, epoch) == (1, 0):
            raise KeyboardInterrupt


@pytest.mark.parametrize("terminal", [True, False])
def test_names_with_square_brackets_are_only_names(terminal, tmp_path):
    config, dataset = tiny_config(learner={"name": "finetune"}), tiny_dataset(class_names=["[/b]", "[red]", "[", "]"])
    with (tmp_path / "seen").open("w") as screen:
        options = {"console": Console(file=screen, force_terminal=terminal, width=200)}
        with pytest.raises(KeyboardInterrupt):
            run(config, tmp_path / "run", dataset=dataset, listeners=[InterruptedProgress("[/title]", **options)])
        run(config, tmp_path / "run", dataset=dataset, listeners=[Progress("[/title]", **options)])
    text = (tmp_path / "seen").read_text()
    assert "falling most: [/b]" in text or "falling most: [red]" in text
    assert "[/title]: going on after 4 of 6 epochs" in text


def test_a_finished_run_is_only_read(tmp_path):
    config = tiny_config()
    first = run(config, tmp_path / "run", dataset=tiny_dataset())
    times = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "run").iterdir()}
    assert run(config, tmp_path / "run", dataset=tiny_dataset()) == first
    assert {path.name: path.stat().st_mtime_ns for path in (tmp_path / "run").iterdir()} == times


def test_a_last_row_alone_joins_the_step_before_where_there_is_batch_norm(tmp_path):
    """Forty rows a task in steps of 13: the last one has no variance in ResNet's last stage, of one pixel."""
    model = {"name": "resnet18", "width": 2, "hidden": None}
    config = tiny_config(learner={"name": "finetune", "batch_size": 13}, model=model)
    assert run(config, tmp_path / "whole", dataset=tiny_dataset())["steps"] == EPOCHS * 3
    stop(config, tmp_path / "run", dataset=tiny_dataset(), epochs=4)
    run(config, tmp_path / "run", dataset=tiny_dataset())
    assert results(tmp_path / "run") == results(tmp_path / "whole")
    for other in ({"learner": {"name": "er"}}, {"model": {"name": "mlp", "width": None}}):  # nothing changes for them
        changed = build_config(config.model_dump(), other)
        steps = run(changed, tmp_path / next(iter(other)), dataset=tiny_dataset())["steps"]
        assert steps == EPOCHS * 4
