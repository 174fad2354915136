"""What all models of wane have in common: a body that makes features, and one linear head over all classes."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

__all__ = ["Classifier", "seeded"]


class Classifier(nn.Module):
    """`head(features(x))`, with both halves accessible to methods that need them (iCaRL, distillation).

    Nothing outside `wane.models` requires more than `forward`, so any `nn.Module` can be trained.

    >>> model = Classifier(nn.Flatten(), nn.Linear(12, 5))
    >>> images = torch.zeros(2, 3, 2, 2)
    >>> model.features(images).shape, model(images).shape
    (torch.Size([2, 12]), torch.Size([2, 5]))
    """

    def __init__(self, body: nn.Module, head: nn.Linear) -> None:
        super().__init__()
        self.body = body
        self.head = head

    def features(self, x: Tensor) -> Tensor:
        """The (N, `head.in_features`) input of the head."""
        features: Tensor = self.body(x)
        return features

    def forward(self, x: Tensor) -> Tensor:
        """The (N, classes) logits."""
        logits: Tensor = self.head(self.features(x))
        return logits


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Run the block with the CPU's global generator at `seed`, and restore the generator afterwards.

    Layers initialise themselves from the global generator and take no other; this makes a model, a user's
    own included, a function of its seed, with no effect elsewhere. Only the CPU's generator is seeded: build the model
    there, then move it.

    >>> with seeded(3): a = nn.Linear(4, 2)
    >>> with seeded(3): b = nn.Linear(4, 2)
    >>> bool((a.weight == b.weight).all())
    True
    """
    with torch.random.fork_rng(devices=[]):
        # not torch.manual_seed: that would seed every GPU too, which fork_rng(devices=[]) does not restore
        torch.default_generator.manual_seed(seed)
        yield
