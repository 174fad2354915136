"""What a correction of the logits brings back, method by method: `python results/corrections.py STORE...`.

With stores of finished runs (their checkpoints are needed, and the data), every run's network and memory at its end are
read back, corrections are fitted, and `corrections.csv` is written: final accuracy in percent by method, seed, rows to
fit on, signal and groups. A run takes a few seconds. Tables and figure are made from that file; without stores, from
what it holds.

Rows to fit on: the memory, as it is stored; or k labelled rows a class that were never trained on. For the latter, test
rows are split ten times: fitted on k a class, judged on all others. Controls without a signal: none; the prior, how
often each class was trained on in the last task; and a new head on the memory, from the run's ladder.

A method that answers in a way of its own, such as iCaRL with minus squared distances, has no logits: probabilities of
its answers mean nothing before they have a scale. Its answers are first multiplied by the number under which the rows
to fit on have the lowest loss, for the prior as for the signals; its accuracy does not depend on that number.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor
from torch.nn.functional import cross_entropy

from wane.interventions.correction import LogitCorrection
from wane.paper.judging import verdict_of
from wane.runs.folder import RunFolder, find_runs
from wane.sweeps.plan import expand
from wane.training.checkpoint import load_checkpoint
from wane.training.correction import exposure
from wane.training.events import Events
from wane.training.resuming import resume
from wane.training.rows import answers_its_own_way, pass_rows, rows_of
from wane.training.run import load_data
from wane.training.session import Session, open_session
from wane.training.team import ALONE
from wane.views.figures import save_figure
from wane.views.figures.style import SOFT_COLOUR, new_figure, styled
from wane.views.palette import LADDER, TASKS, signal_colour
from wane.views.statistics import FEWEST_SEEDS, Interval, counted, difference_text, paired

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HERE = Path(__file__).parent
DATA = ("cifar100", "tiny_imagenet")
SIGNALS = ("nkl", "ctl", "loss", "accuracy")
FEW = (1, 2, 5)
SPLITS = 10
#: The methods that the claim is about.
METHODS = ("ER", "class-uniform, past", "ER-ACE", "DER++", "iCaRL")
#: What the figure shows beside them: untuned, DER++ has much more bias.
BESIDE = ("DER++ (0.3, 0.5)",)
#: Points that a method may lose and still count as no worse.
MARGIN = 0.5
COLUMNS = ("data", "method", "seed", "rows", "by", "groups", "accuracy", "spread")
#: Of the columns of the tables and the figure: rows, signal, groups.
NONE, PRIOR = ("none", "none", ""), ("none", "prior", "newest")
HEAD, ORACLE = ("memory", "new head", ""), ("test (oracle)", "accuracy", "newest")
FITTED = {by: ("memory", by, "newest") for by in SIGNALS}


def measure(run: RunFolder, variant: str) -> Iterator[dict[str, object]]:
    """Every correction of one run."""
    session = reopened(run)
    task = list(session.stream)[-1]
    tasks = session.stream.class_to_task.cpu()
    logits, labels = answers(session, "test")
    kinds = {"newest": (tasks == task.index).long(), "task": tasks}
    base = {"data": run.data, "method": variant, "seed": run.seed}

    def row(rows: str, by: str, groups: str, accuracy: float, spread: float | None = None) -> dict[str, object]:
        noise = None if spread is None else round(100 * spread, 3)
        return {**base, "rows": rows, "by": by, "groups": groups, "accuracy": round(100 * accuracy, 3), "spread": noise}

    check_same(run, right(logits, labels))
    yield row(*NONE, right(logits, labels))
    if run.ladder is not None and "head_memory" in run.ladder.rungs:
        yield row(*HEAD, run.ladder.average("head_memory"))
    stored = answers(session, "memory") if session.memory is not None else None
    own_way = answers_its_own_way(session.learner)
    scale = best_scale(*stored) if own_way and stored is not None else 1.0
    priors: dict[str, Tensor] = {}
    counts = exposure(session, task)
    for name, groups in kinds.items():
        if bool((counts > 0).all()):  # without a memory, past classes have no exposure
            offsets = LogitCorrection("prior", groups).fit(counts=counts).offsets
            assert offsets is not None
            priors[name] = logits * scale + offsets.float()
            yield row("none", "prior", name, right(priors[name], labels))
        if stored is not None:
            for by in SIGNALS:
                fitted = LogitCorrection(by, groups).fit(stored[0] * scale, stored[1])
                yield row("memory", by, name, right(fitted.apply(logits * scale), labels))
        oracle = LogitCorrection("accuracy", groups).fit(logits, labels)
        yield row("test (oracle)", "accuracy", name, right(oracle.apply(logits), labels))
    for k in FEW:
        found: dict[tuple[str, str], list[float]] = {}
        for split in range(SPLITS):
            few = some_of_each(labels, k, torch.Generator().manual_seed(split))
            scale = best_scale(logits[few], labels[few]) if own_way else 1.0
            found.setdefault(("none", ""), []).append(right(logits[~few], labels[~few]))
            for name, groups in kinds.items():
                if name in priors:
                    found.setdefault(("prior", name), []).append(right(priors[name][~few], labels[~few]))
                for by in SIGNALS:
                    fitted = LogitCorrection(by, groups).fit(logits[few] * scale, labels[few])
                    corrected = fitted.apply(logits[~few] * scale)
                    found.setdefault((by, name), []).append(right(corrected, labels[~few]))
        for (by, name), values in found.items():
            yield row(f"{k} a class", by, name, float(np.mean(values)), float(np.std(values)))


def check_same(run: RunFolder, accuracy: float) -> None:
    """An error if a run that was read back answers otherwise than it did: a few rows may differ by rounding."""
    assert run.summary is not None
    said = run.summary["metrics"]["accuracy"]["average"]
    if abs(said - accuracy) > 0.002:
        raise ValueError(f"{run.name}, read back, has {100 * accuracy:.2f} % accuracy, but its summary says "
                         f"{100 * said:.2f} %: is this its data?")  # fmt: skip


def best_scale(logits: Tensor, labels: Tensor) -> float:
    """What to multiply answers by for the lowest loss over some rows, every class counting the same."""
    given = logits.double()
    weights = 1.0 / torch.bincount(labels)[labels].double()

    def loss(power: float) -> float:
        return float((cross_entropy(given * math.exp(power), labels, reduction="none") * weights).sum() / weights.sum())

    return math.exp(minimize_scalar(loss, bounds=(-5.0, 8.0), method="bounded").x)


def reopened(run: RunFolder) -> Session:
    """A finished run as it was at its end."""
    config = run.config
    session = open_session(config, load_data(config), run.path, model=None, team=ALONE, events=Events())
    resume(session, load_checkpoint(run.path))
    return session


@torch.inference_mode()
def answers(session: Session, split: str) -> tuple[Tensor, Tensor]:
    """Logits and labels of all rows of a split."""
    _, logits, labels = pass_rows(session, *rows_of(session, list(session.stream)[-1], split))
    return logits.cpu(), labels.cpu()


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


def cells(frame: pl.DataFrame, method: str, rows: str, by: str, groups: str) -> dict[int, float]:
    """Accuracy by seed."""
    chosen = frame.filter(pl.col("groups").fill_null("") == groups, method=method, rows=rows, by=by)
    return dict(chosen.select("seed", "accuracy").iter_rows())


def methods_of(frame: pl.DataFrame) -> list[str]:
    """Those of the claim first."""
    there = frame["method"].unique(maintain_order=True).to_list()
    first = (*METHODS, *BESIDE)
    return sorted(there, key=lambda method: first.index(method) if method in first else len(first))


def mean(values: Mapping[int, float]) -> str:
    """The mean over seeds, "" of none."""
    return f"{np.mean([*values.values()]):.1f}" if values else ""


def by_memory(frame: pl.DataFrame) -> str:
    """One number for the newest task, fitted on the memory: accuracies, and paired differences over seeds."""
    lines = ["| | seeds | none | NKL | CTL | loss | accuracy | prior | oracle | new head | NKL less none | "
             "NKL less prior |", "|:--|--:|" + 10 * "--:|"]  # fmt: skip
    columns = [NONE, *FITTED.values(), PRIOR, ORACLE, HEAD]
    for method in methods_of(frame):
        found = {which: cells(frame, method, *which) for which in columns}
        if fitted := found[FITTED["nkl"]]:
            differences = [difference_text(paired(fitted, found[which])) for which in (NONE, PRIOR)]
            texts = [*(mean(found[which]) for which in columns), *differences]
            lines.append(f"| {method} | {len(fitted)} | {' | '.join(texts)} |")
    return "\n".join(lines) + "\n"


def by_few_rows(frame: pl.DataFrame) -> str:
    """The same from a few clean rows a class, with the standard deviation over the splits of a run."""
    lines = ["| | rows a class | none | NKL | CTL | loss | accuracy | NKL less accuracy |", "|:--|--:|" + 6 * "--:|"]
    for method in methods_of(frame):
        for k in FEW:
            found = {by: cells(frame, method, f"{k} a class", by, "newest" if by != "none" else "")
                     for by in ("none", *SIGNALS)}  # fmt: skip
            spreads = frame.filter(method=method, rows=f"{k} a class", groups="newest")
            noise = {by: np.mean(spreads.filter(by=by)["spread"].to_numpy()) for by in SIGNALS}
            texts = [mean(each) + (f" ± {noise[by]:.1f}" if by in noise else "") for by, each in found.items()]
            texts.append(difference_text(paired(found["nkl"], found["accuracy"])))
            lines.append(f"| {method if k == FEW[0] else ''} | {k} | {' | '.join(texts)} |")
    return "\n".join(lines) + "\n"


def gains(frame: pl.DataFrame, rows: str, by: str, over: str) -> dict[str, dict[int, float]]:
    """Of each method of the claim that was run: what a fit gains over none, the prior, or another fit, by seed."""
    reference = (over, "" if over == "none" else "newest")
    # beside a fit on the memory, references without rows are judged on all test rows, as it is
    at = "none" if rows == "memory" and over in ("none", "prior") else rows
    found = {}
    for method in METHODS:
        fitted = cells(frame, method, rows, by, "" if by == HEAD[1] else "newest")
        other = cells(frame, method, at, *reference)
        if both := {seed: fitted[seed] - other[seed] for seed in fitted if seed in other}:
            found[method] = both
    return found


def over_methods(each: Mapping[str, Mapping[int, float]]) -> Interval:
    """The mean over methods, seed by seed, with its interval over the seeds that all methods have."""
    seeds = set.intersection(*(set(values) for values in each.values())) if each else set()
    means = {seed: float(np.mean([values[seed] for values in each.values()])) for seed in sorted(seeds)}
    return paired(means, dict.fromkeys(means, 0.0))


def alone(values: Mapping[int, float], confidence: float = 0.95) -> Interval:
    """The interval of one method's gains."""
    return paired(values, dict.fromkeys(values, 0.0), confidence=confidence)


