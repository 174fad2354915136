"""results/methods.py: tables from methods.csv alone, and nothing in bold that two seeds say."""

import polars as pl
import pytest
from results import methods as m
from scipy.stats import f


def rows(recipe, method, values, measure="accuracy", data="cifar100", seeds=None):
    """A value for each run; those of `rounding` share a seed."""
    return [{"recipe": recipe, "data": data, "method": method if seeds is None else f"{method} {i}", "learner": "er",
             "seed": i if seeds is None else seeds, "measure": measure, "value": v}
            for i, v in enumerate(values)]  # fmt: skip


OF_SEEDS = rows("methods", "ER", (27.0, 28.0, 29.0, 30.0, 31.0, 32.0))
PERTURBED = rows("rounding", "learning rate", (28.0, 28.5, 29.0, 29.5), seeds=0)


def test_rounding_beside_seeds():
    """Deviations 0.6455 of four runs and 1.8708 of six: a ratio of 0.345, by the F distribution 0.13 to 1.33."""
    text = m.rounding(pl.DataFrame([*OF_SEEDS, *PERTURBED, *rows("methods", "DER++", (1.0, 50.0))]))
    low, high = (0.34503 / f.ppf(p, 3, 5) ** 0.5 for p in (0.975, 0.025))
    assert f"| cifar100 | accuracy | 1.87, n = 6 | 0.65, n = 4 | 0.35 [{low:.2f}, {high:.2f}] |" in text
    assert "rounding alone spreads final accuracy by 0.65 points" in text
    assert "tiny_imagenet" not in text  # was not run


def test_rounding_needs_three_runs_of_each():
    assert m.rounding(pl.DataFrame([*OF_SEEDS, *PERTURBED[:2]])) == ""
    assert m.rounding(pl.DataFrame([*OF_SEEDS[:2], *PERTURBED])) == ""


def test_the_interval_of_the_ratio_covers_as_often_as_it_says():
    import numpy as np

    rng = np.random.default_rng(0)
    found = [m.spread_ratio(rng.normal(0, 2, 6), rng.normal(0, 1, 5)) for _ in range(2000)]
    covered = np.mean([low < 2 < high for _, (_, low, high) in found])
    assert covered == pytest.approx(0.95, abs=0.015)


@pytest.mark.parametrize(("seeds", "bold"), [(2, False), (3, True)])
def test_interventions_are_bold_from_three_seeds_on(seeds, bold):
    base = rows("methods_interventions", "DER++", (30.0, 31.0, 32.0)[:seeds])
    other = rows("methods_interventions", "DER++, Log-TLR trend", (31.0, 32.1, 33.0)[:seeds])
    text = m.interventions(pl.DataFrame([*base, *other]))
    assert ("**" in text) == bold
    assert "+1.0 [+0.9, +1.2]" in text if bold else "+1.1, n = 2 |" in text
