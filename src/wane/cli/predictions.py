"""The commands for saved predictions: score, compare, measure. `wane.cli` registers them; imports wait for a call."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wane.cli import correction
from wane.cli.output import console, print_json, say

if TYPE_CHECKING:
    from wane.predictions.comparison import Comparison
    from wane.predictions.plan import Plan
    from wane.predictions.samples import Samples

__all__ = ["compare", "measure", "score"]

FILE = (
    "Logits or probabilities, and labels (.npz, .npy, .parquet, .csv, .jsonl, .pt); signals (.parquet); what lm_eval "
    "or vLLM logged; or example:digits_before, example:digits_after."
)
NEXT = "The same samples under the next model."
Source = Annotated[str, typer.Argument(metavar="FILE", help=FILE, show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead; what is not a number is null.")]
Top = Annotated[int | None, typer.Option(min=1, help="Show this many rows of each table.")]
By = Annotated[
    str | None,
    typer.Option(metavar="COLUMN[,COLUMN]", help="Group by these columns of the file instead of by class."),
]
Normalise = Annotated[
    str, typer.Option(help="Of lm_eval's choices: none (its acc), characters (acc_norm) or bytes (acc_bytes).")
]
Vocabulary = Annotated[
    int | None, typer.Option(min=2, help="Of vLLM's logprobs: how many tokens the model knows; ranks are scaled by it.")
]


def score(
    file: Source,
    by: By = None,
    as_json: Json = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV instead: one line a class, worst first.")] = False,
    top: Top = None,
    normalise: Normalise = "none",
    vocabulary: Vocabulary = None,
) -> None:
    """Show all eight signals for each class, worst first."""
    from wane.escaping import csv_table
    from wane.predictions import comparison

    if as_json and as_csv:
        raise ValueError("--json and --csv were both given: choose one")
    scores = comparison.score(_read(file, normalise, vocabulary), by=_columns(by))
    groups = scores.groups.head(top or len(scores.groups))
    recoverable = None if as_csv else correction.recoverable_of(file, _columns(by))
    if as_json:
        print_json({"overall": scores.overall, "groups": groups.to_dicts(), "notes": scores.notes,
                    "recoverable": correction.as_json(recoverable)})  # fmt: skip
    elif as_csv:
        say(csv_table(groups), nl=False)
    else:
        from wane.views.compare.tables import score_table

        console().print(score_table(scores, top=top))
        if recoverable is not None:
            say(recoverable.sentence)


def compare(
    before: Annotated[str | None, typer.Argument(metavar="BEFORE", help=FILE, show_default=False)] = None,
    after: Annotated[str | None, typer.Argument(metavar="AFTER", help=NEXT, show_default=False)] = None,
    by: By = None,
    common: Annotated[bool, typer.Option("--common", help="Compare the samples that both have, by their ids.")] = False,
    html: Annotated[Path | None, typer.Option(metavar="OUT.HTML", help="Also write a page that stands alone.")] = None,
    as_json: Json = False,
    alpha: Annotated[float, typer.Option(help="The accepted rate of false alarms.")] = 0.05,
    top: Top = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Say how many rows a class it takes to see a fall; works without files too.")
    ] = False,
    normalise: Normalise = "none",
    vocabulary: Vocabulary = None,
) -> None:
    """Show what the second model lost and gained: accuracy, hidden decline, who took the answers, which samples."""
    if plan and before is None:
        from wane.predictions.plan import built_in_plan

        _show_plan(built_in_plan(), as_json)
        return
    if before is None or after is None:
        raise ValueError("compare takes two files, the model before and the model after; see wane compare --help")
    from wane.language.comparison import is_token_file
    from wane.predictions import comparison

    if is_token_file(before) and is_token_file(after):
        if plan:
            raise ValueError("--plan is for samples, which are drawn by chance; tokens of a document are not")
        from wane.cli.language import show_comparison

        show_comparison(before, after, _columns(by), html=html, as_json=as_json, alpha=alpha, top=top)
        return
    first, second = (_read(file, normalise, vocabulary) for file in (before, after))
    if plan:
        from wane.predictions.plan import plan_from_files

        _show_plan(plan_from_files(first, second, common=common, alpha=alpha), as_json)
        return
    result = comparison.compare(first, second, by=_columns(by), common=common, alpha=alpha)
    if html is not None:
        from wane.views.compare.page import write_comparison

        write_comparison(result, html, before=_title(before), after=_title(after))
    recoverable = correction.recoverable_of(after, _columns(by))
    if as_json:
        print_json(_as_json(result, top) | {"recoverable": correction.as_json(recoverable)})
    else:
        from wane.views.compare.tables import comparison_tables

        console().print(comparison_tables(result, top=top))
        if recoverable is not None:
            say(recoverable.sentence.replace("Bias:", "Bias of the second:"))
    if html is not None:
        say(f"wrote {html}", err=True)


def _show_plan(plan: Plan, as_json: bool) -> None:
    if as_json:
        print_json({**plan._asdict(), "table": plan.table.to_dicts()})
        return
    from wane.views.compare.plan import plan_text

    say(plan_text(plan))


def measure(
    file: Source,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="OUT.PARQUET", help="The file of signals to write.")],
    normalise: Normalise = "none",
    vocabulary: Vocabulary = None,
) -> None:
    """Write the signals of each sample to a small file, which score and compare read as they read logits."""
    from wane.predictions.signal_files import write_samples

    rows = write_samples(_read(file, normalise, vocabulary), out, source={"file": _title(file)})
    say(f"wrote {rows:,} samples to {out}", err=True)


def _as_json(result: Comparison, top: int | None) -> dict[str, Any]:
    from wane.views.compare.sentences import sentences

    return {
        "sentences": sentences(result), "notes": result.notes, "by": result.by, "heads": result.heads,
        "clustered": result.clustered, "alpha": result.alpha, "interval": result.interval,
        "smallest": result.smallest, "overall": result.overall,
        "groups": result.groups.head(top or len(result.groups)).to_dicts(), "at_zero": result.at_zero["name"].to_list(),
        "takers": result.takers.to_dicts(), "flips": result.flips.head(top or len(result.flips)).to_dicts(),
    }  # fmt: skip


def _read(file: str, normalise: str, vocabulary: int | None) -> Samples:
    from wane.predictions.reading import read_samples

    return read_samples(file, normalise=normalise, vocabulary=vocabulary)


def _columns(by: str | None) -> list[str] | None:
    return None if by is None else [name.strip() for name in by.split(",") if name.strip()]


def _title(path: str) -> str:
    from wane.predictions.examples import PREFIX

    return Path(path.removeprefix(PREFIX)).name
