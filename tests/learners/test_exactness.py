"""What methods promise, to the bit, and what they compute, against literal computations in float64."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from learners.test_methods import config_of, problem
from scipy.optimize import minimize
from torch.nn.utils import parameters_to_vector
from training.test_domains import config as domain_config
from training.test_domains import domain_dataset
from training.tiny_problem import tiny_config, tiny_dataset

from wane.learners import Batch
from wane.learners.fisher import empirical_fisher
from wane.learners.gem import RIDGE, multipliers
from wane.learners.gradients import vector_of
from wane.models import build_model
from wane.streams import eval_batch
from wane.training.events import Listener
from wane.training.run import run


class Snapshots(Listener):
    """A copy of the learner, in eval mode, after the last epoch of every task."""

    def __init__(self, epochs):
        self.epochs, self.learners = epochs, []

    def epoch_done(self, session, task, epoch):
        if epoch + 1 == self.epochs:
            self.learners.append(copy.deepcopy(session.learner).eval())


def after_each_task(name, model, folder, *, epochs=2, **learner):
    snapshots = Snapshots(epochs)
    config = config_of(name, model, learner={"epochs": epochs, **learner})
    run(config, folder, dataset=problem(), listeners=[snapshots])
    return snapshots.learners


def held_out():
    data = problem()
    return eval_batch(data.test.images, torch.arange(len(data.test.labels)), data.mean, data.std), data.test.labels


class Harden(Listener):
    """Makes every gate of the first task exactly 0 or 1 at its end, as training does up to rounding."""

    def epoch_done(self, session, task, epoch):
        learner = session.learner
        if task == 0 and epoch + 1 == session.config.learner.epochs:
            with torch.no_grad():
                for k, e in enumerate(learner._embeddings(0)):
                    e.copy_(6 * e.sign())
                    getattr(learner, f"used_{k}").copy_(e > 0)


@pytest.fixture(scope="module", params=["mlp", "cnn"])
def hat(request, tmp_path_factory):
    """HAT after each of three tasks. With momentum: every task has an optimiser of its own, so it does no harm."""
    snapshots = Snapshots(5)
    model = {"mlp": {"name": "mlp", "hidden": [40, 30]}, "cnn": {"name": "cnn", "width": 8, "hidden": None}}
    config = tiny_config(
        model=model[request.param],
        data={"tasks": 3, "padding": 0, "flip": False},
        learner={"name": "hat", "epochs": 5, "lr": 0.2, "momentum": 0.5},
    )
    data = tiny_dataset(classes=6, train=60, test=20)
    run(config, tmp_path_factory.mktemp("hat") / "run", dataset=data, listeners=[Harden(), snapshots])
    return snapshots.learners, data


def test_weights_that_hat_uses_on_both_sides_do_not_move_to_the_bit(hat):
    first, second, third = hat[0]
    frozen = moved = 0
    for before, after in ((first, second), (second, third)):
        below = None
        for k, block in enumerate(before.blocks):
            used = getattr(before, f"used_{k}")
            weights, now = block.weighted.weight, after.blocks[k].weighted.weight
            fixed = (used == 1)[:, None].expand(weights.shape[:2])
            if below is not None:
                fixed = fixed & (below == 1)[None]
            assert torch.equal(weights[fixed], now[fixed])
            frozen += int(fixed.sum())
            moved += int((weights[~fixed] != now[~fixed]).sum())
            below = used
    assert frozen > 50
    assert moved > 50


def test_hat_answers_earlier_tasks_as_before(hat):
    """The first task, whose gates are hard, to the bit; the second up to what its nearly hard gates let through."""
    (first, second, third), data = hat
    images = eval_batch(data.test.images, torch.arange(len(data.test.labels)), data.mean, data.std)
    tasks, right = data.test.labels // 2, 0
    with torch.no_grad():
        for task, (then, *later) in enumerate([(first, second, third), (second, third)]):
            rows, own = (tasks == task).nonzero()[:, 0], slice(2 * task, 2 * task + 2)
            answers = then.predict(images[rows], tasks[rows])[:, own]
            right += int((answers.argmax(1) + 2 * task == data.test.labels[rows]).sum())
            for learner in later:
                change = (learner.predict(images[rows], tasks[rows])[:, own] - answers).abs().max()
                assert change == 0 if task == 0 else change < 1e-3
    assert right / 80 > 0.8


@pytest.mark.parametrize("model", ["mlp", "cnn"])
def test_old_columns_of_a_progressive_network_answer_to_the_bit_as_before(model, tmp_path):
    """Weight decay and momentum included."""
    first, second, third = after_each_task("pnn", model, tmp_path / "run", weight_decay=0.1)
    images, _ = held_out()
    with torch.no_grad():
        for task, (then, *later) in enumerate([(first, second, third), (second, third)]):
            tasks = torch.full((len(images),), task)
            answers = then.predict(images, tasks)
            assert all(torch.equal(answers, learner.predict(images, tasks)) for learner in later)
    assert not torch.equal(first.predict(images, tasks * 0), third.predict(images, tasks))
    assert [len(learner.columns) for learner in (first, second, third)] == [1, 2, 3]
    # the new column does use the old ones
    changed = copy.deepcopy(third)
    for adapter in changed.columns[2].adapters:
        torch.nn.init.zeros_(adapter.expand.weight)
    assert not torch.equal(changed.predict(images, tasks * 0 + 2), third.predict(images, tasks * 0 + 2))


def fisher_by_row(model, images, labels):
    """A backward pass for each row, in float64."""
    model = copy.deepcopy(model).double().eval()
    total = 0
    for image, label in zip(images.double(), labels, strict=True):
        model.zero_grad()
        F.log_softmax(model(image[None]), 1)[0, label].backward()
        total = total + torch.cat([p.grad.reshape(-1) for p in model.parameters()]).square()
    return total / len(labels)


@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_the_fisher_information_is_that_of_single_rows(name):
    model = build_model(name, 6, (1, 6, 6), seed=1, **({"hidden": [9]} if name == "mlp" else {"width": 4}))
    images, labels = held_out()
    halves = [slice(0, 11), slice(11, None)]
    batches = [Batch(images[h], labels[h], labels[h], labels[h], labels[h], len(labels[h])) for h in halves]
    ours = empirical_fisher(model.train(), iter(batches), chunk=4)
    assert model.training
    torch.testing.assert_close(ours.double(), fisher_by_row(model, images, labels), rtol=1e-4, atol=1e-8)
    assert (ours > 0).any()


@pytest.mark.parametrize(("name", "gamma"), [("ewc", None), ("online_ewc", 0.7)])
def test_the_penalty_of_ewc_and_its_gradient(name, gamma, tmp_path):
    """From the network at the end of each task alone: F_k, theta*_k, and the sum that the papers print."""
    options = {"strength": 30.0} | ({} if gamma is None else {"gamma": gamma})
    done = after_each_task(name, "mlp", tmp_path / "run", options=options)
    data = problem()
    fishers, anchors = [], []
    for task, learner in enumerate(done[:2]):
        rows = (data.train.labels // 2 == task).nonzero()[:, 0]
        images = eval_batch(data.train.images, rows, data.mean, data.std)
        fishers.append(fisher_by_row(learner.model, images, data.train.labels[rows]))
        anchors.append(parameters_to_vector(learner.model.parameters()).detach().double())
    last = done[2]
    now = parameters_to_vector(last.model.parameters()).detach().double().requires_grad_(True)
    if gamma is None:
        wanted = 15 * sum((f * (now - a) ** 2).sum() for f, a in zip(fishers, anchors, strict=True))
    else:
        wanted = 15 * ((gamma * fishers[0] + fishers[1]) * (now - anchors[1]) ** 2).sum()
    for buffer in ("fisher", "anchor", "constant"):  # the learner has moved on: put back what it had in its third task
        getattr(last, buffer).copy_(getattr(done[1], buffer))
    images, labels = held_out()
    batch = Batch(images, labels, labels // 2, labels * 0, labels * 0 - 1, len(labels))
    observed = last.observe(batch)
    torch.testing.assert_close(observed.penalty.double(), wanted, rtol=1e-4, atol=1e-9)
    last.model.zero_grad()
    last.after_backward(batch)  # of no loss: the gradient is the penalty's own
    ours = torch.cat([p.grad.reshape(-1) for p in last.model.parameters()])
    (theirs,) = torch.autograd.grad(wanted, now)
    torch.testing.assert_close(ours.double(), theirs, rtol=1e-3, atol=1e-6)
    assert float(wanted.detach()) > 1e-4
    last.task = 0
    assert last.observe(batch).penalty == 0.0


def test_what_is_kept_of_weights_is_in_the_order_of_their_dimensions(tmp_path):
    """In memory it is in the order in which a network for images has them, channels last."""
    first, last = after_each_task("online_ewc", "cnn", tmp_path / "run", options={"strength": 1.0})[::2]
    weights = list(last.model.parameters())
    assert any(not p.is_contiguous() for p in weights)
    saved = last.state_dict()
    assert torch.equal(saved["anchor"], torch.cat([p.detach().reshape(-1) for p in weights]))
    assert torch.equal(last.anchor, vector_of(weights))
    assert not torch.equal(last.anchor, saved["anchor"])
    assert not torch.equal(first.fisher, last.fisher)
    first.load_state_dict(saved)
    assert torch.equal(first.anchor, last.anchor)
    assert torch.equal(first.fisher, last.fisher)


@pytest.mark.parametrize("constraints", [1, 2, 5, 9])
def test_the_multipliers_of_gem_solve_its_programme(constraints):
    rng = np.random.default_rng(constraints)
    for _ in range(10):
        past, now = rng.standard_normal((constraints, 40)), rng.standard_normal(40)
        p, q, gamma = past @ past.T, past @ now, float(rng.uniform(0, 1))
        ridged = p + RIDGE * np.eye(constraints)
        ours = multipliers(p, q, gamma)
        theirs = minimize(
            lambda v, a=ridged, b=q: v @ a @ v / 2 + b @ v, np.full(constraints, gamma + 1.0),
            jac=lambda v, a=ridged, b=q: a @ v + b, bounds=[(gamma, None)] * constraints, method="SLSQP",
            options={"ftol": 1e-14, "maxiter": 1000},
        )  # fmt: skip
        assert theirs.success
        np.testing.assert_allclose(ours, theirs.x, atol=1e-5)
        assert (ours >= gamma).all()
        slope = ridged @ ours + q  # optimal: no slope where v is free, and uphill where it is at its bound
        assert np.abs(slope[ours > gamma + 1e-9]).max(initial=0) < 1e-9
        assert slope.min() > -1e-9


def test_the_current_task_is_no_constraint_of_gem(tmp_path, monkeypatch):
    from wane.learners import gem

    seen, real = [], gem.multipliers
    monkeypatch.setattr(gem, "multipliers", lambda p, q, gamma: seen.append(len(q)) or real(p, q, gamma))
    in_memory = []

    class Watch(Listener):
        def epoch_done(self, session, task, epoch):
            in_memory.append(session.memory.tasks[: len(session.memory)].unique().tolist())

    run(config_of("gem", learner={"lr": 0.3}), tmp_path / "run", dataset=problem(), listeners=[Watch()])
    assert in_memory[-1] == [0, 1, 2]  # the current one is among the rows that are passed
    assert set(seen) == {1, 2}


def test_icarl_answers_by_the_nearest_mean_of_exemplars_and_their_mirror_images(tmp_path):
    memories = []

    class Watch(Listener):
        def epoch_done(self, session, task, epoch):
            memories.append({name: value.clone() for name, value in session.memory.state_dict().items()
                             if isinstance(value, torch.Tensor)})  # fmt: skip

    snapshots, data = Snapshots(2), problem()
    run(config_of("icarl", "cnn"), tmp_path / "run", dataset=data, listeners=[snapshots, Watch()])
    images, labels = held_out()
    for task, learner in enumerate(snapshots.learners):
        memory, network = memories[2 * task + 1], copy.deepcopy(learner.model).double().eval()

        def embed(rows, network=network):
            features = network.features(rows.double())
            return features / features.norm(dim=1, keepdim=True)

        with torch.no_grad():
            size = len(memory["labels"])
            exemplars = eval_batch(memory["images"], torch.arange(size), data.mean, data.std)
            answers = learner.predict(images)
            for c in range(6):
                own = exemplars[memory["labels"] == c]
                if c >= 2 * (task + 1):
                    assert len(own) == 0
                    assert (answers[:, c] == -4).all()
                    continue
                assert len(own) == 12 // (2 * (task + 1))
                mean = torch.cat([embed(own), embed(own.flip(-1))]).mean(0)
                wanted = -(embed(images) - mean / mean.norm()).square().sum(1)
                torch.testing.assert_close(answers[:, c].double(), wanted, atol=1e-4, rtol=0)
    assert float((answers.argmax(1) == labels).double().mean()) > 1 / 6


@pytest.mark.parametrize("name", ["hat", "pnn"])
def test_a_network_that_cannot_be_taken_apart_is_one_sentence(name, tmp_path):
    config = tiny_config(model={"name": "resnet18", "width": 4, "hidden": None}, learner={"name": name})
    with pytest.raises(
        ValueError, match=r"takes networks apart layer by layer, and knows no .*: use the mlp or the cnn"
    ):
        run(config, tmp_path / "run", dataset=tiny_dataset())


@pytest.mark.parametrize("name", ["icarl", "lwf_mc", "hat", "xder"])
def test_methods_of_new_classes_refuse_a_stream_of_domains(name, tmp_path):
    with pytest.raises(ValueError, match="needs new classes in every task, and east has some that were there before"):
        run(domain_config(learner={"name": name}), tmp_path / "run", dataset=domain_dataset())


@pytest.mark.parametrize("name", ["er_ace", "der", "derpp", "gem", "agem", "ewc", "online_ewc", "si", "lwf", "pnn"])
def test_the_others_run_on_a_stream_of_domains(name, tmp_path):
    run(domain_config(learner={"name": name}), tmp_path / "run", dataset=domain_dataset())
