"""The paper's formulas, transcribed letter by letter in float64: slow, obvious, independent of wane."""

import math

import numpy as np


def from_probabilities(p, y, *, order=None, kl=None):
    """`order`: what to rank by where the softmax underflows to ties; `kl`: -ln p_y where p_y underflows to 0."""
    p = np.asarray(p, dtype=np.float64)
    order = p if order is None else order
    c = len(p)
    rank = (
        1 + sum(int(order[k] > order[y]) for k in range(c) if k != y) if c < 5000 else 1 + int((order > order[y]).sum())
    )
    if kl is None:
        kl = -math.log(p[y]) if p[y] > 0 else math.inf
    return {
        "accuracy": 1.0 if rank == 1 else 0.0,
        "loss": kl,
        "cm": 1 + p[y] - p.max(),
        "tlr": 1 - (rank - 1) / (c - 1),
        "log_tlr": 1 - math.log(rank) / math.log(c),
        "rtlr": (c - rank) / ((c - 1) * rank),
        "ctl": p[y],
        "nkl": 1 - min(kl, math.log(c)) / math.log(c),
        "rank": rank,
    }


def from_logits(z, y):
    z = np.asarray(z, dtype=np.float64)
    e = np.exp(z - z.max())
    return from_probabilities(e / e.sum(), y, order=z, kl=math.log(e.sum()) - (z[y] - z.max()))


def table(rows):
    """A list of dicts as a dict of arrays."""
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}
