"""The verdict comes from the interval; the page and the files come from run folders alone."""

import io
import re

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner
from views.hand_made import made_history, write_run

from wane.cli import app
from wane.paper.claim_measures import _agreement, as_wide_as, varies_more, within
from wane.paper.claims import CLAIMS
from wane.paper.judging import Claim, judge, judged_markdown, judged_table
from wane.paper.methods import er, trend, weights
from wane.paper.reproduction import plan_parts, write_reproduction
from wane.paper.values import printed
from wane.runs.config import build_config, parse_setting
from wane.runs.folder import find_runs
from wane.sweeps.plan import Planned, expand
from wane.views.statistics import Interval


def runs_of(root, methods):
    """`methods`: title -> (settings, accuracy of the old task at the end, by seed)."""
    made = []
    for name, (settings, ends) in methods.items():
        for seed, end in enumerate(ends):
            matrix = ((0.8, None), (end, 0.9))
            made.append(write_run(root / f"{name}-{seed}", [settings, {"seed": seed}], matrix=matrix))
    return made


TREND = {"learner": {"trend": {"signal": "log_tlr"}}}
FEWER = next(
    c for c in CLAIMS if c.text.startswith("Log-TLR trend sampling gives less forgetting") and c.data == "cifar100"
)


@pytest.mark.parametrize(
    ("ends", "verdict"),
    [
        ((0.50, 0.52, 0.51), "holds"),
        ((0.30, 0.31, 0.29), "does not hold"),
        ((0.30, 0.50, 0.40), "cannot tell"),
        ((0.60,), "cannot tell"),
    ],
)
def test_the_verdict_comes_from_the_interval(tmp_path, ends, verdict):
    runs = runs_of(tmp_path, {"er": ({}, (0.40, 0.41, 0.39)), "trend": (TREND, ends)})
    judged = judge(FEWER, runs)
    assert judged.verdict == verdict
    part = judged.parts["er, trend log_tlr against er"]
    gain = [100 * (e - r) for e, r in zip(ends, (0.40, 0.41, 0.39), strict=False)]  # less forgotten, in points
    assert part.difference == pytest.approx(np.mean(gain))
    assert part.n == len(ends)


def test_a_claim_of_several_parts_holds_if_every_part_does(tmp_path):
    claim = next(c for c in CLAIMS if c.text.startswith("All continuous variants"))
    weighted = {
        s: ({"learner": {"weights": {"signal": s}}}, (0.6, 0.61, 0.6))
        for s in ("tlr", "log_tlr", "rtlr", "cm", "nkl", "ctl")
    }
    plain = {"er": ({}, (0.40, 0.41, 0.39))}
    assert judge(claim, runs_of(tmp_path / "a", {**plain, **weighted})).verdict == "holds"
    worse = {**weighted, "nkl": (weighted["nkl"][0], (0.2, 0.21, 0.2))}
    assert judge(claim, runs_of(tmp_path / "b", {**plain, **worse})).verdict == "does not hold"
    assert judge(claim, []).verdict == "cannot tell"


def test_the_diagnostics_are_judged_from_the_history(tmp_path):
    whiskers = next(c for c in CLAIMS if "a whisker above 0.35" in c.text)
    sharp = [[0.8, 0.8, np.nan, np.nan]] * 4 + [[0.1, 0.2, 0.5, 0.6], [0.1, 0.1, 0.6, 0.7]] * 2
    runs = [
        write_run(tmp_path / f"{s}", [{"seed": s}], history=made_history(np.array(sharp) + 0.001 * s)) for s in range(3)
    ]
    assert judge(whiskers, runs).parts["accuracy"].n == 3
    for claim in CLAIMS:
        assert judge(claim, runs).verdict in ("holds", "does not hold", "cannot tell")


def test_the_order_of_the_table_is_judged_by_seeds_that_have_all_of_it(tmp_path):
    claim = next(c for c in CLAIMS if "order of the seven signals" in c.text)
    as_printed = {s: printed("cifar100", weights(s), "accuracy").mean / 100
                  for s in ("tlr", "log_tlr", "rtlr", "cm", "nkl", "ctl", "accuracy")}  # fmt: skip
    methods = {s: ({"learner": {"weights": {"signal": s}}}, (v, v, v, 1 - v)) for s, v in as_printed.items()}
    methods["ctl"] = (methods["ctl"][0], methods["ctl"][1][:3])  # the fourth seed lacks one
    judged = judge(claim, runs_of(tmp_path, methods))
    assert judged.parts["signals"].n == 7
    assert judged.parts["signals"].difference == pytest.approx(1.0)
    assert judged.verdict == "holds"
    backwards = judge(claim, runs_of(tmp_path / "b", {s: (m[0], [1 - v for v in m[1]]) for s, m in methods.items()}))
    assert backwards.parts["signals"].difference == pytest.approx(-1.0)
    assert backwards.verdict == "does not hold"
    two = judge(claim, runs_of(tmp_path / "c", {s: (m[0], m[1][:2]) for s, m in methods.items()}))
    assert two.parts["signals"] == (7, pytest.approx(1.0), None, None)  # seven signals, but of two seeds
    assert two.verdict == "cannot tell"


