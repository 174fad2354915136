"""The table of all tokens as a file, made part by part: a command that was killed goes on, and ends with the same file.

A part is some documents in a row, decided by the texts alone. It is scored by itself and written whole or not at all,
so it has the same numbers wherever and whenever it is done.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from wane.errors import RunError
from wane.files import replace_file
from wane.language.causal_model import CausalModel, ModelError
from wane.language.texts import Document, TextsError, find_files, read_documents
from wane.language.tokens import Encoded, Integers, deciles, encode, score_documents
from wane.predictions.signal_files import signal_metadata
from wane.softmax.registry import SIGNALS

__all__ = ["ABOUT", "AboutTokens", "RunParts", "TokenSettings", "Work", "do_parts", "read_about", "score_texts"]

#: The key of the file's metadata that says what is in it.
ABOUT = "wane.tokens"
SCHEMA = 1


@dataclass(frozen=True)
class TokenSettings:
    """How texts are read and scored.

    Attributes:
        by: the column of JSON lines that holds the domain.
        text: the column that holds the text.
        keep: further columns to keep.
        stride: new tokens in each window; None for half of what the model reads.
        batch_tokens: tokens of a batch, padding included.
        part_tokens: tokens after which a part ends, at the next end of a document.
    """

    by: str | None = None
    text: str = "text"
    keep: tuple[str, ...] = ()
    stride: int | None = None
    batch_tokens: int = 8192
    part_tokens: int = 262_144

    def __post_init__(self) -> None:
        for name in ("stride", "batch_tokens", "part_tokens"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}: give a number of tokens from 1")


@dataclass(frozen=True)
class AboutTokens:
    """What a file of tokens says of itself; two files can be compared where tokenizer, texts and context agree."""

    model: str
    fingerprint: str
    tokenizer: str
    texts: str
    vocabulary: int
    longest: int
    stride: int
    begins: bool
    tokens: int
    against: str | None = None
    schema: int = SCHEMA


@dataclass(frozen=True)
class Plan:
    """The documents of each part, and what is known of all of them."""

    parts: list[range]
    tokens: list[int]  # scored, by part
    counts: Integers  # of every token of the vocabulary
    texts: str  # fingerprint
    short: int  # documents without a token to score


@dataclass(frozen=True, eq=False)
class Work:
    """All that it takes to score a part."""

    model: CausalModel
    against: CausalModel | None
    files: Sequence[tuple[str, Path]]
    settings: TokenSettings
    about: AboutTokens
    common: Any  # the decile of every token of the vocabulary


#: Does the parts that are missing, whatever it takes: work, folder, what is missing now, and whom to tell.
RunParts = Callable[[Work, Path, Callable[[], dict[int, range]], Callable[[], None]], None]


def score_texts(
    model: CausalModel,
    paths: Sequence[str | Path],
    out: str | Path,
    *,
    settings: TokenSettings | None = None,
    against: CausalModel | None = None,
    against_out: str | Path | None = None,
    told: Callable[[int, int], None] | None = None,
    run_parts: RunParts | None = None,
) -> AboutTokens:
    """Score every token of some texts into a Parquet file; called again after a kill, it goes on.

    Args:
        model: who is asked.
        paths: texts, or folders of texts.
        out: the file to write.
        settings: how.
        against: a tuned model of the same tokenizer. Its signals go into a file of their own, and both files have
            ``kl_base_tuned`` and ``same_top``.
        against_out: that file.
        told: called with the tokens done and those in all, after every part.
        run_parts: who does the parts; default: this process, one after the other. See `wane.language.shards`.
    """
    settings, out = settings or TokenSettings(), Path(out)
    files = find_files(paths)
    plan = make_plan(model, files, settings)
    if not sum(plan.tokens):
        raise TextsError(f"no token can be scored: the {plan.parts[-1].stop if plan.parts else 0} texts are empty or "
                         "have one token; give longer ones")  # fmt: skip
    about = describe(model, plan, settings, against)
    targets = [out] if against is None else [out, Path(against_out or out.with_suffix(f".tuned{out.suffix}"))]
    _check_pair(model, against, targets)
    folder = out.with_name(f".{out.name}.parts")
    _begin(folder, about, settings)
    common = deciles(plan.counts)
    if told is not None:
        told(0, sum(plan.tokens))
    work = Work(model, against, files, settings, about, common)

    def progress() -> None:
        if told is not None:
            missing = missing_parts(folder, plan.parts, len(targets))
            told(sum(plan.tokens) - sum(plan.tokens[n] for n in missing), sum(plan.tokens))

    if run_parts is None:
        do_parts(work, folder, missing_parts(folder, plan.parts, len(targets)), progress)
    else:
        run_parts(work, folder, lambda: missing_parts(folder, plan.parts, len(targets)), progress)
    for k, target in enumerate(targets):
        _merge([_paths(folder, n, 2)[k] for n in range(len(plan.parts))], target, about, tuned=k == 1)
    shutil.rmtree(folder, ignore_errors=True)
    return about


def make_plan(model: CausalModel, files: Sequence[tuple[str, Path]], settings: TokenSettings) -> Plan:
    """Read all texts once: how many tokens there are, which, and where a part ends."""
    counts: Integers = np.zeros(len(model.weight), dtype=np.int64)
    digest = hashlib.sha256()
    parts: list[range] = []
    sizes: list[int] = []
    begin = short = size = number = 0
    for number, e in enumerate((encode(model, document) for document in _documents(files, settings)), 1):
        digest.update(json.dumps([e.document.name, e.document.domain, e.document.text]).encode())
        counts += np.bincount(e.ids[1:], minlength=len(counts))
        size += e.scored
        short += not e.scored
        if size >= settings.part_tokens:
            parts.append(range(begin, number))
            sizes.append(size)
            begin, size = number, 0
    if begin < number:
        parts.append(range(begin, number))
        sizes.append(size)
    return Plan(parts, sizes, counts, digest.hexdigest()[:16], short)


def describe(
    model: CausalModel, plan: Plan, settings: TokenSettings, against: CausalModel | None = None
) -> AboutTokens:
    """What the file will say of itself."""
    longest = model.longest if against is None else min(model.longest, against.longest)
    stride = max(1, longest // 2) if settings.stride is None else settings.stride
    if stride > longest:
        raise ValueError(f"stride is {stride}: give at most {longest}, the number of tokens that the model reads")
    return AboutTokens(
        model.name, model.fingerprint, model.tokenizer_fingerprint, plan.texts, len(model.weight), longest, stride,
        bool(model.begins_with), sum(plan.tokens), None if against is None else against.fingerprint,
    )  # fmt: skip


def missing_parts(folder: Path, parts: Sequence[range], models: int) -> dict[int, range]:
    """The parts that are not done, by number."""
    return {
        number: part
        for number, part in enumerate(parts)
        if not all(path.exists() for path in _paths(folder, number, models))
    }


def do_parts(work: Work, folder: Path, parts: Mapping[int, range], done: Callable[[], None] = lambda: None) -> None:
    """Score some parts, one after the other; only their documents are made tokens of."""
    models = 1 if work.against is None else 2
    documents = enumerate(_documents(work.files, work.settings))
    for number, part in sorted(parts.items()):
        chosen = [encode(work.model, document) for i, document in _between(documents, part)]
        frames = score_part(work.model, chosen, work.common, work.about, work.settings, work.against)
        for path, frame in zip(_paths(folder, number, models), frames, strict=True):
            _write(path, frame.write_parquet)
        done()


def _between(documents: Iterator[tuple[int, Document]], part: range) -> Iterator[tuple[int, Document]]:
    """The documents of a part; those before it are passed over, those after it left for later."""
    for i, document in documents:
        if i in part:
            yield i, document
        if i == part.stop - 1:
            return


def _paths(folder: Path, number: int, models: int) -> list[Path]:
    return [folder / f"{number:06d}.{k}.parquet" for k in range(models)]


def score_part(
    model: CausalModel, documents: Sequence[Encoded], common: Any, about: AboutTokens, settings: TokenSettings,
    against: CausalModel | None = None,
) -> list[Any]:  # fmt: skip
    """The table of a part, for each model."""
    import polars as pl

    tables: list[list[pl.DataFrame]] = [[] for _ in range(1 if against is None else 2)]
    scored = score_documents(model, documents, stride=about.stride, most=settings.batch_tokens, against=against)
    for i, columns in scored:
        document, n = documents[i].document, documents[i].scored
        names = {"document": [document.name] * n, "domain": [document.domain] * n}
        names |= {key: [value] * n for key, value in document.columns.items()}
        tuned = columns.pop("tuned", {})
        columns["decile"] = common[columns["token"]]
        for table, of_model in zip(tables, ({}, tuned), strict=False):
            typed = dict.fromkeys((*names, "text", "kind"), pl.String)  # also where a text is too short for a row
            table.append(pl.DataFrame({**names, **columns, **of_model}, schema_overrides=typed))
    return [pl.concat(table) for table in tables]


def read_about(path: str | Path) -> AboutTokens | None:
    """What a file of tokens says of itself; None for any other file."""
    import polars as pl

    said = pl.read_parquet_metadata(path).get(ABOUT)
    if said is None:
        return None
    found = json.loads(said)
    return AboutTokens(**{name: found[name] for name in AboutTokens.__dataclass_fields__ if name in found})


def _documents(files: Sequence[tuple[str, Path]], settings: TokenSettings) -> Iterator[Document]:
    return read_documents(files, by=settings.by, text=settings.text, keep=settings.keep)


def _check_pair(model: CausalModel, against: CausalModel | None, targets: Sequence[Path]) -> None:
    for target in targets:
        if not target.parent.is_dir():
            raise NotADirectoryError(f"{target} cannot be written, as {target.parent} is not a folder: make it first")
    if against is None:
        return
    if targets[0] == targets[1]:
        raise ValueError(f"both models would be written to {targets[0]}: give two names")
    if against.tokenizer_fingerprint != model.tokenizer_fingerprint:
        raise ModelError(f"{model.name} and {against.name} have different tokenizers, so tokens cannot be compared: "
                         "score a model that was tuned from the other")  # fmt: skip
    if len(against.weight) != len(model.weight):
        raise ModelError(f"{model.name} has {len(model.weight)} tokens and {against.name} {len(against.weight)}: "
                         "save both with the same number of tokens")  # fmt: skip


def _begin(folder: Path, about: AboutTokens, settings: TokenSettings) -> None:
    """The folder of parts; parts of other texts, models or settings are cleared away."""
    path, said = folder / "plan.json", json.dumps([asdict(about), asdict(settings)], indent=1)
    if path.exists() and path.read_text(encoding="utf-8") == said:
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    _write(path, lambda file: file.write(said.encode()))


def _merge(parts: Sequence[Path], target: Path, about: AboutTokens, *, tuned: bool) -> None:
    """All parts as one file, never all in memory."""
    import polars as pl

    said = asdict(about) | ({"fingerprint": about.against, "against": about.fingerprint} if tuned else {})
    scratch = target.with_name(f".{target.name}.merging.tmp")
    try:
        rows = pl.scan_parquet(list(parts), glob=False)
        names = [name for name in rows.collect_schema() if name in SIGNALS]
        signals = signal_metadata(num_classes=about.vocabulary, signals=names, by=("domain",), label="token")
        rows.sink_parquet(scratch, metadata={ABOUT: json.dumps(said), **signals}, maintain_order=True)
        scratch.replace(target)
    except OSError as error:
        raise _unwritten(target, error) from error
    finally:
        scratch.unlink(missing_ok=True)


def _write(path: Path, write: Any) -> None:
    try:
        replace_file(path, write)
    except OSError as error:
        raise _unwritten(path, error) from error


def _unwritten(path: Path, error: OSError) -> RunError:
    said = f"{path} could not be written ({error.strerror or error})"
    return RunError(f"{said}: make room and run the same command again; what was scored is kept")
