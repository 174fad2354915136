"""Prompt logprobs of vLLM, saved as JSON: every token of a prompt as a sample, every prompt as a document.

At each position vLLM gives the prompt's own token and the k likeliest (``prompt_logprobs=k``), each with its logprob
and its rank in the vocabulary. That is enough for every signal: the loss is minus the logprob, cm needs the likeliest,
and the ranks need the size of the vocabulary, which the file does not have (`vocabulary`).

Ranks: vLLM counts the tokens that are at least as likely, so a tie goes against the token, and in 16 bits ties are
common; wane counts those that are likelier. Among the k likeliest this is mended exactly, as everything likelier is
there; a token beyond them keeps vLLM's rank, which is too high by the number of its ties.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray

from wane.predictions.files import PredictionsError
from wane.predictions.samples import Samples, complete
from wane.softmax.registry import SIGNALS, Sample

__all__ = ["is_vllm", "read_vllm"]

Record = dict[str, Any]

#: A logprob of minus infinity, as the server writes it: JSON has none.
NEVER = -9999.0
#: What an answer of the server says of itself, and no group.
_NO_GROUP = ("id", "object", "created", "custom_id", "request_id", "document", "position", "prompt")


def is_vllm(record: Mapping[str, Any]) -> bool:
    """Whether a line of a file is an answer of vLLM that has prompt logprobs."""
    return any(True for _ in _prompts(record))


def read_vllm(path: Path, vocabulary: int | None = None) -> Samples:
    """The tokens of every prompt in a file of JSON lines, or of one JSON value.

    Lines are answers of the server, lines of its batch output, or requests' outputs that were saved as dicts.
    """
    tokens: list[tuple[int, int, float, float, int, bool]] = []
    documents: list[str] = []
    positions: list[int] = []
    names: dict[int, str] = {}
    extras: list[Record] = []
    sizes: list[int] = []
    for number, record in enumerate(_records(path)):
        for place, prompt in enumerate(_prompts(record)):
            called = _called(record, number)
            before = len(tokens)
            for position, entry in enumerate(prompt["prompt_logprobs"]):
                if entry is None:
                    continue  # nothing comes before the first token
                own = _own(prompt, position, entry)
                try:
                    tokens.append(_token(own, entry))
                except (KeyError, TypeError, ValueError) as error:
                    what = f"{str(entry)[:80]} at position {position} of {called!r}"
                    raise PredictionsError(
                        f"{path} has {what}, which is not as vLLM writes it: save prompt_logprobs as they are"
                    ) from error
                names[own] = str(entry[str(own)].get("decoded_token") or own)
                positions.append(position)
            documents.append(called if place == 0 else f"{called}.{place}")
            sizes.append(len(tokens) - before)
            extras.append({k: v for k, v in record.items() if isinstance(v, str | int) and k not in _NO_GROUP})
    if not tokens:
        raise PredictionsError(f"{path} has no prompt logprobs: ask for them with prompt_logprobs=1 and max_tokens=1")
    labels, answers, loss, gap, rank, sure = (np.array(column) for column in zip(*tokens, strict=True))
    each = np.repeat(np.arange(len(sizes)), sizes)
    columns = {"document": pl.Series(documents, dtype=pl.String).gather(each), "position": pl.Series(positions)}
    for name in [name for name in extras[0] if all(name in more for more in extras)]:
        columns.setdefault(name, pl.Series([str(more[name]) for more in extras]).gather(each))
    values = _values(loss, gap, rank, vocabulary)
    if not np.isnan(gap).any():
        values["answer"] = answers
    return Samples(
        labels=labels,
        values=complete(values),
        num_classes=vocabulary or 0,
        class_names=tuple(names.get(i, str(i)) for i in range(int(max(labels.max(), answers.max())) + 1)),
        keys={name: columns[name] for name in ("document", "position")},
        columns=columns,
        path=path,
        notes=tuple(_notes(path, gap, sure, vocabulary)),
    )


def _records(path: Path) -> Iterator[Record]:
    with path.open(encoding="utf-8") as file:
        if path.suffix.lower() == ".json":
            whole = json.load(file)
            yield from whole if isinstance(whole, list) else [whole]
        else:
            yield from (json.loads(line) for line in file if line.strip())


def _prompts(record: Any) -> Iterator[Record]:
    """Every part of a record that has prompt logprobs: the record, its choices, or the body of a batch's line."""
    if not isinstance(record, dict):
        return
    if isinstance(record.get("prompt_logprobs"), list):
        yield record
    for choice in record.get("choices") or ():
        yield from _prompts(choice)
    for inside in ("response", "body"):
        yield from _prompts(record.get(inside))


