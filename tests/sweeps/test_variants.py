"""The variants of a recipe: lists in their settings, placeholders in their names, and what cannot be meant."""

import pytest

from wane.runs.config import ConfigError
from wane.sweeps.plan import expand, variant_settings


def recipe(folder, variants):
    path = folder / "own.toml"
    path.write_text(f"[variants]\n{variants}\n")
    return str(path)


@pytest.mark.parametrize(
    ("variants", "expected"),
    [
        ('"w {window}" = { learner.trend.window = [3, 5] }',
         {"w 3": {"learner.trend.window": 3}, "w 5": {"learner.trend.window": 5}}),
        ('"w {learner.trend.window}" = { learner.trend.window = [3] }', {"w 3": {"learner.trend.window": 3}}),
        ('"rate {lr:.2f}" = { learner.lr = [0.125] }', {"rate 0.12": {"learner.lr": 0.125}}),
        ('"seed {seed}, {lr}" = { learner.lr = [0.1], seed = 3 }', {"seed 3, 0.1": {"learner.lr": 0.1, "seed": 3}}),
        ('"$x_{lr}$" = { learner.lr = 0.1 }', {"$x_{lr}$": {"learner.lr": 0.1}}),  # nothing to fill in
        ('"steps" = { learner.milestones = [1, 2] }', {"steps": {"learner.milestones": [1, 2]}}),
        ('"{hidden}" = { model.hidden = [[8], [9, 9]] }',
         {"[8]": {"model.hidden": [8]}, "[9, 9]": {"model.hidden": [9, 9]}}),
        ('"{lr}" = { learner.lr = [0.1], learner.milestones = [1] }',
         {"0.1": {"learner.lr": 0.1, "learner.milestones": [1]}}),
        ('"{{}} {lr}" = { learner.lr = [0.1] }', {"{} 0.1": {"learner.lr": 0.1}}),
    ],
)  # fmt: skip
def test_a_list_is_a_variant_a_value_if_the_name_says_so_and_else_a_value(variants, expected, tmp_path):
    assert variant_settings(recipe(tmp_path, variants)) == expected


def test_a_section_with_nothing_but_defaults_is_kept_beside_a_list(tmp_path):
    runs = expand(recipe(tmp_path, '"{lr}" = { learner.lr = [0.1, 0.2], learner.trend = {} }'))
    assert [run.config.learner.trend is not None for run in runs] == [True, True]


@pytest.mark.parametrize(
    ("variants", "message"),
    [
        ('"trend" = { learner.trend.window = [3, 5] }',
         r"learner.trend.window = \[3, 5\]: write \{window\} in its name"),
        ('"{win}" = { learner.trend.window = [3], seed = 1 }',
         r"\{win\} is none of its settings \(learner.trend.window, seed\)"),
        ('"{}" = { seed = [1] }', r"\{\} is none of its settings \(seed\)"),
        ('"{signal}" = { learner.trend.signal = ["cm"], learner.weights.signal = ["cm"] }',
         "could be learner.trend.signal or learner.weights.signal"),
        ('"a {" = { seed = [1] }', "brace alone"),
        ('"{seed}" = { seed = [1] }\n"1" = { seed = 2 }', "two variants of .* are called '1'"),
        ('"x" = { learner.lrs = [1] }', "unknown setting learner.lrs; did you mean learner.lr?"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_said(variants, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        expand(recipe(tmp_path, variants))


def test_engines_and_recipes_are_found_where_they_are():
    from wane.runs.recipes import recipes
    from wane.sweeps.engines import ENGINES, load_engine
    from wane.sweeps.engines.local import run_all

    assert load_engine("local") is run_all
    assert load_engine("wane.sweeps.engines.local:run_all") is run_all
    assert ENGINES.group == "wane.engines"
    assert {"table1", "diagnostics"} <= set(recipes())
