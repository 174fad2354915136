"""Methods that the lab does not have, each as a user would write it: a class in a module, named `module:Class`.

Small, but the real mechanism of each. `LOGS` is for the tests, which look at what passed through a learner.
"""

import copy
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from scipy.optimize import nnls
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from wane.learners import Learner, Observed

LOGS = []  # (name of the class, what it has to tell), of all learners of this process


def tell(learner, *what):
    LOGS.append((type(learner).__name__, *what))


@dataclass(frozen=True)
class DarkOptions:
    """Of DER and DER++."""

    alpha: float = 0.5
    """Weight of the stored logits."""
    beta: float = 1.0
    """Weight of the labels of the second draw."""


class DERpp(Learner):
    """DER++ (Buzzega et al., 2020): CE(new) + alpha MSE(draw 1, stored logits) + beta CE(draw 2), three means."""

    title, source, Options = "DER++", "Buzzega et al., NeurIPS 2020", DarkOptions
    draws, means = 2, "draw"

    def observe(self, batch):
        logits = self.logits_by_part(batch)  # separate forward passes, as in the authors' code
        labelled = F.cross_entropy(logits, batch.labels, reduction="none")
        distilled = (logits - batch.extras["logits"]).square().mean(1)
        losses = torch.where(batch.draw == 1, self.options.alpha * distilled, labelled)
        losses = torch.where(batch.draw == 2, self.options.beta * labelled, losses)
        tell(self, batch, logits.detach(), losses.detach())
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


class ByTask(Learner):
    """A mean for the new rows and one for the replayed rows of each task."""

    draws, means = 2, "task"

    def observe(self, batch):
        observed = super().observe(batch)
        tell(self, batch, observed.losses.detach())
        return observed


class ERACE(Learner):
    """ER-ACE (Caccia et al., 2022): new rows compete among the classes of the batch only; replay from task 2 on."""

    draws, means, first_replay = 1, "draw", 1

    def observe(self, batch):
        logits = self.model(batch.images)
        present = torch.zeros(self.num_classes, dtype=torch.bool)
        present[batch.labels[: batch.new]] = True
        masked = torch.where(batch.replayed[:, None] | present, logits, -1e9)
        losses = F.cross_entropy(masked, batch.labels, reduction="none")
        tell(self, batch, logits.detach(), losses.detach())
        return Observed(losses, logits)


class AGEM(Learner):
    """A-GEM (Chaudhry et al., 2019): no step may go against the gradient of a replayed batch."""

    draws, means, first_replay = 1, "draw", 1

    def backward(self, parts, penalty, batch):
        parameters = list(self.model.parameters())
        now, *past = [parameters_to_vector(torch.autograd.grad(p, parameters, retain_graph=True)) for p in parts]
        kept = now
        if past:
            kept = now - (now @ past[0]).clamp(max=0) / (past[0] @ past[0]) * past[0]
            tell(self, now, past[0], kept)
        for p in parameters:
            p.grad = torch.zeros_like(p)
        vector_to_parameters(kept, [p.grad for p in parameters])


@dataclass(frozen=True)
class GEMOptions:
    """Of GEM."""

    gamma: float = 0.5
    """Least multiplier of a past task."""


class GEM(AGEM):
    """GEM (Lopez-Paz & Ranzato, 2017): no step may go against the gradient of any past task's whole memory."""

    Options = GEMOptions
    means, replay = "task", "whole"

    def backward(self, parts, penalty, batch):
        parameters = list(self.model.parameters())
        now = torch.autograd.grad(parts[0], parameters, retain_graph=True)
        current = int(batch.tasks[0])
        kept = g = parameters_to_vector(now)
        past = [
            parameters_to_vector(torch.autograd.grad(loss, parameters, retain_graph=True))
            for rows, loss in zip(batch.parts[1:], parts[1:], strict=True)
            if int(batch.tasks[rows.start]) < current
        ]
        if past and min(float(g @ other) for other in past) < 0:
            rows = torch.stack(past).double().numpy()
            quadratic = rows @ rows.T + 1e-3 * np.eye(len(rows))
            lower = np.linalg.cholesky(quadratic)
            gamma = self.options.gamma
            linear = rows @ g.double().numpy() + gamma * quadratic.sum(1)
            v = nnls(lower.T, -np.linalg.solve(lower, linear))[0] + gamma
            kept = g + torch.from_numpy(rows.T @ v).float()
        if past:
            tell(self, g, past, kept, batch)
        for p in parameters:
            p.grad = torch.zeros_like(p)
        vector_to_parameters(kept, [p.grad for p in parameters])


