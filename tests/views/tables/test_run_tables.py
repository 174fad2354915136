"""Tables of hand-made runs against means, deviations and t-intervals worked out by hand."""

import csv
import io
import json

import polars as pl
import pytest
from typer import Typer
from typer.testing import CliRunner
from views.hand_made import write_run

from wane.cli import Commands
from wane.cli import paper as paper_commands
from wane.cli import views as commands
from wane.paper.methods import weights
from wane.paper.values import PAPER, RESULTS, printed
from wane.runs.complete import complete
from wane.runs.config import build_config
from wane.runs.folder import find_runs
from wane.runs.identity import method_of
from wane.sweeps.plan import expand
from wane.views.comparable_runs import by_setting
from wane.views.statistics import mean_std, paired
from wane.views.summaries import accuracy_measures
from wane.views.tables.formats import FORMATS, legend, to_csv, to_latex, to_markdown, to_text
from wane.views.tables.run_tables import run_table

CONTROL = {"memory": {"draw": "class_uniform"}}
TREND = {"learner": {"trend": {"signal": "log_tlr"}}}
T_2 = 4.302652729911275  # the 97.5 % quantile of Student's t with 2 degrees of freedom, from a printed table


def matrix(old, new=0.9):
    """Accuracy (old + new) / 2, forgetting 0.8 - old, retention old, plasticity (0.8 + new) / 2."""
    return [[0.8, None], [old, new]]


@pytest.fixture
def runs(tmp_path):
    for seed, old in enumerate([0.40, 0.42, 0.44]):
        write_run(tmp_path / f"er-{seed}", [{"seed": seed}], matrix=matrix(old))
    for seed, old in enumerate([0.50, 0.53, 0.53]):
        write_run(tmp_path / f"cu-{seed}", [{"seed": seed}, CONTROL], matrix=matrix(old))
    for seed, old in enumerate([0.60, 0.61]):
        write_run(tmp_path / f"trend-{seed}", [{"seed": seed}, TREND], matrix=matrix(old))
    return find_runs(tmp_path)


def row(table, method, measure):
    found = [r for r in table.frame.to_dicts() if (r["method"], r["measure"]) == (method, measure)]
    assert len(found) == 1
    return found[0]


def test_options_belong_to_the_method_so_methods_with_options_share_a_table_with_er(tmp_path):
    for name in ("er", "derpp"):
        config = complete(build_config({"learner": {"name": name}}))
        write_run(tmp_path / name, [config.model_dump(mode="json", exclude={"data"}, exclude_none=True)])
    assert len(by_setting(find_runs(tmp_path))) == 1


def test_measures_of_one_run(tmp_path):
    run = write_run(tmp_path / "a", matrix=matrix(0.4))
    assert accuracy_measures(run) == pytest.approx(
        {"accuracy": 65, "forgetting": 40, "retention": 40, "plasticity": 85}
    )
    rising = write_run(tmp_path / "b", matrix=matrix(0.9))  # it got better: the definitions part
    assert accuracy_measures(rising, "peak")["forgetting"] == pytest.approx(0)
    assert accuracy_measures(rising, "first")["forgetting"] == pytest.approx(-10)
    assert accuracy_measures(write_run(tmp_path / "c", done=False)) is None


