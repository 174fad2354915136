"""Methods that the lab does not have (`own_methods.py`), by reference through the loop as it is.

For each a test of its numbers against a literal computation, and for all that a run of it resumes to the byte.
"""

import copy
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from learners import own_methods
from torch.nn.utils import parameters_to_vector
from training.tiny_problem import Keeper, results, stop, tiny_config, tiny_dataset
from typer.testing import CliRunner

from wane.cli import app
from wane.learners import LEARNERS, Learner, OptionError, build_learner, check_options
from wane.learners.describe import field_docstrings
from wane.measures.history import History
from wane.memory import herding_ranks
from wane.registry import UnknownNameError
from wane.streams import eval_batch
from wane.training.checkpoint import load_checkpoint
from wane.training.run import run

METHODS = (
    "DERpp", "XDER", "ByTask", "ERACE", "AGEM", "GEM", "LwF", "EWC", "SI", "ICaRL", "Growing", "HAT",
)  # fmt: skip


@pytest.fixture(autouse=True)
def logs():
    """What the learners of this test had to tell."""
    own_methods.LOGS.clear()
    return own_methods.LOGS


@pytest.fixture
def keeper():
    return Keeper()


def config_of(name, **learner):
    name = f"learners.own_methods:{name}" if hasattr(own_methods, name) else name
    return tiny_config(
        learner={"name": name, "lr": 0.2, "momentum": 0.5, **learner}, data={"flip": False, "padding": 0}
    )


def final(folder, task=0, split="test"):
    return History.read(folder / "history.parquet").matrix("accuracy", split=split)[-1, task]


@pytest.mark.parametrize("name", METHODS)
def test_every_method_resumes_exactly(name, tmp_path):
    config = config_of(name)
    run(config, tmp_path / "whole", dataset=tiny_dataset())
    for when in ({"epochs": 1}, {"steps": 6}, {"epochs": 2}, {"epochs": 1}, {"steps": 2}):
        stop(config, tmp_path / "cut", dataset=tiny_dataset(), **when)
    run(config, tmp_path / "cut", dataset=tiny_dataset())
    assert results(tmp_path / "cut") == results(tmp_path / "whole")
    whole, cut = (load_checkpoint(tmp_path / folder)["learner"] for folder in ("whole", "cut"))
    assert whole.keys() == cut.keys()
    assert all(torch.equal(whole[key], cut[key]) for key in whole)


def test_der_adds_three_means_and_matches_the_logits_of_the_moment(tmp_path, logs, keeper):
    options = {"alpha": 0.3, "beta": 0.7}
    run(config_of("DERpp", options=options), tmp_path / "run", dataset=tiny_dataset(), listeners=[keeper])
    log = [entry[1:] for entry in logs]
    memory = load_checkpoint(tmp_path / "run")["memory"]
    for slot in range(12):  # the logits in memory are those of the step in which the row came
        batch, logits, _ = log[int(memory["steps"][slot]) - 1]
        same = (logits[: batch.new] == memory["extras.logits"][slot]).all(1)
        assert batch.labels[: batch.new][same].tolist() == [int(memory["labels"][slot])]
    overlaps = []
    assert log[0][0].parts == (slice(0, 10),)
    for batch, logits, losses in log[1:]:
        first, second = batch.draw == 1, batch.draw == 2
        overlaps.append(len(set(batch.slots[first].tolist()) & set(batch.slots[second].tolist())))
        published = (
            F.cross_entropy(logits[: batch.new], batch.labels[: batch.new])
            + 0.3 * F.mse_loss(logits[first], batch.extras["logits"][first])
            + 0.7 * F.cross_entropy(logits[second], batch.labels[second])
        )
        assert torch.isclose(sum(losses[rows].mean() for rows in batch.parts), published)
        assert [batch.part(k).draw.unique().tolist() for k in range(3)] == [[0], [1], [2]]
        assert (batch.part(0).new, batch.part(1).new) == (batch.new, 0)
    assert 1 < sum(overlaps[2:]) / len(overlaps[2:]) < 5  # 6 of 12, twice: 3 in common on average
    assert keeper.learners[0].options == own_methods.DarkOptions(0.3, 0.7)


