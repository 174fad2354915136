"""Methods that the lab does not have, each as one class, through the loop as it is: the seam is good enough for them.

Small, but the real mechanism each; a test for each that the mechanism acted, and one for all that a run of it resumes.
"""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parameters_to_vector
from training.tiny_problem import results, stop, tiny_config, tiny_dataset

from wane.learners import LEARNERS, Learner, Observed
from wane.measures.history import History
from wane.memory import herding_ranks
from wane.streams import eval_batch
from wane.training.checkpoint import load_checkpoint
from wane.training.run import run


class DERpp(Learner):
    """Dark Experience Replay++ (Buzzega et al., 2020): match stored logits of one draw, labels of another."""

    draws, alpha, beta = 2, 0.5, 1.0

    def __init__(self, model, num_classes):
        super().__init__(model, num_classes)
        self.log = []

    def observe(self, batch):
        logits = self.model(batch.images)
        labelled = F.cross_entropy(logits, batch.labels, reduction="none")
        distilled = (logits - batch.extras["logits"]).square().mean(1)
        losses = torch.zeros_like(labelled)
        for draw, loss, factor in ((0, labelled, 1.0), (1, distilled, self.alpha), (2, labelled, self.beta)):
            rows = batch.draw == draw
            losses += torch.where(rows, loss, 0) * factor * len(rows) / rows.sum().clamp(min=1)
        self.log.append((batch, logits.detach(), losses.detach()))
        return Observed(losses, logits)

    def stored_extras(self):
        return {"logits": (self.num_classes,)}

    def extras_of(self, batch, observed):
        return {"logits": observed.logits}


class XDER(DERpp):
    """As far as the seam is concerned: stored logits are rewritten later."""

    def end_task(self, scene):
        with torch.no_grad():
            for batch in scene.remembered():
                scene.memory.extras["logits"][batch.slots] = self.model(batch.images)


class LwF(Learner):
    """Learning without Forgetting (Li & Hoiem, 2016): keep the answers of a frozen copy on the new images."""

    strength = 3.0

    def __init__(self, model, num_classes):
        super().__init__(model, num_classes)
        self.old, self.known = None, []

    def begin_task(self, scene):
        if scene.task.index > 0:
            self.old = copy.deepcopy(self.model).requires_grad_(False)
            self.known = [c for c in scene.seen if c not in scene.task.classes]

    def observe(self, batch):
        observed = super().observe(batch)
        if self.old is None:
            return observed
        target = self.old.eval()(batch.images)[:, self.known].softmax(1)
        distance = F.cross_entropy(observed.logits[:, self.known], target, reduction="none")
        return Observed(observed.losses + self.strength * distance, observed.logits)


class EWC(Learner):
    """Elastic Weight Consolidation (Kirkpatrick et al., 2017): pull back what mattered, by the Fisher's diagonal."""

    strength = 10000.0

    def __init__(self, model, num_classes):
        super().__init__(model, num_classes)
        self.register_buffer("fisher", torch.zeros_like(parameters_to_vector(model.parameters())))
        self.register_buffer("anchor", torch.zeros_like(self.fisher))

    def drift(self):
        moved = parameters_to_vector(self.model.parameters()) - self.anchor
        return (self.fisher * moved.square()).sum()

    def observe(self, batch):
        observed = super().observe(batch)
        return Observed(observed.losses, observed.logits, penalty=self.strength / 2 * self.drift())

    def end_task(self, scene):
        for batch, _ in scene.batches():
            for image, label in zip(batch.images, batch.labels, strict=True):
                loss = F.cross_entropy(self.model(image[None]), label[None])
                gradient = torch.autograd.grad(loss, list(self.model.parameters()))
                self.fisher += parameters_to_vector(gradient).square() / len(scene.task.train)
        self.anchor.copy_(parameters_to_vector(self.model.parameters()).detach())


class AGEM(Learner):
    """A-GEM (Chaudhry et al., 2019): no step may go against the gradient of a replayed batch."""

    draws = 1

    def __init__(self, model, num_classes):
        super().__init__(model, num_classes)
        self.log = []

    def observe(self, batch):
        observed = super().observe(batch)
        share = torch.where(batch.replayed, 0, len(batch.labels) / batch.new)
        return Observed(observed.losses * share, observed.logits)

    def after_backward(self, batch):
        rows = batch.replayed & (batch.tasks < batch.tasks[0])
        if not rows.any():
            return
        loss = F.cross_entropy(self.model(batch.images[rows]), batch.labels[rows])
        parameters = list(self.model.parameters())
        past = parameters_to_vector(torch.autograd.grad(loss, parameters))
        now = parameters_to_vector([p.grad for p in parameters])
        before = now @ past
        if before < 0:
            now = now - before / (past @ past) * past
            torch.nn.utils.vector_to_parameters(now, [p.grad for p in parameters])
        after = parameters_to_vector([p.grad for p in parameters]) @ past
        self.log.append((float(before), float(after)))


