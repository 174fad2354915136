"""Logits with one number added for each group of classes: what a bias hid comes back, without training."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any, Self

import torch
from torch import Tensor

from wane.checks import finite
from wane.interventions.group_rows import FEW_GROUPS, Rows, read_rows
from wane.interventions.line_search import Problem, ascend, objective, shift_once
from wane.interventions.margin_offsets import minimise_margin
from wane.interventions.rank_lines import ascend as ascend_ranks
from wane.interventions.rank_lines import rank_rows
from wane.interventions.smooth_offsets import MILDEST, SMOOTH, evidence, minimise
from wane.softmax.inputs import as_tensor, read_integers, read_labels, read_scores
from wane.softmax.registry import SIGNALS, Sample
from wane.softmax.signals import signals

__all__ = ["LogitCorrection", "prior_offsets"]


class LogitCorrection:
    """Add one number to the logits of each group of classes: the one under which a few labelled rows look best.

    After training in steps the newest classes win too often. Fitted on a few labelled rows (the replay memory, or
    better: rows that were never trained on), the offsets take that back; the network stays as it is.

    The offsets maximise the mean of a signal over the rows, every class counting the same, less `ridge` / 2 times the
    sum of the groups' squared offsets. By ``"loss"`` the problem is convex, and solved until no component of the
    gradient exceeds 1e-8. By ``"nkl"``, ``"ctl"`` and ``"cm"`` it may have several maxima: the search starts from two
    places, and looks further along each group (for up to 32 groups). By ``"accuracy"`` and other signals of rank one
    group after the other is shifted exactly to its best, so that two groups are exact. A signal of your own is
    searched likewise, to steps of a thousandth of its range. The same rows give the same offsets: nothing is random.

    Args:
        by: the signal to maximise (`wane.SIGNALS`; the loss is minimised), or ``"prior"``: no rows, but minus the
            logarithm of how often each class was trained on, as a control.
        groups: (C,) the group of each class, such as its task. One offset a group; groups of two values, such as
            ``[task == newest for task in class_to_task]``, give one number in all. A class of group -1 takes no part:
            it is left out of the softmax while fitting, and its offset is 0. None: one offset a class, see `ridge`.
        ridge: what holds the offsets back, in units of the loss; other signals, whose range is 1 and not ln C nats,
            take its ln C-th part. None chooses it: with groups 1e-6, which only decides where the rows do not; with one
            offset a class the ridge under which the rows are most likely, if the offsets are drawn from a normal
            distribution of unknown variance. Few rows, or rows that show no bias, give small offsets.
        balanced: every class with rows weighs the same, however many rows it has; False: every row does.

    Attributes:
        offsets: (C,) float64, what `apply` adds; None before `fit`. With groups those of the lowest group, the oldest
            task, are 0; without, their mean over the classes with rows is 0, and a class without rows has 0.
        ridge: the one used, after `fit`.

    >>> logits = torch.tensor([[2.0, 0.0, 3.0, 0.0], [0.0, 2.0, 0.0, 1.0], [0.0, 0.0, 5.0, 0.0], [0.0, 0.0, 0.0, 5.0]])
    >>> labels = torch.tensor([0, 1, 2, 3])
    >>> correction = LogitCorrection(by="nkl", groups=[0, 0, 1, 1]).fit(logits, labels)
    >>> correction.offsets.round(decimals=3)
    tensor([ 0.0000,  0.0000, -2.3200, -2.3200], dtype=torch.float64)
    >>> correction.apply(logits).argmax(1)
    tensor([0, 1, 2, 3])
    >>> LogitCorrection(by="prior", groups=[0, 0, 1, 1]).fit(counts=[10, 10, 500, 500]).offsets
    tensor([ 0.0000,  0.0000, -3.9120, -3.9120], dtype=torch.float64)
    """

    def __init__(
        self, by: str = "nkl", groups: Any = None, *, ridge: float | None = None, balanced: bool = True
    ) -> None:
        if by != "prior":
            row = SIGNALS[by]  # an unknown name fails here, with the nearest one
            if row.of is None or row.squares:
                raise ValueError(f"an offset cannot be fitted by {by!r}, which needs more than the label's place and "
                                 f"probability: choose one of {', '.join(SIGNALS)}")  # fmt: skip
        if ridge is not None:  # None chooses it
            finite("ridge", ridge, least=0)
        self.by, self.balanced = by, balanced
        self.groups = None if groups is None else _read_groups(groups)
        self.ridge, self._given = ridge, ridge
        self.offsets: Tensor | None = None

    def __repr__(self) -> str:
        groups = "one a class" if self.groups is None else f"{len(torch.unique(self.groups[self.groups >= 0]))} groups"
        return f"LogitCorrection(by={self.by!r}, {groups}, {'not fitted' if self.offsets is None else 'fitted'})"

    def fit(self, logits: Any = None, labels: Any = None, *, counts: Any = None) -> Self:
        """Find the offsets.

        Args:
            logits: (..., C), classes last; float16 to float64. -inf masks a class in a row.
            labels: the true class of each row.
            counts: (C,) for ``by="prior"``, and then alone: how many rows of each class the model was trained on.

        The logits are read in blocks: beyond them a fit holds one float64 a row and group, and by a signal of rank a
        copy of them.
        """
        if self.by == "prior":
            if counts is None or logits is not None or labels is not None:
                raise TypeError('by="prior" is fitted on how often each class was trained on: fit(counts=...)')
            self.offsets = prior_offsets(counts, self.groups)
            return self
        if logits is None or labels is None or counts is not None:
            raise TypeError(f"by={self.by!r} is fitted on rows: fit(logits, labels)")
        logits = read_scores(logits, "logits").detach()
        labels = read_labels(labels, logits)
        if logits.ndim > 2 and labels.shape == logits.shape[:-1]:
            logits, labels = logits.reshape(-1, logits.shape[-1]), labels.reshape(-1)
        if len(logits) == 0:
            raise ValueError("there are no rows to fit on: give at least one of each group")
        signals(logits, labels, compiled=False)  # whether the rows can be scored is for it to say
        labels = labels.cpu()
        counts = torch.bincount(labels, minlength=logits.shape[1])
        groups = self._group_of_classes(counts)
        if int(groups.max()) == 0:  # one group: a number added to all logits changes nothing
            self.offsets = torch.zeros(logits.shape[1], dtype=torch.float64)
            return self
        weights = 1.0 / counts[labels] if self.balanced else torch.ones(len(labels))
        weights = weights.double() / weights.double().sum()
        found = self._search(read_rows(logits, labels, weights, groups))
        found = found - (found.mean() if self.groups is None else found[0])
        self.offsets = torch.where(groups >= 0, found[groups.clamp(min=0)], 0.0)
        return self

    def apply(self, logits: Any) -> Tensor:
        """The logits with the offsets added, in their own type, on their own device; nothing is changed in place."""
        scores = read_scores(logits, "logits")
        offsets = self._fitted()
        if scores.shape[-1] != len(offsets):
            raise ValueError(f"logits have {scores.shape[-1]} classes, but the correction was fitted on {len(offsets)}")
        return scores + offsets.to(scores.device, scores.dtype)

    def state_dict(self) -> dict[str, Tensor]:
        """The offsets as a tensor."""
        return {"offsets": self._fitted()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take the offsets of another correction."""
        offsets = read_scores(state["offsets"][None], "offsets")[0].detach().to("cpu", torch.float64)
        if not bool(offsets.isfinite().all()):
            raise ValueError(f"the state holds the offset {offsets[~offsets.isfinite()][0]}: it is damaged")
        if offsets.ndim != 1 or (self.groups is not None and len(offsets) != len(self.groups)):
            classes = "C" if self.groups is None else len(self.groups)
            raise ValueError(
                f"the state holds offsets of shape {tuple(offsets.shape)}, this correction has ({classes},)"
            )
        self.offsets = offsets.clone()

    def _fitted(self) -> Tensor:
        if self.offsets is None:
            raise ValueError("this correction was not fitted: call fit(logits, labels) first")
        return self.offsets

    def _group_of_classes(self, counts: Tensor) -> Tensor:
        """(C,) numbers from 0 in the order of the groups, -1 for a class that takes no part."""
        classes, rows = len(counts), int(counts.sum())
        if self.groups is None:
            present = counts > 0
            if int(present.sum()) < 2:
                raise ValueError(
                    f"all {rows} rows are of class {int(counts.argmax())}: give rows of at least two classes"
                )
            return torch.where(present, present.cumsum(0) - 1, -1)
        if len(self.groups) != classes:
            raise ValueError(
                f"groups name {len(self.groups)} classes, but the logits have {classes}: give one for each"
            )
        if bool(counts[self.groups < 0].any()):
            row = int(counts.where(self.groups < 0, 0).argmax())
            raise ValueError(f"there are rows of class {row}, whose group, -1, takes no part: leave them out, or give "
                             "the class a group")  # fmt: skip
        known = torch.unique(self.groups[self.groups >= 0])
        groups = torch.where(self.groups >= 0, torch.searchsorted(known, self.groups.contiguous()), -1)
        of_group = torch.zeros(len(known), dtype=torch.int64).index_add_(0, groups.clamp(min=0), counts)
        if not bool(of_group.all()):
            empty = int((of_group == 0).nonzero()[0, 0])
            members = (groups == empty).nonzero()[:, 0].tolist()
            named = ", ".join(map(str, members[:5])) + (", ..." if len(members) > 5 else "")
            raise ValueError(f"{rows} rows for {len(known)} groups, none of them of group {int(known[empty])} (class "
                             f"{named}): add some, or leave its classes alone with group -1")  # fmt: skip
        return groups

    def _search(self, rows: Rows) -> Tensor:
        """One offset a group, up to a number that is the same for all."""
        zero = torch.zeros(rows.num_groups, dtype=torch.float64)
        if self._given is None and self.groups is None:
            by_loss, ridge = evidence(rows, zero)
        else:
            ridge = MILDEST if self._given is None else self._given
            by_loss, _ = minimise(rows, SMOOTH["loss"], zero, ridge)
        self.ridge = ridge
        if self.by == "loss":
            return by_loss
        ridge /= rows.limit  # bounded signals change by about 1 / ln C a nat of loss
        problem = Problem(rows, self.by, ridge)
        starts = (by_loss, zero) if rows.num_groups <= FEW_GROUPS else (by_loss,)
        by_rank = _value_by_rank(self.by, rows.classes)
        if by_rank is not None:
            ranked = rank_rows(rows, by_rank, ridge)
            return max((ascend_ranks(ranked, start) for start in starts), key=lambda found: found[1])[0]
        if self.by == "cm":
            descend, least = partial(minimise_margin, rows, ridge=ridge), 1e-6
        elif self.by in SMOOTH:
            descend, least = partial(minimise, rows, SMOOTH[self.by], ridge=ridge), 1e-9
        else:  # a formula of the user's own
            return max((ascend(problem, start) for start in starts), key=lambda found: objective(problem, found))
        best, value = min((descend(start=start) for start in starts), key=lambda found: found[1])
        while rows.num_groups <= FEW_GROUPS:  # another maximum, one shift away, may be higher
            other, lower = descend(start=shift_once(problem, best))
            if lower > value - least:
                break
            best, value = other, lower
        return best