def test_the_step_of_der_is_that_of_the_published_loss(tmp_path, logs, keeper):
    """Two steps by hand: the weights after them are those of plain SGD on the sum of three means."""
    config = config_of("DERpp", momentum=0.0)
    stop(config, tmp_path / "run", dataset=tiny_dataset(), steps=2, listeners=[keeper])
    (batch, _, _), (second, _, _) = (entry[1:] for entry in logs)
    run_by_hand = Keeper()
    stop(config, tmp_path / "other", dataset=tiny_dataset(), steps=1, listeners=[run_by_hand])
    model = run_by_hand.learners[0].model
    assert batch.new == len(batch.labels)
    logits = [model(second.part(k).images) for k in range(3)]
    loss = (
        F.cross_entropy(logits[0], second.part(0).labels)
        + 0.5 * F.mse_loss(logits[1], second.part(1).extras["logits"])
        + 1.0 * F.cross_entropy(logits[2], second.part(2).labels)
    )
    model.zero_grad()
    loss.backward()
    for mine, theirs in zip(model.parameters(), keeper.learners[0].model.parameters(), strict=True):
        torch.testing.assert_close(mine - 0.2 * mine.grad, theirs, atol=1e-6, rtol=1e-5)


def test_loss_weights_have_mean_one_within_each_part(tmp_path, monkeypatch):
    from wane.training import loop

    seen, real = [], loop.weigh_parts

    def watched(weigh, scored, parts, *, start):
        seen.append((real(weigh, scored, parts, start=start), parts, start))
        return seen[-1][0]

    monkeypatch.setattr(loop, "weigh_parts", watched)
    config = config_of("DERpp", weights={"signal": "ctl"})
    run(config, tmp_path / "run", dataset=tiny_dataset())
    for weights, parts, start in seen[1:]:
        for part in parts[1:]:
            mine = weights[part.start - start : part.stop - start]
            assert float(mine.mean()) == pytest.approx(1, abs=1e-6)
            assert float(mine.std()) > 0


def test_a_mean_for_each_task(tmp_path, logs):
    run(config_of("ByTask"), tmp_path / "run", dataset=tiny_dataset())
    seen = set()
    for _, batch, _ in logs[1:]:
        old = batch.tasks[batch.new :]
        assert torch.equal(old, old.sort().values)
        assert sorted(batch.draw[batch.new :].tolist()) == [1] * 6 + [2] * 6
        tasks = [batch.part(k).tasks.unique().tolist() for k in range(1, len(batch.parts))]
        assert tasks == [[t] for t in old.unique().tolist()]
        seen.add(len(batch.parts))
    assert seen == {2, 3}


def test_er_ace_restricts_new_rows_to_the_classes_of_the_batch_and_replays_from_the_second_task(tmp_path, logs):
    run(config_of("ERACE"), tmp_path / "run", dataset=tiny_dataset())
    assert [len(entry[1].parts) for entry in logs] == [1] * 12 + [2] * 12
    for _, batch, logits, losses in logs:
        new, present = slice(0, batch.new), batch.labels[: batch.new].unique()
        position = torch.searchsorted(present, batch.labels[new])
        assert torch.allclose(losses[new].mean(), F.cross_entropy(logits[new][:, present], position), atol=1e-6)
        if len(batch.parts) > 1:
            old = batch.parts[1]
            assert torch.allclose(losses[old].mean(), F.cross_entropy(logits[old], batch.labels[old]), atol=1e-6)