@pytest.mark.parametrize("order", [(3, 0, 1, 2, 4, 6, 5), (0, 2, 1, 3, 4, 5, 6), (6, 4, 2, 0, 5, 3, 1)])
def test_agreement_of_orders_is_judged_by_all_permutations(order):
    """Against scipy's exact permutation test: the interval excludes zero where a two-sided test at 5 % does."""
    from scipy.stats import permutation_test, spearmanr

    said = [float(i) for i in range(7)]
    found = _agreement([float(i) for i in order], said, 3, 0.95)
    exact = permutation_test(
        (np.array(order),), lambda x: spearmanr(x, said).statistic, permutation_type="pairings", n_resamples=np.inf
    )
    assert found.difference == pytest.approx(exact.statistic)
    assert (found.low > 0 or found.high < 0) == (exact.pvalue < 0.05)


def test_one_bad_part_of_many_must_be_bad_beyond_their_number(tmp_path):
    """A difference that would count alone does not count as one of six."""
    claim = next(c for c in CLAIMS if c.text.startswith("All continuous variants"))
    plain = {"er": ({}, (0.40, 0.41, 0.39))}
    ends = dict.fromkeys(("tlr", "log_tlr", "rtlr", "cm", "ctl"), (0.5, 0.51, 0.52)) | {"nkl": (0.38, 0.392, 0.377)}
    runs = runs_of(tmp_path, {**plain, **{s: ({"learner": {"weights": {"signal": s}}}, e) for s, e in ends.items()}})
    judged = judge(claim, runs)
    alone = judged.parts["er, weights nkl against er"]
    assert alone.high < 0
    assert judged.verdict == "cannot tell"


def test_intervals_are_counted(tmp_path):
    judged = judge(FEWER, runs_of(tmp_path, {"er": ({}, (0.40, 0.41, 0.39)), "trend": (TREND, (0.50, 0.52, 0.51))}))
    unknown = judge(FEWER, runs_of(tmp_path / "two", {"er": ({}, (0.4, 0.4)), "trend": (TREND, (0.5, 0.5))}))
    assert "\n1 interval, each at 95 % by itself: 1 excludes zero;" in judged_markdown([judged, unknown])


def shown(judged):
    """The table of the terminal, as wide as a pipe is."""
    console = Console(width=120, file=io.StringIO())
    console.print(judged_table(judged))
    return console.file.getvalue()


def test_the_terminal_shows_verdict_and_number(tmp_path):
    better = judge(
        FEWER, runs_of(tmp_path / "a", {"er": ({}, (0.40, 0.41, 0.39)), "trend": (TREND, (0.5, 0.52, 0.51))})
    )
    worse = judge(FEWER, runs_of(tmp_path / "b", {"er": ({}, (0.40, 0.41, 0.39)), "trend": (TREND, (0.3, 0.31, 0.29))}))
    two = judge(FEWER, runs_of(tmp_path / "c", {"er": ({}, (0.4, 0.4)), "trend": (TREND, (0.5, 0.5))}))
    lines = shown([better, two, judge(FEWER, []), worse]).splitlines()
    assert max(map(len, lines)) <= 100
    numbers = [line[:60].split("  ")[0] for line in lines if "trend sampling" in line]
    assert numbers == [
        "does not hold;",
        "holds",
        "cannot tell",
    ]  # what does not hold leads; what was not run is not there
    text = "\n".join(lines)
    assert "−10.00 [−10.00, −10.00]" in text
    assert "+10.00, n = 2" in text  # however alike, two seeds have no interval


def test_the_part_that_decides_is_shown(tmp_path):
    """The lowest mean has a narrow interval above zero; another one's reaches below it."""
    claim = next(c for c in CLAIMS if c.text.startswith("NKL and CTL are suited"))
    ends = {"tlr": (0.40, 0.40, 0.40), "nkl": (0.41, 0.411, 0.412), "ctl": (0.40, 0.50, 0.60)}
    judged = judge(claim, runs_of(tmp_path, {s: ({"learner": {"weights": {"signal": s}}}, e) for s, e in ends.items()}))
    assert judged.verdict == "cannot tell"
    assert judged.worst == judged.parts["er, weights ctl against er, weights tlr"]
    assert ", worst of 2" in shown([judged])