def test_means_deviations_and_differences(runs):
    table = run_table("table2", runs, printed=PAPER)
    er, trend, control = (row(table, m, "accuracy") for m in ("ER", "Log-TLR", "class-uniform"))
    assert er["mean"] == pytest.approx(66)  # 65, 66, 67
    assert er["std"] == pytest.approx(1)  # n - 1
    assert (er["n"], er["missing"], er["er_n"], er["er_difference"]) == (3, "", 0, None)
    # Control minus ER: 5, 5.5, 4.5, so mean 5, deviation 0.5.
    half = T_2 * 0.5 / 3**0.5
    assert control["er_difference"] == pytest.approx(5)
    assert (control["er_low"], control["er_high"]) == pytest.approx((5 - half, 5 + half))
    # The trend has seeds 0 and 1 alone, 10 and 9.5 above ER: too few for an interval.
    assert (trend["n"], trend["missing"], trend["er_n"]) == (2, "2", 2)
    assert trend["er_difference"] == pytest.approx(9.75)
    assert (trend["er_low"], trend["er_high"]) == (None, None)
    assert trend["control_difference"] == pytest.approx((5 + 4) / 2)
    forgotten = row(table, "class-uniform", "forgetting")
    assert (forgotten["mean"], forgotten["er_difference"]) == pytest.approx((28, -10))
    assert row(table, "Loss", "accuracy") | {"paper": 0} == {
        "setting": "cifar100", "data": "cifar100", "method": "Loss", "measure": "accuracy", "n": 0, "mean": None,
        "std": None, "seeds": "", "missing": "0, 1, 2", "er_n": 0, "er_difference": None, "er_low": None,
        "er_high": None, "control_n": 0, "control_difference": None, "control_low": None, "control_high": None,
        "paper": 0, "paper_std": 0.52, "paper_where": "Table 2", "best": False,
    }  # fmt: skip


def test_best_needs_an_interval_beyond_zero(runs, tmp_path):
    # The trend's interval over two seeds: 9.75 ± 3.18 for accuracy. But two seeds are too few to call anything best.
    assert not run_table("table2", runs).frame["best"].any()
    write_run(tmp_path / "trend-2", [{"seed": 2}, TREND], matrix=matrix(0.62))
    table = run_table("table2", find_runs(tmp_path))
    best = {(r["method"], r["measure"]) for r in table.frame.to_dicts() if r["best"]}
    # Plasticity is the same in all.
    assert best == {("Log-TLR", m) for m in ("accuracy", "forgetting", "retention")}
    assert "75.50 ± 0.50*" in to_text(table)
    assert "**75.50 ± 0.50**" in to_markdown(table)
    assert r"$\mathbf{75.50 \pm 0.50}$" in to_latex(table)
    wild = {"learner": {"trend": {"signal": "cm"}}}
    for seed, old in enumerate([0.90, 0.30, 0.90]):  # the highest mean, but it may be chance
        write_run(tmp_path / f"wild-{seed}", [{"seed": seed}, wild], matrix=matrix(old, 1.0))
    table = run_table("table2", find_runs(tmp_path))
    assert row(table, "Confusion Margin", "accuracy")["mean"] > row(table, "Log-TLR", "accuracy")["mean"]
    best = {(r["method"], r["measure"]) for r in table.frame.to_dicts() if r["best"]}
    assert not any(measure == "accuracy" for _, measure in best)
    assert ("Confusion Margin", "plasticity") in best  # 5 points above, every time


def test_worse_than_er_is_never_best(tmp_path):
    for seed in range(3):
        write_run(tmp_path / f"er-{seed}", [{"seed": seed}], matrix=matrix(0.5 + seed / 100))
        write_run(tmp_path / f"cu-{seed}", [{"seed": seed}, CONTROL], matrix=matrix(0.3 + seed / 100))
    assert not run_table("auto", find_runs(tmp_path)).frame["best"].any()


def test_one_run_gives_no_interval(tmp_path):
    data = {"data": {"name": "digits"}}
    write_run(tmp_path / "er", [data], matrix=matrix(0.4))
    write_run(tmp_path / "cu", [data, CONTROL], matrix=matrix(0.7))
    table = run_table("auto", find_runs(tmp_path))
    assert table.frame["method"].unique(maintain_order=True).to_list() == ["er", "er, class_uniform"]
    control = row(table, "er, class_uniform", "accuracy")
    assert (control["n"], control["std"], control["er_low"]) == (1, None, None)
    assert control["er_difference"] == pytest.approx(15)
    assert not table.frame["best"].any()
    text = to_text(table)
    assert "80.00 " in text
    assert "+15.00" in text
    assert "±" not in text.split("Percentage")[0]
    assert "[" not in text


