"""From a folder of runs to the paper's figures and tables, and one page that judges its claims."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from wane.escaping import csv_table
from wane.files import write_page
from wane.names import safe_name
from wane.paper.claims import CLAIMS
from wane.paper.diagnostics import diagnose
from wane.paper.judging import CLAIM_VERDICTS, Judged, judge, judged_markdown
from wane.paper.methods import er
from wane.paper.questions import Answer, answers, answers_csv, answers_markdown
from wane.paper.values import PAPER
from wane.registry import Registry
from wane.runs.config import Config
from wane.runs.folder import RunFolder
from wane.runs.identity import fingerprint, method_of
from wane.runs.recipes import recipe_settings
from wane.sweeps.plan import Planned, expand
from wane.views.agreement import agreement_markdown, agreement_table
from wane.views.figures import draw_figure, save_figure
from wane.views.observations import has_history
from wane.views.page_template import page_templates
from wane.views.recovery import recovery_table, recovery_text
from wane.views.tables.formats import FORMATS
from wane.views.tables.run_tables import run_table

__all__ = ["PARTS", "Reproduction", "plan_parts", "reproduction_page", "write_reproduction"]

#: What can be reproduced: the recipe of each part, and its figures.
PARTS: Registry[tuple[str, ...]] = Registry("part", {
    "diagnostics": ("trajectories", "smoothness", "conditional", "heatmap", "draw", "flow"),
    "table1": ("tradeoff",),
    "table2": ("tradeoff",),
    "headline": ("tradeoff",),
    "controls": ("tradeoff",),
    "sources": ("tradeoff",),
    "regime": ("scales",),
    "ablations": (),
    "windows": ("windows",),
    "windows_standardised": ("windows",),
    "windows_percent": ("windows",),
    "recovery": ("recovery",),
})  # fmt: skip


class Reproduction(NamedTuple):
    """What was written: where the page is, how many claims have each verdict, and the claims themselves."""

    page: Path
    verdicts: dict[str, int]
    judged: tuple[Judged, ...] = ()

    @property
    def words(self) -> str:
        """The verdicts in a sentence or two.

        >>> Reproduction(Path("x.html"), {"holds": 2, "does not hold": 1, "cannot tell": 4}).words
        'of 7 claims, 2 hold, 1 does not hold, and of 4 these runs cannot tell'
        """
        holds, fails, open_ones = (self.verdicts[verdict] for verdict in CLAIM_VERDICTS)
        absent = sum(each.words == "not run" for each in self.judged)
        said = [f"of {sum(self.verdicts.values())} claims, {holds} hold{'s' if holds == 1 else ''}, {fails} "
                f"do{'es' if fails == 1 else ''} not hold, and of {open_ones} these runs cannot tell"
                + (f" ({absent} {'were' if absent > 1 else 'was'} not run)" if absent else "")]  # fmt: skip
        if less := sum(each.less_than_printed for each in self.judged):
            said.append(f"{less} gain{'s are' if less > 1 else ' is'} less than printed")
        if small := sum(each.largest is not None for each in self.judged):
            said.append(f"of {small} no effect larger than a point is left")
        return "; ".join(said)


def plan_parts(
    part: str,
    *,
    scale: str,
    data: Sequence[str] = (),
    seeds: int | None = None,
    settings: tuple[dict[str, Any], ...] = (),
) -> dict[str, list[Planned]]:
    """The runs of one of `PARTS`, or of `all` of them, by part.

    Args:
        part: its name.
        scale: demo, small, middle, regime or paper; the demo has its own data.
        data: data sets; default: cifar100.
        seeds: 0 to N - 1; default: those of the recipe, or three where it names none, as one run proves nothing.
        settings: on top of everything.
    """
    Registry("part", {**PARTS, "all": ()})[part]  # an unknown one lists the known
    over: dict[str, list[Any]] = {} if seeds is None else {"seed": list(range(seeds))}
    if scale != "demo":
        over["data.name"] = list(data or ["cifar100"])
    planned = {}
    for name in PARTS if part == "all" else [part]:
        seeded = {**recipe_settings(name).get("over", {}), **over}.get("seed", [0, 1, 2])
        planned[name] = expand(name, scale=scale, settings=settings, over={**over, "seed": seeded})
    return planned


def write_reproduction(planned: Mapping[str, Sequence[Planned]], runs: Sequence[RunFolder], out: Path) -> Reproduction:
    """Write figures (PNG and PDF), tables (text, CSV, Markdown, LaTeX), the diagnostics and `reproduction.html`.

    Also, as Markdown and CSV: `claims`, the paper's beside what was measured; `questions`, which it leaves open; and
    `agreement`, how far replayed rows tell what test data tell.

    Args:
        planned: for each of `PARTS` that is wanted, the runs that belong to it.
        runs: the runs that are there; those that were planned count.
        out: a folder; made if it is not there.
    """
    out.mkdir(parents=True, exist_ok=True)
    chosen = {
        part: _planned(runs, plans, exactly=part in ("diagnostics", "recovery")) for part, plans in planned.items()
    }
    wanted = {_without_records(plan.config) for plans in planned.values() for plan in plans}
    done = {_without_records(run.config) for part in chosen.values() for run in part}
    if not done:
        raise ValueError(f"none of the {len(wanted)} runs is done: run them first, with `wane reproduce`")
    made: dict[str, list[str]] = {}
    tables: dict[str, str] = {}
    for part, of_part in chosen.items():
        made[part] = _figures(part, of_part, out)
        if part == "recovery":
            for data, lost in _by_data(of_part).items():
                tables[f"recovery_{data}"] = _write_recovery(lost, out, f"recovery_{data}")
        elif part == "diagnostics":
            for data, diagnosed in _by_data(_diagnosed(of_part)).items():
                _write_diagnostics(diagnosed, data, out)
        elif of_part:
            tables[part] = _write_table(part, of_part, out)
    judged = [judge(claim, _of_claim(claim.recipe, chosen)) for claim in CLAIMS if claim.recipe in chosen]
    # the runs of recovery are of the same methods, but with smaller memories
    answered = answers([run for part in chosen if part != "recovery" for run in chosen[part]])
    _write(out / "claims.md", judged_markdown(judged))
    _write(out / "questions.md", answers_markdown(answered))
    _write(out / "questions.csv", answers_csv(answered))
    page = reproduction_page(judged, answered, made, tables, done=len(done), planned=len(wanted))
    _write(out / "reproduction.html", page)
    return Reproduction(out / "reproduction.html", _counts(judged), tuple(judged))


def _counts(judged: Sequence[Judged]) -> dict[str, int]:
    return {verdict: sum(each.verdict == verdict for each in judged) for verdict in CLAIM_VERDICTS}


def _of_claim(recipe: str, chosen: Mapping[str, Sequence[RunFolder]]) -> list[RunFolder]:
    """The runs of a claim's recipe; for the paper's tables also the headline's, which are of their methods."""
    more = chosen.get("headline", ()) if recipe in ("table1", "table2") else ()
    return [*chosen[recipe], *more]


