"""What to draw: slots of a memory, uniformly or by class probabilities."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wane.memory.groups import Integers, group, rank_in_group

__all__ = ["class_uniform", "draw_by_class", "draw_uniform"]


def draw_uniform(filled: int, n: int, generator: torch.Generator) -> Tensor:
    """`n` of the slots 0 to `filled` - 1, equally likely, without replacement; all if there are fewer.

    >>> draw_uniform(3, 5, torch.Generator().manual_seed(0)).sort().values
    tensor([0, 1, 2])
    """
    return torch.randperm(filled, generator=generator)[:n]


def class_uniform(counts: Tensor) -> Tensor:
    """Equal weights for the classes that are present: the control that a trend must beat.

    >>> class_uniform(torch.tensor([7, 0, 2]))
    tensor([1., 0., 1.], dtype=torch.float64)
    """
    return (counts > 0).double()


def draw_by_class(labels: Tensor, n: int, probabilities: Tensor, generator: torch.Generator) -> Tensor:
    """`n` slots: for each row a class from `probabilities`, then one of the slots that hold this class.

    Rows choose their classes independently. Slots of a class come without replacement, as in `draw_uniform`:
    no slot twice before every slot of its class came once, after which the class goes round again in the same
    order. Any one row is slot s of class c with probability p[c] / count[c] exactly.

    Args:
        labels: (m,) classes of the filled slots.
        n: Rows to draw. From an empty memory (m = 0) none are drawn.
        probabilities: (classes,) weights of any sum. Only those of the classes in `labels` count: one never
            stored may have NaN. Equal weights of any size give the bits of `class_uniform`.
        generator: Source of all randomness, on the CPU.

    Raises:
        ValueError: Classes present have a negative, infinite or NaN weight, or no weight above 0.

    >>> labels, generator = torch.tensor([0, 0, 1, 1, 2]), torch.Generator().manual_seed(0)
    >>> draw_by_class(labels, 4, torch.tensor([0.0, 0.0, 1.0]), generator)
    tensor([4, 4, 4, 4])
    >>> draw_by_class(labels, 4, torch.tensor([0.0, 0.2, 0.0]), generator).sort().values
    tensor([2, 2, 3, 3])
    """
    if len(labels) == 0:
        return torch.empty(0, dtype=torch.int64)
    held: Integers = labels.cpu().numpy()
    counts = np.bincount(held, minlength=len(probabilities))
    edges = _weights(probabilities.detach().cpu().double().numpy(), counts).cumsum()
    points = torch.rand(n, dtype=torch.float64, generator=generator).numpy() * edges[-1]
    classes = edges.searchsorted(points, side="right")  # never a class of weight 0

    shuffled: Integers = torch.randperm(len(held), generator=generator).numpy()
    by_class = shuffled[group(held[shuffled], len(counts))]  # class after class, each in random order
    turn = rank_in_group(classes, np.arange(n), len(counts))  # how many earlier rows chose the same class
    starts = counts.cumsum() - counts
    return torch.from_numpy(by_class[starts[classes] + turn % counts[classes]])


def _weights(probabilities: NDArray[np.float64], counts: Integers) -> NDArray[np.float64]:
    """Zero for absent classes; the others over their maximum, so that equal ones become exactly 1."""
    if probabilities.shape != counts.shape:
        raise ValueError(
            f"class_probabilities have shape {probabilities.shape}, but the memory holds class "
            f"{len(counts) - 1}: give one probability for each class (or group)"
        )
    weights = np.where(counts > 0, probabilities, 0.0)
    low, high = weights.min(), weights.max()
    if not (low >= 0 and 0 < high < np.inf):  # so written, it fails for NaN too
        present = counts.nonzero()[0]
        quoted = ", ".join(f"{c}: {probabilities[c]:g}" for c in present[:20]) + ", ..." * (len(present) > 20)
        raise ValueError(
            f"class_probabilities of the classes in memory are {quoted}: "
            "they must be finite and not negative, and one at least above 0; None draws uniformly over slots"
        )
    scaled: NDArray[np.float64] = weights / high
    return scaled
