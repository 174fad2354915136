"""What is said of a class, or of any other group: the verdicts, and the rules that choose one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.special import ndtri

from wane.predictions.groups import Groups
from wane.registry import Registry
from wane.softmax.registry import SIGNALS

__all__ = ["AGREE", "EVIDENCE", "FEWEST", "VERDICTS", "Moved", "Verdict", "judge", "moved"]

Array: TypeAlias = NDArray[np.float64]

#: A class with fewer samples is shown, not judged: even five out of five lost is a matter of chance in 1 of 16 cases.
FEWEST = 5
#: The signals that can tell of a hidden decline: the decision itself is what it hides from, and of an unbounded signal,
#: such as the loss, a single sample can carry the whole mean (its bounded forms are ctl and nkl).
EVIDENCE = tuple(name for name, row in SIGNALS.items() if row.bounded and row.family != "decision")
#: How many of them must agree: one alone may be an artefact of its scale.
AGREE = 2


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
    """How one signal moved in each group, where higher is better."""

    change: Array
    """The mean change."""
    z: Array
    """The signed-rank statistic of what can be taken as independent."""


def moved(better: Array, groups: Groups) -> Moved:
    """From the change of every sample, higher is better."""
    units, of = groups.units(better)
    return Moved(groups.mean(better), np.array([signed_rank(part) for part in of.split(units)]))


def signed_rank(difference: NDArray[np.floating]) -> float:
    """Wilcoxon's z: the sum of the signed ranks of what moved, over its deviation if the signs were coin flips.

    >>> round(signed_rank(np.array([0.0, 1.0, 2.0, -0.5])), 3)  # (2 + 3 - 1) / sqrt(1 + 4 + 9)
    1.069
    """
    moved = difference[difference != 0]
    if not len(moved):
        return 0.0
    return _over_deviation(np.sign(moved) * stats.rankdata(np.abs(moved)))


def _over_deviation(signed: Array) -> float:
    """The sum over its deviation if the signs were coin flips."""
    # Capped at the sign test's bound: the normal approximation is overconfident for few pairs.
    most = -ndtri(0.5 ** len(signed))
    return float(np.clip(signed.sum() / np.sqrt(np.square(signed).sum()), -most, most))


def flip_p(lost: NDArray[np.bool_], gained: NDArray[np.bool_], groups: Groups) -> Array:
    """How likely flips as one-sided as these are by chance, for each group; two-sided.

    Exact (McNemar) where every sample stands for itself. With clusters, those that lost and gained unequally are the
    coins, each as heavy as its difference.
    """
    if groups.clusters is None:
        down, up = groups.count(lost), groups.count(gained)
        # At one half the binomial is symmetric, so twice the smaller tail.
        exact: Array = np.minimum(1, 2 * stats.binom.cdf(np.minimum(down, up), down + up, 0.5))
        return exact
    net, of = groups.units(gained.astype(np.float64) - lost, total=True)
    parts = [part[part != 0] for part in of.split(net)]
    return np.array([2 * stats.norm.sf(abs(_over_deviation(part))) if len(part) else 1.0 for part in parts])


def judge(
    table: Mapping[str, Any], flips: Array, evidence: Mapping[str, Moved], *, alpha: float, smallest: float
) -> dict[str, Any]:
    """The adjusted probabilities of each group, its verdict, and the signals that fell or rose.

    Args:
        table: ``n``, ``units``, ``right_to_wrong``, ``wrong_to_right``, ``accuracy_before`` and ``accuracy_after``.
        flips: how likely its flips are by chance, for each group.
        evidence: how each signal of `EVIDENCE` that is known moved.
        alpha: the accepted rate of false alarms.
        smallest: the smallest mean change that counts.
    """
    judged = table["units"] >= FEWEST
    lost, gained = table["right_to_wrong"], table["wrong_to_right"]
    accuracy_p = _adjusted(flips, judged)
    changed = judged & (accuracy_p <= alpha)
    never = judged & (table["accuracy_before"] == 0) & (table["accuracy_after"] == 0)
    agree = min(AGREE, max(len(evidence), 1))
    # By chance m x of m probabilities are below x on average, so k of them or more in at most a share m x / k of cases.
    penalty = len(evidence) / agree

    def agreed(direction: int, among: NDArray[np.bool_]) -> tuple[Array, list[list[str]]]:
        tests = [(direction * signal.change, direction * signal.z) for signal in evidence.values()]
        p = np.array([np.where((change >= smallest) & (z > 0), 2 * stats.norm.sf(z), 1) for change, z in tests])
        p = p.reshape(len(evidence), len(judged))
        names = [[name for name, x in zip(evidence, row, strict=True) if penalty * x <= alpha] for row in p.T]
        worst = np.sort(p, axis=0)[agree - 1] if len(p) else np.ones(len(judged))
        return _adjusted(np.minimum(1, penalty * worst) if len(p) else worst, among), names

    held = judged & ~changed
    (decline_p, fallen), (rise_p, risen) = agreed(-1, held & ~never), agreed(+1, held)
    falls, rises = decline_p <= alpha, rise_p <= alpha
    sinking = never & (np.array([len(names) for names in fallen]) >= agree)
    rises &= ~sinking  # both ways: no gain
    cases = [~judged, changed & (lost > gained), changed, falls & rises, falls, rises, sinking]  # the first that holds
    names = ["too few", "lost", "gained", "mixed", "hidden decline", "hidden gain", "never right"]
    return {"verdict": np.select(cases, names, "steady"), "accuracy_p": accuracy_p, "decline_p": decline_p,
            "rise_p": rise_p, "fallen": fallen, "risen": risen}  # fmt: skip


def _adjusted(p: Array, among: NDArray[np.bool_]) -> Array:
    """Benjamini-Hochberg over the groups that are judged; NaN for the others, which is below no threshold."""
    adjusted: Array = np.full(len(p), np.nan)
    if among.any():
        adjusted[among] = stats.false_discovery_control(p[among])
    return adjusted
