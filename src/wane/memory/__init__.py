"""Replay memories: what to keep (reservoir, class-balanced, herding) and what to draw (uniformly, by class).

`Memory` is all that a loop needs; the functions beneath it are pure and stand alone.
"""

from wane.memory.draw import class_uniform, draw_by_class, draw_uniform
from wane.memory.herding import herding_ranks
from wane.memory.keep import balanced_slots, random_integers, reservoir_slots, shares
from wane.memory.memory import POLICIES, Memory
from wane.memory.set_aside import rows_set_aside

__all__ = [
    "POLICIES",
    "Memory",
    "balanced_slots",
    "class_uniform",
    "draw_by_class",
    "draw_uniform",
    "herding_ranks",
    "random_integers",
    "reservoir_slots",
    "rows_set_aside",
    "shares",
]