def _called(record: Record, number: int) -> str:
    """What the user called it, or its place in the file: the server's own ids differ from one run to the next."""
    names = [
        str(record[name]) for name in ("custom_id", "document", "request_id", "id") if record.get(name) is not None
    ]
    return next((name for name in names if not name.startswith(("cmpl-", "chatcmpl-", "batch_", "vllm-"))), str(number))


def _own(prompt: Record, position: int, entry: Record) -> int:
    """The prompt's own token at a position; vLLM writes it first, where the tokens themselves were not saved."""
    ids = prompt.get("prompt_token_ids")
    return int(ids[position]) if isinstance(ids, list) and len(ids) > position else int(next(iter(entry)))


def _token(own: int, entry: Record) -> tuple[int, int, float, float, int, bool]:
    """Label, answer, loss, gap, rank, and whether the rank is free of ties."""
    logprobs = {int(token): _logprob(value["logprob"]) for token, value in entry.items()}
    mine, rank = logprobs[own], int(entry[str(own)]["rank"])
    likelier = sum(logprob > mine for logprob in logprobs.values())
    best = max(logprobs, key=lambda token: (logprobs[token], token == own))
    # All that is likelier is listed if the token is among the k likeliest, which are the others of the list and itself.
    listed = rank <= len(logprobs) or any(logprob <= mine for token, logprob in logprobs.items() if token != own)
    if listed:
        return own, best, -mine, logprobs[best] - mine, 1 + likelier, True
    gap = logprobs[best] - mine if len(logprobs) > 1 else math.nan
    return own, best, -mine, gap, rank, False


def _logprob(value: float | None) -> float:
    return -math.inf if value is None or value <= NEVER else min(float(value), 0.0)


def _values(
    loss: NDArray[Any], gap: NDArray[Any], rank: NDArray[Any], vocabulary: int | None
) -> dict[str, NDArray[Any]]:
    if vocabulary is not None and vocabulary < rank.max():
        raise PredictionsError(
            f"vocabulary is {vocabulary}, but a token has rank {rank.max()}: give the model's vocab_size"
        )
    tensor = torch.from_numpy(np.asarray(loss, dtype=np.float64))
    p, above = torch.exp(-tensor), torch.from_numpy(rank - 1.0)
    p_max = torch.from_numpy(np.where(rank == 1, 0, gap)).exp() * p
    size = vocabulary or 2
    sample = Sample(p, p_max, tensor, above, above + 1, size, math.log(size))
    values: dict[str, NDArray[Any]] = {"rank": rank}
    for name, row in SIGNALS.items():
        if row.of is not None and (vocabulary is not None or name in ("accuracy", "loss", "ctl", "cm")):
            column = torch.as_tensor(row.of(sample)).double().numpy()
            if not np.isnan(column).any():
                values[name] = column
    if not np.isnan(gap).any():
        values["gap"] = gap
    return values


def _notes(path: Path, gap: NDArray[Any], sure: NDArray[np.bool_], vocabulary: int | None) -> Iterator[str]:
    if vocabulary is None:
        yield f"{path.name} does not tell the size of the vocabulary: tlr, log_tlr, rtlr and nkl are left out."
    if np.isnan(gap).any():
        yield f"{path.name} has the prompt's own tokens only: cm is left out; with prompt_logprobs=1 it would be there."
    if count := int((~sure).sum()):
        yield (
            f"In {path.name} the rank of {count:,} of {len(sure):,} tokens is vLLM's own, which counts ties against "
            "the token; that of the others is exact."
        )
