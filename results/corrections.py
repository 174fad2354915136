"""What a correction of the logits brings back, method by method: `python results/corrections.py STORE...`.

With stores of finished runs (their checkpoints are needed, and the data), every run's network and memory at its end are
read back, corrections are fitted, and `corrections.csv` is written: final accuracy in percent by method, seed, rows to
fit on, signal and groups. Without any, `corrections.md` is made from that file.

Rows to fit on: the memory, as it is stored; or k labelled rows a class that were never trained on. For the latter, test
rows are split ten times: fitted on k a class, judged on all others. Controls without a signal: none, and the prior, how
often each class was trained on in the last task.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import torch
from torch import Tensor

from wane.interventions.correction import LogitCorrection
from wane.runs.folder import RunFolder, find_runs
from wane.sweeps.plan import expand
from wane.training.checkpoint import load_checkpoint
from wane.training.correction import exposure
from wane.training.events import Events
from wane.training.loop import resume
from wane.training.rows import logits_of, rows_of
from wane.training.run import load_data
from wane.training.session import Session, open_session
from wane.training.team import ALONE
from wane.views.statistics import paired

HERE = Path(__file__).parent
DATA = ("cifar100", "tiny_imagenet")
SIGNALS = ("nkl", "ctl", "loss", "accuracy")
FEW = (1, 2, 5)
SPLITS = 10


def measure(run: RunFolder, variant: str) -> Iterator[dict[str, object]]:
    """Every correction of one run."""
    session = reopened(run)
    task = list(session.stream)[-1]
    tasks = session.stream.class_to_task.cpu()
    logits, labels = answers(session, "test")
    kinds = {"newest": (tasks == task.index).long(), "task": tasks}
    base = {"data": run.data, "method": variant, "seed": run.seed}

    def row(rows: str, by: str, groups: str, accuracy: float) -> dict[str, object]:
        return {**base, "rows": rows, "by": by, "groups": groups, "accuracy": round(100 * accuracy, 3)}

    yield row("none", "none", "", right(logits, labels))
    counts = exposure(session, task)
    stored = answers(session, "memory") if session.memory is not None else None
    for name, groups in kinds.items():
        known = groups if bool((counts > 0).all()) else None  # without a memory, past classes have no exposure
        if known is not None:
            fitted = LogitCorrection("prior", known).fit(counts=counts)
            yield row("none", "prior", name, right(fitted.apply(logits), labels))
        for by in SIGNALS:
            if stored is not None:
                fitted = LogitCorrection(by, groups).fit(*stored)
                yield row("memory", by, name, right(fitted.apply(logits), labels))
        oracle = LogitCorrection("accuracy", groups).fit(logits, labels)
        yield row("test (oracle)", "accuracy", name, right(oracle.apply(logits), labels))
    for k in FEW:
        found: dict[tuple[str, str], list[float]] = {}
        for split in range(SPLITS):
            few = some_of_each(labels, k, torch.Generator().manual_seed(split))
            found.setdefault(("none", ""), []).append(right(logits[~few], labels[~few]))
            for name, groups in kinds.items():
                for by in SIGNALS:
                    fitted = LogitCorrection(by, groups).fit(logits[few], labels[few])
                    found.setdefault((by, name), []).append(right(fitted.apply(logits[~few]), labels[~few]))
        for (by, name), values in found.items():
            yield {**row(f"{k} a class", by, name, float(np.mean(values))), "spread": round(100 * np.std(values), 3)}


def reopened(run: RunFolder) -> Session:
    """A finished run as it was at its end."""
    config = run.config
    session = open_session(config, load_data(config), run.path, model=None, team=ALONE, events=Events())
    resume(session, load_checkpoint(run.path))
    return session


@torch.inference_mode()
def answers(session: Session, split: str) -> tuple[Tensor, Tensor]:
    """Logits and labels of all rows of a split."""
    session.learner.eval()
    data, rows, tasks = rows_of(session, list(session.stream)[-1], split)
    return logits_of(session, data, rows, tasks).cpu(), data.labels[rows].cpu()


def right(logits: Tensor, labels: Tensor) -> float:
    """The share of right answers."""
    return float((logits.argmax(1) == labels).double().mean())


def some_of_each(labels: Tensor, k: int, generator: torch.Generator) -> Tensor:
    """(N,) True for k rows of each class."""
    order = torch.randperm(len(labels), generator=generator)
    place = torch.empty_like(labels)
    for c in torch.unique(labels):
        own = order[labels[order] == c]
        place[own] = torch.arange(len(own))
    return place < k


def by_memory(frame: pl.DataFrame) -> str:
    """One number for the newest task, fitted on the memory: accuracies, and paired differences over seeds."""
    lines = ["| | seeds | none | NKL | CTL | loss | accuracy | prior | oracle | NKL less none | NKL less prior |",
             "|:--|--:|" + 9 * "--:|"]  # fmt: skip
    chosen = [("none", "none", ""), *(("memory", by, "newest") for by in SIGNALS), ("none", "prior", "newest"),
              ("test (oracle)", "accuracy", "newest")]  # fmt: skip
    for method in frame["method"].unique(maintain_order=True):
        found = [cells(frame, method, *which) for which in chosen]
        if found[1]:
            means = [f"{np.mean([*each.values()]):.1f}" for each in found]
            differences = [difference(found[1], found[0]), difference(found[1], found[5])]
            lines.append(f"| {method} | {len(found[0])} | {' | '.join([*means, *differences])} |")
    return "\n".join(lines) + "\n"


def by_few_rows(frame: pl.DataFrame) -> str:
    """The same from a few clean rows a class, with the standard deviation over the splits of a run."""
    lines = ["| | rows a class | none | NKL | CTL | loss | accuracy | NKL less accuracy |", "|:--|--:|" + 6 * "--:|"]
    for method in frame["method"].unique(maintain_order=True):
        for k in FEW:
            found = {by: cells(frame, method, f"{k} a class", by, "newest" if by != "none" else "")
                     for by in ("none", *SIGNALS)}  # fmt: skip
            spreads = frame.filter(method=method, rows=f"{k} a class", groups="newest")
            noise = {by: spreads.filter(by=by)["spread"].mean() for by in SIGNALS}
            texts = [f"{np.mean([*each.values()]):.1f}" + (f" ± {noise[by]:.1f}" if by in noise else "")
                     for by, each in found.items()]  # fmt: skip
            texts.append(difference(found["nkl"], found["accuracy"]))
            lines.append(f"| {method if k == FEW[0] else ''} | {k} | {' | '.join(texts)} |")
    return "\n".join(lines) + "\n"


def cells(frame: pl.DataFrame, method: str, rows: str, by: str, groups: str) -> dict[int, float]:
    """Accuracy by seed."""
    chosen = frame.filter(pl.col("groups").fill_null("") == groups, method=method, rows=rows, by=by)
    return dict(chosen.select("seed", "accuracy").iter_rows())


def difference(values: dict[int, float], reference: dict[int, float]) -> str:
    """The mean paired difference with its interval; bold if that excludes zero."""
    found = paired(values, reference)
    if found.difference is None or found.low is None or found.high is None:
        return "" if found.difference is None else f"{found.difference:+.1f}".replace("-", "−")
    text = f"{found.difference:+.1f} [{found.low:+.1f}, {found.high:+.1f}]".replace("-", "−")
    return f"**{text}**" if found.low > 0 or found.high < 0 else text


def main(stores: list[str]) -> None:
    """Measure what is new, and write the tables."""
    path = HERE / "corrections.csv"
    known = pl.read_csv(path) if path.exists() else None
    rows = [] if known is None else known.to_dicts()
    planned = [p for data in DATA for p in expand("methods", scale="small", settings=({"data": {"name": data}},),
                                                  over={"seed": [*range(6)]})]  # fmt: skip
    variants = {p.name: p.variant for p in planned}
    for run in find_runs(*stores) if stores else []:
        variant = variants.get(run.name)
        if variant is None or run.summary is None or run.split != "test" or run.replay is None:
            continue
        if any((r["data"], r["method"], r["seed"]) == (run.data, variant, run.seed) for r in rows):
            continue
        rows += [{"spread": None, **row} for row in measure(run, variant)]
        print(run.name, flush=True)
        columns = ("data", "method", "seed", "rows", "by", "groups", "accuracy", "spread")
        pl.DataFrame(rows, infer_schema_length=None).select(columns).write_csv(path)
    table = pl.read_csv(path)
    for data in table["data"].unique(maintain_order=True):
        (HERE / f"corrections_{data}.md").write_text(by_memory(table.filter(data=data)))
        (HERE / f"corrections_few_{data}.md").write_text(by_few_rows(table.filter(data=data)))


if __name__ == "__main__":
    main(sys.argv[1:])