def test_rows_are_found_by_what_the_method_is(tmp_path):
    small = {"model": {"name": "cnn", "width": 32}, "learner": {"epochs": 12, "weights": {"signal": "nkl"}}}
    write_run(tmp_path / "any name", [small, {"recipe": "mine"}])
    table = run_table("table1", find_runs(tmp_path))
    assert row(table, "Normalized KL", "accuracy")["n"] == 1
    assert any("No run of plain ER" in line for line in legend(table))
    # With a trend the draw of the memory is not used, so it does not matter.
    write_run(tmp_path / "b", [TREND, CONTROL])
    assert row(run_table("table2", find_runs(tmp_path / "b")), "Log-TLR", "accuracy")["n"] == 1


def test_settings_are_kept_apart(runs, tmp_path):
    write_run(tmp_path / "long", [{"learner": {"epochs": 99}}], matrix=matrix(0.7))
    write_run(tmp_path / "other", [{"data": {"name": "/some/where/birds"}}], matrix=matrix(0.7))
    settings = by_setting(find_runs(tmp_path))
    assert [s.title for s in settings] == ["cifar100 (learner.epochs 50)", "cifar100 (learner.epochs 99)", "birds"]
    assert [len(s.runs) for s in settings] == [8, 1, 1]
    table = run_table("auto", find_runs(tmp_path))
    assert table.frame.group_by("setting").len().height == 3
    assert set(table.frame.filter(table.frame["setting"] == "birds")["method"]) == {"er"}


def test_what_is_left_out_is_said(runs, tmp_path):
    write_run(tmp_path / "half", [{"seed": 7}], done=False)
    write_run(tmp_path / "twin", [{"seed": 0}], matrix=matrix(0.1))
    write_run(tmp_path / "alien", [{"learner": {"name": "finetune"}}])
    table = run_table("table2", find_runs(tmp_path))
    notes = "\n".join(table.notes)
    assert "half is not done" in notes
    assert "twin is left out: there is another result of the same method and seed 0" in notes
    assert "runs of finetune belong to no row of table2" in notes
    assert row(table, "ER", "accuracy")["n"] == 3
    assert row(table, "ER", "accuracy")["mean"] == pytest.approx(66)


def test_rows_that_differ_in_more_than_the_method(tmp_path):
    """A variant may set anything: its runs are those that have it so, and it is compared with the plain ones."""
    for seed, (plain, constant) in enumerate([(0.4, 0.2), (0.5, 0.3)]):
        write_run(tmp_path / f"p{seed}", [{"seed": seed, "learner": {"decay": 0.1}}], matrix=matrix(plain))
        write_run(tmp_path / f"c{seed}", [{"seed": seed, "learner": {"decay": 1.0}}], matrix=matrix(constant))
    table = run_table("ablations", find_runs(tmp_path), printed=PAPER)
    assert set(table.frame["setting"]) == {"cifar100"}
    er, constant = (row(table, label, "accuracy") for label in ("ER", "ER, constant rate"))
    assert (er["n"], er["mean"], er["er_n"]) == (2, pytest.approx(67.5), 0)
    assert (constant["n"], constant["mean"], constant["er_difference"]) == (2, pytest.approx(57.5), pytest.approx(-10))
    assert (er["paper"], constant["paper"]) == (36.33, None)


def test_under_conditions_of_its_own_a_method_is_compared_with_er_there(tmp_path):
    recipe = tmp_path / "mine.toml"
    small = "memory.capacity = 100"
    recipe.write_text(
        f'[variants]\n"ER" = {{}}\n"ER, small" = {{ {small} }}\n'
        f'"trend, small" = {{ {small}, learner.trend.signal = "log_tlr" }}\n'
    )
    memory = {"memory": {"capacity": 100}}
    write_run(tmp_path / "er", matrix=matrix(0.6))
    write_run(tmp_path / "small", [memory], matrix=matrix(0.2))
    write_run(tmp_path / "trend", [memory, TREND], matrix=matrix(0.3))
    table = run_table(str(recipe), find_runs(tmp_path))
    assert row(table, "ER, small", "accuracy")["er_difference"] == pytest.approx(-20)
    assert row(table, "trend, small", "accuracy")["er_difference"] == pytest.approx(5)


