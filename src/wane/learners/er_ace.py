"""ER-ACE (Caccia et al., 2022): new rows compete among their own classes only, and so do not push down the old ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F

from wane.learners.batch import Batch, Observed, Scene
from wane.learners.learner import Learner

__all__ = ["ERACE"]


@dataclass(frozen=True)
class Options:
    """What can be set."""

    unseen: bool = True
    """Whether classes that no task had yet compete with new rows too (Mammoth); if not, those of the batch do alone."""


class ERACE(Learner):
    """The mean cross-entropy of new rows, over the classes among them, plus that of the draw, over all classes.

    With one softmax over all classes the new rows, whose labels are never old classes, would teach the network to give
    these no probability. Restriction and draw start with the second task, and stream and draw go through the network
    separately, as in Mammoth. Not taken over: Mammoth's cosine head of scale 10; Avalanche's mean of the two terms,
    which halves the learning rate, and its memory that is filled at the ends of tasks.
    """

    title = "ER-ACE"
    source = (
        "Caccia et al., New Insights on Reducing Abrupt Representation Change in Online Continual Learning, ICLR 2022"
    )
    Options: ClassVar[type[Any]] = Options
    draws = 1
    means = "draw"
    first_replay = 1

    def begin_task(self, scene: Scene) -> None:
        """Old classes are those that compete only among replayed rows."""
        self.first = scene.task.index == 0
        unseen = torch.full((self.num_classes,), self.options.unseen)
        unseen[list(scene.seen)] = False
        self.always = unseen.to(next(self.model.parameters()).device)  # classes that compete with new rows in any case

    def observe(self, batch: Batch) -> Observed:
        """A forward pass for the new rows and one for the draw."""
        logits = self.logits_by_part(batch)
        competing = logits
        if not self.first:
            allowed = self.always.index_fill(0, batch.whole.labels[: batch.whole.new], True)
            barred = (batch.draw == 0)[:, None] & ~allowed
            competing = logits.masked_fill(barred, -torch.inf)
        return Observed(F.cross_entropy(competing, batch.labels, reduction="none"), logits)
