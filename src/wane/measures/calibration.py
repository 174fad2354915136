"""Whether confidence can be believed: calibration errors, the Brier score and its parts, from sums in bins.

Which edge belongs to a bin, and what bins of equal mass are, is said in `wane.measures.bins`. What is computed from
bins is the same to the last bit however the data were split: confidences are rounded to a grid on which float64 adds
without error.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import one_hot

from wane.checks import whole
from wane.measures.bins import BINS, add_to_bins, as_bins, bin_index, equal_mass
from wane.measures.exact import ExactMetric
from wane.measures.pooling import pooled_value
from wane.measures.sums import on_grid
from wane.softmax.inputs import as_tensor, read_labels, read_scores, restrict
from wane.softmax.registry import Bins
from wane.softmax.signals import signals

__all__ = ["BinnedError", "BrierScore", "CalibrationMetrics", "brier_score", "calibration_error"]

#: The measure of bins behind each norm; the second of these is squared.
NORMS = {"l1": "ece", "l2": "reliability", "max": "mce"}
#: Murphy's parts of the Brier score.
PARTS = ("reliability", "resolution", "uncertainty")
#: Rows x classes of probabilities that are put into bins at a time.
CHUNK = 2**22


class BinnedError(float):
    """A calibration error: a plain float to all who use it, which remembers its bins.

    Attributes:
        bins: `n`, `confidence` and `correct`, each (bins,), or (C, bins) where every class has an error.
        per_class: (C,) the error of each class, whose mean this is; None for the answer's confidence alone.
    """

    bins: Bins
    per_class: NDArray[np.float64] | None

    def __new__(cls, bins: Bins, norm: str) -> "BinnedError":
        """The error of bins, or the mean over classes of that of each."""
        values = pooled_value(NORMS[norm], bins)
        values = np.sqrt(values) if norm == "l2" else values
        error = super().__new__(cls, values.mean())
        error.bins, error.per_class, error._norm = bins, values if values.ndim else None, norm
        return error

    _norm: str

    def __getnewargs__(self) -> tuple[Any, ...]:
        return (self.bins, self._norm)


class BrierScore(float):
    """A Brier score, which remembers its parts: it is ``reliability - resolution + uncertainty + within``.

    Attributes:
        reliability: mean squared distance of confidence and frequency over bins; lower is better.
        resolution: how far the bins' frequencies are from the overall one; higher is better.
        uncertainty: that of the outcome, whatever the forecast.
        within: what confidences differ by inside their bins; 0 where a bin holds one value (Stephenson et al. 2008).
        bins: as in `BinnedError`.
    """

    reliability: float
    resolution: float
    uncertainty: float
    within: float
    bins: Bins

    def __new__(cls, value: float, bins: Bins) -> "BrierScore":
        """Parts of several classes are added up."""
        score = super().__new__(cls, value)
        score.bins = bins
        score.reliability, score.resolution, score.uncertainty = (float(pooled_value(p, bins).sum()) for p in PARTS)
        score.within = value - (score.reliability - score.resolution + score.uncertainty)
        return score

    def __getnewargs__(self) -> tuple[Any, ...]:
        return (float(self), self.bins)


def calibration_error(
    logits: Any = None,
    labels: Any = None,
    *,
    probabilities: Any = None,
    bins: int = BINS,
    binning: str = "width",
    closed: str = "right",
    norm: str = "l1",
    classwise: bool = False,
    classes: Sequence[int] | Tensor | None = None,
    ignore_index: int | None = None,
) -> BinnedError:
    """The expected calibration error: by how much confidence is off, in the mean over bins of confidence.

    Args:
        logits: as in `wane.signals`.
        labels: as in `wane.signals`.
        probabilities: instead of logits.
        bins: how many.
        binning: bins of equal ``"width"``, or of equal ``"mass"``.
        closed: which edge belongs to a bin of equal width: ``"right"`` (Guo et al. 2017) or ``"left"`` (torchmetrics).
        norm: ``"l1"``: the ECE; ``"l2"``: the root of the mean square; ``"max"``: the MCE, that of the worst bin.
        classwise: instead of the confidence of the answer, look at the probability of every class, and take the mean
            of the error over all C classes. This needs all probabilities, so a pass of its own.
        classes: the classes that compete, as in `wane.signals`. With a whole head and few classes learnt, say which.
        ignore_index: as in `wane.signals`.

    A tie goes to the label, as in every signal: such an answer is right.

    >>> p = torch.tensor([[0.9, 0.1], [0.9, 0.1], [0.6, 0.4], [0.2, 0.8]])
    >>> error = calibration_error(probabilities=p, labels=[0, 1, 0, 1], bins=5)
    >>> round(error, 4)  # (|1 - 0.6| + |1 - 0.8| + |1 - 1.8|) / 4
    0.35
    >>> error.bins.n.tolist()
    [0, 0, 1, 1, 2]
    """
    _check(bins=bins, binning=binning, closed=closed, norm=norm)
    confidence, correct = _forecasts(logits, labels, probabilities, classes, ignore_index, classwise)
    return BinnedError(_binned(confidence, correct, bins, binning, closed), norm)


def brier_score(
    logits: Any = None,
    labels: Any = None,
    *,
    probabilities: Any = None,
    bins: int = BINS,
    top_label: bool = False,
    classes: Sequence[int] | Tensor | None = None,
    ignore_index: int | None = None,
) -> BrierScore:
    """The Brier score, the mean over samples of sum_c (p_c - [c = y])^2, from 0 to 2 (Brier 1950), and its parts.

    The parts are those of Murphy (1973) over right-closed bins of equal width, for every class's probability as the
    forecast of that class, added up over classes.

    Args:
        logits: as in `wane.signals`.
        labels: as in `wane.signals`.
        probabilities: instead of logits.
        bins: how many.
        top_label: instead of every class, only the confidence of the answer as the forecast that it is right: from 0
            to 1. This is what the bins in a history hold.
        classes: as in `wane.signals`.
        ignore_index: as in `wane.signals`.

    >>> p = torch.tensor([[0.9, 0.1], [0.9, 0.1], [0.6, 0.4], [0.2, 0.8]])
    >>> score = brier_score(probabilities=p, labels=[0, 1, 0, 1])
    >>> round(score, 3)  # (0.02 + 1.62 + 0.32 + 0.08) / 4
    0.51
    >>> parts = (score.reliability, score.resolution, score.uncertainty, score.within)
    >>> [round(abs(part), 3) for part in parts]  # 0.51 = 0.26 - 0.25 + 0.5
    [0.26, 0.25, 0.5, 0.0]
    """
    _check(bins=bins)
    confidence, correct = _forecasts(logits, labels, probabilities, classes, ignore_index, not top_label)
    squares = (confidence.double() - correct.double()).square()
    return BrierScore(float(squares.sum() / len(squares)), _binned(confidence, correct, bins, "width", "right"))


class CalibrationMetrics(ExactMetric):
    """Calibration over a stream of batches, on any number of processes: what the functions give, from sums in bins.

    Per class or group and over time, use `ClassMetrics(..., also=["ece"])` and a `History`. This class is for what that
    lacks: every class's own probability, and bins of equal mass.

    Everything is the same to the last bit in whatever order and portions the data come, and the values for bins of
    equal width are those of `calibration_error` and `brier_score`. Bins of equal mass would need every confidence.
    Here they are made of `cells` finer cells to a bin, each of which stays whole: the value is exact for bins with
    edges on that grid, and equals that of `calibration_error` if no cell holds samples on both sides of an edge.

    Args:
        num_classes: C.
        bins: how many.
        cells: finer cells to a bin.
        classwise: also look at the probability of every class, which needs a pass of its own over the logits.

    >>> metric = CalibrationMetrics(num_classes=2, bins=5)
    >>> metric.update(probabilities=torch.tensor([[0.9, 0.1], [0.9, 0.1]]), labels=[0, 1])
    >>> metric.update(probabilities=torch.tensor([[0.6, 0.4], [0.2, 0.8]]), labels=[0, 1])
    >>> {name: round(float(value), 3) for name, value in metric.compute().items()}
    {'ece': 0.35, 'mce': 0.4, 'ece_mass': 0.35, 'brier_top': 0.255, 'classwise_ece': 0.35, 'brier': 0.51,
     'reliability': 0.26, 'resolution': 0.25, 'uncertainty': 0.5}
    """

    is_differentiable = False
    higher_is_better = False
    full_state_update = False

    top_counts: Tensor
    top_sums: Tensor
    each_counts: Tensor
    each_sums: Tensor
    squares: Tensor

    def __init__(
        self, num_classes: int, *, bins: int = BINS, cells: int = 64, classwise: bool = True, **options: Any
    ) -> None:
        super().__init__(**options)
        _check(bins=bins)
        num_classes, cells = whole("num_classes", num_classes, least=2), whole("cells", cells, least=1)
        self.num_classes, self.bins, self.cells, self.classwise = num_classes, bins, cells, classwise
        for name, shape in {"top": (1, bins * cells), "each": (num_classes if classwise else 0, bins)}.items():
            self.add_state(f"{name}_counts", torch.zeros(shape, dtype=torch.int64), dist_reduce_fx="sum")
            self.add_state(f"{name}_sums", torch.zeros(*shape, 2, dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("squares", torch.zeros(2, dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, logits: Any = None, labels: Any = None, *, probabilities: Any = None) -> None:
        """Add a batch of any leading shape. An update that fails leaves the metric as it was."""
        given = as_tensor(probabilities if logits is None else logits, "scores")
        if not given.ndim or given.shape[-1] != self.num_classes:
            raise ValueError(f"the scores have shape {tuple(given.shape)}, but num_classes is {self.num_classes}: "
                             "make their last dimension agree")  # fmt: skip
        scored = signals(logits, labels, probabilities=probabilities, also=("confidence", "brier", "brier_top"))
        flat = scored.map(lambda column: column.detach().reshape(-1).to(self.squares.device))
        each_counts, each_sums = torch.zeros_like(self.each_counts), torch.zeros_like(self.each_sums)
        if self.classwise:
            for p, own in _blocks(*_probabilities(logits, labels, probabilities, None)):
                classes = torch.arange(self.num_classes, device=p.device).expand(p.shape)
                hit = one_hot(own, self.num_classes)
                add_to_bins(each_counts, each_sums, classes.reshape(-1), p.reshape(-1), hit.reshape(-1))
        add_to_bins(self.top_counts, self.top_sums, torch.zeros_like(flat.rank), flat.confidence, flat.accuracy)
        self.each_counts += each_counts
        self.each_sums += each_sums
        self.squares += on_grid(torch.stack([flat.brier, flat.brier_top]).to(self.squares)).sum(1)

    def compute(self) -> dict[str, Tensor]:
        """By name: ece, mce, ece_mass, brier_top; and, if `classwise`, classwise_ece, brier and its parts."""
        fine = as_bins(self.top_counts[0], self.top_sums[0])
        wide = Bins(*(part.reshape(self.bins, self.cells).sum(1) for part in fine))
        bin_of = equal_mass(fine.n, self.bins)
        mass = Bins(*(np.bincount(bin_of, weights=part, minlength=self.bins) for part in fine))
        brier, brier_top = (self.squares / self.top_counts.sum()).tolist()
        found = {"ece": pooled_value("ece", wide), "mce": pooled_value("mce", wide),
                 "ece_mass": pooled_value("ece", mass), "brier_top": brier_top}  # fmt: skip
        if self.classwise:
            each = as_bins(self.each_counts, self.each_sums)
            found |= {"classwise_ece": pooled_value("ece", each).mean(), "brier": brier}
            found |= {name: pooled_value(name, each).sum() for name in PARTS}
        return {name: torch.tensor(float(value), dtype=torch.float64) for name, value in found.items()}


def _check(*, bins: int, binning: str = "width", closed: str = "right", norm: str = "l1") -> None:
    whole("bins", bins, least=1)
    for name, value, known in (("binning", binning, ("width", "mass")), ("closed", closed, ("right", "left")),
                               ("norm", norm, tuple(NORMS))):  # fmt: skip
        if value not in known:
            raise ValueError(f"unknown {name} {value!r}: choose {', '.join(known[:-1])} or {known[-1]}")


def _forecasts(
    logits: Any, labels: Any, probabilities: Any, classes: Any, ignore_index: int | None, every_class: bool
) -> tuple[Tensor, Tensor]:
    """(N, K) confidences, of the answer or of every class, and whether each came true; padding is left out."""
    scored = signals(logits, labels, probabilities=probabilities, classes=classes, ignore_index=ignore_index,
                     also=("confidence",))  # fmt: skip
    counted = scored.rank.reshape(-1) > 0
    if not bool(counted.any()):
        raise ValueError("there is no sample: give at least one that is not padding")
    if not every_class:
        confidence, correct = (scored[name].detach().reshape(-1)[counted] for name in ("confidence", "accuracy"))
        return confidence[:, None], correct[:, None]
    p, own = _probabilities(logits, labels, probabilities, classes, counted)
    return p, one_hot(own, p.shape[1])


def _probabilities(
    logits: Any, labels: Any, probabilities: Any, classes: Any, counted: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """(N, C) probabilities and (N,) labels of the rows that count, both among the classes that compete."""
    scores = read_scores(probabilities if logits is None else logits, "scores").detach()
    own = read_labels(labels, scores).reshape(-1)
    scores = scores.reshape(-1, scores.shape[-1])
    if counted is not None:
        scores, own = scores[counted], own[counted]
    if classes is not None:
        scores, own = restrict(scores, own, classes, None, validate=True)
        scores = scores / scores.sum(-1, keepdim=True) if logits is None else scores
    scores = scores if scores.dtype == torch.float64 else scores.float()
    return (scores if logits is None else scores.softmax(1)), own


def _blocks(p: Tensor, own: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    rows = CHUNK // p.shape[1] + 1
    return zip(torch.split(p, rows), torch.split(own, rows), strict=True)


def _binned(confidence: Tensor, correct: Tensor, bins: int, binning: str, closed: str) -> Bins:
    """(bins,) for one column of forecasts, (K, bins) for several."""
    size = bins + (binning == "width" and closed == "left")
    counts = torch.zeros(confidence.shape[1], size, dtype=torch.int64, device=confidence.device)
    sums = torch.zeros(*counts.shape, 2, dtype=torch.float64, device=confidence.device)
    for k, (p, hit) in enumerate(zip(confidence.T.contiguous(), correct.T, strict=True)):
        if binning == "mass":
            values, block = torch.unique(p, return_inverse=True)  # in ascending order
            sizes = torch.bincount(block, minlength=len(values)).cpu().numpy()
            at = torch.from_numpy(equal_mass(sizes, bins)).to(block.device)[block]
        else:
            at = bin_index(p, bins, closed)
        counts[k] = torch.bincount(at, minlength=size)
        sums[k].index_add_(0, at, on_grid(torch.stack([p.double(), hit.double()], dim=1)))
    found = as_bins(counts, sums)
    return Bins(*(part[0] for part in found)) if len(counts) == 1 else found