class SI(Learner):
    """Synaptic Intelligence (Zenke et al., 2017): importance is a weight's share in the fall of the loss."""

    strength, xi = 1.0, 1e-3

    def __init__(self, model, num_classes):
        super().__init__(model, num_classes)
        for name in ("path", "importance", "anchor", "squares"):
            self.register_buffer(name, torch.zeros_like(parameters_to_vector(model.parameters())))
        self.anchor.copy_(self.weights())

    def weights(self):
        return parameters_to_vector(self.model.parameters()).detach()

    def penalty(self):
        return (self.importance * (parameters_to_vector(self.model.parameters()) - self.anchor).square()).sum()

    def observe(self, batch):
        observed = super().observe(batch)
        return Observed(observed.losses, observed.logits, penalty=self.strength * self.penalty())

    def after_backward(self, batch):
        self.before = self.weights()

    def after_step(self, batch):
        gradient = parameters_to_vector([p.grad for p in self.model.parameters()])
        gradient = gradient - 2 * self.strength * self.importance * (self.before - self.anchor)  # of the task alone
        self.path += -gradient * (self.weights() - self.before)
        self.squares += gradient.square()  # for the test

    def end_task(self, scene):
        moved = self.weights() - self.anchor
        self.importance += self.path.clamp(min=0) / (moved.square() + self.xi)
        self.anchor.copy_(self.weights())
        self.path.zero_()


class ICaRL(Learner):
    """iCaRL (Rebuffi et al., 2017): exemplars by herding, and the nearest mean of a class's features answers."""

    draws, policy = 1, "herding"

    def begin_task(self, scene):
        self.scene, self.means = scene, None

    def after_step(self, batch):
        self.means = None

    @torch.no_grad()
    def end_task(self, scene):
        pairs = [(self.model.features(batch.images), batch.labels, raw) for batch, raw in scene.batches()]
        features, labels, raw = (torch.cat(parts) for parts in zip(*pairs, strict=True))
        scene.memory.select(raw, labels, features, task=scene.task.index, step=scene.step)
        self.means = None

    def class_means(self):
        """Of the exemplars; of all rows for classes of a task that has none yet. NaN for a class not seen."""
        batches = [*self.scene.remembered()]
        if self.scene.task.index not in self.scene.memory.tasks:
            batches += [batch for batch, _ in self.scene.batches()]
        features = torch.cat([F.normalize(self.model.features(batch.images)) for batch in batches])
        members = F.one_hot(torch.cat([batch.labels for batch in batches]), self.num_classes).float()
        return members.T @ features / members.sum(0)[:, None]

    def predict(self, images):
        if self.means is None:
            self.means = self.class_means()
        distance = torch.cdist(F.normalize(self.model.features(images)), self.means).square()
        return torch.where(distance.isnan(), -torch.inf, -distance)


class Growing(Learner):
    """Progressive networks (Rusu et al., 2016): a new column for each task, fed by the frozen ones before it."""

    width = 8

    def __init__(self, model, num_classes):
        super().__init__(nn.Flatten(), num_classes)  # columns take the place of the model
        self.columns, self.heads, self.classes = nn.ModuleList(), nn.ModuleList(), []

    def begin_task(self, scene):
        self.requires_grad_(False)
        self.columns.append(nn.Linear(36 + self.width * len(self.columns), self.width))
        self.heads.append(nn.Linear(self.width, len(scene.task.classes)))
        self.classes.append(list(scene.task.classes))

    def predict(self, images):
        inputs = self.model(images)
        logits = inputs.new_full((len(inputs), self.num_classes), -20.0)
        for column, head, classes in zip(self.columns, self.heads, self.classes, strict=True):
            hidden = column(inputs).relu()
            logits[:, classes] = head(hidden)
            inputs = torch.cat([inputs, hidden], dim=1)
        return logits

    def observe(self, batch):
        logits = self.predict(batch.images)
        return Observed(F.cross_entropy(logits, batch.labels, reduction="none"), logits)


METHODS = {cls.__name__: cls for cls in (DERpp, XDER, LwF, EWC, AGEM, SI, ICaRL, Growing)}


