"""The commands that show runs; `wane.cli` registers them, and imports wait until one is called.

What a command prints goes to the standard output; what it wrote, and where, to the standard error.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from wane.cli.output import say

__all__ = ["at_risk", "export", "figure", "report", "table"]

Runs = Annotated[
    list[Path],
    typer.Argument(metavar="RUNS...", help="Run folders, folders that hold some, or histories (.parquet)."),
]
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
            help="trajectories, smoothness, conditional, windows, heatmap, draw, flow, tradeoff, recovery, ladder, "
            "reliability, compass, power or scales."
        ),
    ],
    runs: Runs,
    out: Annotated[Path, typer.Option("-o", "--out", metavar="FILE", help="Where to: .png, .pdf or .svg.")],
    method: Method = None,
    signal: Annotated[list[str] | None, typer.Option(help="A signal, such as cm; as often as needed.")] = None,
    boundary: Annotated[int | None, typer.Option(min=1, help="trajectories: 1 is that of tasks 1 and 2.")] = None,
    task: Annotated[
        int | None, typer.Option(min=1, help="trajectories: whose classes; reliability: at the end of which task.")
    ] = None,
    around: Around = None,
    level: Levels = None,
    tolerance: Tolerance = None,
    classes: Classes = None,
    measure: Annotated[
        str | None,
        typer.Option(help="windows: accuracy, forgetting or another column of a table; recovery: speed or net."),
    ] = None,
    within: Annotated[
        str | None, typer.Option(help="recovery: ranks among all; run and task; or run, task and age.")
    ] = None,
    fall: Annotated[int | None, typer.Option(help="power: which falls of accuracy: 5, 10 or 20 points.")] = None,
    forgetting: Definition = None,
    top: Annotated[int | None, typer.Option(min=1, help="flow: how many forgotten classes.")] = None,
    takers: Annotated[int | None, typer.Option(min=1, help="flow: how many takers of each.")] = None,
    width: Annotated[str | None, typer.Option(help="column (3.4 in) or page (7 in).")] = None,
) -> None:
    """Draw a figure of runs, ready for a paper."""
    from wane.paper.values import PAPER
    from wane.runs.folder import find_runs
    from wane.views.figures import draw_figure, save_figure
    from wane.views.observations import choose

    made = draw_figure(
        name, choose(find_runs(*runs), method), signals=tuple(signal) if signal else None, boundary=boundary,
        task=task, around=around, levels=tuple(level) if level else None, tolerance=tolerance, classes=classes,
        measure=measure, fall=fall, forgetting=forgetting, top=top, takers=takers, within=within, width=width,
        printed=PAPER,
    )  # fmt: skip
    save_figure(made, out)
    say(f"wrote {out}", err=True)


def table(
    name: Annotated[str, typer.Argument(help="auto, table1, table2, windows, any other recipe, or a TOML file.")],
    runs: Runs,
    format: Annotated[str, typer.Option(help="text, markdown, latex or csv.")] = "text",
    forgetting: Definition = None,
    setting: Annotated[
        str,
        typer.Option(
            help="class, task, corrected or both: class- or task-incremental results, with corrected logits, or all."
        ),
    ] = "both",
    baseline: Annotated[
        str | None, typer.Option(metavar="ROW", help="Compare with this row of the table, in place of ER.")
    ] = None,
) -> None:
    """Show a table of methods: mean ± std over seeds, paired differences to ER and to the class-wise control."""
    from wane.paper.values import PAPER
    from wane.runs.folder import find_runs
    from wane.views.tables.formats import FORMATS
    from wane.views.tables.run_tables import run_table

    render = FORMATS[format]  # before the work: an unknown one lists the known
    made = run_table(
        name, find_runs(*runs), definition=forgetting or "peak", setting=setting, baseline=baseline, printed=PAPER
    )
    say(render(made), nl=False)
    if format == "csv":
        for note in made.notes:
            say(f"note: {note}", err=True)


def export(
    name: Annotated[str, typer.Argument(help="cleva: what the generator of the CLEVA-Compass takes.")],
    runs: Runs,
    out: Annotated[Path, typer.Option("-o", "--out", metavar="FILE", help="Where to.")],
    method: Method = None,
) -> None:
    """Write runs in the form that another tool takes."""
    from wane.files import write_page
    from wane.registry import Registry
    from wane.runs.folder import find_runs
    from wane.views.compass import cleva_json
    from wane.views.observations import choose

    write = Registry("export", {"cleva": cleva_json})[name]
    write_page(out, write(choose(find_runs(*runs), method)).encode())
    say(f"wrote {out}", err=True)


def report(
    runs: Runs,
    out: Annotated[Path, typer.Option("-o", "--out", metavar="OUT.HTML", help="Where to.")] = Path("report.html"),
    title: Annotated[str | None, typer.Option(help="Of the page; default: from the runs.")] = None,
) -> None:
    """Write one page that stands alone and shows what accuracy hid: open it in a browser, send it to someone."""
    from wane.runs.folder import find_runs
    from wane.views.ladder import sentences_by_method
    from wane.views.report.page import write_report

    found = find_runs(*runs)
    written = write_report(found, out, title=title)
    for sentence in sentences_by_method(found):
        say(sentence)
    say(f"wrote {written} ({written.stat().st_size / 1e6:.1f} MB)", err=True)


def at_risk(runs: Runs) -> None:
    """List the classes that the next task is likely to cost most, and how often such a list came true in the run."""
    from wane.runs.folder import find_runs
    from wane.views.at_risk import at_risk_text

    say("\n\n".join(at_risk_text(run) for run in find_runs(*runs)))