def test_stored_logits_can_be_rewritten(tmp_path, keeper):
    run(config_of("XDER"), tmp_path / "run", dataset=tiny_dataset(), listeners=[keeper])
    memory, dataset = load_checkpoint(tmp_path / "run")["memory"], tiny_dataset()
    images = eval_batch(memory["images"], torch.arange(12), dataset.mean, dataset.std)
    with torch.no_grad():
        assert torch.allclose(memory["extras.logits"], keeper.learners[0].eval().model(images), atol=1e-6)


def test_lwf_keeps_the_answers_of_the_model_before(tmp_path, keeper):
    folder = tmp_path / "run"
    stop(config_of("LwF"), folder, dataset=tiny_dataset(), epochs=3)
    before = {k: v for k, v in load_checkpoint(folder)["learner"].items() if k.startswith("model.")}
    run(config_of("LwF"), folder, dataset=tiny_dataset(), listeners=[keeper])
    after = load_checkpoint(folder)["learner"]
    for name, value in before.items():
        assert torch.equal(after[name.replace("model.", "old.", 1)], value)
        assert not torch.equal(after[name], value)
    run(config_of("finetune"), tmp_path / "finetune", dataset=tiny_dataset())
    images = eval_batch(tiny_dataset().train.images, torch.arange(80), tiny_dataset().mean, tiny_dataset().std)
    kept = keeper.learners[0]
    plain = copy.deepcopy(kept.model)
    state = load_checkpoint(tmp_path / "finetune")["learner"]
    plain.load_state_dict({name.removeprefix("model."): value for name, value in state.items()})

    def answers(model):
        return model(images)[:, :2].softmax(1)

    distance = [float((answers(model) - answers(kept.old)).abs().mean().detach()) for model in (kept.model, plain)]
    assert distance[0] < 0.6 * distance[1]


def test_ewc_holds_on_to_what_mattered(tmp_path, keeper):
    folder = tmp_path / "run"
    stop(config_of("EWC"), folder, dataset=tiny_dataset(), epochs=3, listeners=[keeper])
    after_first = load_checkpoint(folder)["learner"]
    assert (after_first["fisher"] > 0).float().mean() > 0.3
    assert torch.equal(after_first["anchor"], parameters_to_vector(keeper.learners[0].model.parameters()).detach())

    def drift(directory, strength):
        config = config_of("EWC", options={"strength": strength})
        # the first task's Fisher is still the only one
        stop(config, directory, dataset=tiny_dataset(), epochs=5, listeners=[keeper])
        return float(keeper.learners[-1].drift().detach())

    held, free = drift(tmp_path / "held", 10000.0), drift(tmp_path / "free", 0.0)
    assert held < free / 3


def test_agem_never_steps_against_the_past(tmp_path, logs):
    run(config_of("AGEM"), tmp_path / "run", dataset=tiny_dataset())
    before = [float(now @ past) for _, now, past, _ in logs]
    assert min(before) < -0.01  # there was something to project
    assert len(logs) == 12
    for (_, now, past, kept), product in zip(logs, before, strict=True):
        wanted = now - product / float(past @ past) * past if product < 0 else now
        torch.testing.assert_close(kept, wanted, atol=1e-6, rtol=1e-5)
        assert float(kept @ past) > -1e-4


def test_gem_passes_the_whole_memory_and_solves_its_problem(tmp_path, logs):
    """With two tasks there is one constraint, so the bounded dual has a closed form: v = max(gamma, -g.g_k / p)."""
    run(config_of("GEM"), tmp_path / "run", dataset=tiny_dataset())
    assert len(logs) == 12
    projected = 0
    for _, g, past, kept, batch in logs:
        assert sorted(batch.slots[batch.new :].tolist()) == list(range(12))
        assert len(past) == 1
        (old,) = past
        if float(g @ old) < 0:
            projected += 1
            p = float(old @ old) + 1e-3
            v = max(0.5, -float(g @ old) / p)
            torch.testing.assert_close(kept, g + v * old, atol=1e-4, rtol=1e-3)
        else:
            assert torch.equal(kept, g)
    assert projected