class LwF(Learner):
    """Learning without Forgetting (Li & Hoiem, 2016): keep the answers of a frozen copy on the new images."""

    strength = 3.0

    def __init__(self, model, num_classes, options):
        super().__init__(model, num_classes, options)
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


@dataclass(frozen=True)
class Strength:
    """Of EWC and SI."""

    strength: float = 1.0
    """How hard weights are held."""


class EWC(Learner):
    """Elastic Weight Consolidation (Kirkpatrick et al., 2017): pull back what mattered, by the Fisher's diagonal."""

    Options = Strength

    def __init__(self, model, num_classes, options):
        super().__init__(model, num_classes, options)
        self.register_buffer("fisher", torch.zeros_like(parameters_to_vector(model.parameters())))
        self.register_buffer("anchor", torch.zeros_like(self.fisher))

    def drift(self):
        moved = parameters_to_vector(self.model.parameters()) - self.anchor
        return (self.fisher * moved.square()).sum()

    def observe(self, batch):
        observed = super().observe(batch)
        return Observed(observed.losses, observed.logits, penalty=self.options.strength / 2 * self.drift())

    def end_task(self, scene):
        for batch, _ in scene.batches():
            for image, label in zip(batch.images, batch.labels, strict=True):
                loss = F.cross_entropy(self.model(image[None]), label[None])
                gradient = torch.autograd.grad(loss, list(self.model.parameters()))
                self.fisher += parameters_to_vector(gradient).square() / len(scene.task.train)
        self.anchor.copy_(parameters_to_vector(self.model.parameters()).detach())


class SI(Learner):
    """Synaptic Intelligence (Zenke et al., 2017): importance is a weight's share in the fall of the task's loss."""

    Options, xi = Strength, 1e-3

    def __init__(self, model, num_classes, options):
        super().__init__(model, num_classes, options)
        for name in ("path", "importance", "anchor", "squares"):
            self.register_buffer(name, torch.zeros_like(parameters_to_vector(model.parameters())))
        self.anchor.copy_(self.weights())

    def weights(self):
        return parameters_to_vector(self.model.parameters()).detach()

    def after_backward(self, batch):
        """The gradient so far is the task's alone; that of the penalty is added in closed form."""
        self.before = self.weights()
        self.gradient = parameters_to_vector([p.grad for p in self.model.parameters()])
        pull = 2 * self.options.strength * self.importance * (self.before - self.anchor)
        vector_to_parameters(self.gradient + pull, [p.grad for p in self.model.parameters()])

    def after_step(self, batch):
        self.path += -self.gradient * (self.weights() - self.before)
        self.squares += self.gradient.square()  # for the test

    def end_task(self, scene):
        moved = self.weights() - self.anchor
        self.importance += self.path.clamp(min=0) / (moved.square() + self.xi)
        self.anchor.copy_(self.weights())
        self.path.zero_()


class ICaRL(Learner):
    """iCaRL (Rebuffi et al., 2017): task and exemplars as one data set; the nearest mean of features answers."""

    rows, policy, answers_ahead = "task_and_memory", "herding", False

    def begin_task(self, scene):
        self.scene, self.means_ = scene, None

    def observe(self, batch):
        observed = super().observe(batch)
        tell(self, batch)
        return observed

    def after_step(self, batch):
        self.means_ = None

    @torch.no_grad()
    def end_task(self, scene):
        pairs = [(self.model.features(batch.images), batch.labels, raw) for batch, raw in scene.batches()]
        features, labels, raw = (torch.cat(parts) for parts in zip(*pairs, strict=True))
        scene.memory.select(raw, labels, features, task=scene.task.index, step=scene.step)
        self.means_ = None

    def class_means(self):
        """Of the exemplars; of all rows for classes of a task that has none yet. NaN for a class not seen."""
        batches = [*self.scene.remembered()]
        if self.scene.task.index not in self.scene.memory.tasks:
            batches += [batch for batch, _ in self.scene.batches()]
        features = torch.cat([F.normalize(self.model.features(batch.images)) for batch in batches])
        members = F.one_hot(torch.cat([batch.labels for batch in batches]), self.num_classes).float()
        return members.T @ features / members.sum(0)[:, None]

    def predict(self, images):
        if self.means_ is None:
            self.means_ = self.class_means()
        distance = torch.cdist(F.normalize(self.model.features(images)), self.means_).square()
        return torch.where(distance.isnan(), -torch.inf, -distance)


