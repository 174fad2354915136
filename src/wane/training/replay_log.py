"""The replay of a run, a row an epoch: what could be drawn, what was, and how the loss was weighted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from wane.interventions.trend_sampler import effective_classes
from wane.runs.writing import write_atomically

__all__ = ["ReplayLog"]

#: Scalars of an epoch. The last three are NaN in a run without loss weights.
SCALARS = ("effective_classes", "current_share", "weight_min", "weight_max", "weight_effective")


class ReplayLog:
    """A table that grows by a row an epoch and fits in a checkpoint.

    Columns: step and task; the effective number of classes of the draw (exponential of the entropy); the share of
    replayed rows from the current task; least, greatest and mean effective sample size (as a share) of the loss
    weights; for each class the probability of being drawn at the end of the epoch, and how many rows were drawn.
    """

    def __init__(self) -> None:
        self.at: list[tuple[int, int]] = []
        self.scalars: list[Tensor] = []
        self.probabilities: list[Tensor] = []
        self.drawn: list[Tensor] = []

    def add(
        self, *, step: int, task: int, probabilities: Tensor, drawn: Tensor, current: Tensor, weights: list[Tensor]
    ) -> None:
        """Add an epoch.

        Args:
            step: steps of the optimiser so far.
            task: the task that is being learnt.
            probabilities: (G,) of being drawn, at the end of the epoch.
            drawn: (G,) how many rows were.
            current: (G,) which groups are those of the current task.
            weights: a summary of the loss weights of each step.
        """
        share = drawn[current].sum() / drawn.sum()  # NaN in an epoch that drew nothing
        weighted = torch.full((3,), torch.nan, dtype=torch.float64)
        if weights:
            least, greatest, effective = torch.stack(weights).double().cpu().unbind(1)
            weighted = torch.stack([least.min(), greatest.max(), effective.mean()])
        scalars = torch.tensor([effective_classes(probabilities), share], dtype=torch.float64)
        self.at.append((step, task))
        self.scalars.append(torch.cat([scalars, weighted]))
        self.probabilities.append(probabilities)
        self.drawn.append(drawn)

    def state_dict(self) -> dict[str, Any]:
        """A few tensors."""
        names = ("scalars", "probabilities", "drawn")
        return {"at": self.at, **{n: torch.stack(getattr(self, n)) if self.at else torch.empty(0) for n in names}}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Back to what was saved."""
        self.at = [(int(step), int(task)) for step, task in state["at"]]
        for name in ("scalars", "probabilities", "drawn"):
            setattr(self, name, list(state[name].unbind(0)))

    def write(self, path: Path) -> None:
        """As Parquet, atomically."""
        import polars as pl

        columns: dict[str, Any] = {"step": [s for s, _ in self.at], "task": [t for _, t in self.at]}
        scalars = torch.stack(self.scalars) if self.at else torch.empty(0, len(SCALARS))
        columns |= {name: scalars[:, i].numpy() for i, name in enumerate(SCALARS)}
        columns |= {
            "probabilities": [p.tolist() for p in self.probabilities],
            "drawn": [d.tolist() for d in self.drawn],
        }
        write_atomically(path, pl.DataFrame(columns).write_parquet)
