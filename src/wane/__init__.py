"""wane shows how a model forgets, and helps it not to.

Names are imported when they are first used, so that `import wane` is quick and `wane --help` needs no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wane.class_metrics import ClassMetrics
    from wane.history import History, Trajectory
    from wane.sample_signals import SIGNALS, Signal, Signals, linear_signals, signals
    from wane.transfer import (
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
    from wane.trend import TrendSampler
    from wane.weighting import LossWeights

__version__ = "0.1.0"

__all__ = [
    "SIGNALS", "ClassMetrics", "History", "LossWeights", "Signal", "Signals", "Trajectory", "TrendSampler", "average",
    "backward_transfer", "forgetting", "forward_transfer", "linear_signals", "min_acc", "plasticity", "retention",
    "signals", "wc_acc", "windowed_forgetting", "windowed_plasticity",
]  # fmt: skip

_HOME = {
    "ClassMetrics": "class_metrics",
    "History": "history",
    "LossWeights": "weighting",
    "Trajectory": "history",
    "TrendSampler": "trend",
    **dict.fromkeys(("SIGNALS", "Signal", "Signals", "linear_signals", "signals"), "sample_signals"),
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'wane' has no attribute {name!r}; it has: {', '.join(__all__)}")
    value = getattr(import_module(f"wane.{_HOME.get(name, 'transfer')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
