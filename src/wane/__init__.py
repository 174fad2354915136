"""wane shows how a model forgets, and helps it not to.

Names are imported when they are first used, so that `import wane` is quick and `wane --help` needs no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wane.interventions.correction import LogitCorrection
    from wane.interventions.linear_head import LinearHead, fit_head
    from wane.interventions.loss_weights import LossWeights
    from wane.interventions.trend_sampler import TrendSampler
    from wane.measures.at_risk import at_risk, check_at_risk
    from wane.measures.calibration import CalibrationMetrics, brier_score, calibration_error
    from wane.measures.cl_score import cl_score, mean_cl_score
    from wane.measures.group_metrics import ClassMetrics, GroupMetrics
    from wane.measures.history import History, Trajectory
    from wane.measures.transfer import (
        average,
        backward_transfer,
        forgetting,
        forward_transfer,
        min_acc,
        plasticity,
        retention,
        wc_acc,
        windowed_forgetting,
        windowed_plasticity,
    )
    from wane.predictions.alignment import align
    from wane.predictions.comparison import compare, score
    from wane.predictions.predictions import Predictions, read_predictions
    from wane.predictions.reading import read_samples
    from wane.predictions.samples import Samples, measure
    from wane.predictions.signal_files import SignalWriter
    from wane.runs.own_loop import save_run
    from wane.runs.store import load_runs
    from wane.softmax.registry import SIGNALS, Signal
    from wane.softmax.signals import Signals, linear_pair_signals, linear_signals, signals, signals_within
    from wane.views.show import figure, report, table

__version__ = "0.1.0"

__all__ = [
    "SIGNALS", "CalibrationMetrics", "ClassMetrics", "GroupMetrics", "History", "LinearHead", "LogitCorrection",
    "LossWeights", "Predictions", "Samples", "Signal", "SignalWriter", "Signals", "Trajectory", "TrendSampler",
    "align", "at_risk", "average", "backward_transfer", "brier_score", "calibration_error", "check_at_risk",
    "cl_score", "compare", "figure", "fit_head", "forgetting", "forward_transfer", "linear_pair_signals",
    "linear_signals", "load_runs", "mean_cl_score", "measure", "min_acc", "plasticity", "read_predictions",
    "read_samples", "report", "retention", "save_run", "score", "signals", "signals_within", "table", "wc_acc",
    "windowed_forgetting", "windowed_plasticity",
]  # fmt: skip

#: Where a name lives; those that are not here are in `measures.transfer`.
_HOME = {
    **dict.fromkeys(("ClassMetrics", "GroupMetrics"), "measures.group_metrics"),
    "LogitCorrection": "interventions.correction",
    **dict.fromkeys(("LinearHead", "fit_head"), "interventions.linear_head"),
    **dict.fromkeys(("CalibrationMetrics", "brier_score", "calibration_error"), "measures.calibration"),
    **dict.fromkeys(("cl_score", "mean_cl_score"), "measures.cl_score"),
    "LossWeights": "interventions.loss_weights",
    "TrendSampler": "interventions.trend_sampler",
    "load_runs": "runs.store",
    "save_run": "runs.own_loop",
    **dict.fromkeys(("figure", "report", "table"), "views.show"),
    **dict.fromkeys(("History", "Trajectory"), "measures.history"),
    **dict.fromkeys(("Predictions", "read_predictions"), "predictions.predictions"),
    **dict.fromkeys(("Samples", "measure"), "predictions.samples"),
    "align": "predictions.alignment",
    "read_samples": "predictions.reading",
    "SignalWriter": "predictions.signal_files",
    **dict.fromkeys(("compare", "score"), "predictions.comparison"),
    **dict.fromkeys(("at_risk", "check_at_risk"), "measures.at_risk"),
    **dict.fromkeys(("SIGNALS", "Signal"), "softmax.registry"),
    **dict.fromkeys(
        ("Signals", "linear_pair_signals", "linear_signals", "signals", "signals_within"), "softmax.signals"
    ),
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'wane' has no attribute {name!r}; it has: {', '.join(__all__)}")
    value = getattr(import_module(f"wane.{_HOME.get(name, 'measures.transfer')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