def test_a_setting_of_one_row_that_others_have_anyway_takes_none_of_their_runs(tmp_path):
    """Finetune has a memory's size in its config too, be it that of the row `ER, memory 200`."""
    memory = {"memory": {"capacity": 200}}
    write_run(tmp_path / "finetune", [memory, {"learner": {"name": "finetune"}}])
    write_run(tmp_path / "er", [memory])
    table = run_table("recovery", find_runs(tmp_path))
    assert row(table, "finetune", "accuracy")["n"] == row(table, "ER, memory 200", "accuracy")["n"] == 1
    assert table.notes == ("cifar100: no run has seeds 1, 2 of recovery.",)


def test_runs_that_recorded_more_share_a_table_and_settings_of_others_have_none(tmp_path):
    write_run(tmp_path / "plain", [{"seed": 0}])
    write_run(tmp_path / "recovery", [{"seed": 1, "record": {"recovery": {"steps": 5}}}])
    write_run(tmp_path / "other", [{"learner": {"name": "finetune"}, "memory": {"capacity": 7}}])
    table = run_table("table2", find_runs(tmp_path))
    assert set(table.frame["setting"]) == {"cifar100 (memory.capacity 2000)"}
    assert row(table, "ER", "accuracy")["seeds"] == "0, 1"
    assert "runs of finetune belong to no row" in "".join(table.notes)


def test_own_toml_with_lists(tmp_path):
    recipe = tmp_path / "mine.toml"
    recipe.write_text('[over]\nseed = [4]\n"memory.draw" = ["uniform", "class_uniform"]\n[variants]\n"a|b" = {}\n')
    for draw in ("uniform", "class_uniform"):
        write_run(tmp_path / draw, [{"seed": 4, "memory": {"draw": draw}}])
    table = run_table(str(recipe), find_runs(tmp_path))
    assert table.title == "mine"
    assert set(table.frame["method"]) == {"a|b: er", "a|b: er, class_uniform"}
    assert table.frame["n"].to_list() == [1] * 8
    assert r"a\|b: er" in to_markdown(table)


def test_the_four_formats(runs):
    table = run_table("table2", runs, printed=PAPER)
    text, markdown, latex, listed = (render(table) for render in FORMATS.values())
    assert "75.25 ± 0.35 " in text  # 75, 75.5
    assert "2 (seed 2 missing)" in text
    assert "0 (seeds 0, 1, 2 missing)" in text
    assert "41.71 ± 0.73" in text  # the paper's, beside
    assert "+9.75 " in text
    assert "+9.75 [" not in text  # of two seeds
    assert "+5.00 [+3.76, +6.24]" in text
    assert "forgetting: peak" in text
    assert "| Log-TLR | 2 (seed 2 missing) | 75.25 ± 0.35 | 41.71 ± 0.73 |" in markdown
    assert r"$75.25 \pm 0.35$" in latex
    assert r"$+5.00\;[+3.76, +6.24]$" in latex
    assert latex.count(r"\begin{tabular}") == latex.count(r"\end{tabular}") == 2
    rows = list(csv.DictReader(io.StringIO(listed)))
    assert len(rows) == 11 * 4
    assert {r["forgetting_definition"] for r in rows} == {"peak"}
    assert [r["mean"] for r in rows if r["method"] == "Loss"] == [""] * 4


def test_methods_that_neither_we_nor_the_paper_ran_are_named_and_have_no_row(tmp_path):
    recipe = tmp_path / "r.toml"
    recipe.write_text('[variants]\n"ER" = {}\n"class-uniform" = { memory.draw = "class_uniform" }\n')
    write_run(tmp_path / "er")
    table = run_table(str(recipe), find_runs(tmp_path))
    text = to_text(table)
    assert "cifar100, not run: class-uniform." in text.splitlines()
    assert text.count("class-uniform") == 1
    assert table.frame.filter(pl.col("method") == "class-uniform")["n"].to_list() == [0] * 4


