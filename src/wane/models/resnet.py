"""ResNet-18 (He et al., 2016) of any width, with the stem for small images or the one for ImageNet."""

from typing import Literal

from torch import Tensor, nn

from wane.models.classifier import Classifier, seeded

__all__ = ["resnet18"]


def resnet18(
    num_classes: int,
    width: int = 64,
    stem: Literal["cifar", "imagenet"] = "cifar",
    channels: int = 3,
    *,
    seed: int = 0,
) -> Classifier:
    """Four stages of two basic blocks, `width` x 1, 2, 4 and 8 channels; features of size 8 x `width`.

    Args:
        num_classes: Rows of the head: all classes of the stream, seen or not.
        width: Channels of the first stage; 64 is the paper's.
        stem: `"cifar"` is a 3x3 convolution of stride 1 and no max-pool (the paper's, for 32x32 and 64x64);
            `"imagenet"` a 7x7 of stride 2 and a max-pool, which leave the stages 16 times fewer pixels.
        channels: Channels of an image.
        seed: Initial weights, by PyTorch's own scheme, are a function of it; no global generator is touched.

    >>> sum(p.numel() for p in resnet18(100).parameters())
    11220132
    >>> sum(p.numel() for p in resnet18(100, width=8).parameters())
    182252
    """
    with seeded(seed):
        layers = _stem(channels, width, stem)
        before = width
        for stage, stride in enumerate((1, 2, 2, 2)):
            after = width * 2**stage
            layers += [_Block(before, after, stride), _Block(after, after, 1)]
            before = after
        layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        return Classifier(nn.Sequential(*layers), nn.Linear(before, num_classes))


def _stem(channels: int, width: int, kind: str) -> list[nn.Module]:
    if kind == "cifar":
        return [nn.Conv2d(channels, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
    if kind == "imagenet":
        convolution = nn.Conv2d(channels, width, 7, stride=2, padding=3, bias=False)
        return [convolution, nn.BatchNorm2d(width), nn.ReLU(inplace=True), nn.MaxPool2d(3, stride=2, padding=1)]
    raise ValueError(f'stem is {kind!r}: use "cifar" (3x3, no max-pool) or "imagenet" (7x7, max-pool)')


class _Block(nn.Module):
    """Two 3x3 convolutions around a shortcut, which is a 1x1 convolution only where the shape changes."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            nn.Conv2d(before, after, 3, stride=stride, padding=1, bias=False),
            nn.BatchNorm2d(after),
            nn.ReLU(inplace=True),
            nn.Conv2d(after, after, 3, padding=1, bias=False),
            nn.BatchNorm2d(after),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or before != after:
            convolution = nn.Conv2d(before, after, 1, stride=stride, bias=False)
            self.shortcut = nn.Sequential(convolution, nn.BatchNorm2d(after))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.residual(x)
        out += self.shortcut(x)
        return out.relu_()
