"""What a finished run says of itself: summary.json, checked when it is read. No torch here."""

from __future__ import annotations

from typing import Any

from wane.files import parse_json

__all__ = ["METRICS", "parse_summary"]

#: The sections that hold a number for each signal and summary, one for each setting that a run was tested in.
METRICS = ("metrics", "task_incremental", "corrected")


def parse_summary(data: bytes, path: str) -> dict[str, Any]:
    """The summary of a run; one that is damaged, or of something else, is an error that names it.

    >>> parse_summary(b'{"class_names": ["cat"], "seconds": 1.5}', "summary.json")["seconds"]
    1.5
    >>> parse_summary(b'{"class_names": ["cat"], "seconds": "long"}', "summary.json")
    Traceback (most recent call last):
    ...
    ValueError: summary.json is not the summary of a run (seconds is 'long'): restore it, or delete it and run the ...
    """
    advice = "restore it, or delete it and run the config again"
    try:
        summary = parse_json(data)
    except ValueError as error:
        raise ValueError(f"{path} is not JSON ({error}): {advice}") from None
    if wrong := _wrong(summary):
        raise ValueError(f"{path} is not the summary of a run ({wrong}): {advice}")
    found: dict[str, Any] = summary
    return found


def _wrong(summary: Any) -> str:
    """What tables and figures could not use; "" if they can use it all."""
    if not isinstance(summary, dict):
        return f"it is a {type(summary).__name__}"
    names = summary.get("class_names")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return f"class_names is {_short(names)}"
    for key in ("seconds", "steps"):
        if not _is_number(summary.get(key, 0)):
            return f"{key} is {_short(summary[key])}"
    for section in METRICS:
        signals = summary.get(section) or {}
        if not isinstance(signals, dict):
            return f"{section} is {_short(signals)}"
        for signal, values in signals.items():
            if not isinstance(values, dict):
                return f"{section}.{signal} is {_short(values)}"
            for name, value in values.items():
                if value is not None and not _is_number(value):
                    return f"{section}.{signal}.{name} is {_short(value)}"
    return ""


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300  # nor NaN


def _short(value: Any) -> str:
    text = repr(value) if not isinstance(value, int) or abs(value) < 10**30 else "a huge number"
    return text if len(text) <= 60 else f"{text[:57]}..."
