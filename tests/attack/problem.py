"""A run of a few dozen milliseconds that writes every kind of file, and what must come of it however it is attacked."""

from collections.abc import Iterator, Sequence

import torch

from wane.streams import Dataset, from_arrays
from wane.sweeps.engines import Job, Options, Outcome
from wane.sweeps.engines.worker import do_job

#: One hidden layer, two tasks of two epochs; everything is recorded.
CONFIG = """
recipe = "attacked"
device = "cpu"
threads = 1
[data]
name = "tests.attack.problem:tiny"
tasks = 2
padding = 1
[model]
name = "mlp"
hidden = [8]
[learner]
name = "er"
epochs = 2
batch_size = 8
replay_size = 4
lr = 0.1
[memory]
capacity = 8
[record]
samples = "tasks"
flow = true
ladder = true
recovery = {below = 0.9, samples = 2, steps = 2}
"""


def tiny() -> Dataset:
    """Four classes of 4 x 4 images, each a pattern under noise."""
    generator = torch.Generator().manual_seed(0)
    patterns = torch.rand(4, 1, 4, 4, generator=generator)

    def split(n: int) -> tuple[torch.Tensor, torch.Tensor]:
        labels = torch.arange(4).repeat(n)
        pixels = 0.5 * patterns[labels] + 0.5 * torch.rand(len(labels), 1, 4, 4, generator=generator)
        return (pixels * 255).to(torch.uint8), labels

    return from_arrays(*split(6), *split(5), layout="NCHW", name="tiny")


def one_by_one(jobs: Sequence[Job], options: Options) -> Iterator[tuple[Job, Outcome]]:
    """An engine for sweeps: every run in this very process, so that an attack on it hits them."""
    for job in jobs:
        yield job, do_job(job, threads=1, retry=options.retry_failed)