def test_a_small_effect_is_said_to_be_small(tmp_path):
    ends = (0.404, 0.400, 0.398, 0.401)
    judged = judge(FEWER, runs_of(tmp_path, {"er": ({}, (0.40,) * 4), "trend": (TREND, ends)}))
    assert judged.words.startswith("cannot tell; no effect larger than 0.5 point; less than printed")


def test_what_the_task_before_loses_at_once(tmp_path):
    claim = next(c for c in CLAIMS if c.text == "In the first epoch of a task the one before it loses accuracy")
    falls = made_history([[0.9, 0.7, np.nan, np.nan]] * 2 + [[0.6, 0.4, 0.5, 0.5], [0.1, 0.1, 0.5, 0.5]])
    assert judge(claim, [write_run(tmp_path / "r", history=falls)]).parts["accuracy"].difference == pytest.approx(30)


def test_the_same_is_judged_without_a_schedule(tmp_path):
    """Runs with a constant rate count for the controls, those with a schedule do not."""
    claim = next(c for c in CLAIMS if "whisker above 0.35; at a constant" in c.text)
    moving = [[0.8, 0.8, np.nan, np.nan]] * 4 + [[0.1, 0.2, 0.5, 0.6], [0.1, 0.1, 0.6, 0.7]] * 2
    runs = [
        write_run(tmp_path / f"{s}", [{"seed": s, "learner": {"milestones": [2], "decay": decay}}],
                  history=made_history(np.array(moving)))
        for s, decay in enumerate((0.1, 1.0, 1.0))
    ]  # fmt: skip
    assert claim.recipe == "ablations"
    assert judge(claim, runs).parts["accuracy"].n == 2


def test_every_run_of_the_window_claims_is_in_their_recipe(tmp_path):
    """With all runs of a recipe there, no part of a claim about it is missing."""
    for recipe in ("windows", "windows_standardised", "windows_percent"):
        runs = [
            write_run(tmp_path / recipe / plan.name, [plan.config.model_dump(mode="json", exclude_none=True)])
            for plan in expand(recipe, over={"seed": [0, 1]})
        ]
        judged = [judge(claim, runs) for claim in CLAIMS if claim.recipe == recipe]
        assert judged
        assert all(part.n == 2 for each in judged for part in each.parts.values()), recipe


@pytest.mark.parametrize(
    ("ends", "words"),
    [
        ((0.415, 0.42, 0.425), "holds; less than printed"),  # 1.5, 2, 2.5 points of 8.68
        ((0.40, 0.43, 0.38), "cannot tell; less than printed"),
        ((0.40, 0.50, 0.45), "cannot tell"),
        ((0.45, 0.46, 0.455), "holds; less than printed"),  # 5 to 6 points: above the printed one's own error
        ((0.47, 0.48, 0.475), "holds"),  # 7.5 ± 1.2 of 8.68 ± 0.47: it may be the same
        ((0.40, 0.40), "cannot tell"),  # two seeds say nothing, however alike
        ((), "not run"),
    ],
)
def test_a_gain_can_be_less_than_printed(tmp_path, ends, words):
    judged = judge(FEWER, runs_of(tmp_path, {"er": ({}, (0.4, 0.4, 0.4)), "trend": (TREND, ends)}))
    assert judged.words == words
    assert f"**{words}**" in judged_markdown([judged])


def test_two_methods_are_alike_if_neither_is_a_margin_above_the_other(tmp_path):
    """Old tasks at 0.50 and 0.51, 0.52 and 0.51: accuracy, a mean of two tasks, differs by half a point either way."""
    runs = runs_of(tmp_path, {"er": ({}, (0.50, 0.52)), "trend": (TREND, (0.51, 0.51))})
    parts = within(1, "accuracy", (er(), trend("log_tlr")))(runs)
    assert parts["er above er, trend log_tlr"] == {0: pytest.approx(1.5), 1: pytest.approx(0.5)}
    assert parts["er, trend log_tlr above er"] == {0: pytest.approx(0.5), 1: pytest.approx(1.5)}