@pytest.fixture(autouse=True)
def made(monkeypatch):
    """Registers the methods; gives the learners that the loop made of them, in order."""
    learners = []

    def maker(cls):
        def make(model, num_classes):
            learners.append(cls(model, num_classes))
            return learners[-1]

        return make

    for name, cls in METHODS.items():
        monkeypatch.setitem(LEARNERS, name, maker(cls))
    return learners


def config_of(name, **learner):
    return tiny_config(
        learner={"name": name, "lr": 0.2, "momentum": 0.5, **learner}, data={"flip": False, "padding": 0}
    )


def final(folder, task=0):
    return History.read(folder / "history.parquet").matrix("accuracy")[-1, task]


@pytest.mark.parametrize("name", METHODS)
def test_every_method_resumes_exactly(name, tmp_path, made):
    config = config_of(name)
    run(config, tmp_path / "whole", dataset=tiny_dataset())
    for when in ({"epochs": 1}, {"steps": 6}, {"epochs": 2}, {"epochs": 1}, {"steps": 2}):
        stop(config, tmp_path / "cut", dataset=tiny_dataset(), **when)
    run(config, tmp_path / "cut", dataset=tiny_dataset())
    assert len(made) == 7
    assert results(tmp_path / "cut") == results(tmp_path / "whole")
    whole, cut = (load_checkpoint(tmp_path / folder)["learner"] for folder in ("whole", "cut"))
    assert whole.keys() == cut.keys()
    assert all(torch.equal(whole[key], cut[key]) for key in whole)


def test_der_draws_twice_and_matches_the_logits_of_the_moment(tmp_path, made):
    run(config_of("DERpp"), tmp_path / "run", dataset=tiny_dataset())
    log = made[0].log
    memory = load_checkpoint(tmp_path / "run")["memory"]
    for slot in range(12):  # the logits in memory are those of the step in which the row came
        batch, logits, _ = log[int(memory["steps"][slot]) - 1]
        same = (logits[: batch.new] == memory["extras.logits"][slot]).all(1)
        assert batch.labels[: batch.new][same].tolist() == [int(memory["labels"][slot])]
    overlaps = []
    for batch, logits, losses in log[1:]:
        first, second = batch.draw == 1, batch.draw == 2
        overlaps.append(len(set(batch.slots[first].tolist()) & set(batch.slots[second].tolist())))
        published = (
            F.cross_entropy(logits[: batch.new], batch.labels[: batch.new])
            + DERpp.alpha * F.mse_loss(logits[first], batch.extras["logits"][first])
            + DERpp.beta * F.cross_entropy(logits[second], batch.labels[second])
        )
        assert torch.isclose(losses.mean(), published)
    assert 1 < sum(overlaps[2:]) / len(overlaps[2:]) < 5  # 6 of 12, twice: 3 in common on average


def test_stored_logits_can_be_rewritten(tmp_path, made):
    run(config_of("XDER"), tmp_path / "run", dataset=tiny_dataset())
    memory, dataset = load_checkpoint(tmp_path / "run")["memory"], tiny_dataset()
    images = eval_batch(memory["images"], torch.arange(12), dataset.mean, dataset.std)
    with torch.no_grad():
        assert torch.allclose(memory["extras.logits"], made[0].eval().model(images), atol=1e-6)


def test_lwf_keeps_the_answers_of_the_model_before(tmp_path, made):
    folder = tmp_path / "run"
    stop(config_of("LwF"), folder, dataset=tiny_dataset(), epochs=3)
    before = {k: v for k, v in load_checkpoint(folder)["learner"].items() if k.startswith("model.")}
    run(config_of("LwF"), folder, dataset=tiny_dataset())
    after = load_checkpoint(folder)["learner"]
    for name, value in before.items():
        assert torch.equal(after[name.replace("model.", "old.", 1)], value)
        assert not torch.equal(after[name], value)
    run(config_of("finetune"), tmp_path / "finetune", dataset=tiny_dataset())
    images = eval_batch(tiny_dataset().train.images, torch.arange(80), tiny_dataset().mean, tiny_dataset().std)
    kept = made[-1]
    plain = copy.deepcopy(kept.model)
    state = load_checkpoint(tmp_path / "finetune")["learner"]
    plain.load_state_dict({name.removeprefix("model."): value for name, value in state.items()})

    def answers(model):
        return model(images)[:, :2].softmax(1)

    distance = [float((answers(model) - answers(kept.old)).abs().mean().detach()) for model in (kept.model, plain)]
    assert distance[0] < 0.6 * distance[1]


