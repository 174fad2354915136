"""What there is to say of one run: what was lost, what accuracy hid, which classes are at risk."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from wane.measures.history import History
from wane.measures.task_map import tasks_of
from wane.predictions.verdicts import EVIDENCE
from wane.runs.folder import RunFolder
from wane.softmax.signals import SIGNALS
from wane.views.compare.tables import percent
from wane.views.observations import group_kind, group_names

__all__ = [
    "Timeline", "hidden_decline", "near_zero", "old_classes", "three_sentences", "timeline",
]  # fmt: skip

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

#: A class that lost less accuracy than this held; one that lost more than `LOST` has lost.
HELD, LOST = 0.05, 0.10
#: The least mean decline of the six bounded signals that is worth a line.
DECLINE = 0.01


class Timeline(NamedTuple):
    """Everything that was measured on the test data of a run, classes in the order in which they were learnt."""

    step: Ints  # (S,) optimiser steps
    task: Ints  # (S,) the task that was being learnt
    classes: Ints  # (K,)
    class_task: Ints  # (K,)
    images: Ints  # (K,) of the last evaluation
    values: Array  # (signals, S, K), NaN where a class was not evaluated
    signals: tuple[str, ...]  # their names
    kind: str = "class"  # what a group is

    def of(self, signal: str) -> Array:
        """(S, K) of one signal."""
        values: Array = self.values[self.signals.index(signal)]
        return values

    @property
    def boundaries(self) -> Ints:
        """The first evaluation of each task but the first."""
        return np.flatnonzero(np.diff(self.task)) + 1

    def learnt(self) -> Ints:
        """(K,) the last evaluation of each class's own task: right after it was learnt.

        The first there is, if its task was over before anything was recorded.
        """
        return np.array([max(0, int((self.task <= task).sum()) - 1) for task in self.class_task])


def timeline(history: History, split: str = "test") -> Timeline | None:
    """The test evaluations of a history; None if there is none yet."""
    tested = [e for e in history.evaluations if e.split == split]
    if not tested:
        return None
    step, task, classes, _ = history.trajectory("accuracy", split=split)
    signals = tuple(dict.fromkeys((*SIGNALS, *filter(SIGNALS.knows, history.signals))))
    values = np.stack([history.trajectory(name, split=split).values for name in signals])
    known = history.class_to_task
    class_task = np.maximum(0, tasks_of(known, classes))  # a group that belongs to no task was there from the start
    images = np.zeros(int(classes.max()) + 1, np.int64)
    for e in tested:
        images[e.classes] = e.n
    order = np.lexsort((classes, class_task))
    images = images[classes[order]]
    return Timeline(
        step, task, classes[order], class_task[order], images, values[..., order], signals, group_kind(history)
    )


def old_classes(t: Timeline) -> NDArray[np.bool_]:
    """The classes whose task is over, and which had been evaluated when it ended."""
    after = t.of("accuracy")[t.learnt(), np.arange(len(t.classes))]
    past: NDArray[np.bool_] = (t.class_task < t.task[-1]) & np.isfinite(after) & np.isfinite(t.of("accuracy")[-1])
    return past


def hidden_decline(t: Timeline) -> list[dict[str, Any]]:
    """Old classes whose accuracy held since they were learnt, at more than 0 %, while the signals under it fell.

    The worst come first. A row has the class, `drift`, the mean change of the six bounded signals, and every signal
    before and now.
    """
    at, now = t.learnt(), t.values[:, -1]
    then = t.values[:, at, np.arange(len(t.classes))]
    six = [t.signals.index(name) for name in EVIDENCE]
    drift = (now - then)[six].mean(0)
    # A class that was never right, then or now, had no accuracy to hold.
    held = ((now - then)[0] >= -HELD - 1e-9) & ((then[0] > 0) | (now[0] > 0))
    rows = [
        {"class": int(t.classes[k]), "task": int(t.class_task[k]), "images": int(t.images[k]), "drift": float(drift[k]),
         **{name: (float(then[i, k]), float(now[i, k])) for i, name in enumerate(t.signals)}}
        for k in np.flatnonzero(old_classes(t) & held & (drift <= -DECLINE))
    ]  # fmt: skip
    return sorted(rows, key=lambda row: row["drift"])


def near_zero(t: Timeline, competitors: int) -> list[dict[str, Any]]:
    """Classes that are never right at the end, the nearest to coming back first (by the rank of their label).

    `rank` is the typical rank of the label (its geometric mean over the images) among `competitors` classes.
    """
    now = {name: t.of(name)[-1] for name in t.signals}
    rows = [
        {"class": int(t.classes[k]), "task": int(t.class_task[k]), "images": int(t.images[k]),
         "rank": float(competitors ** (1 - now["log_tlr"][k])), **{name: float(now[name][k]) for name in now}}
        for k in np.flatnonzero(now["accuracy"] == 0)
    ]  # fmt: skip
    return sorted(rows, key=lambda row: row["rank"])


def three_sentences(
    run: RunFolder, t: Timeline, rows: dict[str, list[dict[str, Any]]], levels: pl.DataFrame, no_risk: str = ""
) -> list[str]:
    """What was lost, what accuracy hid, which classes are at risk at the next task.

    Args:
        run: for the names of its classes.
        t: its evaluations.
        rows: `decline`, `near` and `risk`, as the functions above give them.
        levels: the numbers of `conditional`: level, signal, n, q1, median, q3, min, max.
        no_risk: why `risk` is empty, where it is.
    """
    names = group_names(run)
    finished = run.summary is not None and run.own is None  # of someone's own loop that is not known
    return [_lost(t, names), _hid(t, names, rows, levels), _risk(rows["risk"], names, no_risk, finished=finished)]


def _lost(t: Timeline, names: tuple[str, ...]) -> str:
    accuracy, old = t.of("accuracy"), old_classes(t)
    if not old.any():
        mean = float(np.nanmean(accuracy[-1]))
        over = _counted(len(t.classes), t.kind)
        return f"There is only one task so far, so nothing was lost yet: accuracy is {percent(mean)}, mean over {over}."
    then, now = accuracy[t.learnt(), np.arange(len(t.classes))][old], accuracy[-1][old]
    lost = then - now
    worst = int(lost.argmax())
    start = (
        f"Accuracy on the {_counted(int(old.sum()), t.kind)} of earlier tasks went from {percent(float(then.mean()))}, "
        f"right after each was learnt, to {percent(float(now.mean()))} (mean over {_several(t.kind)}"
        f"{_by_samples(t, old)})"
    )
    count = int((lost > LOST + 1e-9).sum())
    if not count:
        return f"{start}; none lost more than {100 * LOST:.0f} points."
    who = _name(int(t.classes[old][worst]), names)
    return (f"{start}: {count} lost more than {100 * LOST:.0f} points, most of all {who} "
            f"({percent(float(then[worst]))} to {percent(float(now[worst]))}).")  # fmt: skip


def _by_samples(t: Timeline, old: NDArray[np.bool_]) -> str:
    """The same as a mean over the samples of each task and then over tasks, as the summaries are, where it differs."""
    if len({*t.images[old].tolist()}) < 2 and len({int((t.class_task[old] == k).sum()) for k in t.class_task[old]}) < 2:
        return ""  # classes and tasks of equal size: the two means are one
    accuracy, tasks = t.of("accuracy"), np.unique(t.class_task[old])
    then, now = accuracy[t.learnt(), np.arange(len(t.classes))], accuracy[-1]
    means, of_classes = [], [percent(float(values[old].mean())) for values in (then, now)]
    for values in (then, now):
        of_tasks = [np.average(values[chosen], weights=t.images[chosen])
                    for task in tasks if (chosen := old & (t.class_task == task)).any()]  # fmt: skip
        means.append(percent(float(np.mean(of_tasks))))
    if means == of_classes:
        return ""
    return f"; mean over the samples of each task, as in the summary: {means[0]} to {means[1]}"


def _hid(t: Timeline, names: tuple[str, ...], rows: dict[str, list[dict[str, Any]]], levels: pl.DataFrame) -> str:
    # without log_tlr nothing is known of ranks
    near, decline = [row for row in rows["near"] if np.isfinite(row["rank"])], rows["decline"]
    said = []
    if len(near) > 1:
        first, last = near[0], near[-1]
        said.append(
            f"{_counted(len(near), t.kind)} stand at 0 %, but not alike: the label of "
            f"{_name(first['class'], names)} is "
            f"typically ranked {_rank(first['rank'])}, that of {_name(last['class'], names)} {_rank(last['rank'])}"
        )
    elif near:
        one = near[0]
        said.append(f"{_name(one['class'], names)} stands at 0 %, with its label typically ranked {_rank(one['rank'])}")
    if decline:
        who = _listed([row["class"] for row in decline], names)
        said.append(f"{_counted(len(decline), t.kind)} kept their accuracy while the signals under it fell ({who})"
                    if len(decline) > 1 else f"{who} kept its accuracy while the signals under it fell")  # fmt: skip
    at = levels.filter(pl.col("signal") == "cm", pl.col("n") > 1).sort("n", descending=True)
    if len(said) < 2 and len(at):
        row = at.row(0, named=True)
        said.append(f"at {100 * row['level']:.0f} % accuracy, the confusion margin of a {t.kind} is anything from "
                    f"{row['min']:.2f} to {row['max']:.2f}")  # fmt: skip
    if levels.is_empty():
        return "Accuracy alone was recorded: what it hides is not known."
    if not said:
        return "There are too few evaluations to say what accuracy hides."
    return f"Accuracy hid this: {'; '.join(said)}."


def _risk(risk: list[dict[str, Any]], names: tuple[str, ...], none: str, *, finished: bool) -> str:
    if not risk:
        return none
    who = _listed([row["class"] for row in risk], names)
    when = "Had another task followed, it would" if finished else "The next task will"
    they = "it has" if len(risk) == 1 else "they have"
    return f"{when} likely cost {who} most: of the latest task {they} the least probability on their label."


def _name(index: int, names: tuple[str, ...]) -> str:
    """In quotes: a class may be called "a" or "3"."""
    return f"“{names[index] if index < len(names) else index}”"


def _listed(classes: list[int], names: tuple[str, ...], most: int = 4) -> str:
    shown = ", ".join(_name(c, names) for c in classes[:most])
    return shown + (f" and {len(classes) - most} more" if len(classes) > most else "")


def _rank(rank: float) -> str:
    """A mean rank in words.

    >>> _rank(1.2), _rank(2.4), _rank(11.0), _rank(22.6)
    ('1st', '2nd', '11th', '23rd')
    """
    whole = max(1, round(rank))
    ending = "th" if whole % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(whole % 10, "th")
    return f"{whole}{ending}"


def _counted(count: int, kind: str) -> str:
    return f"{count} {kind if count == 1 else _several(kind)}"


def _several(kind: str) -> str:
    """The plural of what a group is.

    >>> _several("class"), _several("domain"), _several("class of a domain")
    ('classes', 'domains', 'classes of a domain')
    """
    word, of, rest = kind.partition(" ")
    return f"{word}{'es' if word.endswith('s') else 's'}{of}{rest}"