def prior_offsets(counts: Any, groups: Tensor | None = None) -> Tensor:
    """(C,) minus the logarithm of how often each class, or the mean class of its group, was trained on.

    Scaled as in `LogitCorrection`: 0 for the lowest group, or of mean 0. Classes of group -1 have 0.

    >>> prior_offsets([100, 100, 400])
    tensor([ 0.4621,  0.4621, -0.9242], dtype=torch.float64)
    """
    given = as_tensor(counts, "counts")
    exposure = (given.real if given.is_complex() else given).double().cpu()
    if given.is_complex() or exposure.ndim != 1 or not bool((exposure.isfinite() & (exposure >= 0)).all()):
        raise ValueError(f"counts should be one number a class, 0 or more, not {counts!r}")
    if groups is not None and len(groups) != len(exposure):
        raise ValueError(f"groups name {len(groups)} classes, but there are {len(exposure)} counts: give one for each")
    ids = torch.arange(len(exposure)) if groups is None else groups
    taking_part = ids >= 0
    known, position = torch.unique(ids[taking_part], return_inverse=True)
    mean = torch.zeros(len(known), dtype=torch.float64).scatter_reduce_(
        0, position, exposure[taking_part], "mean", include_self=False
    )
    if not bool((mean > 0).all()):
        which = int(known[int((mean <= 0).nonzero()[0, 0])])
        raise ValueError(f"{'group' if groups is not None else 'class'} {which} has a count of 0, and no prior: "
                         "count at least one row, or give its classes the group -1")  # fmt: skip
    found = -mean.log()
    found = found - (found.mean() if groups is None else found[0])
    return torch.zeros(len(exposure), dtype=torch.float64).masked_scatter_(taking_part, found[position])


def _value_by_rank(by: str, classes: int) -> Tensor | None:
    """(C,) the signal, with its sign, by how many logits are above the label; None if it reads more than that."""
    above = torch.arange(classes, dtype=torch.float64)
    unknown = torch.full_like(above, math.nan)
    read = set()

    class Recorded(Sample):
        def __getattribute__(self, name: str) -> Any:
            read.add(name)
            return super().__getattribute__(name)

    formula = SIGNALS[by].of
    assert formula is not None  # a pooled row is refused by the correction
    value = formula(Recorded(unknown, unknown, unknown, above, above + 1, classes, math.log(classes)))
    return None if read & {"p", "p_max", "loss"} else SIGNALS[by].sign * value.double()


def _read_groups(groups: Any) -> Tensor:
    ids = as_tensor(groups, "groups").detach().cpu()
    if ids.dtype == torch.bool:  # whether a class is of the newest task, say
        ids = ids.to(torch.int64)
    fits = ids.ndim == 1 and len(ids) >= 2 and not ids.is_floating_point() and not ids.is_complex()
    if not fits or not bool(((ids := read_integers(ids, "groups")) >= 0).any()):
        raise ValueError(f"groups should hold a whole number for each class, such as its task, not {groups!r}")
    return ids
