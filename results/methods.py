"""The tables of docs/methods.md: `python results/methods.py [STORE...]`.

With stores of finished runs of `wane sweep methods`, `methods_tuning`, `methods_interventions` and `rounding` (small
scale), their figures are added to `methods.csv`, a row for each run and measure. From that file, and from what
`python -m benchmarks.bench_methods` measured (`methods_steps.csv`), the tables are written.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from wane.runs.folder import RunFolder, find_runs
from wane.sweeps.plan import expand
from wane.views.statistics import FEWEST_SEEDS, difference_text, mean_std, paired

HERE = Path(__file__).parent
RECIPES = ("methods", "methods_tuning", "methods_interventions", "rounding")
#: Six where conclusions rest on them.
SEEDS = {"methods": {"seed": [*range(6)]}}
DATA = ("cifar100", "tiny_imagenet")
MEASURES = ("accuracy", "forgetting", "retention", "plasticity")
RUNGS = {"accuracy": "now", "bias_memory": "one number, memory", "bias_oracle": "one number, oracle",
         "head_memory": "new head, memory", "head_all": "head on all rows"}  # fmt: skip


def figures(run: RunFolder, recipe: str, variant: str) -> Iterator[dict[str, str | int | float | None]]:
    """What a run's summary says, in percent, and in bytes what its method keeps."""
    summary = run.summary
    assert summary is not None
    base = {"recipe": recipe, "data": run.data, "method": variant, "learner": run.config.learner.name, "seed": run.seed}
    found: dict[str, float | None] = {}
    for prefix, part in (("", summary.get("metrics")), ("task_", summary["task_incremental"])):
        for name in (*MEASURES, *(RUNGS if prefix == "" else ())):
            value = (part or {}).get("accuracy", {}).get("average" if name == "accuracy" else name)
            found[prefix + name] = None if value is None else round(100 * value, 4)
    for prefix, split in (("", "holdout"), ("task_", "holdout_task")):
        if any(e.split == split for e in run.history.evaluations):
            found[f"{prefix}holdout"] = round(100 * float(run.history.matrix("accuracy", split=split)[-1].mean()), 4)
    found["kept"] = sum(summary["kept"].values())
    yield from ({**base, "measure": name, "value": value} for name, value in found.items() if value is not None)


def collect(stores: list[str], known: pl.DataFrame | None) -> pl.DataFrame:
    """The figures of all finished runs, those of earlier calls included."""
    rows = {} if known is None else {(*row.values(),)[:-1]: row for row in known.to_dicts()}
    found = {run.name: run for run in find_runs(*stores) if run.summary is not None}
    order: list[tuple[str, str, str]] = []
    for recipe in RECIPES:
        for data in DATA:
            for planned in expand(recipe, scale="small", settings=({"data": {"name": data}},), over=SEEDS.get(recipe)):
                order.append((recipe, data, planned.variant))
                if (run := found.get(planned.name)) is not None:
                    rows |= {(*row.values(),)[:-1]: row for row in figures(run, recipe, planned.variant)}
    place = {key: i for i, key in reversed([*enumerate(order)])}
    in_order = sorted(rows.values(), key=lambda row: place[row["recipe"], row["data"], row["method"]])
    return pl.DataFrame(in_order, infer_schema_length=None)


def by_seed(frame: pl.DataFrame, method: str, measure: str) -> dict[int, float]:
    """A measure of a method by seed."""
    return dict(frame.filter(method=method, measure=measure).select("seed", "value").iter_rows())


def shown(values: dict[int, float], *, with_std: bool = False) -> str:
    """Mean, and the standard deviation over seeds."""
    mean, std = mean_std(values.values())
    if mean is None:
        return ""
    return f"{mean:.1f}".replace("-", "−") + (f" ± {std:.1f}" if with_std and std is not None else "")


def class_incremental(frame: pl.DataFrame, steps: dict[str, float]) -> str:
    """Without being told the task; what each method keeps, and what a step of it costs."""
    lines = [f"| | seeds | {' | '.join(MEASURES)} | kept, kB | step / passes |", "|:--|--:|" + 6 * "--:|"]
    for method, learner in frame.select("method", "learner").unique(maintain_order=True).iter_rows():
        kept = by_seed(frame, method, "kept")
        step = "" if learner not in steps else f"{steps[learner]:.2f}"
        lines.append(
            f"| {method} | {len(kept)} | {measured(frame, method)} | {max(kept.values()) / 1000:,.0f} | {step} |"
        )
    return "\n".join(lines) + "\n"


def task_incremental(frame: pl.DataFrame) -> str:
    """Each row among the classes of its own task."""
    lines = [f"| | seeds | {' | '.join(MEASURES)} |", "|:--|--:|" + 4 * "--:|"]
    for method in frame["method"].unique(maintain_order=True):
        seeds = len(by_seed(frame, method, "task_accuracy"))
        lines.append(f"| {method} | {seeds} | {measured(frame, method, 'task_')} |")
    return "\n".join(lines) + "\n"


def measured(frame: pl.DataFrame, method: str, prefix: str = "") -> str:
    """The cells of a method's measures."""
    return " | ".join(shown(by_seed(frame, method, prefix + n), with_std=n == "accuracy") for n in MEASURES)


