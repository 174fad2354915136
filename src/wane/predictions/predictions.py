"""Predictions saved by anything: logits or probabilities with labels, from .npz, .parquet, .csv, .pt, .pth.

A file holds ``logits`` or ``probabilities`` (N, C) and ``labels`` (N,), and may hold ``class_names`` (C,) and
``ids`` (N,); `ALIASES` lists the other names accepted. A table may instead have one column per class, named
``logit_<class>`` or ``prob_<class>``. Nothing in a file is ever executed. Whatever is wrong with it ends in a
`PredictionsError` of one sentence, in which rows and classes count from 0.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor

from wane.predictions import examples
from wane.predictions.contents import assemble
from wane.predictions.files import ALIASES, READERS, PredictionsError, one_sentence
from wane.registry import UnknownNameError
from wane.softmax.inputs import read_integers, read_scores
from wane.softmax.signals import signals

if TYPE_CHECKING:
    import os

    import polars as pl

__all__ = ["ALIASES", "Predictions", "PredictionsError", "load", "read_predictions"]


@dataclass(frozen=True, eq=False)
class Predictions:
    """What a model said about N samples of C classes; either ``logits`` or ``probabilities`` is given.

    >>> import torch
    >>> p = Predictions(labels=torch.tensor([0, 2]), logits=torch.tensor([[2.0, 0, 0], [0, 1, 3]]))
    >>> len(p), p.num_classes
    (2, 3)
    """

    labels: Tensor
    """(N,) int64."""
    logits: Tensor | None = None
    """(N, C), in the precision of the file."""
    probabilities: Tensor | None = None
    """(N, C), in the precision of the file."""
    class_names: tuple[str, ...] | None = None
    """(C,), where known."""
    ids: tuple[Hashable, ...] | None = None
    """(N,), what the samples of two files are matched by."""
    columns: Mapping[str, pl.Series] = field(default_factory=dict)
    """(N,) each: what the samples can be grouped by; see `wane.predictions.samples.Samples`."""
    path: Path = Path("<memory>")

    def __post_init__(self) -> None:
        try:
            self._check()
        except (TypeError, ValueError) as error:
            raise PredictionsError(f"{self.path} {error}") from None

    def _check(self) -> None:
        """Raise if the parts do not fit together; whether each row can be scored is left to whoever scores them."""
        labels = read_integers(self.labels, "labels")
        object.__setattr__(self, "labels", labels)
        scores = self.probabilities if self.logits is None else self.logits
        if scores is not None:
            read_scores(scores, "outputs")
            if labels.shape != scores.shape[:-1] or scores.ndim != 2:
                raise ValueError(f"has labels of shape {tuple(labels.shape)} for outputs of shape "
                                 f"{tuple(scores.shape)}: give (N,) labels and (N, C) outputs")  # fmt: skip
            if self.class_names is not None and len(self.class_names) != scores.shape[1]:
                raise ValueError(f"has {len(self.class_names)} class names for {scores.shape[1]} classes: give one for "
                                 "each")  # fmt: skip
        if self.ids is None:
            return
        if len(self.ids) != len(labels):
            raise ValueError(f"has {len(self.ids)} ids for {len(labels)} rows: give one for each row")
        if len(set(self.ids)) < len(self.ids):
            row_of: dict[Hashable, int] = {}
            twice = next((row, name) for row, name in enumerate(self.ids) if row_of.setdefault(name, row) != row)
            raise ValueError(f"has id {twice[1]!r} in rows {row_of[twice[1]]} and {twice[0]}: make the ids unique")

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def num_classes(self) -> int:
        """C."""
        scores = self.probabilities if self.logits is None else self.logits
        return 0 if scores is None else scores.shape[1]


def read_predictions(path: str | os.PathLike[str]) -> Predictions:
    """Read and check a file of predictions; the suffix of its name tells the format.

    ``example:<name>`` stands for one of the files that come with wane, which `wane.predictions.examples` lists.

    >>> read_predictions("example:digits_before").logits.shape
    torch.Size([899, 10])
    >>> import tempfile
    >>> import numpy as np
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/a.npz", logits=np.array([[2.0, 1.0], [0.5, 3.0]]), labels=np.array([0, 1]))
    ...     read_predictions(f"{folder}/a.npz").labels
    tensor([0, 1])
    """
    predictions = load(path)
    try:
        signals(predictions.logits, predictions.labels, probabilities=predictions.probabilities, compiled=False)
    except ValueError as error:
        raise PredictionsError(f"{predictions.path} cannot be scored, as {error}") from None
    return predictions


def load(path: str | os.PathLike[str]) -> Predictions:
    """As `read_predictions`, but whether every row can be scored is left to whoever scores them."""
    try:
        path = examples.find(path)
        reader, how = READERS[path.suffix.lower()]
    except UnknownNameError as error:
        raise PredictionsError(f"{path} is an {error}") from None
    if not path.is_file():
        raise PredictionsError(f"{path} is not a file: check the path")
    with one_sentence(path, how):
        try:
            parts = assemble(reader(path))
        except PredictionsError as error:
            raise PredictionsError(f"{path} {error}") from error
        return Predictions(**parts, path=path)