def never_worse(each: Mapping[str, Mapping[int, float]]) -> str:
    """Whether no method loses more than the margin.

    It holds if one-sided tests at 5 % rule out such a loss for every method. It does not if one method loses by an
    interval that is corrected for their number.
    """
    if len(each) < len(METHODS) or any(len(values) < FEWEST_SEEDS for values in each.values()):
        return "cannot tell"
    if all((low := alone(values, 0.9).low) is not None and low > -MARGIN for values in each.values()):
        return "holds"
    corrected = [alone(values, 1 - 0.05 / len(each)).high for values in each.values()]
    return "does not hold" if any(high is not None and high < 0 for high in corrected) else "cannot tell"


def better(each: Mapping[str, Mapping[int, float]]) -> str:
    """Whether the mean over methods is above zero."""
    return verdict_of(over_methods(each)) if len(each) == len(METHODS) else "cannot tell"


def claim(frame: pl.DataFrame) -> str:
    """A fit is never worse than none, and better than the prior over methods: for every signal and number of rows.

    The new head, as a control, is judged in the same way.
    """
    there = [method for method in METHODS if cells(frame, method, *FITTED["nkl"])]
    lines = ["| rows | by | seeds | less none, mean over methods | worst method | never worse | less prior, mean over "
             "methods | worst method | better than the prior | less the fit by accuracy |",
             "|:--|:--|--:|--:|:--|:--|--:|:--|:--|--:|"]  # fmt: skip
    intervals = []
    for rows in ("memory", *(f"{k} a class" for k in FEW)):
        for by in (*SIGNALS, HEAD[1]):  # a new head is fitted on the memory alone
            each = {over: gains(frame, rows, by, over) for over in ("none", "prior", "accuracy")}
            if not all(each.values()):
                continue
            together = {over: over_methods(of) for over, of in each.items() if by != over}
            worst = {over: min(of, key=lambda method: float(np.mean([*of[method].values()])))
                     for over, of in each.items()}  # fmt: skip
            lowest = {over: alone(each[over][worst[over]]) for over in ("none", "prior")}
            intervals += [*together.values(), *lowest.values()]
            verdicts = {"none": never_worse(each["none"]), "prior": better(each["prior"])}
            shown = [text for over in lowest for text in
                     (difference_text(together[over]), f"{worst[over]}: {difference_text(lowest[over])}",
                      verdicts[over])]  # fmt: skip
            shown.append(difference_text(together["accuracy"]) if "accuracy" in together else "")
            lines.append(f"| {rows} | {by} | {together['none'].n} | {' | '.join(shown)} |")
    missing = [method for method in METHODS if method not in there]
    about = (f"Over {', '.join(there)}" + (f"; not run: {', '.join(missing)}" if missing else "") + ". Paired by seed, "
             f"95 % t-intervals over seeds. Never worse: no method loses more than {MARGIN:g} points, by one-sided "
             "tests at 5 %.")  # fmt: skip
    return "\n".join([*lines, "", about, "", counted(intervals)]) + "\n"