def test_si_integrates_the_path_of_every_weight(tmp_path, keeper):
    """With plain SGD a weight moves by -lr x gradient, so its path is lr x the sum of its squared gradients."""
    folder = tmp_path / "run"
    config = config_of("SI", momentum=0.0)
    stop(config, folder, dataset=tiny_dataset(), epochs=2)
    state = load_checkpoint(folder)["learner"]
    assert torch.allclose(state["path"], 0.2 * state["squares"], atol=1e-5)
    assert state["path"].max() > 0.01
    run(config, folder, dataset=tiny_dataset(), listeners=[keeper])
    assert float(load_checkpoint(folder)["learner"]["importance"].max()) > 0.1
    assert float(keeper.learners[-1].path.abs().max()) == 0


def test_icarl_trains_on_task_and_exemplars_as_one_data_set(tmp_path, logs):
    config = config_of("ICaRL")
    run(config, tmp_path / "run", dataset=tiny_dataset())
    batches = [entry[1] for entry in logs]
    assert len(batches) == 3 * 4 + 3 * 6  # 40 rows, then 40 and 12 exemplars, in steps of 10
    for epoch in range(3):
        steps = batches[12 + 6 * epoch : 18 + 6 * epoch]
        slots = torch.cat([batch.slots[batch.replayed] for batch in steps])
        assert sorted(slots.tolist()) == list(range(12))  # each once
        assert sum(batch.new for batch in steps) == 40
        assert {len(batch.labels) for batch in steps} == {10, 2}
        assert len({batch.new for batch in steps}) > 1  # mixed at random
        assert all(torch.equal(batch.slots >= 0, torch.arange(len(batch.slots)) >= batch.new) for batch in steps)
    logs.clear()
    by_class = tiny_config(**{**config.model_dump(exclude_none=True), "memory": {"draw": "class_uniform"}})
    run(by_class, tmp_path / "by_class", dataset=tiny_dataset())
    steps = [entry[1] for entry in logs][12:18]
    assert sum(int(batch.replayed.sum()) for batch in steps) == 12  # as many, drawn


