"""The commands for language models: tokens, and what `compare` does with its files. Imports wait for a call."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from wane.cli.output import say

__all__ = ["show_comparison", "tokens"]


def tokens(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A folder of a causal language model or of an adapter, or a name.")
    ],
    texts: Annotated[list[Path], typer.Argument(metavar="TEXTS...", help="Files (.txt, .md, .jsonl), or folders.")],
    out: Annotated[Path, typer.Option("-o", "--out", metavar="OUT.PARQUET", help="Where to.")],
    by: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="The domain of a JSON line; default: domain, or its file.")
    ] = None,
    text: Annotated[str, typer.Option(metavar="COLUMN", help="The text of a JSON line.")] = "text",
    keep: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="Another column to keep; as often as needed.")
    ] = None,
    adapter: Annotated[str | None, typer.Option(metavar="DIR", help="An adapter (peft) to put on the model.")] = None,
    against: Annotated[
        str | None,
        typer.Option(metavar="TUNED", help="Score a tuned model in the same pass, and add KL(base || tuned)."),
    ] = None,
    against_out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="For the tuned model; default: OUT with .tuned in its name.")
    ] = None,
    context: Annotated[
        int | None, typer.Option(min=1, help="Tokens read at a time; default: what the model reads, up to 2,048.")
    ] = None,
    stride: Annotated[
        int | None, typer.Option(min=1, help="New tokens in each window; default: half of the context.")
    ] = None,
    batch_tokens: Annotated[int, typer.Option(min=1, help="Tokens in a batch.")] = 8192,
    dtype: Annotated[str, typer.Option(help="float32 or bfloat16.")] = "float32",
    device: Annotated[str, typer.Option(help="cpu, cuda, ...; auto takes what there is.")] = "auto",
    engine: Annotated[
        str | None, typer.Option(help="Share the texts out: local, ray or slurm; default: this process.")
    ] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="With --engine: jobs at a time.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing but errors.")] = False,
) -> None:
    """Score every token of some texts by a language model; the same command goes on where it was stopped."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from wane.language.causal_model import load_model
    from wane.language.shards import by_engine
    from wane.language.token_files import TokenSettings, score_texts
    from wane.sweeps.engines import Options

    settings = TokenSettings(by=by, text=text, keep=tuple(keep or ()), stride=stride, batch_tokens=batch_tokens)
    loaded = load_model(model, adapter=adapter, dtype=dtype, device=device, longest=context)
    tuned = None if against is None else load_model(against, dtype=dtype, device=device, longest=context)
    console = Console(stderr=True, highlight=False, quiet=quiet)
    bar = Progress(
        TextColumn("{task.completed:,} of {task.total:,} tokens"), BarColumn(), TextColumn("{task.fields[speed]}"),
        TimeRemainingColumn(), console=console, disable=not console.is_terminal,
    )  # fmt: skip
    with bar:
        shown = bar.add_task("", total=1, speed="")

        def told(done: int, total: int) -> None:
            speed = bar.tasks[0].finished_speed or bar.tasks[0].speed
            bar.update(shown, completed=done, total=total, speed=f"{speed:,.0f} tokens/s" if speed else "")
            if not console.is_terminal:
                console.print(f"{done:,} of {total:,} tokens", soft_wrap=True)

        about = score_texts(
            loaded, texts, out, settings=settings, against=tuned, against_out=against_out, told=told,
            run_parts=None if engine is None else by_engine(engine, Options(workers=workers)),
        )  # fmt: skip
    if not quiet:
        say(f"wrote {about.tokens:,} tokens to {out}", err=True)


def show_comparison(
    before: str, after: str, by: list[str] | None, *, html: Path | None, as_json: bool, alpha: float, top: int | None
) -> None:
    """What `wane compare` shows of two files of tokens."""
    from wane.cli.output import console, print_json, say
    from wane.language.comparison import compare_tokens
    from wane.views.tokens.tables import sentences, token_tables

    result = compare_tokens(before, after, by=by or ("domain", "kind"), alpha=alpha)
    if html is not None:
        from wane.views.tokens.page import write_token_page

        write_token_page(result, html, before=Path(before).stem, after=Path(after).stem)
    if as_json:
        tables = {",".join(level): frame.head(top or len(frame)).to_dicts() for level, frame in result.tables.items()}
        passages = [
            {"document": p.document, "domain": p.domain, "lost": p.lost, "text": "".join(p.tokens["text"])}
            for p in result.passages
        ]
        said = {"sentences": sentences(result), "notes": result.notes, "by": result.by, "alpha": alpha}
        print_json({**said, "tables": tables, "passages": passages})
    else:
        console().print(token_tables(result, top=top))
    if html is not None:
        say(f"wrote {html}", err=True)
