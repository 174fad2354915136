"""A-GEM (Chaudhry et al., 2019): the step must not, to first order, raise the loss of a replayed batch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from wane.learners.batch import Batch, Observed
from wane.learners.gradients import SeparatePasses, set_gradient, trained
from wane.learners.learner import Learner

__all__ = ["AGEM"]


class AGEM(Learner):
    """Where the gradients of new rows and draw point apart, the draw's direction is taken out of the former.

    g - (g . r / r . r) r if g . r < 0, else g; r is the gradient of the draw's mean cross-entropy, which is itself not
    followed. Stream and draw go through the network separately. The draw is the lab's own (`memory.policy`, uniform by
    default) from the second task on. Mammoth's `agem` stores a single batch of each task instead, whatever the memory's
    size; its `agem_r` replays images neither augmented nor normalised.
    """

    title = "A-GEM"
    source = "Chaudhry et al., Efficient Lifelong Learning with A-GEM, ICLR 2019"
    draws = 1
    means = "draw"
    first_replay = 1

    passes: SeparatePasses | None = None  # of the step at hand

    def observe(self, batch: Batch) -> Observed:
        """A forward pass for the new rows and one for the draw."""
        self.passes = made = SeparatePasses(self.model, batch)
        return Observed(F.cross_entropy(made.logits, batch.labels, reduction="none"), made.logits)

    def backward(self, parts: Sequence[Tensor], penalty: Tensor | float, batch: Batch) -> None:
        """Both gradients, then the projection."""
        passes, self.passes = self.passes, None  # a learner that holds a graph cannot be copied
        assert passes is not None
        parameters, (new, *replayed) = trained(self.model), parts
        gradient = passes.gradient(new, batch.parts[0], parameters)
        if replayed:
            reference = passes.gradient(replayed[0], batch.parts[1], parameters)
            inner = torch.dot(gradient, reference)
            if inner < 0:
                gradient = gradient - (inner / torch.dot(reference, reference)) * reference
        set_gradient(parameters, gradient)