def test_icarl_keeps_exemplars_by_herding_and_answers_by_nearest_mean(tmp_path, keeper):
    run(config_of("ICaRL"), tmp_path / "run", dataset=tiny_dataset(), listeners=[keeper])
    splits = set(History.read(tmp_path / "run" / "history.parquet").frame["split"])
    assert splits == {"test", "test_task", "replay"}  # it has no answer for classes to come
    learner, memory, dataset = keeper.learners[0].eval(), load_checkpoint(tmp_path / "run")["memory"], tiny_dataset()
    assert memory["labels"].bincount().tolist() == [3, 3, 3, 3]
    assert memory["steps"].unique().tolist() == [12, 30]
    with torch.no_grad():
        rows = (dataset.train.labels >= 2).nonzero()[:, 0]
        features = learner.model.features(eval_batch(dataset.train.images, rows, dataset.mean, dataset.std))
        ranks = herding_ranks(features, dataset.train.labels[rows], torch.tensor([0, 0, 3, 3]))
        chosen = {tuple(image.flatten().tolist()) for image in dataset.train.images[rows[ranks >= 0]]}
        assert chosen == {tuple(image.flatten().tolist()) for image in memory["images"][memory["labels"] >= 2]}

        def embed(images):
            return F.normalize(
                learner.model.features(eval_batch(images, torch.arange(len(images)), dataset.mean, dataset.std))
            )

        exemplars, test = embed(memory["images"]), embed(dataset.test.images)
        means = torch.stack([exemplars[memory["labels"] == c].mean(0) for c in range(4)])
        nearest = torch.stack([(test - mean).square().sum(1) for mean in means], dim=1).argmin(1)
    right = nearest == dataset.test.labels
    for task in (0, 1):
        assert final(tmp_path / "run", task) == right[dataset.test.labels // 2 == task].float().mean().item()


def test_a_growing_model_grows_and_never_touches_its_old_columns(tmp_path):
    folder = tmp_path / "run"
    config = config_of("Growing", weight_decay=0.1, epochs=6)
    stop(config, folder, dataset=tiny_dataset(), epochs=6)
    first = {k: v.clone() for k, v in load_checkpoint(folder)["learner"].items()}
    summary = run(config, folder, dataset=tiny_dataset())
    last = load_checkpoint(folder)["learner"]
    assert set(last) - set(first) == {
        f"{part}.1.{kind}" for part in ("columns", "heads") for kind in ("weight", "bias")
    }
    assert all(torch.equal(first[name], last[name]) for name in first)
    assert last["columns.1.weight"].shape == (8, 44)
    matrix = History.read(folder / "history.parquet").matrix("accuracy", split="test_task")
    assert matrix[1, 0] == matrix[0, 0] > 0.9  # nothing is forgotten
    assert matrix[1, 1] > 0.9
    assert set(History.read(folder / "history.parquet").frame["split"]) == {"test_task"}
    assert "metrics" not in summary
    assert summary["task_incremental"]["accuracy"]["forgetting"] == 0
    assert json.loads((folder / "about.json").read_text())["settings"] == ["task"]


def test_hat_is_told_the_task_and_anneals_within_the_epoch(tmp_path, logs, keeper):
    folder = tmp_path / "run"
    config = config_of("HAT", momentum=0.0, options={"s_max": 20.0})
    run(config, folder, dataset=tiny_dataset(), listeners=[keeper])
    assert [entry[1] for entry in logs] == [0, 0.25, 0.5, 0.75] * 6
    assert [entry[3] for entry in logs][:4] == pytest.approx([0.05 + 19.95 * k / 4 for k in range(4)])
    history, dataset = History.read(folder / "history.parquet"), tiny_dataset()
    splits = {"test_task", "future_task", "untrained_task"}
    assert set(history.frame["split"]) == splits
    images = eval_batch(dataset.test.images, torch.arange(40), dataset.mean, dataset.std)
    tasks = dataset.test.labels // 2
    logits = keeper.learners[0].eval().predict(images, tasks).detach()
    for task in (0, 1):
        rows, classes = tasks == task, slice(2 * task, 2 * task + 2)
        right = logits[rows, classes].argmax(1) == dataset.test.labels[rows] - 2 * task
        assert final(folder, task, "test_task") == pytest.approx(float(right.double().mean()))


def test_progress_and_scenes_tell_the_time(tmp_path, logs):
    run(config_of("Watcher"), tmp_path / "run", dataset=tiny_dataset())
    seen = [entry[1:] for entry in logs]
    steps = [(k / 12, k % 4 / 4) for k in range(12)]
    assert seen[0] == ("begin", 0, 0, (0, 1), None)
    assert [x for pair in seen[1:13] for x in pair] == pytest.approx([x for pair in steps for x in pair])
    assert [entry[:5] for entry in seen[13:15]] == [
        ("end", 0, 12, (0, 1), []), ("begin", 1, 12, (0, 1, 2, 3), None),
    ]  # fmt: skip
    assert seen[27][:5] == ("end", 1, 24, (0, 1, 2, 3), [])
    images = tiny_dataset().train.images[tiny_dataset().train.labels >= 2]
    assert torch.equal(seen[27][5], images)


# options


def test_options_are_checked_by_name_and_type_and_completed():
    name = "learners.own_methods:DERpp"
    assert check_options(name, {"alpha": 1}) == {"alpha": 1.0, "beta": 1.0}
    assert type(check_options(name, {"alpha": 1})["alpha"]) is float
    with pytest.raises(OptionError, match=r"unknown setting learner.options.alhpa; did you mean learner.options.alpha"):
        check_options(name, {"alhpa": 1})
    with pytest.raises(OptionError, match=r"learner.options.alpha = 'much' is invalid: input should be a valid number"):
        check_options(name, {"alpha": "much"})
    with pytest.raises(OptionError, match=r"learner.options.alpha = inf is invalid"):
        check_options(name, {"alpha": float("inf")})
    with pytest.raises(OptionError, match="learner er has no options"):
        check_options("er", {"alpha": 1})
    with pytest.raises(UnknownNameError, match="has no 'DERrr'"):
        check_options("learners.own_methods:DERrr", {})
    with pytest.raises(ValueError, match="is not a method: give a class that extends"):
        check_options("learners.own_methods:DarkOptions", {})
    model = torch.nn.Linear(2, 3)
    assert build_learner(name, model, 3, {"beta": 2.0}).options == own_methods.DarkOptions(beta=2.0)
    assert field_docstrings(own_methods.DarkOptions)["alpha"] == "Weight of the stored logits."


def test_two_values_of_an_option_are_two_runs(tmp_path):
    """As class attributes they shared one folder: a changed alpha found the old run done."""
    found = []
    for alpha in (0.1, 0.9):
        config = config_of("DERpp", options={"alpha": alpha})
        run(config, tmp_path / str(alpha), dataset=tiny_dataset())
        found.append(History.read(tmp_path / str(alpha) / "history.parquet").frame)
        assert f"alpha = {alpha}" in (tmp_path / str(alpha) / "config.toml").read_text()
        assert "beta = 1.0" in (tmp_path / str(alpha) / "config.toml").read_text()
    assert not found[0].equals(found[1])
    with pytest.raises(ValueError, match="holds another run"):
        run(config_of("DERpp", options={"alpha": 0.9}), tmp_path / "0.1", dataset=tiny_dataset())


def test_wane_methods_lists_all(monkeypatch):
    monkeypatch.setitem(LEARNERS, "derpp", own_methods.DERpp)
    monkeypatch.setitem(LEARNERS, "hat", own_methods.HAT)
    said = CliRunner().invoke(app, ["methods"])
    assert said.exit_code == 0, said.output
    assert "er: Experience Replay (class- and task-incremental, with a memory)" in said.output
    assert "hat: HAT (task-incremental only, without memory)" in said.output
    assert "learner.options.alpha = 0.5  Weight of the stored logits." in said.output


def test_a_method_of_the_users_own_from_the_command_line(tmp_path):
    """In a package beside the working folder, in another process, and through a sweep."""
    (tmp_path / "my_package").mkdir()
    (tmp_path / "my_package" / "__init__.py").write_text("")
    (tmp_path / "my_package" / "my_module.py").write_text(
        Path(own_methods.__file__).read_text().replace("class DERpp", "class MyLearner(Learner): ...\n\n\nclass DERpp")
    )
    settings = {"learner.name": "my_package.my_module:DERpp", "learner.options.alpha": 0.25, "learner.epochs": 1,
                "data.per_class": 5, "data.resolution": 12, "data.tasks": 2, "model.name": "mlp",
                "model.hidden": [8]}  # fmt: skip
    given = [part for key, value in settings.items() for part in ("--set", f"{key}={json.dumps(value)}")]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    for command in (["run", "diagnostics", "--out", "one", "--quiet"], ["sweep", "diagnostics", "--over", "seed=0"]):
        done = subprocess.run([sys.executable, "-m", "wane.cli", *command, *given], cwd=tmp_path, env=environment,
                              capture_output=True, text=True)  # fmt: skip
        assert done.returncode == 0, done.stderr
    (swept,) = (tmp_path / "runs").iterdir()
    assert History.read(tmp_path / "one/history.parquet").frame.equals(History.read(swept / "history.parquet").frame)
    assert "alpha = 0.25" in (tmp_path / "one" / "config.toml").read_text()
    assert json.loads((tmp_path / "one" / "about.json").read_text())["learner_title"] == "DER++"


def test_the_default_is_one_mean_over_all_rows():
    assert (Learner.means, Learner.replay, Learner.first_replay, Learner.needs_task) == ("one", "draw", 0, False)
