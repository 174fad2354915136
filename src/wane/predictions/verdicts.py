"""What is said of a class, or of any other group: the verdicts, and the rules that choose one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from wane.predictions.groups import Groups
from wane.predictions.paired_tests import adjusted, answers_p, paired_p
from wane.registry import Registry
from wane.softmax.registry import SIGNALS

__all__ = ["EVIDENCE", "FEWEST", "VERDICTS", "Moved", "Verdict", "flip_p", "judge", "moved", "stands_out"]

Array: TypeAlias = NDArray[np.float64]

#: A class with fewer samples is shown, not judged: even five out of five lost is a matter of chance in 1 of 16 cases.
FEWEST = 5
#: The signals that can tell of a hidden decline: the decision itself is what it hides from, and of an unbounded signal,
#: such as the loss, a single sample can carry the whole mean (its bounded forms are ctl and nkl).
EVIDENCE = tuple(name for name, row in SIGNALS.items() if row.bounded and row.family != "decision")


@dataclass(frozen=True)
class Verdict:
    """What is said of a group: a sign, a heading, and what it means."""

    sign: str
    title: str
    meaning: str


#: From worst to best; this is the order of the tables. The same names are used in text, pages and JSON.
VERDICTS: Registry[Verdict] = Registry("verdict", {
    "lost": Verdict("▼", "Lost accuracy", "more right answers turned wrong than chance allows"),
    "hidden decline": Verdict("▽", "Hidden decline", "accuracy held within noise, but the signals under it fell"),
    "mixed": Verdict("◇", "Mixed", "accuracy held within noise; some signals fell, others rose"),
    "never right": Verdict("○", "Never right",
                           "at 0 % before and after, and signals fell: there was no accuracy to hold"),
    "steady": Verdict("·", "Steady", "nothing moved beyond chance"),
    "hidden gain": Verdict("△", "Hidden gain", "accuracy held within noise, but the signals under it rose"),
    "gained": Verdict("▲", "Gained accuracy", "more wrong answers turned right than chance allows"),
    "too few": Verdict("?", "Too few samples", f"fewer than {FEWEST} samples: shown, not judged"),
})  # fmt: skip


@dataclass(frozen=True, eq=False)
class Moved:
    """How something moved in each group, where higher is better."""

    change: Array
    """The mean change."""
    fell: Array
    """How likely a fall like this is by chance, by the signed-rank test of what can be taken as independent."""
    rose: Array
    """How likely a rise like this is."""


def moved(better: Array, groups: Groups) -> Moved:
    """From the change of every sample, higher is better."""
    units, of = groups.units(better)
    parts = of.split(units)
    fell = [paired_p(part) for part in parts]
    # What is likelier to have fallen did not rise: the test need not be done twice.
    rose = [1.0 if p < 0.5 else paired_p(part, direction="rose") for part, p in zip(parts, fell, strict=True)]
    return Moved(groups.mean(better), np.array(fell), np.array(rose))


def flip_p(lost: NDArray[np.bool_], gained: NDArray[np.bool_], groups: Groups) -> Array:
    """How likely flips as one-sided as these are by chance, for each group; two-sided.

    McNemar's test (see `answers_p`) where every sample stands for itself. With clusters, the signed-rank test of what
    each of them gained or lost in all.
    """
    if groups.clusters is None:
        counts = zip(groups.count(lost).tolist(), groups.count(gained).tolist(), groups.count().tolist(), strict=True)
        return np.array([answers_p(down, up, n, direction="either") for down, up, n in counts])
    net, of = groups.units(gained.astype(np.float64) - lost, total=True)
    return np.array([paired_p(part, direction="either") for part in of.split(net)])


def judge(
    table: Mapping[str, Any],
    flips: Array,
    drift: Moved,
    evidence: Mapping[str, Moved],
    *,
    alpha: float,
    smallest: float,
) -> dict[str, Any]:
    """The adjusted probabilities of each group, its verdict, and the signals that fell or rose.

    Args:
        table: ``units``, ``right_to_wrong``, ``wrong_to_right``, ``accuracy_before`` and ``accuracy_after``.
        flips: how likely its flips are by chance, for each group.
        drift: how the mean of the signals of `EVIDENCE` moved.
        evidence: how each of them moved.
        alpha: the accepted rate of false alarms.
        smallest: the smallest mean change that counts.
    """
    judged = table["units"] >= FEWEST
    lost, gained = table["right_to_wrong"], table["wrong_to_right"]
    accuracy_p = adjusted(flips, judged)
    changed = judged & (accuracy_p <= alpha)
    never = judged & (table["accuracy_before"] == 0) & (table["accuracy_after"] == 0)
    held = judged & ~changed
    fell, rose = _two_sided(drift, smallest)
    decline_p, rise_p, sinking_p = adjusted(fell, held & ~never), adjusted(rose, held), adjusted(fell, held & never)
    each = {name: _two_sided(signal, smallest) for name, signal in evidence.items()}
    fallen, risen = (_names(each, i, len(judged), alpha) for i in range(2))
    both = (
        np.maximum(*(np.min([p[i] for p in each.values()], axis=0) for i in range(2))) if each else np.ones(len(fell))
    )
    mixed_p = adjusted(np.minimum(1, max(1, len(each)) * both), held & ~never)
    cases = {  # the first that holds
        "too few": ~judged,
        "lost": changed & (lost > gained),
        "gained": changed,
        "mixed": mixed_p <= alpha,
        "hidden decline": decline_p <= alpha,
        "never right": sinking_p <= alpha,
        "hidden gain": rise_p <= alpha,
    }
    return {"verdict": np.select([*cases.values()], [*cases], "steady"), "accuracy_p": accuracy_p,
            "decline_p": decline_p, "rise_p": rise_p, "fallen": fallen, "risen": risen}  # fmt: skip


def stands_out(verdicts: NDArray[np.str_]) -> NDArray[np.bool_]:
    """Which groups a reader will look at: those with a verdict other than steady."""
    return ~np.isin(verdicts, ["steady", "too few"])


def _two_sided(signal: Moved, smallest: float) -> tuple[Array, Array]:
    """The chance of a fall and of a rise, either of which might have been; 1 where it is too small to count."""
    fell = np.where(signal.change <= -smallest, np.minimum(1, 2 * signal.fell), 1)
    return fell, np.where(signal.change >= smallest, np.minimum(1, 2 * signal.rose), 1)


def _names(each: Mapping[str, tuple[Array, Array]], side: int, groups: int, alpha: float) -> list[list[str]]:
    """The signals that fell, or rose, in each group, corrected for the number of signals."""
    return [[name for name, p in each.items() if len(each) * p[side][i] <= alpha] for i in range(groups)]
