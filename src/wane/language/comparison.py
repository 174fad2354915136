"""What a language model lost and gained between two files of tokens: by domain, by kind of token, by anything in them.

Only sums are kept, one row for each group and document, so files of any length can be compared. Tokens of a document
depend on each other: what varies from one sample to the next are documents, and intervals resample these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from wane.language.token_files import read_about

__all__ = ["MEASURES", "Measure", "Passage", "TokenComparison", "compare_tokens", "is_token_file"]

#: Fewer documents than this say nothing about the next one: no interval.
FEWEST = 5
#: Resamples of the documents, and how many at a time.
RESAMPLES, AT_ONCE = 2000, 100
#: Tokens of a passage, and how many of the worst are kept.
PASSAGE, WORST = 64, 40

Array = NDArray[np.float64]


class Measure(NamedTuple):
    """A mean over tokens, before and after."""

    title: str
    of: str  # how a token counts, in SQL of the file's columns
    higher_is_better: bool
    percent: bool = False


MEASURES: dict[str, Measure] = {
    "loss": Measure("loss, nats", "loss", False),
    "accuracy": Measure("accuracy", "accuracy", True, percent=True),
    "top5": Measure("among the first five", "CAST(rank <= 5 AS DOUBLE)", True, percent=True),
    "log_rank": Measure("log-rank", "LN(rank)", False),
    "ctl": Measure("confidence", "ctl", True),
}
#: What a file of two models has beside; it has no before and after.
BOTH = {"kl_base_tuned": "KL(base ‖ tuned), nats", "same_top": "same answer"}


@dataclass(frozen=True)
class Passage:
    """A stretch of text in which much was lost."""

    document: str
    domain: str
    lost: float  # nats in all
    tokens: pl.DataFrame  # text, kind, loss_before, loss_after, rank_before, rank_after


@dataclass(frozen=True, eq=False)
class TokenComparison:
    """What changed, for all tokens, for each value of each column of `by`, and for their combinations.

    Columns of a table: those that it is grouped by, ``tokens``, ``documents``; for each of `MEASURES` ``m_before``,
    ``m_after``, ``m_change``, ``m_low`` and ``m_high`` (null with fewer than 5 documents); ``perplexity_before``,
    ``perplexity_after`` and ``perplexity_ratio`` with its interval; ``lost`` and ``gained``, the shares of tokens whose
    answer turned wrong or right; ``kl_base_tuned`` and ``same_top`` where two models were scored in one pass; and
    ``verdict``. The intervals of a table hold together with probability 1 - alpha, however many groups it has.
    """

    tables: dict[tuple[str, ...], pl.DataFrame]
    """From () for all tokens to all columns of `by` together; worst first, by the change of the loss."""
    by: tuple[str, ...]
    alpha: float
    passages: list[Passage]
    notes: tuple[str, ...]

    @property
    def overall(self) -> dict[str, Any]:
        """The row of all tokens."""
        return self.tables[()].row(0, named=True)


def is_token_file(path: str | Path) -> bool:
    """Whether a file was written by `wane tokens`."""
    try:
        return Path(path).suffix == ".parquet" and Path(path).is_file() and read_about(path) is not None
    except (pl.exceptions.PolarsError, OSError):
        return False


def compare_tokens(
    before: str | Path, after: str | Path, *, by: Sequence[str] = ("domain", "kind"), alpha: float = 0.05,
    worst: int = WORST, seed: int = 0,
) -> TokenComparison:  # fmt: skip
    """Compare two files of the same tokens, scored by a base model and by one tuned from it.

    Args:
        before: of the base model.
        after: of the tuned one.
        by: columns to group by.
        alpha: intervals hold together with probability 1 - alpha.
        worst: how many passages to keep.
        seed: of the resampling.
    """
    if not 0 < alpha < 1:
        raise ValueError(f"alpha is {alpha}: give a rate of false alarms between 0 and 1, such as 0.05")
    _check_same(before, after)
    pairs = _pairs(before, after)
    known = pairs.collect_schema().names()
    for column in by:
        if column not in known or column.endswith(("_before", "_after")):
            groups = [name for name in known if not name.endswith(("_before", "_after"))]
            raise ValueError(f"there is no column {column!r} to group by: choose from {', '.join(groups)}")
    sums = _sums(pairs, tuple(dict.fromkeys(by)), known)
    levels = [(), *((column,) for column in by), *([tuple(by)] if len(by) > 1 else [])]
    tables = {level: _table(sums, level, alpha, seed) for level in dict.fromkeys(levels)}
    notes = []
    few = sum(int((table["documents"] < FEWEST).sum()) for table in tables.values())
    if few:
        notes.append(f"{few} groups have fewer than {FEWEST} documents: shown, without an interval.")
    if not any(name in known for name in BOTH):
        notes.append(
            "KL is known only where both models were scored in one pass: wane tokens BASE ... --against TUNED."
        )
    return TokenComparison(tables, tuple(by), alpha, _worst(pairs, worst), tuple(notes))


def _check_same(before: str | Path, after: str | Path) -> None:
    about = [read_about(path) for path in (before, after)]
    for path, found in zip((before, after), about, strict=True):
        if found is None:
            raise ValueError(f"{path} is not a file of tokens: make it with wane tokens")
    a, b = about
    assert a is not None
    assert b is not None
    same = {
        "tokenizers": (a.tokenizer, b.tokenizer),
        "vocabularies": (a.vocabulary, b.vocabulary),
        "texts": (a.texts, b.texts),
        "contexts": ((a.longest, a.stride, a.begins), (b.longest, b.stride, b.begins)),
        "numbers of tokens": (a.tokens, b.tokens),
    }
    for what, (x, y) in same.items():
        if x != y:
            raise ValueError(f"{before} and {after} are of different {what} ({_said(x)} and {_said(y)}): score the "
                             "same texts in the same way by both models")  # fmt: skip


def _said(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _pairs(before: str | Path, after: str | Path) -> pl.LazyFrame:
    """Both files side by side, row by row: they have the same tokens in the same order."""
    first, second = pl.scan_parquet(before), pl.scan_parquet(after)
    values = [name for name in ("loss", "accuracy", "rank", "ctl") if name in first.collect_schema()]
    shared = [name for name in first.collect_schema() if name not in ("cm", "tlr", "log_tlr", "rtlr", "nkl")]
    left = first.select(shared).rename({name: f"{name}_before" for name in values})
    right = second.select(pl.col(name).alias(f"{name}_after") for name in values)
    return pl.concat([left, right], how="horizontal")


def _sums(pairs: pl.LazyFrame, by: tuple[str, ...], known: Sequence[str]) -> pl.DataFrame:
    """The sum of everything over the tokens of each group and document."""
    sums = [pl.len().alias("tokens").cast(pl.Float64)]
    for name, measure in MEASURES.items():
        for when in ("before", "after"):
            text = measure.of.replace("rank", f"rank_{when}") if "rank" in measure.of else f"{measure.of}_{when}"
            sums.append(pl.sql_expr(text).cast(pl.Float64).sum().alias(f"{name}_{when}"))
    right, still = pl.col("accuracy_before") == 1, pl.col("accuracy_after") == 1
    sums += [
        (right & ~still).sum().cast(pl.Float64).alias("lost"),
        (~right & still).sum().cast(pl.Float64).alias("gained"),
    ]
    sums += [pl.col(name).cast(pl.Float64).sum() for name in BOTH if name in known]
    found = pairs.group_by([*by, *(["document"] if "document" not in by else [])]).agg(sums)
    return found.sort([*by, "document"]).collect(engine="streaming")


def _table(sums: pl.DataFrame, level: tuple[str, ...], alpha: float, seed: int) -> pl.DataFrame:
    """A row for each group, with intervals that hold together."""
    values = [name for name, kind in sums.schema.items() if kind == pl.Float64]
    per_document = sums.group_by([*level, *(["document"] if "document" not in level else [])], maintain_order=True).agg(
        pl.col(values).sum()
    )
    groups = per_document.group_by(level, maintain_order=True) if level else per_document.group_by(pl.lit(0).alias("_"))
    table = groups.agg(pl.col(values).sum(), pl.col("document").n_unique().alias("documents")).drop("_", strict=False)
    means = table.with_columns(pl.col(name) / pl.col("tokens") for name in values if name != "tokens")
    means = means.with_columns((pl.col(f"{m}_after") - pl.col(f"{m}_before")).alias(f"{m}_change") for m in MEASURES)
    keys = per_document.select(level).unique(maintain_order=True).with_row_index("_g") if level else None
    of = (
        per_document.join(keys, on=list(level), how="left", maintain_order="left")["_g"].to_numpy()
        if keys is not None
        else np.zeros(len(per_document), dtype=np.int64)
    )
    changes = np.stack(
        [(per_document[f"{m}_after"] - per_document[f"{m}_before"]).to_numpy() for m in MEASURES], axis=1
    )
    low, high = _intervals(
        of, len(table), per_document["document"].to_numpy(), changes, per_document["tokens"].to_numpy(), alpha, seed
    )
    for k, name in enumerate(MEASURES):
        means = means.with_columns(pl.Series(f"{name}_low", low[:, k]), pl.Series(f"{name}_high", high[:, k]))
    for when in ("before", "after"):
        means = means.with_columns(pl.col(f"loss_{when}").exp().alias(f"perplexity_{when}"))
    for name, of_loss in (("ratio", "change"), ("low", "low"), ("high", "high")):
        means = means.with_columns(pl.col(f"loss_{of_loss}").exp().alias(f"perplexity_{name}"))
    verdict = (
        pl.when(pl.col("loss_low").is_nan()).then(pl.lit("few"))
        .when(pl.col("loss_low") > 0).then(pl.lit("lost"))
        .when(pl.col("loss_high") < 0).then(pl.lit("gained"))
        .otherwise(pl.lit("steady"))
    )  # fmt: skip
    whole = means.with_columns(verdict.alias("verdict"), pl.col("tokens").cast(pl.Int64))
    return whole.with_columns(pl.col(pl.Float64).fill_nan(None)).sort(
        "loss_change", descending=True, maintain_order=True
    )


def _intervals(
    of: Any, size: int, documents: Any, changes: Array, tokens: Array, alpha: float, seed: int
) -> tuple[Array, Array]:
    """Low and high (groups, measures), simultaneous over the groups.

    Documents are drawn with replacement. How far the worst group strays, in units of its own deviation, gives the
    factor that all groups share: it answers for their number, and knows how much they depend on each other.
    """
    units, rows = np.unique(documents, return_inverse=True)
    kinds = changes.shape[1]
    whole = np.zeros((len(units), size * (kinds + 1)))
    for k in range(kinds):
        np.add.at(whole, (rows, of * (kinds + 1) + k), changes[:, k])
    np.add.at(whole, (rows, of * (kinds + 1) + kinds), tokens)
    totals = whole.sum(0).reshape(size, kinds + 1)
    theta = totals[:, :kinds] / totals[:, kinds:]
    g = np.random.default_rng(seed)
    drawn = []
    for begin, end in pairwise([*range(0, RESAMPLES, AT_ONCE), RESAMPLES]):
        weights = g.multinomial(len(units), np.full(len(units), 1 / len(units)), size=end - begin)
        sums = (weights @ whole).reshape(end - begin, size, kinds + 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            drawn.append(sums[..., :kinds] / sums[..., kinds:])
    replicates = np.concatenate(drawn)
    enough = np.bincount(of, minlength=size) >= FEWEST
    error = np.nanstd(replicates, axis=0, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        strays = np.abs(replicates - theta) / error
    strays[:, ~enough] = 0.0
    factor = np.quantile(np.nan_to_num(strays, posinf=0.0).max(axis=1), 1 - alpha, axis=0)
    half = np.where(enough[:, None], factor * error, np.nan)
    return theta - half, theta + half


def _worst(pairs: pl.LazyFrame, count: int) -> list[Passage]:
    """The passages that lost most, in nats, each with its tokens; every domain has its share."""
    if count < 1:
        return []
    change = pl.col("loss_after") - pl.col("loss_before")
    passage = pairs.with_columns((pl.col("position") // PASSAGE).alias("_passage"))
    most = passage.group_by("document", "_passage").agg(change.sum().alias("_lost"), pl.col("domain").first())
    top = most.sort(["_lost", "document", "_passage"], descending=[True, False, False]).collect(engine="streaming")
    spread = top.filter(pl.col("_lost") > 0).group_by("document", maintain_order=True).head(3)
    ordered = spread.sort(["_lost", "document", "_passage"], descending=[True, False, False])
    share = -(-count // max(1, ordered["domain"].n_unique()))
    chosen = ordered.group_by("domain", maintain_order=True).head(share).sort("_lost", descending=True).head(count)
    chosen = chosen.select("document", "_passage", "_lost")
    wanted = ["document", "_passage", "_lost", "domain", "position", "text", "kind"]
    wanted += [f"{name}_{when}" for name in ("loss", "rank") for when in ("before", "after")]
    rows = passage.join(chosen.lazy(), on=["document", "_passage"], how="inner").select(wanted)
    parts = (
        rows.collect(engine="streaming")
        .sort(["document", "position"])
        .partition_by("document", "_passage", as_dict=True)
    )
    found = []
    for document, number, lost in chosen.iter_rows():
        part = parts[document, number]
        found.append(
            Passage(document, part["domain"][0], float(lost), part.drop("document", "_passage", "_lost", "domain"))
        )
    return found