def tuning(frame: pl.DataFrame) -> str:
    """Final accuracy on the images set aside, of every point of the grids."""
    lines = ["| | class-incremental | task-incremental |", "|:--|--:|--:|"]
    for method in frame["method"].unique(maintain_order=True):
        cells = [shown(by_seed(frame, method, name)) for name in ("holdout", "task_holdout")]
        lines.append(f"| {method} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def ladders(frame: pl.DataFrame) -> str:
    """What a constant and a new head would bring back."""
    lines = [f"| | {' | '.join(RUNGS.values())} |", "|:--|" + len(RUNGS) * "--:|"]
    for method in frame["method"].unique(maintain_order=True):
        cells = [shown(by_seed(frame, method, name)) for name in RUNGS]
        if cells[-1]:
            lines.append(f"| {method} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def interventions(frame: pl.DataFrame) -> str:
    """Each intervention on a method less the method itself, paired by seed, with 95 % intervals."""
    lines = [f"| | seeds | {' | '.join(MEASURES)} |", "|:--|--:|" + len(MEASURES) * "--:|"]
    for method in frame["method"].unique(maintain_order=True):
        base, _, change = method.partition(", ")
        if not change:
            cells = [shown(by_seed(frame, method, name), with_std=True) for name in MEASURES]
        else:
            cells = [difference_text(paired(by_seed(frame, method, m), by_seed(frame, base, m))) for m in MEASURES]
        lines.append(f"| {method} | {len(by_seed(frame, method, 'kept'))} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def rounding(known: pl.DataFrame) -> str:
    """How far results spread by rounding alone, beside how far they spread over seeds: ER, and a sentence for each."""
    lines = ["| | measure | over seeds | over roundings | ratio |", "|:--|:--|--:|--:|--:|"]
    said = []
    for data in DATA:
        for measure in MEASURES[:2]:
            seeds = by_seed(known.filter(recipe="methods", data=data), "ER", measure)
            perturbed = known.filter(recipe="rounding", data=data, measure=measure)["value"].to_list()
            found = spread_ratio(perturbed, [*seeds.values()])
            if found is None:
                continue
            (by_rounding, by_seeds), (ratio, low, high) = found
            lines.append(f"| {data} | {measure} | {by_seeds:.2f}, n = {len(seeds)} | {by_rounding:.2f}, "
                         f"n = {len(perturbed)} | {ratio:.2f} [{low:.2f}, {high:.2f}] |")  # fmt: skip
            said.append(f"On {data}, rounding alone spreads final {measure} by {by_rounding:.2f} points (standard "
                        f"deviation of {len(perturbed)} runs of one seed), {ratio:.1f} [{low:.1f}, {high:.1f}] times "
                        f"what seeds do ({by_seeds:.2f}, n = {len(seeds)}); a difference of two runs carries it twice, "
                        f"{by_rounding * 2**0.5:.2f}.")  # fmt: skip
    return "\n".join([*lines, "", *said]) + "\n" if said else ""


def spread_ratio(
    values: Sequence[float], others: Sequence[float]
) -> tuple[tuple[float, float], tuple[float, float, float]] | None:
    """Two standard deviations, and their ratio with the 95 % interval of the F distribution; None with too few values.

    >>> spread_ratio([0.0, 1.0, 2.0], [0.0, 2.0, 4.0])
    ((1.0, 2.0), (0.5, 0.080..., 3.122...))
    """
    from scipy.stats import f

    n, m = len(values), len(others)
    if min(n, m) < FEWEST_SEEDS:
        return None
    one, other = (float(np.std(each, ddof=1)) for each in (values, others))
    if not other:
        return None
    low, high = (float(f.ppf(p, n - 1, m - 1)) ** 0.5 for p in (0.025, 0.975))
    return (one, other), (one / other, one / other / high, one / other / low)


def main(stores: list[str]) -> None:
    """Collect, and write everything."""
    path, timed = HERE / "methods.csv", HERE / "methods_steps.csv"
    known = pl.read_csv(path) if path.exists() else None
    if stores:
        known = collect(stores, known)
        known.write_csv(path)
    assert known is not None, "give the stores of finished runs"
    steps = dict(pl.read_csv(timed).select("method", "ratio").iter_rows()) if timed.exists() else {}
    for data in DATA:
        of = {recipe: known.filter(recipe=recipe, data=data) for recipe in RECIPES}
        if len(of["methods"]):
            (HERE / f"methods_{data}.md").write_text(class_incremental(of["methods"], steps))
            (HERE / f"methods_task_{data}.md").write_text(task_incremental(of["methods"]))
            (HERE / f"methods_ladder_{data}.md").write_text(ladders(of["methods"]))
        if len(of["methods_tuning"]):
            (HERE / "methods_tuning.md").write_text(tuning(of["methods_tuning"]))
        if len(of["methods_interventions"]):
            (HERE / f"methods_interventions_{data}.md").write_text(interventions(of["methods_interventions"]))
    if text := rounding(known):
        (HERE / "rounding.md").write_text(text)


if __name__ == "__main__":
    main(sys.argv[1:])
