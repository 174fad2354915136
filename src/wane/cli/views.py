"""The commands that show runs: figure, table, diagnostics. `wane.cli` registers them; imports wait until one is called.

What a command prints goes to the standard output; what it wrote, and where, to the standard error.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

__all__ = ["diagnostics", "figure", "report", "table"]

Runs = Annotated[list[Path], typer.Argument(metavar="RUNS...", help="Run folders, or folders that hold some.")]
Method = Annotated[
    str | None, typer.Option(metavar="TITLE", help="Only runs of this method, such as 'er, trend loss (window 3)'.")
]
Around = Annotated[int | None, typer.Option(min=1, help="Epochs on either side of a boundary.")]
Levels = Annotated[
    list[float] | None, typer.Option("--level", help="A level of accuracy, such as 0.25; as often as needed.")
]
Tolerance = Annotated[float | None, typer.Option(min=0, help="How near to a level counts as at it, such as 0.005.")]
Classes = Annotated[str | None, typer.Option(help="Whose changes: all, or old (their task was over).")]
Definition = Annotated[str | None, typer.Option("--forgetting", help="Its definition: peak, past_peak or first.")]


def figure(
    name: Annotated[
        str,
        typer.Argument(
            help="trajectories, smoothness, conditional, windows, heatmap, draw, flow, tradeoff or recovery."
        ),
    ],
    runs: Runs,
    out: Annotated[Path, typer.Option("-o", "--out", metavar="FILE", help="Where to: .png, .pdf or .svg.")],
    method: Method = None,
    signal: Annotated[list[str] | None, typer.Option(help="A signal, such as cm; as often as needed.")] = None,
    boundary: Annotated[int | None, typer.Option(min=1, help="trajectories: 1 is that of tasks 1 and 2.")] = None,
    task: Annotated[int | None, typer.Option(min=1, help="trajectories: whose classes.")] = None,
    around: Around = None,
    level: Levels = None,
    tolerance: Tolerance = None,
    classes: Classes = None,
    measure: Annotated[
        str | None,
        typer.Option(help="windows: accuracy, forgetting, retention or plasticity; recovery: speed or net."),
    ] = None,
    within: Annotated[
        str | None, typer.Option(help="recovery: ranks among all; run and task; or run, task and age.")
    ] = None,
    forgetting: Definition = None,
    top: Annotated[int | None, typer.Option(min=1, help="flow: so many forgotten classes.")] = None,
    takers: Annotated[int | None, typer.Option(min=1, help="flow: so many takers of each.")] = None,
    width: Annotated[str | None, typer.Option(help="column (3.4 in) or page (7 in).")] = None,
) -> None:
    """Draw a figure of runs, ready for a paper."""
    from wane.runs.folder import find_runs
    from wane.views.figures import draw_figure, save_figure
    from wane.views.observations import choose

    made = draw_figure(
        name, choose(find_runs(*runs), method), signals=tuple(signal) if signal else None, boundary=boundary,
        task=task, around=around, levels=tuple(level) if level else None, tolerance=tolerance, classes=classes,
        measure=measure, forgetting=forgetting, top=top, takers=takers, within=within, width=width,
    )  # fmt: skip
    save_figure(made, out)
    typer.echo(f"wrote {out}", err=True)


def table(
    name: Annotated[str, typer.Argument(help="auto, table1, table2, windows, any other recipe, or a TOML file.")],
    runs: Runs,
    format: Annotated[str, typer.Option(help="text, markdown, latex or csv.")] = "text",
    forgetting: Definition = None,
) -> None:
    """Show a table of methods: mean ± std over seeds, paired differences to ER and to the class-wise control."""
    from wane.runs.folder import find_runs
    from wane.views.tables.formats import FORMATS
    from wane.views.tables.run_tables import run_table

    render = FORMATS[format]  # before the work: an unknown one lists the known
    made = run_table(name, find_runs(*runs), definition=forgetting or "peak")
    typer.echo(render(made), nl=False)
    if format == "csv":
        for note in made.notes:
            typer.echo(f"note: {note}", err=True)


def diagnostics(
    runs: Runs,
    method: Method = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="OUT.JSON", help="Also write the numbers to a file; - prints them.")
    ] = None,
    level: Levels = None,
    tolerance: Tolerance = None,
    around: Around = None,
    classes: Classes = None,
) -> None:
    """Show how each signal is spread at fixed accuracy and changes near boundaries, beside what the paper says."""
    from wane.runs.folder import find_runs
    from wane.views.observations import choose, diagnose, diagnostics_table

    options: dict[str, Any] = {"levels": level or None, "tolerance": tolerance, "around": around, "classes": classes}
    given = {key: value for key, value in options.items() if value is not None}
    found = diagnose(choose(find_runs(*runs), method), **given)
    text = json.dumps(found.to_json(), indent=2, allow_nan=False, ensure_ascii=False)
    if str(json_file) == "-":
        typer.echo(text)
        return
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = max(console.width, 120)
    console.print(diagnostics_table(found))
    if json_file is not None:
        json_file.write_text(text + "\n", encoding="utf-8")
        typer.echo(f"wrote {json_file}", err=True)


def report(
    runs: Runs,
    out: Annotated[Path, typer.Option("-o", "--out", metavar="OUT.HTML", help="Where to.")] = Path("report.html"),
    title: Annotated[str | None, typer.Option(help="Of the page; default: from the runs.")] = None,
) -> None:
    """Write one page that stands alone and shows what accuracy hid: open it in a browser, send it to someone."""
    from wane.runs.folder import find_runs
    from wane.views.report.page import write_report

    written = write_report(find_runs(*runs), out, title=title)
    typer.echo(f"wrote {written} ({written.stat().st_size / 1e6:.1f} MB)", err=True)
