"""Where the accuracy of runs went: rungs by task, of old and of all tasks, over seeds; and what they say in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from wane.measures.ladder import Ladder, Part
from wane.runs.folder import RunFolder
from wane.runs.identity import Method, method_of
from wane.views.comparable_runs import distinct_titles, protocol
from wane.views.statistics import Interval, paired

__all__ = [
    "MEANS", "PARTS", "Bar", "Measured", "bars_of_methods", "bars_of_run", "joint_accuracy", "ladder_sentence",
    "ladder_sentences", "sentences_by_method", "with_ladders",
]  # fmt: skip

Array = NDArray[np.float64]

#: The parts of a bar from the bottom up, and what each is called. What the last brings back is still in the features.
PARTS: dict[Part, str] = {
    "now": "kept",
    "bias": "one number brings back",
    "head": "a new head brings back",
    "features": "only all training rows bring back",
}
#: What the means over tasks are called.
MEANS = ("old tasks", "all tasks")
#: Points that are not worth a word.
NOTHING = 0.05


@dataclass(frozen=True)
class Bar:
    """The rungs of one task, or the mean over some, in percent; None for what was not measured.

    Attributes:
        label: what it is of.
        levels: the accuracy that each part reaches, by part: means over seeds, with 95 % intervals where there are any.
        oracle: what the correction of the bias would reach, fitted on the test rows.
        joint: the accuracy of joint training.
        learnt: accuracy right after learning.
        seeds: how many runs it is the mean of.
    """

    label: str
    levels: dict[Part, Interval]
    oracle: float | None
    joint: float | None
    learnt: float | None
    seeds: int = 1


class Measured(NamedTuple):
    """One run: its ladder, and the accuracy of joint training by task if that is known."""

    run: RunFolder
    ladder: Ladder
    joint: Array | None


def with_ladders(runs: Sequence[RunFolder]) -> list[Measured]:
    """The runs that have a ladder, each beside the joint run of the same setting, of the same seed if there is one."""
    found = []
    for run in runs:
        ladder = run.ladder
        if ladder is not None and ladder.end >= 0:
            found.append(Measured(run, ladder, joint_accuracy(run, runs, ladder.end)))
    return found


def joint_accuracy(run: RunFolder, runs: Sequence[RunFolder], end: int) -> Array | None:
    """(T,) the accuracy of each task so far under joint training, from finished runs beside this one; None without.

    Those of other seeds stand in, as a mean, where the run's own seed has none.
    """
    alike = [
        other
        for other in runs
        if other.config.learner.name == "joint" and other.summary is not None and _alike(other, run)
    ]
    own = [other for other in alike if other.config.seed == run.config.seed]
    rows = [other.summary["accuracy_matrix"][end][: end + 1] for other in own or alike if other.summary is not None]
    values = np.array([[np.nan if x is None else x for x in row] for row in rows], dtype=np.float64)
    return values.mean(0) if len(values) else None


def _alike(joint: RunFolder, run: RunFolder) -> bool:
    """Whether two runs learn the same; joint training has no memory, so that of the other may be any."""

    def learnt(of: RunFolder) -> dict[str, str]:
        return {k: v for k, v in protocol(of.config).items() if not k.startswith(("memory.", "learner.replay_size"))}

    return learnt(joint) == learnt(run)


def bars_of_run(measured: Measured) -> list[Bar]:
    """A bar for each task, then for the mean of the old tasks, and of all."""
    run, ladder, _ = measured
    names = run.about.task_names
    tasks = range(ladder.end + 1)
    labels = [names[k] if k < len(names) else f"task {k + 1}" for k in tasks]
    bars = [_bar([measured], label, [k]) for k, label in zip(tasks, labels, strict=True)]
    if ladder.end > 0:
        bars += [_bar([measured], MEANS[0], [*tasks][:-1]), _bar([measured], MEANS[1], [*tasks])]
    return bars


def bars_of_methods(groups: Sequence[tuple[str, Sequence[Measured]]], which: str = "old") -> list[Bar]:
    """A bar for each method, over its seeds: of the mean over the old tasks, or over all.

    Args:
        groups: title and runs of each method; runs with a single task have no old ones, and are left out of those.
        which: old or all.
    """
    bars = []
    for title, runs in groups:
        there = [m for m in runs if which == "all" or m.ladder.end > 0]
        if there:
            last = min(m.ladder.end for m in there)
            bars.append(_bar(there, title, list(range(last + 1 if which == "all" else last))))
    return bars


def _bar(runs: Sequence[Measured], label: str, tasks: Sequence[int]) -> Bar:
    def mean(values: Array) -> float:
        return 100 * float(values[list(tasks)].mean())

    levels: dict[Part, Interval] = {}
    for part in PARTS:
        values = {}
        for i, (_, ladder, _) in enumerate(runs):
            rung = ladder.rung_of(part)
            if rung is not None and not np.isnan(value := mean(ladder.by_task(rung.name))):
                values[i] = value
        if len(values) == len(runs):
            levels[part] = paired(values, dict.fromkeys(values, 0.0))
    oracles = [mean(m.ladder.by_task("bias_oracle")) for m in runs if "bias_oracle" in m.ladder.rungs]
    joints = [mean(m.joint) for m in runs if m.joint is not None]
    learnt = [mean(m.ladder.learnt()) for m in runs]
    return Bar(label, levels, _mean(oracles), _mean(joints), _mean(learnt), len(runs))


def _mean(values: Sequence[float]) -> float | None:
    return None if not values or np.isnan(values).any() else float(np.mean(values))


def sentences_by_method(runs: Sequence[RunFolder]) -> list[str]:
    """For each method with ladders, but not for joint training itself, its sentences as one text; several are named."""
    methods: dict[Method, list[Measured]] = {}
    for measured in with_ladders(runs):
        if measured.run.config.learner.name != "joint":
            methods.setdefault(method_of(measured.run.config), []).append(measured)
    titles = distinct_titles(methods)
    return [f"{titles[m]}: {ladder_sentence(of)}" if len(methods) > 1 else ladder_sentence(of)
            for m, of in methods.items()]  # fmt: skip


def ladder_sentence(runs: Sequence[Measured]) -> str:
    """The sentences as one text."""
    return " ".join(ladder_sentences(runs))


def ladder_sentences(runs: Sequence[Measured]) -> list[str]:
    """What was lost; what one number and a new head bring back; what is gone: of the old tasks.

    Args:
        runs: of one method; with several, all numbers are means over them.
    """
    old = bars_of_methods([("", runs)], "old")
    if not old:
        return ["There is only one task so far, so nothing was lost yet."]
    bar, everything = old[0], bars_of_methods([("", runs)], "all")[0]
    now = _level(bar, "now")
    assert now is not None
    said = [_lost(bar, now)]
    if "bias" in bar.levels:
        said.append(_bias(runs[0], bar, everything, now))
    if "head" in bar.levels:
        reached = _level(bar, "head")
        before = _level(bar, "bias")
        assert reached is not None
        gain = reached - (now if before is None else before)
        more = f"{gain:.1f} points more" if gain > NOTHING else "nothing more" if gain > -NOTHING else None
        said.append(f"a new head on the memory brings {more}" if more else
                    f"a new head on the memory would be {-gain:.1f} points worse than that")  # fmt: skip
    brought = [f"{_first_up('; '.join(said[1:]))}."] if said[1:] else []
    return [f"{said[0]}.", *brought, _gone(bar)]


def _lost(bar: Bar, now: float) -> str:
    if bar.learnt is None or bar.learnt - now <= NOTHING:
        return f"Nothing was lost: old tasks stand at {now:.1f} %"
    return f"Accuracy on old tasks fell from {bar.learnt:.1f} %, right after each was learnt, to {now:.1f} %"


def _bias(first: Measured, bar: Bar, everything: Bar, now: float) -> str:
    rung = first.ladder.rung_of("bias")
    assert rung is not None
    where = {"bias_memory": "on the memory", "bias_holdout": "on held-out rows",
             "bias_oracle": "by an oracle on the test rows"}[rung.name]  # fmt: skip
    settings = first.run.config.record.ladder
    groups = "newest" if settings is None else settings.groups
    if first.run.config.data.stream == "domains":
        groups = "class"
    what = {"newest": "one number added to the newest task's logits", "task": "one number for each task's logits",
            "class": "one number for each class's logit"}[groups]  # fmt: skip
    gain = (_level(bar, "bias") or 0.0) - now
    change = f"brings back {gain:.1f} points" if gain > NOTHING else "brings back nothing"
    net = ""
    before, after = _level(everything, "now"), _level(everything, "bias")
    if before is not None and after is not None:
        net = f" (all tasks together: {before:.1f} to {after:.1f} %)"
    return f"{what}, fitted {where}, {change}{net}"


def _gone(bar: Bar) -> str:
    held = _level(bar, "features")
    if held is None:
        return "What the features still hold was not measured."
    start = f"The features still hold {held:.1f} %, for a head that sees all training rows"
    if bar.joint is None:
        return f"{start}; how much more is gone, a run of joint training would tell."
    gone = bar.joint - held
    if gone > NOTHING:
        return f"{start}; the {gone:.1f} points between that and joint training ({bar.joint:.1f} %) are gone."
    return f"{start}: no less than joint training ({bar.joint:.1f} %), so nothing is gone."


def _level(bar: Bar, part: Part) -> float | None:
    return bar.levels[part].difference if part in bar.levels else None


def _first_up(text: str) -> str:
    return text[:1].upper() + text[1:]
