"""Offsets that maximise the mean confusion margin, 1 + p_y - max_c p_c, by its gradient.

What a row loses, d = max_c p_c - p_y, is 0 where the label is the answer, and elsewhere smooth but for the places where
another class becomes the answer: kinks so small, one row each, that L-BFGS steps over them. With m the group of the
answer, y that of the label and P the shares of all groups, the gradient of d is p_m (e_m - P) - p_y (e_y - P).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from wane.interventions.group_rows import Rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["minimise_margin"]

#: A search ends after so many steps, or where one gains less than this, or no component of the gradient exceeds it.
STEPS, LEAST = 60, 1e-6


def minimise_margin(rows: Rows, start: Tensor, ridge: float) -> tuple[Tensor, float]:
    """Offsets near `start` where the mean of d, plus `ridge` / 2 times their squares, is least; and that value."""
    from scipy.optimize import minimize

    def at(offsets: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        value, gradient = margin_lost(rows, torch.from_numpy(offsets))
        return value + ridge / 2 * float(offsets @ offsets), gradient.numpy() + ridge * offsets

    options = {"gtol": LEAST, "ftol": LEAST, "maxiter": STEPS, "maxcor": 20}
    found = minimize(at, start.numpy(), jac=True, method="L-BFGS-B", options=options)
    return torch.from_numpy(found.x), float(found.fun)


def margin_lost(rows: Rows, offsets: Tensor) -> tuple[float, Tensor]:
    """The weighted mean of d under these offsets, and its gradient; float32 logits are read as they are."""
    dtype = torch.float64 if rows.scores.dtype == torch.float64 else torch.float32
    shifts, alone = offsets.to(dtype), rows.tops is rows.scores
    lost, gradient = 0.0, torch.zeros_like(offsets)
    for block in rows.blocks(rows.num_groups):
        shares, group, weights = rows.scores[block].to("cpu", dtype) + shifts, rows.group[block], rows.weights[block]
        top, answer = (shares if alone else rows.tops[block].to("cpu", dtype) + shifts).max(1)
        highest = top if alone else shares.amax(1)
        np.exp(shares.sub_(highest[:, None]).numpy(), out=shares.numpy())  # twice as fast as torch's
        total = shares.sum(1).double()
        p_top = weights * (top - highest).double().exp_() / total
        p_label = weights * (rows.label[block] + offsets[group] - highest).exp_() / total
        missing = p_top - p_label
        lost += float(missing.sum())
        gradient -= ((missing / total).to(dtype) @ shares).double()
        gradient.index_add_(0, answer, p_top).index_add_(0, group, p_label, alpha=-1)
    return lost, gradient