class Growing(Learner):
    """Progressive networks (Rusu et al., 2016): a new column for each task, fed by the frozen ones before it."""

    needs_task, answers_ahead, width = True, False, 8

    def __init__(self, model, num_classes, options):
        super().__init__(nn.Flatten(), num_classes, options)  # columns take the place of the model
        self.columns, self.heads, self.classes = nn.ModuleList(), nn.ModuleList(), []

    def begin_task(self, scene):
        self.requires_grad_(False)
        self.columns.append(nn.Linear(36 + self.width * len(self.columns), self.width))
        self.heads.append(nn.Linear(self.width, len(scene.task.classes)))
        self.classes.append(list(scene.task.classes))

    def predict(self, images, tasks):
        inputs = self.model(images)
        logits = inputs.new_full((len(inputs), self.num_classes), -20.0)
        for k, (column, head, classes) in enumerate(zip(self.columns, self.heads, self.classes, strict=True)):
            hidden = column(inputs).relu()
            own = torch.zeros_like(logits)
            own[:, classes] = head(hidden)
            logits = torch.where((tasks == k)[:, None], own, logits)
            inputs = torch.cat([inputs, hidden], dim=1)
        return logits

    def observe(self, batch):
        logits = self.predict(batch.images, batch.tasks)
        within = logits[:, self.classes[-1]]
        labels = batch.labels - self.classes[-1][0]
        return Observed(F.cross_entropy(within, labels, reduction="none"), logits)


@dataclass(frozen=True)
class HATOptions:
    """Of HAT."""

    s_max: float = 50.0
    """Steepness of the masks at the end of an epoch."""


class HAT(Learner):
    """Hard Attention to the Task (Serra et al., 2018), one hidden layer: masks, annealed over the epoch."""

    Options, needs_task = HATOptions, True

    def __init__(self, model, num_classes, options):
        super().__init__(nn.Linear(36, 16), num_classes, options)
        self.masks, self.head = nn.Parameter(torch.randn(4, 16)), nn.Linear(16, num_classes)
        self.register_buffer("used", torch.zeros(16))

    def forward_with(self, images, tasks, s):
        hidden = self.model(images.flatten(1)).relu() * torch.sigmoid(s * self.masks[tasks])
        return self.head(hidden)

    def predict(self, images, tasks):
        return self.forward_with(images, tasks, self.options.s_max)

    def observe(self, batch):
        s_max = self.options.s_max
        s = 1 / s_max + (s_max - 1 / s_max) * batch.epoch_progress
        logits = self.forward_with(batch.images, batch.tasks, s)
        tell(self, batch.epoch_progress, batch.progress, s)
        return Observed(F.cross_entropy(logits, batch.labels, reduction="none"), logits)

    def after_backward(self, batch):
        self.model.weight.grad *= 1 - self.used[:, None]
        self.model.bias.grad *= 1 - self.used

    def end_task(self, scene):
        mask = torch.sigmoid(self.options.s_max * self.masks[scene.task.index]).detach()
        self.used.copy_(torch.maximum(self.used, (mask > 0.5).float()))


class Watcher(Learner):
    """Tells the time."""

    def observe(self, batch):
        tell(self, batch.progress, batch.epoch_progress)
        return super().observe(batch)

    def begin_task(self, scene):
        tell(self, "begin", scene.task.index, scene.step, scene.seen, scene.memory)

    def end_task(self, scene):
        assert not self.training
        rows = torch.cat([raw for _, raw in scene.batches()])
        tell(self, "end", scene.task.index, scene.step, scene.seen, list(scene.remembered()), rows)
