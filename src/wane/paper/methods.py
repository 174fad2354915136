"""The methods of the paper and their controls, as values: the one place that knows how their settings are spelled."""

from __future__ import annotations

from functools import cache
from typing import Any

from wane.runs.config import build_config
from wane.runs.identity import Method, method_of

__all__ = ["class_uniform", "er", "trend", "uniform_past", "weights"]


def er() -> Method:
    """Plain experience replay, what everything is compared with.

    >>> er().title
    'er'
    """
    return _method()


def weights(signal: str, **options: Any) -> Method:
    """Loss weights by a signal; `options` are other settings of learner.weights.

    >>> weights("log_tlr", epsilon=0.01).title
    'er, weights log_tlr (epsilon 0.01)'
    """
    return _method(weights=(("signal", signal), *options.items()))


def trend(signal: str, window: int = 10, slope: str = "raw", gamma: float = 2.0, **options: Any) -> Method:
    """A draw by the trend of a signal; `options` are other settings of learner.trend.

    >>> trend("loss", 3).title, trend("log_tlr", scope="past").title
    ('er, trend loss (window 3)', 'er, trend log_tlr (past)')
    """
    given = {"signal": signal, "window": window, "slope": slope, "gamma": gamma, **options}
    return _method(trend=tuple(given.items()))


def class_uniform(scope: str = "seen") -> Method:
    """The control: a class-wise draw without any signal.

    >>> class_uniform("past").title
    'er, class_uniform past'
    """
    return _method(memory=(("draw", "class_uniform"), ("scope", scope)))


def uniform_past() -> Method:
    """The other control: slots of past tasks only, with no regard to their class.

    >>> uniform_past().title
    'er, uniform past'
    """
    return _method(memory=(("draw", "uniform"), ("scope", "past")))


@cache
def _method(
    *, weights: tuple[Any, ...] = (), trend: tuple[Any, ...] = (), memory: tuple[tuple[str, str], ...] = ()
) -> Method:
    """The method of a run with these settings: so it equals that of a run, however a config holds them."""
    learner = {name: dict(given) for name, given in (("weights", weights), ("trend", trend)) if given}
    # a trend of images set aside needs some; how many is not of the method
    data = {"holdout": 1} if dict(trend).get("source") == "holdout" else {}
    return method_of(build_config({"learner": {"name": "er", **learner}, "memory": dict(memory), "data": data}))