def test_variation_is_a_ratio_with_the_interval_of_the_f_distribution(tmp_path):
    """Standard deviations of 2 and 1: one doubling. F(0.975; 2, 2) is 39: with three seeds 2.64 are chance."""
    runs = runs_of(tmp_path, {"er": ({}, (0.40, 0.42, 0.44)), "trend": (TREND, (0.50, 0.51, 0.52))})
    found = varies_more("retention", (er(), trend("log_tlr")), (er(), trend("loss")))(runs)
    chance = np.log2(39) / 2
    expected = Interval(3, 1.0, 1 - chance, 1 + chance)
    assert found["er against er, trend log_tlr"](0.95) == pytest.approx(expected, rel=1e-6)
    assert found["er against er, trend loss"](0.95) == Interval(0, None, None, None)
    claim = Claim("table2", "cifar100", "", "", "", "", varies_more("retention", (er(), trend("log_tlr"))))
    assert judge(claim, runs).verdict == "cannot tell"


def test_the_spread_at_zero_beside_the_printed_one(tmp_path):
    rows = [[0.5, 0.5, np.nan, np.nan], [0.0, 0.0, 0.0, 0.0]]
    levels = np.array([0.1, 0.2, 0.3, 0.4])
    run = write_run(tmp_path / "run", history=made_history(rows, of=lambda name, row: levels))
    assert as_wide_as("cm", 0.1)(run) == {"cm": pytest.approx(0.15 - 0.1)}  # quartiles 0.175 and 0.325


def test_stability_is_judged_over_the_windows_that_every_signal_has(tmp_path):
    def ends(signal, window, *values):
        trend = {"signal": signal, "window": window}
        return {f"{signal}{window}": ({"learner": {"trend": trend}}, values)}

    methods = {}
    for signal in ("log_tlr", "loss", "nkl", "cm", "accuracy"):
        wild = signal == "accuracy"
        methods |= ends(signal, 3, 0.1, 0.2) | ends(signal, 15, 0.5 if wild else 0.2, 0.2)
    methods |= ends("accuracy", 5, 0.9, 0.9)  # the others were not run there
    claim = next(c for c in CLAIMS if c.recipe == "windows" and "stable across windows" in c.text)
    judged = judge(claim, runs_of(tmp_path, methods))
    assert list(judged.parts) == [f"{s}, w = 3, 15" for s in ("log_tlr", "loss", "nkl", "cm")]
    assert judged.parts["cm, w = 3, 15"].difference == pytest.approx(100 * (0.3 / 2 + 0) / 2)  # two tasks, two seeds
    assert judged.parts["cm, w = 3, 15"].n == 2


def test_files_and_page(tmp_path):
    history = made_history([[0.8, 0.8, np.nan, np.nan]] * 4 + [[0.1, 0.0, 0.5, 0.6]] * 4)
    plans = []
    for name, settings in {"er": {}, "trend": TREND, "<b>": {"memory": {"draw": "class_uniform"}}}.items():
        for seed in range(2):
            run = write_run(tmp_path / "runs" / f"{len(plans)}", [settings, {"seed": seed}], history=history)
            plans.append((Planned(name, build_config(run.config.model_dump(), {"recipe": "table2-small"})), run))
    out = tmp_path / "out"
    planned, runs = [p for p, _ in plans], [r for _, r in plans]
    written = write_reproduction({"diagnostics": planned, "table2": planned}, runs, out)
    names = {path.name for path in out.iterdir()}
    assert {
        "diagnostics_cifar100.json",
        "agreement_cifar100.csv",
        "agreement_cifar100.md",
        "table2.txt",
        "table2.csv",
        "table2.md",
        "table2.tex",
        "trajectories_cifar100.png",
        "claims.md",
        "questions.md",
        "questions.csv",
    } <= names
    listed = (out / "claims.md").read_text()
    assert "| **not run** |" in listed
    assert "| Log-TLR trend sampling gives less forgetting than ER | 4.4, Table 2 | cifar100 | 8.68 | +0.00" in listed
    text = written.page.read_text()
    assert "6 of 6 planned runs" in text
    assert "Log-TLR trend sampling gives less forgetting than ER" in text
    assert "Method(" not in text  # titles, not values
    assert text.index('<p class="open">') < text.index("At the first boundary")  # the verdict leads
    assert "http:" not in text
    assert "https:" not in text
    with pytest.raises(ValueError, match="none of the 6 runs is done"):
        write_reproduction({"table2": planned}, [], out)


def test_a_run_that_recorded_more_stands_for_one_of_a_table(tmp_path):
    run = write_run(tmp_path / "run", [{"record": {"flow": True}}], matrix=((0.8, None), (0.4, 0.9)))
    plain = Planned("ER", build_config(run.config.model_dump(), {"record": {"flow": False}}))
    write_reproduction({"table2": [plain]}, [run], tmp_path / "out")
    assert "65.00" in (tmp_path / "out" / "table2.txt").read_text()
    with pytest.raises(ValueError, match="none of the 1 runs is done"):
        write_reproduction({"diagnostics": [plain]}, [run], tmp_path / "none")


