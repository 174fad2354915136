"""What a model makes of every token of some documents: one forward pass, the signals, and where each token stands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wane.language.causal_model import CausalModel
from wane.language.kinds import is_code, kinds_of
from wane.language.texts import Document
from wane.language.windows import Window, batches, windows
from wane.softmax.registry import SIGNALS
from wane.softmax.signals import linear_pair_signals, linear_signals

__all__ = ["DECILES", "PAIR", "Encoded", "deciles", "encode", "score_documents"]

DECILES = 10
#: What is known of a token only where two models were asked.
PAIR = ("kl_base_tuned", "same_top")

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Encoded:
    """A document as tokens. `ids` begins with the tokenizer's own first token where it has one; `ahead` counts it."""

    document: Document
    ids: Integers
    offsets: Integers  # (tokens, 2), of the document's own
    ahead: int

    @property
    def first(self) -> int:
        """The first token of the document that can be scored: without one ahead of it, the very first cannot be."""
        return 1 - self.ahead

    @property
    def scored(self) -> int:
        """How many tokens are scored."""
        return max(0, len(self.ids) - 1)

    def pieces(self) -> list[str]:
        """The text of every token that is scored; put together they are the text, from its beginning."""
        text, found, before = self.document.text, [], 0
        for stop in self.offsets[self.first :, 1].tolist():
            found.append(text[before:stop])
            before = max(before, stop)
        return found


def encode(model: CausalModel, document: Document) -> Encoded:
    """The tokens of a document."""
    tokenizer = model.tokenizer
    made = tokenizer(document.text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    begin = model.begins_with
    offsets = np.array(made.offset_mapping, dtype=np.int64).reshape(-1, 2)
    return Encoded(document, np.array([*begin, *made.input_ids], dtype=np.int64), offsets, len(begin))


def deciles(counts: Integers) -> NDArray[np.int8]:
    """How common each token of the vocabulary is, 1 for the most common: each decile holds a tenth of all occurrences.

    >>> deciles(np.array([5, 80, 10, 5, 0])).tolist()  # by the middle of the tenths that a token fills
    [10, 5, 9, 10, 10]
    """
    order = np.lexsort((np.arange(len(counts)), -counts))
    sums = np.cumsum(counts[order])
    middle = (sums - counts[order] / 2) / max(1, sums[-1])
    found = np.empty(len(counts), dtype=np.int8)
    found[order] = np.minimum(DECILES, 1 + (middle * DECILES).astype(np.int64))
    return found


def score_documents(
    model: CausalModel, encoded: Sequence[Encoded], *, stride: int, most: int, against: CausalModel | None = None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """The table of every document, as (index, columns), in their order; with `against`, of both models.

    Columns: `position`, `token`, `text`, `offset`, `kind`, the signals, `rank`; with `against` also those of `PAIR`,
    and the other model's signals as a dict under ``"tuned"``.

    Args:
        model: who is asked.
        encoded: the documents; all of them in the batches of this call, which alone decide how numbers are rounded.
        stride: see `windows`.
        most: tokens of a batch, padding included.
        against: a second model of the same tokenizer.
    """
    longest = model.longest if against is None else min(model.longest, against.longest)
    made = [w for i, e in enumerate(encoded) for w in windows(len(e.ids), longest=longest, stride=stride, document=i)]
    models = [model] if against is None else [model, against]
    names = (*SIGNALS, "rank")
    width = len(names) * len(models) + (len(PAIR) if against is not None else 0)
    values = [np.full((e.scored, width), np.nan, dtype=np.float64) for e in encoded]
    for batch in batches(made, most=most):
        found = _score_batch(models, encoded, batch).cpu().numpy()
        begin = 0
        for window in batch:
            count = window.stop - window.first
            values[window.document][window.first - 1 : window.stop - 1] = found[begin : begin + count]
            begin += count
    for i, (e, table) in enumerate(zip(encoded, values, strict=True)):
        columns = _columns(e)
        for m in range(len(models)):
            part = table[:, m * len(names) : (m + 1) * len(names)]
            of_model = {
                name: part[:, k].astype(np.int32 if name == "rank" else np.float32) for k, name in enumerate(names)
            }
            if m == 0:
                columns |= of_model
            else:
                columns["tuned"] = of_model
        if against is not None:
            columns |= {name: table[:, k - len(PAIR)].astype(np.float32) for k, name in enumerate(PAIR)}
        yield i, columns


def _columns(e: Encoded) -> dict[str, Any]:
    """What a token is, whatever the model."""
    document = e.document
    kinds = kinds_of(document.text, e.offsets.tolist(), code=is_code(document.domain, document.name))
    return {
        "position": np.arange(e.first, e.first + e.scored, dtype=np.int32),
        "token": e.ids[1:].astype(np.int32),
        "text": e.pieces(),
        "offset": e.offsets[e.first :, 0].astype(np.int32),
        "kind": kinds[e.first :],
    }


@torch.no_grad()
def _score_batch(models: Sequence[CausalModel], encoded: Sequence[Encoded], batch: Sequence[Window]) -> Tensor:
    """(tokens scored, columns), window after window."""
    longest = max(window.length for window in batch)
    ids = torch.zeros(len(batch), longest, dtype=torch.int64)
    mask = torch.zeros(len(batch), longest, dtype=torch.int64)
    labels, rows = [], []
    for i, window in enumerate(batch):
        tokens = torch.from_numpy(encoded[window.document].ids[window.start : window.stop])
        ids[i, : window.length], mask[i, : window.length] = tokens[:-1], 1
        labels.append(tokens[window.first - window.start :])
        rows.append(torch.arange(window.first - 1, window.stop - 1) - window.start + i * longest)
    chosen, label = torch.cat(rows), torch.cat(labels)
    hidden = [_hidden(model, ids, mask, chosen) for model in models]
    if len(models) == 1:
        (model,) = models
        scored = linear_signals(hidden[0], model.weight, label.to(model.device), model.bias)
        return torch.stack([column.double() for column in scored], dim=1)
    first, second = models
    pair = linear_pair_signals(
        (hidden[0], hidden[1].to(hidden[0])), (first.weight, second.weight.to(first.weight)), label.to(first.device),
        (first.bias, None if second.bias is None else second.bias.to(first.weight)),
    )  # fmt: skip
    return torch.stack([c.double() for c in (*pair.base, *pair.tuned, pair.kl_base_tuned, pair.same_top)], dim=1)


def _hidden(model: CausalModel, ids: Tensor, mask: Tensor, chosen: Tensor) -> Tensor:
    """The last hidden states of the chosen tokens."""
    states = model.body(ids.to(model.device), mask.to(model.device))
    return states.reshape(-1, states.shape[-1])[chosen.to(model.device)]
