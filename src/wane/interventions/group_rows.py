"""What a search for offsets reads: a few numbers a row and group, taken from the logits once."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["CHUNK", "FEW_GROUPS", "Rows", "read_rows"]

#: Numbers worked on at a time: 4 MB of float64.
CHUNK = 2**19
#: Up to here a search takes its time: it starts from two places, and shifts older groups against newer ones.
FEW_GROUPS = 32


@dataclass(frozen=True)
class Rows:
    """Rows of logits by group. Where every group is one class, the first two are the logits themselves, not copied.

    Attributes:
        scores: (N, G) log-sum-exp of each group's logits.
        tops: (N, G) greatest logit of each group.
        label: (N,) float64, the label's own logit.
        group: (N,) the group of the label.
        weights: (N,) float64, of sum 1.
        classes: how many take part.
        logits: (N, C) as they came, for what needs all of them.
        members: (C,) the group of each class, -1 for one that takes no part.
    """

    scores: Tensor
    tops: Tensor
    label: Tensor
    group: Tensor
    weights: Tensor
    classes: int
    logits: Tensor
    members: Tensor

    @property
    def num_groups(self) -> int:
        """Offsets to be found."""
        return self.scores.shape[1]

    @property
    def limit(self) -> float:
        """The logarithm of the number of classes."""
        return math.log(self.classes)

    @property
    def effective(self) -> float:
        """How many rows of equal weight would tell as much."""
        return float(1 / self.weights.square().sum())

    def blocks(self, width: int) -> Iterator[slice]:
        """Some rows at a time, where each needs `width` numbers."""
        step = max(1, CHUNK // width)
        for start in range(0, len(self.label), step):
            yield slice(start, start + step)


def read_rows(logits: Tensor, labels: Tensor, weights: Tensor, members: Tensor) -> Rows:
    """Rows of (N, C) logits; `labels`, `weights` and `members` are on the CPU, the logits anywhere."""
    label = logits.gather(1, labels.to(logits.device)[:, None])[:, 0].to("cpu", torch.float64)
    taking_part = members >= 0
    groups, classes = int(members.max()) + 1, int(taking_part.sum())
    if groups == classes:
        columns = taking_part.nonzero()[:, 0]
        columns = columns[members[columns].argsort()]
        whole = torch.equal(columns, torch.arange(len(members)))
        scores = tops = logits if whole else logits.index_select(1, columns.to(logits.device))
    else:
        scores, tops = (torch.empty(len(labels), groups, dtype=torch.float64) for _ in range(2))
        inside = [(members == g).nonzero()[:, 0] for g in range(groups)]
        step = max(1, CHUNK // len(members))
        for start in range(0, len(labels), step):
            block = logits[start : start + step].to("cpu", torch.float64)
            for g, columns in enumerate(inside):
                part = block[:, columns]
                scores[start : start + step, g] = part.logsumexp(1)
                tops[start : start + step, g] = part.amax(1)
    return Rows(scores, tops, label, members[labels], weights, classes, logits, members)
