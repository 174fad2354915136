"""Sums that are the same to the last bit in whatever order samples, batches and processes come."""

from torch import Tensor

__all__ = ["GRID", "on_grid"]

#: Every value is rounded to this grid before it is added. float64 then adds without any rounding (up to a sum of 2**21
#: a group), so the result is the same to the last bit in whatever order samples, batches and processes come. The
#: rounding, 1e-10, is far below the float32 that the values are made of.
GRID = 2.0**-32


def on_grid(values: Tensor) -> Tensor:
    """Float64 values, rounded to the grid."""
    return (values * (1 / GRID)).round_().mul_(GRID)