def reproduction_page(
    judged: Sequence[Judged],
    answered: Sequence[Answer],
    figures: dict[str, list[str]],
    tables: dict[str, str],
    *,
    done: int,
    planned: int,
) -> str:
    """The page: each claim beside the measured value and its verdict, the open questions, the tables and figures."""
    template = page_templates("wane.paper").get_template("reproduction.html")
    return template.render(
        judged=judged, answered=answered, figures=figures, tables=tables, done=done, planned=planned,
        counts=_counts(judged),
    )  # fmt: skip


def _figures(part: str, runs: Sequence[RunFolder], out: Path) -> list[str]:
    """Draw what these runs recorded; returns the names of the files, without suffix."""
    made = []
    for name in PARTS[part]:
        groups: dict[str, Sequence[RunFolder]] = {"": runs}
        if part in ("diagnostics", "recovery"):
            groups = _by_data(_diagnosed(runs) if part == "diagnostics" else runs)
        for data, group in groups.items():
            stem = f"{name}_{data or part}" if name != "windows" else part
            try:
                figure = draw_figure(name, group, printed=PAPER)
            except ValueError:
                continue  # nothing of that kind was recorded in these runs; the page lists what is there
            for suffix in ("png", "pdf"):
                save_figure(figure, out / f"{stem}.{suffix}")
            made.append(stem)
    return made


def _planned(runs: Sequence[RunFolder], plans: Sequence[Planned], *, exactly: bool) -> list[RunFolder]:
    """The finished runs among those planned; for a table, also those that recorded more than it asks for."""
    key = fingerprint if exactly else _without_records
    wanted = {key(plan.config) for plan in plans}
    found: dict[str, RunFolder] = {}
    for run in sorted(runs, key=lambda run: not has_history(run)):
        if run.summary is not None and key(run.config) in wanted:
            found.setdefault(key(run.config), run)  # of two that are the same, the one that can be looked at
    kept = {run.path for run in found.values()}
    return [run for run in runs if run.path in kept]


def _without_records(config: Config) -> str:
    """The same for runs that differ only in what they wrote down."""
    return fingerprint(config.model_copy(update={"record": type(config.record)(classes=config.record.classes)}))


def _diagnosed(runs: Sequence[RunFolder]) -> list[RunFolder]:
    """The runs of the paper's section 4.2: plain ER, with a history to look at."""
    return [run for run in runs if method_of(run.config) == er() and has_history(run)]


def _by_data(runs: Sequence[RunFolder]) -> dict[str, Sequence[RunFolder]]:
    """By data set, named as a file can be: classes of different ones are not pooled."""
    groups: dict[str, list[RunFolder]] = {}
    for run in runs:
        groups.setdefault(safe_name(Path(run.config.data.name).name, distinct=True), []).append(run)
    return dict(groups)


def _write_table(part: str, runs: Sequence[RunFolder], out: Path) -> str:
    """A recipe's table in every format; the text is for the page."""
    table = run_table(part, runs, printed=PAPER)
    for suffix, form in (("txt", "text"), ("csv", "csv"), ("md", "markdown"), ("tex", "latex")):
        _write(out / f"{part}.{suffix}", FORMATS[form](table))
    return FORMATS["text"](table)


def _write_diagnostics(runs: Sequence[RunFolder], data: str, out: Path) -> None:
    numbers = json.dumps(diagnose(runs).to_json(), indent=2, allow_nan=False)
    _write(out / f"diagnostics_{data}.json", numbers)
    agreement = agreement_table(runs)
    _write(out / f"agreement_{data}.csv", csv_table(agreement))
    _write(out / f"agreement_{data}.md", agreement_markdown(agreement))


def _write_recovery(runs: Sequence[RunFolder], out: Path, name: str) -> str:
    """The correlations, as CSV and as text for the page; where no class was lost, the text says so."""
    try:
        table = recovery_table(runs)
    except ValueError as error:
        text = f"{error}\n"
    else:
        text = recovery_text(table)
        _write(out / f"{name}.csv", csv_table(table))
    _write(out / f"{name}.txt", text)
    return text


def _write(path: Path, text: str) -> None:
    write_page(path, text.encode())
