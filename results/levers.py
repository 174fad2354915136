"""Levers inside training, each beside the control that takes the signal out.

    PYTHONPATH=results wane sweep results/levers.toml --scale small --out RUNS
    python results/levers.py RUNS

The second command adds the runs' figures to `levers.csv`, and makes the tables from that file.

Two levers. *Shifted*: in the loss of new rows a number is taken off the logits of old classes, so that new rows push
them down less. 0 is ER, infinity a mask like that of ER-ACE; a correction fitted on the memory after every epoch says
how much, or, without any signal, the prior or a constant. *Finish*: when a task ends, the network is trained for a
while on the memory alone, each class drawn as often as any other, without the rows whose label it already gives most of
the probability; or with all rows, or without as many at random.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import polars as pl
import torch
import torch.nn.functional as F
from torch import Tensor

from wane.interventions.correction import LogitCorrection
from wane.learners import Batch, Observed, Scene
from wane.learners.er import ER
from wane.runs.folder import find_runs
from wane.sweeps.plan import expand
from wane.views.statistics import difference_text, mean_std, paired

HERE = Path(__file__).parent
DATA = ("cifar100", "tiny_imagenet")
MEASURES = ("accuracy", "forgetting", "retention", "plasticity", "bias_memory")
CONTROLS = ("ER", "class-uniform, past", "shifted by the prior")


@dataclass(frozen=True)
class ShiftOptions:
    """What can be set."""

    by: Literal["nkl", "ctl", "loss", "accuracy", "prior", "constant"] = "nkl"
    """What says how much is taken off: a correction fitted by a signal, the prior, or nobody."""
    constant: float = 0.0
    """With `constant`: how much."""


class Shifted(ER):
    """ER whose new rows are judged with less on the logits of old classes.

    A signal sets the number by feedback: after every epoch a correction of the newest task's logits is fitted on the
    memory, and what it would take off them is added to the number. So it settles where the memory sees no bias.
    """

    title = "Shifted ER"
    Options: ClassVar[type[Any]] = ShiftOptions

    shift: Tensor
    fitted_at: Tensor

    def begin_task(self, scene: Scene) -> None:
        """The number starts anew, at what needs no row."""
        device = next(self.model.parameters()).device
        present = list(scene.task.classes)
        self.old = torch.zeros(self.num_classes, dtype=torch.bool, device=device)
        self.old[list(scene.seen)] = True
        self.old[present] = False
        groups = torch.full((self.num_classes,), -1)
        groups[list(scene.seen)] = 0
        groups[present] = 1
        self.groups = groups
        start = {"constant": self.options.constant, "prior": math.log1p(len(scene.seen) / len(present))}
        self.register_buffer("shift", torch.tensor(start.get(self.options.by, 0.0), device=device))
        self.register_buffer("fitted_at", torch.tensor(-1))

    def observe(self, batch: Batch) -> Observed:
        """One pass; the loss of new rows from shifted logits."""
        logits = self.model(batch.images)
        less = torch.where(~batch.replayed[:, None] & self.old, self.shift, 0.0)
        return Observed(F.cross_entropy(logits - less, batch.labels, reduction="none"), logits)

    def before_evaluation(self, scene: Scene) -> None:
        """At the end of an epoch, once: follow what the memory tells."""
        if self.options.by in ("prior", "constant") or int(self.fitted_at) == scene.step or not bool(self.old.any()):
            return
        logits, labels = remembered(self, scene)
        if len(torch.unique(self.groups[labels])) == 2:
            found = LogitCorrection(self.options.by, self.groups).fit(logits, labels).offsets
            assert found is not None
            self.shift.sub_(float(found[scene.task.classes[0]])).clamp_(min=0.0)
        self.fitted_at.fill_(scene.step)


@dataclass(frozen=True)
class FinishOptions:
    """What can be set."""

    skip: Literal["safe", "random", "none"] = "safe"
    """Rows that are left out: those that are safe, as many at random, or none."""
    safe: float = 0.9
    """A row is safe if its label has at least this probability."""
    passes: int = 5
    """As many rows as the memory holds, so many times."""
    lr: float = 0.01
    """Learning rate."""


class Finished(ER):
    """ER, and at the end of every task but the first some training on the memory alone, class by class."""

    title = "Finished ER"
    Options: ClassVar[type[Any]] = FinishOptions

    def end_task(self, scene: Scene) -> None:
        """Statistics of batch norm stay as they are: the network is in eval mode."""
        if scene.task.index == 0:
            return
        rows = list(scene.remembered())
        images, labels = torch.cat([b.images for b in rows]), torch.cat([b.labels for b in rows])
        optimiser = torch.optim.SGD(self.model.parameters(), lr=self.options.lr, momentum=0.9)
        for _ in range(self.options.passes):
            kept = self._kept(*remembered(self, scene), scene.generator)
            if len(kept) == 0:
                return
            shares = 1.0 / torch.bincount(labels[kept])[labels[kept]].double().cpu()
            drawn = kept[torch.multinomial(shares, len(labels), replacement=True, generator=scene.generator)]
            for part in torch.split(drawn, 64):
                optimiser.zero_grad()
                torch.autograd.backward(F.cross_entropy(self.model(images[part]), labels[part]))
                optimiser.step()

    def _kept(self, logits: Tensor, labels: Tensor, generator: torch.Generator) -> Tensor:
        ctl = logits.softmax(1).gather(1, labels[:, None])[:, 0]
        unsafe: Tensor = (ctl < self.options.safe).nonzero()[:, 0]
        if self.options.skip == "safe":
            return unsafe
        count = len(labels) if self.options.skip == "none" else len(unsafe)
        return torch.randperm(len(labels), generator=generator)[:count]


@torch.no_grad()
def remembered(learner: ER, scene: Scene) -> tuple[Tensor, Tensor]:
    """Logits and labels of all rows in the memory."""
    found = [(learner.model(batch.images), batch.labels) for batch in scene.remembered()]
    logits, labels = zip(*found, strict=True)
    return torch.cat(logits).cpu(), torch.cat(labels).cpu()


def collect(stores: list[str], known: pl.DataFrame | None) -> pl.DataFrame:
    """A row for each run and measure, in percent; those of earlier calls included."""
    rows: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    if known is not None:
        rows |= {row[:-1]: row for row in known.iter_rows()}
    found = {run.name: run for run in find_runs(*stores) if run.summary is not None}
    for data in DATA:
        settings = ({"data": {"name": data}},)
        for planned in expand(str(HERE / "levers.toml"), scale="small", settings=settings, over={"seed": [*range(6)]}):
            if (run := found.get(planned.name)) is None:
                continue
            assert run.summary is not None
            values = run.summary["metrics"]["accuracy"]
            for name in MEASURES:
                value = values["average" if name == "accuracy" else name]
                key = (data, planned.variant, run.seed, name)
                rows[key] = (*key, round(100 * value, 4))
    return pl.DataFrame([*rows.values()], schema=["data", "method", "seed", "measure", "value"], orient="row")


def table(frame: pl.DataFrame) -> str:
    """Means, and accuracy less that of each control, paired by seed, with 95 % intervals."""

    def by_seed(method: str, measure: str = "accuracy") -> dict[int, float]:
        return dict(frame.filter(method=method, measure=measure).select("seed", "value").iter_rows())

    titles = [*MEASURES[:-1], "with one number", *(f"less {control}" for control in CONTROLS)]
    lines = [f"| | seeds | {' | '.join(titles)} |", "|:--|--:|" + len(titles) * "--:|"]
    for method in frame["method"].unique(maintain_order=True):
        own = by_seed(method)
        means = [f"{mean_std(by_seed(method, name).values())[0]:.1f}" for name in MEASURES]
        less = ["" if c == method else difference_text(paired(own, by_seed(c))) for c in CONTROLS]
        lines.append(f"| {method} | {len(own)} | {' | '.join([*means, *less])} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """See the top of this file."""
    path = HERE / "levers.csv"
    frame = collect(sys.argv[1:], pl.read_csv(path) if path.exists() else None)
    frame.write_csv(path)
    for data in frame["data"].unique(maintain_order=True):
        of_data = frame.filter(data=data)
        if set(of_data["method"]) - set(CONTROLS):
            (HERE / f"levers_{data}.md").write_text(table(of_data))


if __name__ == "__main__":
    main()
