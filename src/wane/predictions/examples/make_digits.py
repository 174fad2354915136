"""Make digits_before.npz and digits_after.npz: `python -m wane.predictions.examples.make_digits` (needs scikit-learn).

Half of scikit-learn's 1,797 digits train a network of one hidden layer, the other half test it. The first model has
seen all digits, but only six eights and six nines; the second is the first after 60 small steps on 5 to 9 alone. Old
classes go in different ways at once: some are lost, some wane while their accuracy holds, some are gone but near.
"""

import numpy as np
import torch
from torch import Tensor
from torch.nn import Linear, ReLU, Sequential
from torch.nn.functional import cross_entropy

from wane.predictions.examples import EXAMPLES

NAMES = [f"digit {digit}" for digit in range(10)]
RARE, SCARCE = 6, (8, 9)


def train(model: Sequential, x: Tensor, y: Tensor, *, steps: int, rate: float, generator: torch.Generator) -> None:
    """Plain SGD on batches of 32, drawn in epochs."""
    optimiser = torch.optim.SGD(model.parameters(), lr=rate)
    order: list[Tensor] = []
    for _ in range(steps):
        order = order or [*torch.split(torch.randperm(len(x), generator=generator), 32)]
        batch = order.pop()
        optimiser.zero_grad()
        cross_entropy(model(x[batch]), y[batch]).backward()  # type: ignore[no-untyped-call]
        optimiser.step()


def main(seed: int = 1) -> None:
    """Train, fine-tune, and write both files."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    pixels, digits = load_digits(return_X_y=True)
    x, y = torch.tensor(pixels / 16 - 0.5, dtype=torch.float32), torch.tensor(digits)
    known, test = map(torch.tensor, train_test_split(np.arange(len(y)), test_size=0.5, random_state=0, stratify=y))
    scarce = [known[y[known] == digit][:RARE] for digit in SCARCE]
    first = torch.cat([known[y[known] < min(SCARCE)], *scarce])
    second = known[y[known] >= 5]

    torch.manual_seed(seed)  # the initial weights; every draw after them has the generator
    generator = torch.Generator().manual_seed(seed)
    model = Sequential(Linear(64, 64), ReLU(), Linear(64, 10))
    train(model, x[first], y[first], steps=345, rate=0.1, generator=generator)
    write("digits_before", model(x[test]), y[test], test)
    train(model, x[second], y[second], steps=60, rate=0.05, generator=generator)
    write("digits_after", model(x[test]), y[test], test)


def write(name: str, logits: Tensor, labels: Tensor, ids: Tensor) -> None:
    """In half precision, which halves the files and changes no verdict."""
    np.savez_compressed(
        EXAMPLES[name], logits=logits.detach().half().numpy(), labels=labels.numpy().astype(np.uint8),
        ids=ids.numpy().astype(np.uint16), class_names=np.array(NAMES),
    )  # fmt: skip


if __name__ == "__main__":
    main()
