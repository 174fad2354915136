"""results/levers.py: no shift is ER to the bit, a signal follows the bias that it sees, tables are paired."""

import math

import polars as pl
import pytest
from results import levers
from training.tiny_problem import results, stop, tiny_config, tiny_dataset

from wane.training.checkpoint import load_checkpoint
from wane.training.events import Listener
from wane.training.run import run


def lever(name, **options):
    return tiny_config(learner={"name": f"results.levers:{name}", "options": options})


class Shifts(Listener):
    """Notes the shift of every epoch."""

    def __init__(self):
        self.seen = []

    def epoch_done(self, session, task, epoch):
        self.seen.append(float(session.learner.shift))


def weights(folder):
    return {name: value for name, value in load_checkpoint(folder)["learner"].items() if name.startswith("model")}


def test_a_shift_of_nothing_is_er(tmp_path):
    for config, name in ((tiny_config(), "er"), (lever("Shifted", by="constant"), "shifted")):
        run(config, tmp_path / name, dataset=tiny_dataset())
    er, shifted = weights(tmp_path / "er"), weights(tmp_path / "shifted")
    assert all((er[name] == shifted[name]).all() for name in er)


def test_a_shift_spares_old_classes(tmp_path):
    kept = {}
    for shift in (0.0, 2.0, 50.0):  # the last is a mask
        folder = tmp_path / str(shift)
        run(lever("Shifted", by="constant", constant=shift), folder, dataset=tiny_dataset())
        kept[shift] = pl.read_parquet(folder / "history.parquet").filter(
            pl.col("split") == "test", pl.col("step") == pl.col("step").max(), pl.col("class_task") == 0
        )["ctl"].mean()  # fmt: skip
    assert kept[0.0] < kept[2.0] < kept[50.0]


@pytest.mark.parametrize("by", ["nkl", "loss", "accuracy"])
def test_a_signal_finds_a_shift_and_a_stopped_run_keeps_it(by, tmp_path):
    config, shifts = lever("Shifted", by=by), Shifts()
    run(config, tmp_path / "whole", dataset=tiny_dataset(), listeners=[shifts])
    assert shifts.seen[:3] == [0.0] * 3  # nothing is old yet
    assert max(shifts.seen) > 0.1
    stop(config, tmp_path / "stopped", dataset=tiny_dataset(), epochs=5)
    run(config, tmp_path / "stopped", dataset=tiny_dataset())
    assert results(tmp_path / "stopped") == results(tmp_path / "whole")


def test_the_prior_is_the_exposure_of_new_classes(tmp_path):
    run(lever("Shifted", by="prior"), tmp_path / "run", dataset=tiny_dataset())
    shift = float(load_checkpoint(tmp_path / "run")["learner"]["shift"])
    assert shift == pytest.approx(math.log(3))  # a step has as many new rows of 2 classes as replayed ones of 4


@pytest.mark.parametrize("skip", ["safe", "random", "none"])
def test_a_finish_trains_on_the_memory(skip, tmp_path):
    for config, name in ((tiny_config(), "er"), (lever("Finished", skip=skip), "finished")):
        run(config, tmp_path / name, dataset=tiny_dataset())
    er, finished = weights(tmp_path / "er"), weights(tmp_path / "finished")
    assert any((er[name] != finished[name]).any() for name in er)


def test_the_table_is_paired_by_seed():
    rows = [("cifar100", m, seed, measure, 20.0 + seed + gain)
            for m, gain in (("ER", 0.0), ("class-uniform, past", 0.5), ("shifted by NKL", 2.0))
            for seed in range(3) for measure in levers.MEASURES]  # fmt: skip
    frame = pl.DataFrame(rows, schema=["data", "method", "seed", "measure", "value"], orient="row")
    assert (
        levers.table(frame)
        .splitlines()[-1]
        .startswith(
            "| shifted by NKL | 3 | 23.0 | 23.0 | 23.0 | 23.0 | 23.0 | **+2.0 [+2.0, +2.0]** | **+1.5 [+1.5, +1.5]** |"
        )
    )
