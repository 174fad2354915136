"""The numbers of docs/at-risk.md and docs/power.md, from the runs kept here: `python results/evidence.py`.

`at_risk.md` judges the list of classes at risk on histories (results/runs) and samples (results/samples); `power_*.csv`
and `power_*.png` are `wane figure power` on the samples; `plan.csv`, in the package, is the built-in plan of `wane
compare --plan`. The rule of the list was chosen on CIFAR-100, seeds 0 to 2; all else was looked at afterwards. Takes
some minutes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import combinations
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.stats import binom, multinomial

from wane.predictions.comparison import compare
from wane.predictions.paired_tests import answers_p, paired_interval
from wane.predictions.plan import plan_from
from wane.predictions.samples import Samples
from wane.runs.folder import RunFolder, find_runs
from wane.softmax.registry import SIGNALS
from wane.views.figures import save_figure
from wane.views.figures.power import draw_power
from wane.views.power import paired_changes, paired_ends, power_table

HERE = Path(__file__).parent
Array = NDArray[np.float64]
#: (repeats, seeds, tasks, classes): accuracy before and after the next task, and what the classes are ranked by.
Cube = dict[str, Array]
OUTCOMES: dict[str, Callable[[Array, Array], NDArray[np.bool_]]] = {
    "lost half": lambda before, after: after <= before / 2 + 1e-9,
    "lowest quarter": lambda _, after: after <= np.sort(after, -1)[..., after.shape[-1] // 4 - 1, None] + 1e-9,
}


def boundaries(run: RunFolder) -> Iterator[tuple[dict[str, Array], Array]]:
    """For each task but the last: the rows (classes, n) of its own classes at its end, and the answers after the next.

    From samples if there are any; else one row a class, its mean.
    """
    if run.samples is not None:
        frame = run.samples.filter(pl.col("split") == "test")
    else:
        last = run.history.frame.filter(pl.col("split") == "test")
        frame = last.filter(pl.col("step") == pl.col("step").max().over("task")).with_columns(sample=pl.col("class"))
    first = frame.group_by("class").agg(pl.col("task").min().alias("own"))
    frame = frame.join(first, on="class").sort("class", "sample")
    for task in range(frame["task"].max()):
        now, then = (frame.filter(pl.col("own") == task, pl.col("task") == t) for t in (task, task + 1))
        size = now["class"].n_unique()
        rows = {
            name: SIGNALS[name].sign * now[name].to_numpy().reshape(size, -1) for name in ("accuracy", "ctl", "nkl")
        }
        yield rows, then["accuracy"].to_numpy().reshape(size, -1)


def cube(runs: list[RunFolder], *, halves: bool, repeats: int = 20) -> Cube:
    """What each class is ranked by, and what became of it; with halves, judged on other rows than it was ranked on."""
    rng = np.random.default_rng(0)
    found: dict[str, list[list[list[Array]]]] = {}
    for _ in range(repeats):
        table: dict[str, list[list[Array]]] = {}
        for run in runs:
            line: dict[str, list[Array]] = {}
            for rows, after in boundaries(run):
                n = after.shape[1]
                order = rng.permutation(n)
                judged, seen = (order[: n // 2], order[n // 2 :]) if halves else (order, order)
                line.setdefault("before", []).append(rows["accuracy"][:, judged].mean(1))
                line.setdefault("after", []).append(after[:, judged].mean(1))
                for name, values in rows.items():
                    jitter = 1e-9 * rng.standard_normal(len(values))  # ties by lot
                    line.setdefault(name, []).append(values[:, seen].mean(1) + jitter)
                    if halves:
                        fewer = values[:, seen[: len(seen) // 2]].mean(1) + jitter
                        line.setdefault(f"{name}, half the rows", []).append(fewer)
            for name, values in line.items():
                table.setdefault(name, []).append(values)
        for name, values in table.items():
            found.setdefault(name, []).append(values)
    return {name: np.array(values) for name, values in found.items()}


def measures(values: Cube, outcome: str) -> dict[str, float]:
    """Precision and recall at 3, 5 and 10 of the classes listed, and the area under the ROC curve, of each ranking."""
    lost = OUTCOMES[outcome](values["before"], values["after"])
    found = {"chance": float(lost.mean())}
    for name in values.keys() - {"before", "after"}:
        order = np.argsort(values[name], -1, kind="stable")
        hit = np.take_along_axis(lost, order, -1)
        for count in (3, 5, 10):
            found[f"{name} precision {count}"] = float(hit[..., :count].mean())
            found[f"{name} recall {count}"] = float(hit[..., :count].sum() / max(1, lost.sum()))
        below = values[name][..., :, None] < values[name][..., None, :]
        pairs = lost[..., :, None] & ~lost[..., None, :]
        with np.errstate(invalid="ignore"):
            found[f"{name} auc"] = float(np.nanmean((below & pairs).sum((-1, -2)) / pairs.sum((-1, -2))))
    return found


def with_errors(values: Cube, outcome: str, draws: int = 200) -> tuple[dict[str, float], dict[str, float]]:
    """The measures, and the standard error of each one's difference to accuracy's: seeds and classes drawn anew."""
    rng = np.random.default_rng(1)
    _, seeds, tasks, classes = values["before"].shape
    found = measures(values, outcome)
    drawn: dict[str, list[float]] = {}
    few = {name: cells[:4] for name, cells in values.items()}  # repeats add little to the spread over classes
    for _ in range(draws):
        who = rng.integers(seeds, size=seeds)
        which = rng.integers(classes, size=(tasks, classes))
        again = {name: np.take_along_axis(cells[:, who], which[None, None], -1) for name, cells in few.items()}
        for name, value in measures(again, outcome).items():
            drawn.setdefault(name, []).append(value)
    errors = {name: float(np.nanstd(np.array(each) - drawn.get(_rival(name), np.zeros(draws)), ddof=1))
              for name, each in drawn.items()}  # fmt: skip
    return found, errors


def _rival(name: str) -> str:
    """The measure of accuracy on all rows that it is compared with."""
    for signal in ("ctl", "nkl", "accuracy"):
        if name.startswith(signal):
            return "accuracy" + name.removeprefix(signal).removeprefix(", half the rows")
    return ""


def at_risk() -> str:
    """Two tables: the list beside accuracy's and chance, and the same with other rows to judge by."""
    kept = [run for run in find_runs(HERE / "runs") if run.has("history.parquet")]
    samples = find_runs(HERE / "samples")
    chosen = [("made on", "CIFAR-100, seeds 0–2", _of(kept, "cifar100", 0.1)),
              ("judged on", "CIFAR-100, seeds 3–5", _of(samples, "cifar100")),
              ("judged on", "the same, constant learning rate, seeds 0–2", _of(kept, "cifar100", 1.0)),
              ("judged on", "Tiny-ImageNet, seeds 0–2", _of(kept, "tiny_imagenet")),
              ("judged on", "Tiny-ImageNet, seeds 3–5", _of(samples, "tiny_imagenet"))]  # fmt: skip
    lines = []
    for outcome in OUTCOMES:
        lines += [f"\n**{outcome}**\n", "| | runs | chance | listed | precision: CTL | accuracy | difference | "
                  "recall: CTL | accuracy | area: CTL | accuracy | difference |",
                  "|:--|:--|" + 10 * "--:|"]  # fmt: skip
        for how, title, runs in chosen:
            found, errors = with_errors(cube(runs, halves=False), outcome)
            for count in (3, 5, 10):
                p, r, a = f"precision {count}", f"recall {count}", "auc"
                area = [
                    f"{found['ctl auc']:.2f}",
                    f"{found['accuracy auc']:.2f}",
                    _difference(found, errors, "ctl auc", 1),
                ]
                cells = [f"{100 * found['chance']:.0f}", str(count), f"{100 * found[f'ctl {p}']:.0f}",
                         f"{100 * found[f'accuracy {p}']:.0f}", _difference(found, errors, f"ctl {p}", 100),
                         f"{100 * found[f'ctl {r}']:.0f}", f"{100 * found[f'accuracy {r}']:.0f}",
                         *(area if count == 3 else ["", "", ""])]  # fmt: skip
                lines.append(f"| {how if count == 3 else ''} | {title if count == 3 else ''} | {' | '.join(cells)} |")
    lines += ["\n**Other rows to judge by than to rank by** (half of the test rows each)\n",
              "| outcome | runs | ranked by | rows | area | less accuracy's | precision at 5 | less accuracy's |",
              "|:--|:--|:--|--:|--:|--:|--:|--:|"]  # fmt: skip
    for outcome in OUTCOMES:
        for data, n, title in (
            ("cifar100", 50, "CIFAR-100, seeds 3–5"),
            ("tiny_imagenet", 25, "Tiny-ImageNet, seeds 3–5"),
        ):
            found, errors = with_errors(cube(_of(samples, data), halves=True), outcome)
            for name, rows in (
                ("accuracy", n),
                ("accuracy, half the rows", n // 2),
                ("ctl", n),
                ("ctl, half the rows", n // 2),
            ):
                a, p = f"{name} auc", f"{name} precision 5"
                differ = (
                    ["", ""]
                    if name == "accuracy"
                    else [_difference(found, errors, a, 1), _difference(found, errors, p, 100)]
                )
                what = f"| {outcome} | {title} | {name.partition(',')[0]} | {rows} "
                lines.append(f"{what}| {found[a]:.3f} | {differ[0]} | {100 * found[p]:.1f} | {differ[1]} |")
    return "\n".join(lines).lstrip() + "\n"


def older() -> str:
    """The area under the ROC curve for classes of earlier tasks: who of them loses half of what is left?"""
    lines = ["\n**Classes of earlier tasks** (lost half, of what they had before the next task)\n",
             "| runs | area: CTL | accuracy |", "|:--|--:|--:|"]  # fmt: skip
    kept = [run for run in find_runs(HERE / "runs") if run.has("history.parquet")]
    for data, title in (("cifar100", "CIFAR-100, seeds 0–2"), ("tiny_imagenet", "Tiny-ImageNet, seeds 0–2")):
        areas: dict[str, list[float]] = {"ctl": [], "accuracy": []}
        for run in _of(kept, data, 0.1):
            ends = {e.task: e for e in run.history.evaluations if e.split == "test"}
            task_of = run.history.class_to_task
            for task in range(1, max(ends)):
                now, then = ends[task], ends[task + 1]
                old = task_of[now.classes] < task
                before = run.history.column(now, "accuracy")[old]
                after = run.history.column(then, "accuracy")[np.isin(then.classes, now.classes[old])]
                lost = (after <= before / 2 + 1e-9) & (before > 0)
                for name, found in areas.items():
                    values = run.history.column(now, name)[old]
                    pairs = np.subtract.outer(values[lost], values[~lost])
                    found += [float(((pairs < 0) + 0.5 * (pairs == 0)).mean())] if pairs.size else []
        lines.append(f"| {title} | {np.mean(areas['ctl']):.2f} | {np.mean(areas['accuracy']):.2f} |")
    return "\n".join(lines) + "\n"


def false_alarms() -> str:
    """How often tests and intervals are wrong: on rows where nothing changed, on two seeds, and of McNemar's tests."""
    samples = find_runs(HERE / "samples")
    datasets = {"CIFAR-100": "cifar100", "Tiny-ImageNet": "tiny_imagenet"}
    nothing = [pl.read_csv(HERE / f"power_{data}.csv").filter(pl.col("rows") >= 5) for data in datasets.values()]
    lines = [f"| false alarms | {' | '.join(datasets)} |", "|:--|--:|--:|"]
    for kind, title in (
        ("flipped", "rows turned round by lot"),
        ("halves", "rows of a class against other rows of it"),
    ):
        means = [100 * float(table.filter(pl.col("kind") == kind)["found"].mean()) for table in nothing]
        lines.append(f"| {title}: all tests at 5 %, 5 to 100 rows | {means[0]:.1f} % | {means[1]:.1f} % |")
    counts = [_seeds(_of(samples, data)) for data in datasets.values()]
    lines.append(f"| `wane compare`, classes that two seeds get right equally often: any verdict but steady | "
                 f"{' | '.join(f'{alarms} of {equal}' for alarms, equal in counts)} |")  # fmt: skip
    lines += ["", "| intervals that miss, 95 % | 5 rows | 10 rows | 20 rows | 50 rows |", "|:--|--:|--:|--:|--:|"]
    pairs = paired_changes(_of(samples, "cifar100"))
    for name, answers in (("accuracy", False), ("accuracy", True), ("ctl", False), ("nkl", False), ("log_tlr", False)):
        misses = [_misses([pair[name] for pair in pairs], k, answers=answers) for k in (5, 10, 20, 50)]
        how = "Bonett and Price" if answers else "t"
        lines.append(f"| {SIGNALS[name].title} ({how}) | {' | '.join(f'{100 * miss:.1f} %' for miss in misses)} |")
    lines += [
        "",
        "| McNemar's test at 2.5 %, one-sided | finds, 20 rows | 50 rows | wrong at most, 20 rows | 50 rows |",
    ]
    lines += ["|:--|--:|--:|--:|--:|"]
    for title, p_value in MCNEMAR.items():
        powers = [_mcnemar(p_value, n, lost=0.225, gained=0.075) for n in (20, 50)]
        worst = [max(_mcnemar(p_value, n, x / 2, x / 2) for x in np.linspace(0.05, 1, 39)) for n in (20, 50)]
        lines.append(f"| {title} | {' | '.join(f'{100 * value:.1f} %' for value in (*powers, *worst))} |")
    return "\n".join(lines) + "\n"


def _exact_tail(lost: int, gained: int, _: int, *, mid: float = 0.0) -> float:
    return float(binom.cdf(gained, lost + gained, 0.5) - mid * binom.pmf(gained, lost + gained, 0.5))


MCNEMAR: dict[str, Callable[[int, int, int], float]] = {
    "unconditional, exact (wane)": answers_p,
    "conditional, exact": _exact_tail,
    "conditional, mid-p": partial(_exact_tail, mid=0.5),
}


def _mcnemar(p_value: Callable[[int, int, int], float], n: int, lost: float, gained: float) -> float:
    """The chance that a test finds a fall, counted over all tables of n rows."""
    tables = [(a, b) for a in range(n + 1) for b in range(n + 1 - a) if p_value(a, b, n) <= 0.025]
    counts = np.array([(a, b, n - a - b) for a, b in tables])
    return float(multinomial.pmf(counts, n, [lost, gained, max(0.0, 1 - lost - gained)]).sum())


def _misses(pairs: list[Array], k: int, *, answers: bool) -> float:
    """The share of intervals from k rows that leave out the mean change of all of them."""
    rng = np.random.default_rng(0)
    missed = []
    for change in pairs:
        drawn = change[rng.integers(len(change), size=(4, k))]
        error = drawn.std(1, ddof=1) / np.sqrt(k)
        low, high = paired_interval(drawn.mean(1), error, np.full(4, k), alpha=0.05, answers=answers)
        missed.append((low > change.mean() + 1e-9) | (high < change.mean() - 1e-9))
    return float(np.mean(missed))


def _seeds(runs: list[RunFolder]) -> tuple[int, int]:
    """Of the classes that two runs get right equally often at the end, how many `compare` does not call steady."""
    alarms = equal = 0
    for pair in combinations(runs, 2):
        both = []
        for run in pair:
            last = run.samples.filter(pl.col("task") == run.samples["task"].max()).sort("class", "sample")
            values = {name: last[name].to_numpy().astype(np.float64) for name in (*SIGNALS, "rank")}
            both.append(Samples(last["class"].to_numpy(), values, int(last["class"].max()) + 1))
        same = compare(*both).groups.filter(pl.col("accuracy_change").abs() < 0.0101)
        alarms, equal = alarms + int((same["verdict"] != "steady").sum()), equal + len(same)
    return alarms, equal


def _difference(found: dict[str, float], errors: dict[str, float], name: str, unit: float) -> str:
    middle, half = unit * (found[name] - found[_rival(name)]), unit * 1.96 * errors[name]
    shape = "+.0f" if unit > 1 else "+.2f"
    return f"{middle:{shape}} [{middle - half:{shape}}, {middle + half:{shape}}]".replace("-", "−")


def _of(runs: list[RunFolder], data: str, decay: float | None = None) -> list[RunFolder]:
    er = [run for run in runs if run.data == data and run.config.learner.name == "er"]
    return [run for run in er if decay is None or run.config.learner.decay == decay]


def main() -> None:
    """Write everything."""
    (HERE / "at_risk.md").write_text(at_risk() + older())
    samples = find_runs(HERE / "samples")
    plan = plan_from(paired_ends(samples), "", draws=600).table
    plan.write_csv(HERE.parent / "src/wane/predictions/plan.csv")
    for data in ("cifar100", "tiny_imagenet"):
        table = power_table(_of(samples, data), draws=400)
        table.with_columns(pl.col(pl.Float64).round(4)).write_csv(HERE / f"power_{data}.csv")
        save_figure(draw_power(table), HERE / f"power_{data}.png")
    (HERE / "false_alarms.md").write_text(false_alarms())


if __name__ == "__main__":
    main()