#: What the figure shows: name, and colour.
SHOWN = {
    PRIOR: ("prior", TASKS[1]), **{FITTED[by]: (f"fitted by {by.upper() if len(by) == 3 else by}", signal_colour(by))
                                  for by in SIGNALS},
    HEAD: ("new head on the memory", LADDER["head"][0]), ORACLE: ("oracle", SOFT_COLOUR),
}  # fmt: skip
MARKS = {PRIOR: "s", HEAD: "^", ORACLE: "D"}


@styled
def figure(table: pl.DataFrame) -> Figure:
    """What each correction gains over none, method by method, with intervals; a row of panels for each data set."""
    data = table["data"].unique(maintain_order=True).to_list()
    made = new_figure("page", 2.6 * len(data) + 0.4)
    grid = made.subplots(len(data), 1, squeeze=False).ravel()
    for axes, name in zip(grid, data, strict=True):
        draw_gains(axes, table.filter(data=name))
        axes.set_title(name, loc="left")
    handles: dict[str, Any] = {}
    for axes in grid:
        handles |= {name: handle for handle, name in zip(*axes.get_legend_handles_labels(), strict=True)}
    made.legend([*handles.values()], [*handles], loc="outside lower center", ncols=4)
    return made


def draw_gains(axes: Axes, frame: pl.DataFrame) -> None:
    """One data set: the methods side by side."""
    there = [method for method in (*METHODS, *BESIDE) if cells(frame, method, *FITTED["nkl"])]
    axes.axhline(0, color=SOFT_COLOUR, linewidth=0.6, zorder=0)
    labels = []
    for place, method in enumerate(there):
        plain = cells(frame, method, *NONE)
        labels.append(f"{method}\n{np.mean([*plain.values()]):.1f} %, n = {len(plain)}")
        for number, (which, (_, colour)) in enumerate(SHOWN.items()):
            gain = paired(cells(frame, method, *which), plain)
            if gain.difference is None:
                continue
            x = place + 0.11 * (number - (len(SHOWN) - 1) / 2)
            if gain.low is not None and gain.high is not None:
                axes.plot((x, x), (gain.low, gain.high), color=colour, linewidth=1.2, solid_capstyle="butt")
            axes.plot(x, gain.difference, MARKS.get(which, "o"), color=colour, markersize=4,
                      markerfacecolor="white" if gain.low is None else colour)  # fmt: skip
    for which, (name, colour) in SHOWN.items():
        axes.plot([], [], MARKS.get(which, "o"), color=colour, markersize=4, label=name)
    if any(len(cells(frame, method, *NONE)) < FEWEST_SEEDS for method in there):
        axes.plot([], [], "o", color=SOFT_COLOUR, markerfacecolor="white", markersize=4,
                  label=f"open: fewer than {FEWEST_SEEDS} seeds, no interval")  # fmt: skip
    axes.set_xticks(range(len(there)), labels)
    axes.tick_params(axis="x", length=0)
    axes.set_ylabel("accuracy above no correction (points)")


def write_all(table: pl.DataFrame, out: Path) -> None:
    """Tables and figure."""
    for data in table["data"].unique(maintain_order=True):
        frame = table.filter(data=data)
        for name, text in (("", by_memory(frame)), ("few_", by_few_rows(frame)), ("claim_", claim(frame))):
            (out / f"corrections_{name}{data}.md").write_text(text)
    save_figure(figure(table), out / "corrections.png")


def main(stores: Sequence[str]) -> None:
    """Measure what is new, and write tables and figure."""
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
        rows += measure(run, variant)
        print(run.name, flush=True)
        pl.DataFrame(rows, infer_schema_length=None).select(COLUMNS).write_csv(path)
    if not rows:
        print("no run was measured yet: give the stores of finished runs of `wane sweep methods`")
        return
    write_all(pl.read_csv(path), HERE)


if __name__ == "__main__":
    main(sys.argv[1:])