def test_seeds_of_the_headline_count_for_the_claims_of_the_tables(tmp_path):
    """Its runs of ER and the Log-TLR trend are those of Table 2: seeds 0 and 1 there, 2 and 3 here."""
    runs = runs_of(tmp_path / "runs", {"er": ({}, (0.4,) * 4), "trend": (TREND, (0.5, 0.5, 0.6, 0.6))})
    table = [Planned("", run.config) for run in runs if run.config.seed < 2]
    headline = [Planned("", run.config) for run in runs if run.config.seed >= 2]
    claim = "| Log-TLR trend sampling gives less forgetting than ER | 4.4, Table 2 | cifar100 | 8.68 |"
    write_reproduction({"table2": table}, runs, tmp_path / "alone")
    assert f"{claim} +10.00" in (tmp_path / "alone" / "claims.md").read_text()
    write_reproduction({"table2": table, "headline": headline}, runs, tmp_path / "both")
    (line,) = [said for said in (tmp_path / "both" / "claims.md").read_text().splitlines() if said.startswith(claim)]
    assert f"{claim} +15.00" in line
    assert "n\u00a0=\u00a04" in line


def test_the_same_run_recorded_twice_counts_once(tmp_path):
    runs = [write_run(tmp_path / f"{flow}", [{"record": {"flow": flow}}]) for flow in (True, False)]
    plans = [Planned("ER", run.config) for run in runs]
    page = write_reproduction({"table2": plans}, runs, tmp_path / "out").page.read_text()
    assert "1 of 1 planned runs" in page


#: A run takes a fraction of a second.
TINY = ["data.per_class=10", "data.tasks=2", "learner.epochs=1", "memory.capacity=20", "model.width=4"]


def test_the_command_runs_what_is_missing_and_shows_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tiny = [word for setting in TINY for word in ("--set", setting)]
    command = ["reproduce", "ablations", "--scale", "demo", *tiny]
    assert "no run at or below runs" in CliRunner().invoke(app, [*command, "--only-show"]).output
    done = CliRunner().invoke(app, [*command, "--seeds", "1", "--workers", "1"])
    assert done.exit_code == 0, done.output
    assert len(find_runs("runs")) == 5  # its rows
    assert "ER, constant rate" in (tmp_path / "reproduction" / "ablations.txt").read_text()
    shown = CliRunner().invoke(app, [*command, "--only-show", "--out", "again"])
    assert shown.exit_code == 0, shown.output
    counts = r"^of 8 claims, 0 hold, 0 do not hold, and of 8 these runs cannot tell \(2 were not run\)$"  # one seed
    assert re.search(counts, shown.output, re.M)
    assert shown.output.count("\ncannot tell  ") == 6
    for name in ("ablations.txt", "claims.md", "questions.csv"):
        assert (tmp_path / "again" / name).read_text() == (tmp_path / "reproduction" / name).read_text()
    assert "5 of 15" in (tmp_path / "again" / "reproduction.html").read_text()  # the recipe has three seeds


def test_a_run_that_fails_is_said_and_the_rest_is_shown(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reproduction").mkdir()
    (tmp_path / "reproduction" / "ablations_of_old.txt").write_text("of another day")
    tiny = [word for setting in TINY for word in ("--set", setting)]
    command = ["reproduce", "ablations", "--scale", "demo", *tiny, "--seeds", "1", "--workers", "1"]
    first = expand("ablations", scale="demo", settings=tuple(map(parse_setting, TINY)))[0]
    broken = tmp_path / "runs" / first.name
    broken.mkdir(parents=True)
    (broken / "failed.json").write_text('{"error": "boom"}')
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 1
    assert f"failed: runs/{first.name}: boom" in done.output
    page = (tmp_path / "reproduction" / "reproduction.html").read_text()
    assert "4 of 5 planned runs" in page
    assert "of another day" not in page


def test_parts_without_seeds_of_their_own_get_three():
    def seeds(part, **options):
        return sorted({plan.config.seed for plan in plan_parts(part, scale="small", **options)[part]})

    assert seeds("diagnostics") == [0, 1, 2]
    assert seeds("diagnostics", seeds=1) == [0]
    assert seeds("windows_percent") == [0, 1, 2, 3, 4, 5]
    with pytest.raises(ValueError, match=r"unknown part 'tabel1'; did you mean 'table1'\? Known: diagnostics, "):
        plan_parts("tabel1", scale="small")
