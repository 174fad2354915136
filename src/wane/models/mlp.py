"""A multilayer perceptron on flattened images, or on the rows of a table."""

from collections.abc import Sequence

from torch import nn

from wane.models.classifier import Classifier, seeded

__all__ = ["mlp"]


def mlp(num_classes: int, in_features: int, hidden: Sequence[int] = (256, 256), *, seed: int = 0) -> Classifier:
    """Linear and ReLU for each size in `hidden`; the last of them is the size of the features.

    Args:
        num_classes: Rows of the head: all classes of the stream, seen or not.
        in_features: Numbers in a row: channels x height x width of an image.
        hidden: Sizes of the hidden layers; `()` leaves a linear classifier.
        seed: Initial weights are a function of it; no global generator is touched.

    >>> sum(p.numel() for p in mlp(10, 64, hidden=(32,)).parameters())  # 64 * 32 + 32, 32 * 10 + 10
    2410
    """
    with seeded(seed):
        layers: list[nn.Module] = [nn.Flatten()]
        before = in_features
        for after in hidden:
            layers += [nn.Linear(before, after), nn.ReLU()]
            before = after
        return Classifier(nn.Sequential(*layers), nn.Linear(before, num_classes))