def test_ewc_holds_on_to_what_mattered(tmp_path, made, monkeypatch):
    folder = tmp_path / "run"
    stop(config_of("EWC"), folder, dataset=tiny_dataset(), epochs=3)
    after_first = load_checkpoint(folder)["learner"]
    assert (after_first["fisher"] > 0).float().mean() > 0.3
    assert torch.equal(after_first["anchor"], parameters_to_vector(made[0].model.parameters()).detach())

    def drift(directory, strength):
        monkeypatch.setattr(EWC, "strength", strength)
        stop(
            config_of("EWC"), directory, dataset=tiny_dataset(), epochs=5
        )  # the first task's Fisher is still the only one
        return float(made[-1].drift().detach())

    held, free = drift(tmp_path / "held", 10000.0), drift(tmp_path / "free", 0.0)
    assert held < free / 3


def test_agem_never_steps_against_the_past(tmp_path, made):
    run(config_of("AGEM"), tmp_path / "run", dataset=tiny_dataset())
    before, after = zip(*made[0].log, strict=True)
    assert min(before) < -0.01  # there was something to project
    assert min(after) > -1e-4
    assert [b for b, a in made[0].log if b >= 0] == [a for b, a in made[0].log if b >= 0]
    assert len(made[0].log) > 8


def test_si_integrates_the_path_of_every_weight(tmp_path, made):
    """With plain SGD a weight moves by -lr x gradient, so its path is lr x the sum of its squared gradients."""
    folder = tmp_path / "run"
    config = config_of("SI", momentum=0.0)
    stop(config, folder, dataset=tiny_dataset(), epochs=2)
    state = load_checkpoint(folder)["learner"]
    assert torch.allclose(state["path"], 0.2 * state["squares"], atol=1e-5)
    assert state["path"].max() > 0.01
    run(config, folder, dataset=tiny_dataset())
    assert float(load_checkpoint(folder)["learner"]["importance"].max()) > 0.1
    assert float(made[-1].path.abs().max()) == 0


def test_icarl_keeps_exemplars_by_herding_and_answers_by_nearest_mean(tmp_path, made):
    run(config_of("ICaRL"), tmp_path / "run", dataset=tiny_dataset())
    learner, memory, dataset = made[0].eval(), load_checkpoint(tmp_path / "run")["memory"], tiny_dataset()
    assert memory["labels"].bincount().tolist() == [3, 3, 3, 3]
    assert memory["steps"].unique().tolist() == [12, 24]
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


def test_a_growing_model_grows_and_never_touches_its_old_columns(tmp_path, made):
    folder = tmp_path / "run"
    config = config_of("Growing", weight_decay=0.1, epochs=6)
    stop(config, folder, dataset=tiny_dataset(), epochs=6)
    first = {k: v.clone() for k, v in load_checkpoint(folder)["learner"].items()}
    run(config, folder, dataset=tiny_dataset())
    last = load_checkpoint(folder)["learner"]
    assert set(last) - set(first) == {
        f"{part}.1.{kind}" for part in ("columns", "heads") for kind in ("weight", "bias")
    }
    assert all(torch.equal(first[name], last[name]) for name in first)
    assert last["columns.1.weight"].shape == (8, 44)
    assert final(folder, task=1) > 0.9


def test_progress_and_scenes_tell_the_time(tmp_path, monkeypatch):
    seen = []

    class Watcher(Learner):
        """HAT anneals by it."""

        def observe(self, batch):
            seen.append(batch.progress)
            return super().observe(batch)

        def begin_task(self, scene):
            seen.append(("begin", scene.task.index, scene.step, scene.seen, scene.memory))

        def end_task(self, scene):
            assert not self.training
            rows = [raw for _, raw in scene.batches()]
            assert torch.equal(torch.cat(rows), tiny_dataset().train.images[scene.task.train])
            seen.append(("end", scene.task.index, scene.step, scene.seen, list(scene.remembered())))

    monkeypatch.setitem(LEARNERS, "watcher", Watcher)
    run(config_of("watcher"), tmp_path / "run", dataset=tiny_dataset())
    steps = [k / 12 for k in range(12)]
    assert seen[0] == ("begin", 0, 0, (0, 1), None)
    assert seen[1:13] == pytest.approx(steps)
    assert seen[13:15] == [("end", 0, 12, (0, 1), []), ("begin", 1, 12, (0, 1, 2, 3), None)]
    assert seen[15:27] == pytest.approx(steps)
    assert seen[27:] == [("end", 1, 24, (0, 1, 2, 3), [])]
