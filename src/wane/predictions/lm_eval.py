"""What lm-evaluation-harness logs: `samples_<task>_<date>.jsonl`, one line for each document and filter.

In a multiple-choice task the summed log-likelihoods of the k choices are logits over k classes, and k is the
document's own.
In a task with one continuation there is its log-likelihood, and whether it was what greedy decoding would have said. Of
generated answers only the task's own metric is known. Numbers are written as text.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray

from wane.predictions.files import PredictionsError
from wane.predictions.samples import Samples
from wane.registry import Registry
from wane.softmax.registry import SIGNALS
from wane.softmax.signals import signals

__all__ = ["LENGTHS", "is_lm_eval", "read_lm_eval"]

Record = dict[str, Any]

#: What the log-likelihood of a choice is divided by; the harness's acc, acc_norm and acc_bytes.
LENGTHS: Registry[Any] = Registry("normalisation", {
    "none": lambda text: 1.0,
    "characters": lambda text: float(len(text)),
    "bytes": lambda text: float(len(text.encode())),
})  # fmt: skip
METRICS = {"none": "acc", "characters": "acc_norm", "bytes": "acc_bytes"}
#: Of generated answers: the metrics that say right or wrong, in order of preference.
ANSWERS = ("exact_match", "acc", "acc_norm", "pass@1")


def is_lm_eval(record: Mapping[str, Any]) -> bool:
    """Whether a line of a file is one that the harness logs."""
    return {"doc_id", "arguments", "filtered_resps"} <= {*record}


def read_lm_eval(path: Path, normalise: str = "none") -> Samples:
    """The samples of a file, or of every ``samples_*.jsonl`` in a folder, the newest of each task."""
    length = LENGTHS[normalise]
    files = _newest(path) if path.is_dir() else [path]
    if not files:
        raise PredictionsError(f"{path} has no file samples_*.jsonl: give lm_eval --log_samples, and its folder here")
    rows: list[Record] = []
    unclear = 0
    for file in files:
        for number, record in enumerate(_records(file)):
            try:
                row = _sample(record, normalise, length)
            except (KeyError, TypeError, ValueError, IndexError) as error:
                reason = f"{type(error).__name__}: {error}"
                raise PredictionsError(
                    f"{file} line {number + 1} is not as lm_eval logs it ({reason}): log the samples again"
                ) from error
            if row is None:
                unclear += 1
            else:
                rows.append({**row, "task": _task(file)})
    if not rows:
        raise PredictionsError(f"{path} has no sample with an answer that is right or wrong: give a task that has")
    frame = pl.DataFrame(rows, infer_schema_length=None)
    if frame["filter"].n_unique() > 1:
        frame = frame.with_columns(id=pl.concat_str("task", "id", "filter", separator=":"))
    else:
        frame = frame.with_columns(id=pl.concat_str("task", "id", separator=":"))
    values = _values(rows)
    notes = []
    if unclear:
        notes.append(f"{unclear:,} samples do not say which choice is right, and are left out.")
    recorded = frame["recorded"].cast(pl.Float64).to_numpy()
    if differ := int((np.isfinite(recorded) & (recorded != values["accuracy"])).sum()):
        notes.append(f"In {differ:,} of {len(rows):,} samples lm_eval itself recorded another {METRICS[normalise]}.")
    kinds = {row["kind"] for row in rows}
    if kinds != {"choice"}:
        notes.append(
            "Samples of tasks without choices have no rank and no margin; generated answers have no loss either."
        )
    sizes = {len(row["lls"]) for row in rows}
    most = max(sizes)
    return Samples(
        labels=np.array([row["gold"] for row in rows]),
        values=values,
        num_classes=most if len(sizes) == 1 and most > 1 else 0,
        class_names=tuple(f"choice {i}" for i in range(max(most, 1))),
        keys={"id": frame["id"]},
        columns={
            name: frame[name] for name in frame.columns if name in ("task", "filter", "choices") or name[:4] == "doc."
        },
        by=("task",),
        path=path,
        notes=tuple(notes),
    )


def _newest(folder: Path) -> list[Path]:
    """The last file of each task; the date in its name sorts as time does."""
    return [*{_task(file): file for file in sorted(folder.rglob("samples_*.jsonl"))}.values()]


def _task(file: Path) -> str:
    """The task of samples_hellaswag_2026-03-01T12-00-00.123456.jsonl."""
    return re.sub(r"^samples_|_\d{4}-\d\d-\d\dT[\d.-]+$", "", file.stem)


def _records(file: Path) -> Iterator[Record]:
    with file.open(encoding="utf-8") as lines:
        for line in lines:
            if line.strip():
                yield json.loads(line)


def _sample(record: Record, normalise: str, length: Any) -> Record | None:
    """What is known of one line; None if it does not say what is right."""
    answers = record["filtered_resps"]
    name = f"{record['doc_id']}:{str(record.get('doc_hash', ''))[:16]}"
    row = {"id": name, "filter": str(record.get("filter", "none")), **_plain(record.get("doc"))}
    recorded = record.get(METRICS[normalise])
    if not all(isinstance(answer, list | tuple) and len(answer) == 2 for answer in answers):
        right = next((record[name] for name in ANSWERS if record.get(name) in (0, 1)), None)
        return None if right is None else {**row, "kind": "generated", "gold": 0, "lls": [], "right": float(right),
                                           "choices": 0, "recorded": None}  # fmt: skip
    lls = [float(ll) for ll, _ in answers]
    arguments = [*record["arguments"].values()] if isinstance(record["arguments"], dict) else record["arguments"]
    asked = [[*a.values()] if isinstance(a, dict) else a for a in arguments]
    if len(lls) == 1:
        greedy = str(answers[0][1]) in ("True", "true", "1")
        return {**row, "kind": "continuation", "gold": 0, "lls": lls, "right": float(greedy), "choices": 1,
                "recorded": _number(record.get("acc"))}  # fmt: skip
    half = len(lls) // 2
    if len(lls) % 2 == 0 and half > 1 and all(str(a[0]).strip() == "" for a in asked[half:]):
        lls, asked = lls[:half], asked[:half]  # the rest are the choices without the question, for acc_mutual_info
    texts = [str(a[1]).removeprefix(" ") for a in asked]
    lls = [ll / max(length(text), 1.0) for ll, text in zip(lls, texts, strict=True)]
    gold = _gold(record, texts, lls, recorded)
    return None if gold is None else {**row, "kind": "choice", "gold": gold, "lls": lls, "choices": len(lls),
                                      "right": None, "recorded": _number(recorded)}  # fmt: skip


def _gold(record: Record, texts: list[str], lls: list[float], recorded: Any) -> int | None:
    """Which choice is right: the target is its number, a list of numbers (then the likeliest of them), or its text."""
    target = str(record["target"])
    places: list[int] = []
    if re.fullmatch(r"\s*\d+\s*", target):
        places = [int(target)]
    elif target.startswith("["):
        found = ast.literal_eval(target)  # of text that the harness made of a list of numbers; reads literals only
        places = [place for place in found if isinstance(place, int)]
    if places := [place for place in places if 0 <= place < len(lls)]:
        return max(places, key=lambda place: lls[place])
    same = [i for i, text in enumerate(texts) if text.strip() == target.strip()]
    if len(same) == 1:
        return same[0]
    best = int(np.argmax(lls))  # where the question differs and not the choice, only the metric tells
    if recorded == 1:
        return best
    return 1 - best if recorded == 0 and len(lls) == 2 else None


def _values(rows: list[Record]) -> dict[str, NDArray[Any]]:
    """The signals, of choices each among its own number of them; what a kind of task does not have is NaN."""
    names = (*SIGNALS, "gap", "rank")
    values: dict[str, NDArray[Any]] = {name: np.full(len(rows), np.nan) for name in names}
    answer = np.array([row["gold"] for row in rows])
    sizes = np.array([len(row["lls"]) if row["kind"] == "choice" else 0 for row in rows])
    for size in np.unique(sizes[sizes > 1]):
        where = np.flatnonzero(sizes == size)
        logits = torch.tensor([rows[i]["lls"] for i in where], dtype=torch.float64)
        gold = torch.tensor([rows[i]["gold"] for i in where])
        scored = signals(logits, gold, compiled=False)
        for name in (*SIGNALS, "rank"):
            values[name][where] = scored[name].numpy()
        top, best = logits.max(1)
        values["gap"][where] = (top - logits.gather(1, gold[:, None])[:, 0]).numpy()
        answer[where] = np.where(scored.accuracy == 1, gold, best)
    for i, row in enumerate(rows):
        if row["right"] is not None:
            values["accuracy"][i] = row["right"]
            if row["lls"]:
                values["loss"][i], values["ctl"][i] = -row["lls"][0], np.exp(row["lls"][0])
    known = {name: column for name, column in values.items() if np.isfinite(column).any()}
    return {**known, "answer": answer} if (sizes > 1).all() else known


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _plain(doc: Any) -> dict[str, str | int]:
    """What a document says of itself in a word, such as its subject: to group by."""
    if not isinstance(doc, dict):
        return {}
    return {f"doc.{key}": str(value) for key, value in doc.items()
            if isinstance(value, str | int) and 0 < len(str(value)) <= 40}  # fmt: skip