def test_names_are_escaped(tmp_path):
    recipe = tmp_path / "r.toml"
    recipe.write_text('title = "100 % & more"\n[variants]\n"a_b & <i>{$x$}^~#\\\\" = {}\n')
    write_run(tmp_path / "er")
    table = run_table(str(recipe), find_runs(tmp_path))
    latex = to_latex(table)
    assert r"a\_b \& \textless{}i\textgreater{}\{\$x\$\}\textasciicircum{}\textasciitilde{}\#\textbackslash{}" in latex
    assert r"100 \% \& more" in latex
    assert "<i>" not in to_markdown(table).replace(r"\<i\>", "")


def test_unknown_names_list_the_known(runs):
    with pytest.raises(ValueError, match=r"unknown table 'tabel1'; did you mean 'table1'\? Known: auto, .*table2"):
        run_table("tabel1", runs)
    with pytest.raises(ValueError, match="unknown definition of forgetting 'last': choose one of peak"):
        run_table("auto", runs, definition="last")
    with pytest.raises(ValueError, match="none of 8 runs is done and belongs to a row of 'bounds'"):
        run_table("bounds", runs)


def test_a_rounding_is_no_difference():
    noise = {0: 0.1 + 0.2, 1: 0.1 + 0.2, 2: 0.1 + 0.2}
    assert paired(noise, dict.fromkeys(noise, 0.3)) == (3, 0.0, 0.0, 0.0)


def test_statistics_of_nothing():
    assert mean_std([float("nan")]) == (None, None)
    assert paired({0: 1.0}, {1: 1.0}) == (0, None, None, None)


def test_the_paper_has_a_row_for_each_variant():
    for recipe, absent in (("table1", "Loss"), ("table2", "")):
        for planned in expand(recipe):
            if not planned.variant.startswith("class-uniform") and planned.variant != absent:
                method = method_of(planned.config)
                for data in ("cifar100", "tiny_imagenet"):
                    assert printed(data, method, "accuracy")
                    assert printed(data, method, "forgetting")
    assert printed("tiny_imagenet", weights("nkl"), "forgetting") == (53.85, 0.12, "Table 1")
    assert all(0 < p.mean < 100 and (p.std is None or p.std < 5) for p in RESULTS.values())


def command(*arguments):
    app = Typer(cls=Commands)
    for function in (commands.figure, commands.table, paper_commands.diagnostics):
        app.command()(function)
    return CliRunner().invoke(app, [str(a) for a in arguments])


def test_the_command(runs, tmp_path):
    shown = command("table", "table2", tmp_path)
    assert shown.exit_code == 0, shown.output
    assert "75.25 ± 0.35" in shown.stdout
    write_run(tmp_path / "half", [{"seed": 7}], done=False)
    listed = command("table", "auto", tmp_path, "--format", "csv", "--forgetting", "first")
    assert listed.stdout.startswith("setting,data,method,measure,n,")
    assert "note: half is not done" in listed.stderr
    wrong = command("table", "auto", tmp_path, "--format", "html")
    assert wrong.exit_code == 2
    assert "unknown format 'html'. Known: text, markdown, latex, csv" in wrong.stderr


def test_summary_is_enough(tmp_path):
    """No history is read: a table of fifty runs is quick."""
    run = write_run(tmp_path / "er")
    assert not (run.path / "history.parquet").exists()
    assert json.loads((run.path / "summary.json").read_text())["seed"] == 0
    assert to_csv(run_table("auto", [run]))


def test_er_alone_is_compared_with_nothing(tmp_path):
    for seed in range(2):
        write_run(tmp_path / f"er-{seed}", [{"seed": seed}])
    for name in ("auto", "table2"):
        assert not any("plain ER" in line or "control" in line for line in legend(run_table(name, find_runs(tmp_path))))


def test_seeds_that_nobody_ran_are_said_once(tmp_path):
    """The recipe has seeds 0, 1, 2; whoever ran 0 and 1 chose to."""
    for seed in range(2):
        write_run(tmp_path / f"er-{seed}", [{"seed": seed}])
        write_run(tmp_path / f"cu-{seed}", [{"seed": seed}, CONTROL])
    text = to_text(run_table("table2", find_runs(tmp_path)))
    assert "missing" not in text.partition("Percentage")[0].replace("0 (seeds 0, 1 missing)", "")
    assert "cifar100: no run has seed 2 of table2." in text


