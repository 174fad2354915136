"""results/corrections.py: the claim is judged by seeds, and a run that is read back answers as it did."""

import polars as pl
import pytest
import torch
from results import corrections as c
from typer.testing import CliRunner

from wane.cli import app
from wane.runs.folder import RunFolder

TINY = ["data.per_class=10", "data.tasks=2", "learner.epochs=1", "memory.capacity=200", "model.width=4"]


def frame(gain, *, methods=c.METHODS, prior=0.0):
    """Every method at 30 %, with a prior, and fits that gain `gain(method, seed)`, in three seeds."""
    rows = []
    for method in methods:
        for seed in range(3):
            base = {"data": "cifar100", "method": method, "seed": seed, "spread": 0.2}
            for at in ("none", *(f"{k} a class" for k in c.FEW)):
                rows += [{**base, "rows": at, "by": "none", "groups": "", "accuracy": 30.0},
                         {**base, "rows": at, "by": "prior", "groups": "newest", "accuracy": 30.0 + prior}]  # fmt: skip
            for at in ("memory", *(f"{k} a class" for k in c.FEW)):
                for by in c.SIGNALS:
                    accuracy = 30.0 + gain(method, seed)
                    rows.append({**base, "rows": at, "by": by, "groups": "newest", "accuracy": accuracy})
            rows.append({**base, "rows": "test (oracle)", "by": "accuracy", "groups": "newest", "accuracy": 33.0})
    return pl.DataFrame(rows, infer_schema_length=None)


def test_the_mean_over_methods_is_paired_by_seed():
    """Methods differ by much, seeds by little: only the latter is in the interval."""
    each = {"a": {0: 1.0, 1: 2.0, 2: 3.0, 9: 50.0}, "b": {0: 11.0, 1: 12.0, 2: 13.0}}
    found = c.over_methods(each)
    assert found == pytest.approx((3, 7.0, 7 - 2.4841, 7 + 2.4841), abs=1e-3)  # t(0.975; 2) / sqrt(3) = 2.4841
    assert c.over_methods({"a": {0: 1.0}, "b": {1: 1.0}}).difference is None


@pytest.mark.parametrize(
    ("worst", "verdict"),
    [((0.0, 0.1, -0.1), "holds"), ((-3.0, -3.1, -2.9), "does not hold"), ((-3.0, 0.0, 3.0), "cannot tell")],
)
def test_never_worse_is_of_every_method(worst, verdict):
    each = {method: {0: 2.0, 1: 2.1, 2: 1.9} for method in c.METHODS} | {"iCaRL": dict(enumerate(worst))}
    assert c.never_worse(each) == verdict
    assert c.never_worse({m: v for m, v in each.items() if m != "ER"}) == "cannot tell"  # one was not run
    assert c.never_worse({m: {0: v[0], 1: v[1]} for m, v in each.items()}) == "cannot tell"


def test_the_table_of_the_claim():
    """ER-ACE gains nothing, the others three points; the prior, one point everywhere."""
    text = c.claim(frame(lambda method, seed: 0.0 if method == "ER-ACE" else 3 + 0.1 * (seed - 1), prior=1.0))
    line = next(line for line in text.splitlines() if line.startswith("| 2 a class | nkl |"))
    assert line.split(" | ")[1:7] == [
        "nkl", "3", "**+2.4 [+2.2, +2.6]**", "ER-ACE: +0.0 [+0.0, +0.0]", "holds", "**+1.4 [+1.2, +1.6]**",
    ]  # fmt: skip
    assert line.endswith("| ER-ACE: **−1.0 [−1.0, −1.0]** | holds | +0.0 [+0.0, +0.0] |")
    # 16 fits with a mean and a worst method over two references, 12 of them beside accuracy's
    assert "76 intervals, each at 95 % by itself" in text


def test_a_new_head_is_judged_beside_the_fits():
    table = frame(lambda method, seed: 1.0)
    heads = table.filter(rows="none", by="none").with_columns(
        rows=pl.lit("memory"), by=pl.lit("new head"), accuracy=pl.col("accuracy") + 5 + 0.1 * pl.col("seed")
    )
    (line,) = [line for line in c.claim(pl.concat([table, heads])).splitlines() if "| new head |" in line]
    assert line.startswith("| memory | new head | 3 | **+5.1 [+4.9, +5.3]** | ER: ")
    assert line.endswith("| **+4.1 [+3.9, +4.3]** |")  # less the fit by accuracy


def test_what_was_not_run_is_said():
    text = c.claim(frame(lambda method, seed: 1.0, methods=c.METHODS[:3]))
    assert "Over ER, class-uniform, past, ER-ACE; not run: DER++, iCaRL." in text
    assert " holds |" not in text


def test_tables_and_figure(tmp_path):
    table = frame(lambda method, seed: 1.0 + 0.1 * seed)
    c.write_all(table, tmp_path)
    assert "| ER | 3 | 30.0 | 31.1 |" in (tmp_path / "corrections_cifar100.md").read_text()
    assert "**+1.1 [+0.9, +1.3]**" in (tmp_path / "corrections_cifar100.md").read_text()
    assert {"corrections_few_cifar100.md", "corrections_claim_cifar100.md", "corrections.png"} <= {
        path.name for path in tmp_path.iterdir()
    }
    c.write_all(table.filter(pl.col("seed") < 2), tmp_path)
    assert "**" not in "".join(path.read_text() for path in tmp_path.glob("*.md"))  # two seeds decide nothing


def test_the_best_scale_is_found():
    torch.manual_seed(0)
    logits = torch.randn(4000, 5)
    labels = torch.distributions.Categorical(logits=3.0 * logits).sample()
    assert c.best_scale(logits, labels) == pytest.approx(3.0, rel=0.1)
    assert c.best_scale(logits / 100, labels) == pytest.approx(300.0, rel=0.1)


@pytest.mark.parametrize("learner", ["er", "icarl"])
def test_a_run_that_is_read_back_answers_as_it_did(tmp_path, learner):
    settings = [*TINY, "record.ladder=true", f"learner.name={learner}"]
    words = [word for setting in settings for word in ("--set", setting)]
    done = CliRunner().invoke(app, ["run", "diagnostics", "--scale", "demo", *words, "--out", str(tmp_path / "run")])
    assert done.exit_code == 0, done.output
    run = RunFolder(tmp_path / "run")
    found = {(row["rows"], row["by"], row["groups"]): row["accuracy"] for row in c.measure(run, "ER")}
    assert found[c.NONE] == pytest.approx(100 * run.summary["metrics"]["accuracy"]["average"], abs=1e-3)
    assert found[c.HEAD] == pytest.approx(100 * run.ladder.average("head_memory"), abs=1e-3)
    assert found[c.ORACLE] >= found[c.NONE]
    assert found[c.FITTED["accuracy"]] <= found[c.ORACLE]
    with pytest.raises(ValueError, match=r"read back, has 99\.00 % accuracy"):
        c.check_same(run, 0.99)
