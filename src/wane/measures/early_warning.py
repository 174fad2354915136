"""Early warning: classes whose signals decline steadily while their accuracy still holds, and when it should fall.

The rule is meant to be read in one breath. Over the last `window` evaluations of a class take the robust slope
(Theil-Sen) of each signal. Draw a line through everything measured so far, accuracy against signal: it says which value
of the signal goes with an accuracy that is `fall` lower than now. At its slope the signal gets there in so many epochs;
if every signal says so within `horizon`, and accuracy has not fallen yet, the class is at risk.

Only signals that move while the answer is still right can warn of its loss: the confidence in the label (ctl, nkl). The
rank of a right answer is 1 and its margin 1, whatever happens underneath.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from wane.measures.history import History
from wane.softmax.registry import SIGNALS

if TYPE_CHECKING:
    import polars

__all__ = ["Check", "at_risk", "check_at_risk"]

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]


class Check(NamedTuple):
    """How warnings that used nothing but the past compare with what happened afterwards."""

    judged: int  # pairs of class and epoch in which accuracy held, and could fall
    base_rate: float  # the share of them that fell within the horizon: the precision of warning always
    warned: int
    precision: float  # the share of warnings after which accuracy fell within the horizon
    falls: int  # stretches of epochs of a class after each of which accuracy falls within the horizon
    recall: float  # the share of them with a warning
    lead: float  # median epochs from the first of these warnings until accuracy is so low


class Outlook(NamedTuple):
    """What the rule says at every evaluation t of every class k, from the evaluations up to t; all (S, K)."""

    accuracy: Array
    held: Array  # the accuracy of the class: median over the window
    holds: Flags  # and it has not fallen yet, but can
    slopes: Array  # (signals, S, K), robust, per epoch, negative is decline whatever the orientation
    left: Array  # epochs until every signal has come down; inf if one is not declining steadily


def at_risk(
    history: History,
    *,
    signals: Sequence[str] = ("ctl", "nkl"),
    window: int = 5,
    fall: float = 0.2,
    horizon: float = 5,
    steady: float = 0.7,
    split: str = "test",
) -> polars.DataFrame:
    """Classes whose accuracy holds but is expected to fall, the most urgent first.

    Args:
        history: what was measured so far; the last evaluation is now.
        signals: which must all be in decline; ``("accuracy",)`` is the baseline that `check_at_risk` compares with.
        window: evaluations to look back, at least 3; a class with fewer is not judged.
        fall: the loss of accuracy to warn of, from 0 to 1.
        horizon: warn if it is expected within so many epochs.
        steady: the share of pairs of evaluations within the window that must go down.
        split: of the history.

    Columns: ``class``, ``class_task``; ``accuracy``, its median over the window; ``epochs_left`` until it should be
    below ``falls_below``, and ``expected_epoch``, when that is, counted in evaluations from 1; and the ``slope`` per
    epoch of each signal, negative is decline (of the loss too). Until the accuracies in a history differ there is no
    line, and no warning.

    How good is it? See `check_at_risk`, and its numbers: a hint of where to look, not a forecast.

    >>> history = History(class_to_task=[0, 0])
    >>> for epoch, (sure, right) in enumerate([(0.2, 0.3), (0.6, 0.7), (0.9, 1), (0.85, 1), (0.8, 1), (0.75, 0.9)]):
    ...     rows = {name: np.array([sure, 0.9]) for name in SIGNALS} | {"accuracy": np.array([right, 1.0])}
    ...     history.record({**rows, "n": np.array([50, 50])}, step=epoch, task=0)
    >>> at_risk(history, window=4).select("class", "accuracy", "epochs_left", "expected_epoch", "ctl_slope").rows()
    [(0, 1.0, 1.3, 8, -0.05)]
    """
    import polars as pl

    outlook, classes = _outlook(history, signals, window, fall, steady, split)
    left, held = outlook.left[-1], outlook.held[-1]
    chosen = np.flatnonzero(outlook.holds[-1] & (left <= horizon))
    task = np.full(len(classes), -1) if history.class_to_task is None else history.class_to_task[classes]
    # Already at the level, or beyond it: the fall is due at the next evaluation.
    expected = len(outlook.left) + np.maximum(1, np.ceil(np.round(left[chosen], 6))).astype(np.int64)
    frame = pl.DataFrame({
        "class": classes[chosen], "class_task": task[chosen], "accuracy": held[chosen],
        "falls_below": held[chosen] - fall, "epochs_left": left[chosen].round(1), "expected_epoch": expected,
        **{f"{name}_slope": outlook.slopes[i, -1, chosen].round(6) for i, name in enumerate(signals)},
    })  # fmt: skip
    return frame.sort("epochs_left", f"{signals[0]}_slope", "class")


def check_at_risk(
    history: History,
    *,
    signals: Sequence[str] = ("ctl", "nkl"),
    window: int = 5,
    fall: float = 0.2,
    horizon: int = 5,
    steady: float = 0.7,
    split: str = "test",
    across_tasks: bool = True,
) -> Check:
    """Walk through a finished history: what `at_risk` would have said at each epoch, against what then happened.

    Args:
        history: of a finished run.
        signals: as in `at_risk`, like all that is not named here; ``("accuracy",)`` is the baseline.
        window: see there.
        fall: see there.
        horizon: see there.
        steady: see there.
        split: see there.
        across_tasks: judge also the epochs within `horizon` before a new task, whose falls no trend can foretell.

    Measured on runs of the demo scale (glyphs, 5 tasks of 20 classes, 30 test images a class), defaults. The rule
    and its signals were chosen on four of the short runs; two corrections (classes too low to fall are left out, slow
    slides count as falls) came after all results were seen, and apply to the baseline too.

    | runs: precision, recall          | warning always (precision) | by ctl and nkl (default) | by accuracy's slope |
    |:---------------------------------|:---------------------------|:-------------------------|:--------------------|
    | six short runs, 10 epochs a task | 25 %                       | 34 %, 28 %               | 32 %, 31 %          |
    | the same, within tasks           | 19 %                       | 34 %, 41 %               | 30 %, 33 %          |
    | one long run, 40 epochs a task   | 4.1 %                      | 20 %, 21 %               | 9.4 %, 22 %         |
    | the same, within tasks           | 2.3 %                      | 20 %, 28 %               | 9.0 %, 27 %         |

    The median lead is 2 to 3 epochs everywhere. So: where falls are rare, five to nine times better than chance, and
    half the false alarms of accuracy's own slope; in short runs hardly better than it, and worse in 2 of 6. Even so
    most warnings are false, and the collapse at a new task has no forerunner in any signal (finetune: recall 4 %).

    >>> rng = np.random.default_rng(0)
    >>> history, start = History(class_to_task=[0] * 20), rng.uniform(5, 90, 20)  # when each class begins to fade
    >>> for epoch in range(80):
    ...     sure = np.clip(0.95 - 0.05 * np.maximum(0, epoch - start), 0, 1) * min(1, (epoch + 1) / 5)
    ...     seen = {"accuracy": rng.binomial(30, sure) / 30, "n": np.full(20, 30)}  # accuracy is noisy, confidence not
    ...     history.record(dict.fromkeys(SIGNALS, sure) | seen, step=epoch, task=0)
    >>> found, baseline = check_at_risk(history), check_at_risk(history, signals=["accuracy"])
    >>> [round(x, 2) for x in (found.base_rate, found.precision, found.recall, found.lead)]
    [0.15, 0.96, 0.78, 3.0]
    >>> [round(x, 2) for x in (baseline.precision, baseline.recall, baseline.lead)]
    [0.73, 0.66, 3.0]
    """
    _positive_integer("horizon", horizon)
    outlook, _ = _outlook(history, signals, window, fall, steady, split)
    tasks = history.trajectory("accuracy", split=split).task
    epochs, classes = outlook.held.shape
    judged, warned = outlook.holds.copy(), outlook.holds & (outlook.left <= horizon)
    judged[max(0, epochs - horizon) :] = False  # what came after is not known in full
    if not across_tasks:
        for boundary in np.flatnonzero(np.diff(tasks)) + 1:
            judged[max(0, boundary - horizon) : boundary] = False
    ahead = np.concatenate([outlook.accuracy[1:], np.full((horizon, classes), np.nan)])
    below = sliding_window_view(ahead, horizon, axis=0) < (outlook.held - fall)[..., None]  # NaN is below nothing
    fell, until = below.any(-1) & judged, below.argmax(-1) + 1
    begins = fell & ~np.concatenate([np.zeros((1, classes), dtype=bool), fell[:-1]])
    leads = []
    for epoch, k in np.argwhere(begins):
        length = int(np.argmin(np.append(fell[epoch:, k], False)))
        alarms = epoch + np.flatnonzero(warned[epoch : epoch + length, k])
        leads += [until[alarms[0], k]] if len(alarms) else []
    counted = warned & judged
    return Check(
        judged=int(judged.sum()),
        base_rate=_ratio(int(fell.sum()), int(judged.sum())),
        warned=int(counted.sum()),
        precision=_ratio(int((counted & fell).sum()), int(counted.sum())),
        falls=int(begins.sum()),
        recall=_ratio(len(leads), int(begins.sum())),
        lead=float(np.median(leads)) if leads else float("nan"),
    )


def _outlook(
    history: History, signals: Sequence[str], window: int, fall: float, steady: float, split: str
) -> tuple[Outlook, NDArray[np.int64]]:
    """The rule at every evaluation, and the classes of its columns."""
    _positive_integer("window", window, least=3)
    if not 0 < fall < 1:
        raise ValueError(f"fall is {fall}: give a loss of accuracy between 0 and 1, such as 0.2")
    if not signals:
        raise ValueError("signals is empty: name at least one, such as ctl")
    _, _, classes, accuracy = history.trajectory("accuracy", split=split)
    held = _over_windows(accuracy, window, _median)
    slopes, left = [], []
    for name in signals:
        values = SIGNALS[name].sign * history.trajectory(name, split=split).values
        slope, down = (_over_windows(values, window, f) for f in (_theil_sen, _share_down))
        # The fitted value at the end of the window: less noisy than the last observation.
        now = _over_windows(values, window, _median) + slope * (window - 1) / 2
        gain, offset = _lines(accuracy, values)
        level = offset[:, None] + gain[:, None] * (held - fall)
        with np.errstate(divide="ignore", invalid="ignore"):
            epochs = np.maximum(0, (level - now) / slope)
            # A signal that does not rise with accuracy says nothing of it; NaN is no decline.
            declines = (slope < 0) & (down >= steady) & (gain[:, None] > 0) & np.isfinite(epochs)
        slopes.append(slope)
        left.append(np.where(declines, epochs, np.inf))
    # Not fallen yet, and with so much to lose; False where either is NaN.
    holds = (accuracy >= held - fall / 2) & (held > fall)
    return Outlook(accuracy, held, holds, np.stack(slopes), np.max(left, axis=0)), classes


def _over_windows(values: Array, window: int, of: Callable[[Array], Array]) -> Array:
    """`of` each trailing window of each column, (S, K) like the values; NaN where the window is not full."""
    result = np.full(values.shape, np.nan)
    if len(values) >= window:
        result[window - 1 :] = of(sliding_window_view(values, window, axis=0))
    return result


def _median(x: Array) -> Array:
    return np.asarray(np.median(x, axis=-1))


def _pairwise_slopes(x: Array) -> Array:
    i, j = np.triu_indices(x.shape[-1], 1)
    slopes: Array = (x[..., j] - x[..., i]) / (j - i)
    return slopes


def _theil_sen(x: Array) -> Array:
    """The median of the slopes between all pairs: one wild evaluation does not turn it."""
    return np.asarray(np.median(_pairwise_slopes(x), axis=-1))


def _share_down(x: Array) -> Array:
    return np.asarray((_pairwise_slopes(x) < 0).mean(axis=-1))


def _lines(accuracy: Array, values: Array) -> tuple[Array, Array]:
    """Slope and offset (S,) of the least-squares line from accuracy to signal through all that was seen by each row."""
    seen = np.isfinite(accuracy) & np.isfinite(values)
    x, y = np.where(seen, accuracy, 0.0), np.where(seen, values, 0.0)
    n, sx, sy, sxx, sxy = (np.cumsum(part.sum(1), dtype=np.float64) for part in (seen, x, y, x * x, x * y))
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = sxx - sx * sx / n
        gain = np.where(spread > 1e-9 * n, (sxy - sx * sy / n) / spread, np.nan)
        return gain, (sy - gain * sx) / n


def _positive_integer(name: str, value: int, least: int = 1) -> None:
    if int(value) != value or value < least:
        raise ValueError(f"{name} is {value}: give a whole number of at least {least}")


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else float("nan")