def test_latex_has_labels_and_says_what_it_needs(runs):
    latex = to_latex(run_table("table2", runs))
    assert latex.startswith("% Needs \\usepackage{booktabs}.\n")
    assert [f"\\label{{tab:table2-{n}}}" in latex for n in (1, 2, 3)] == [True, True, False]


def test_a_note_stays_in_its_comment(tmp_path):
    write_run(tmp_path / "er")
    write_run(tmp_path / "a\n\\input{x}", [{"seed": 3}], done=False)
    latex = to_latex(run_table("auto", find_runs(tmp_path)))
    assert not any(line.startswith("\\input") for line in latex.splitlines())


BOTH = {"average": 0.9, "forgetting": 0.05, "retention": 0.85, "plasticity": 0.95}


def task_run(path, settings=(), **accuracy):
    """A run with task-incremental results beside the others."""
    run = write_run(path, list(settings), matrix=matrix(0.4))
    summary = json.loads((path / "summary.json").read_text())
    summary |= {"metrics": {"accuracy": accuracy}, "task_incremental": {"accuracy": BOTH}}
    (path / "summary.json").write_text(json.dumps(summary))
    return run


def test_both_settings_side_by_side(tmp_path):
    runs = [task_run(tmp_path / f"{s}", [{"seed": s}], min_acc=0.1, wc_acc=0.2, forward_transfer=None) for s in (0, 1)]
    measured = accuracy_measures(runs[0])
    assert list(measured) == [
        "accuracy", "forgetting", "retention", "plasticity", "min_acc", "wc_acc", "task_accuracy", "task_forgetting",
        "task_retention", "task_plasticity",
    ]  # fmt: skip
    text = to_text(run_table("auto", runs))
    header = text.splitlines()[3]
    assert [part.strip() for part in header.split("  ") if part.strip()] == [
        "method", "seeds", "accuracy ↑", "forgetting ↓", "retention ↑", "plasticity ↑", "accuracy (task) ↑",
        "forgetting (task) ↓",
    ]  # fmt: skip
    assert "90.00 ± 0.00" in text
    assert "cifar100, transfer and stability" in text
    assert "task-incremental setting" in text
    alone = to_text(run_table("auto", runs, setting="class"))
    assert "(task)" not in alone
    other = to_text(run_table("auto", runs, setting="task"))
    assert "plasticity (task) ↑" in other
    assert "65.00" not in other
    with pytest.raises(ValueError, match="setting is 'tasks': choose class, task, corrected or both"):
        run_table("auto", runs, setting="tasks")


def test_old_runs_have_no_empty_columns(tmp_path):
    run = write_run(tmp_path / "old")
    assert "(task)" not in to_text(run_table("auto", [run]))
    with pytest.raises(ValueError, match="with results in the task-incremental setting"):
        run_table("auto", [run], setting="task")


def test_a_method_that_needs_the_task_has_those_results_alone(tmp_path):
    run = task_run(tmp_path / "hat")
    summary = json.loads((run.path / "summary.json").read_text())
    (run.path / "summary.json").write_text(json.dumps(summary | {"metrics": None, "accuracy_matrix": None}))
    text = to_text(run_table("auto", find_runs(tmp_path)))
    assert "accuracy (task) ↑" in text
    assert "accuracy ↑" not in text


def test_two_methods_with_one_title_are_two_rows(tmp_path, monkeypatch):
    """A title is for people: what is different may go unsaid in it."""
    from wane.runs import identity

    monkeypatch.setattr(identity.Method, "title", property(lambda method: "same"))
    write_run(tmp_path / "a")
    write_run(tmp_path / "b", [CONTROL])
    assert set(run_table("auto", find_runs(tmp_path)).frame["method"]) == {"same", "same [2]"}
