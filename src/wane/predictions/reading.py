"""Any file of predictions as measured samples: logits, probabilities, signals, and what other tools write."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from wane.predictions import examples, lm_eval, vllm
from wane.predictions.files import one_sentence
from wane.predictions.predictions import Predictions, load
from wane.predictions.samples import Samples, measure
from wane.predictions.signal_files import is_signal_file, read_signals

__all__ = ["read_outputs", "read_samples"]


def read_samples(path: str | os.PathLike[str], *, normalise: str = "none", vocabulary: int | None = None) -> Samples:
    """Read whatever holds predictions; what is in the file tells the format.

    * Logits or probabilities, in any of the formats of `wane.read_predictions`.
    * Signals, as `wane.SignalWriter` writes them.
    * ``samples_*.jsonl`` of lm-evaluation-harness, or the folder that it wrote them to.
    * Prompt logprobs of vLLM, as JSON lines or one JSON file.

    Args:
        path: the file, or ``example:<name>``.
        normalise: of lm-evaluation-harness's multiple choice: ``"none"`` compares the choices by log-likelihood, as its
            ``acc`` does, ``"characters"`` by log-likelihood per character (``acc_norm``), ``"bytes"`` per byte
            (``acc_bytes``).
        vocabulary: of vLLM's logprobs: the number of tokens that the model knows, which ranks are scaled by.

    >>> len(read_samples("example:digits_after"))
    899
    """
    place = examples.find(path)
    lm_eval.LENGTHS[normalise]  # an unknown name is an error, whatever the file is
    with one_sentence(place, "what wrote it"):
        if place.is_dir():
            return lm_eval.read_lm_eval(place, normalise)
        if place.is_file() and place.suffix.lower() in (".jsonl", ".ndjson", ".json"):
            first = _first_record(place)
            if lm_eval.is_lm_eval(first):
                return lm_eval.read_lm_eval(place, normalise)
            if vllm.is_vllm(first):
                return vllm.read_vllm(place, vocabulary)
        if place.is_file() and is_signal_file(place):
            return read_signals(place)
    return measure(load(place))


def read_outputs(path: str | os.PathLike[str]) -> Predictions | None:
    """The logits or probabilities of a file that holds them, not yet scored; None for one that holds something else.

    >>> read_outputs("example:digits_after").num_classes
    10
    """
    place = examples.find(path)
    if not place.is_file() or is_signal_file(place):
        return None
    if place.suffix.lower() in (".jsonl", ".ndjson", ".json"):
        first = _first_record(place)
        if lm_eval.is_lm_eval(first) or vllm.is_vllm(first):
            return None
    return load(place)


def _first_record(path: Path) -> Any:
    """The first line of JSON lines, or the first value of a JSON list."""
    with path.open(encoding="utf-8") as file:
        if path.suffix.lower() == ".json":
            whole = json.load(file)
            return whole[0] if isinstance(whole, list) and whole else whole
        line = next((line for line in file if line.strip()), "{}")
    return json.loads(line)
