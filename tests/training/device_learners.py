"""Methods that try what several processes could get wrong; in a module, so that other processes can import them."""

import os
import signal

import torch
from torch import nn

from wane.learners import Learner, Observed


class Dark(Learner):
    """Two draws, logits stored with a row, a penalty on the weights, and a gradient that is changed by a hook."""

    draws = 2

    def observe(self, batch):
        logits = self.model(batch.images)
        losses = nn.functional.cross_entropy(logits, batch.labels, reduction="none")
        hold = (logits - batch.extras["logits"]).square().mean(1)
        size = sum(p.square().sum() for p in self.model.parameters())
        return Observed(torch.where(batch.draw == 2, hold, losses), logits, penalty=0.01 * size)

    def after_backward(self, batch):
        loss = self.observe(batch).losses.mean()
        for p, g in zip(self.model.parameters(), torch.autograd.grad(loss, list(self.model.parameters())), strict=True):
            p.grad += 0.1 * g

    def stored_extras(self):
        return {"logits": (self.num_classes,)}

    def extras_of(self, batch, observed):
        return {"logits": observed.logits}


class Heads(Learner):
    """A head that no row of the first task uses: its weights must stay as they are, decay or not."""

    def __init__(self, model, num_classes, options):
        super().__init__(model, num_classes, options)
        self.late = nn.Linear(36, num_classes)

    def observe(self, batch):
        logits = self.model(batch.images)
        if int(batch.tasks.max()) > 0:
            logits = logits + self.late(batch.images.flatten(1))
        return Observed(nn.functional.cross_entropy(logits, batch.labels, reduction="none"), logits)


class Noisy(Learner):
    """Stores a random number of the global generator with each row, as a dropout would draw it."""

    draws = 1

    def observe(self, batch):
        observed = super().observe(batch)
        return Observed(observed.losses, observed.logits + torch.rand(len(batch.labels), 1))

    def stored_extras(self):
        return {"logits": (self.num_classes,)}

    def extras_of(self, batch, observed):
        return {"logits": observed.logits}

    def after_step(self, batch):
        with torch.no_grad():
            for p in self.parameters():
                p.zero_()  # so that the logits are the random numbers


class Disloyal(Learner):
    """Its weights depend on the process."""

    def after_step(self, batch):
        with torch.no_grad():
            next(self.parameters()).add_(torch.rand(1))


class Breaking(Learner):
    """Fails, or dies, on the second process in the second task."""

    def observe(self, batch):
        if int(batch.tasks[0]) == 1 and torch.distributed.is_initialized() and torch.distributed.get_rank() == 1:
            if self.num_classes == 4:
                raise ValueError("the second process has had enough")
            os.kill(os.getpid(), signal.SIGKILL)
        return super().observe(batch)


METHODS = {"dark": Dark, "heads": Heads, "noisy": Noisy, "disloyal": Disloyal, "breaking": Breaking}
