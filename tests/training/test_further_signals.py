"""Measures beside the eight signals: a run records them where `record.signals` asks, in files, tables and report."""

import numpy as np
import polars as pl
import pytest
import torch
from training.tiny_problem import results, stop, tiny_config, tiny_dataset

import wane
from wane.loggers.series import series_of
from wane.measures.pooling import pooled_value
from wane.runs.config import ConfigError, build_config
from wane.runs.folder import RunFolder
from wane.runs.identity import fingerprint
from wane.softmax.registry import Bins
from wane.training.run import run
from wane.views.observations import recorded_signals
from wane.views.report.page import report_page

ASKED = ("ece", "mrr", "top2", "brier", "resolution")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("further") / "run"
    run(tiny_config(record={"signals": list(ASKED), "samples": "tasks"}), place, dataset=tiny_dataset())
    return RunFolder(place)


def test_the_default_records_the_eight_signals(tmp_path):
    summary = run(tiny_config(), tmp_path / "run", dataset=tiny_dataset())
    history = RunFolder(tmp_path / "run").history
    assert history.signals == tuple(wane.SIGNALS) == tuple(summary["metrics"])
    assert not [name for name in history.frame.columns if name.startswith("bin_")]
    assert all(evaluation.bins is None for evaluation in history.evaluations)


def test_every_measure_is_recorded_by_class_task_and_epoch(folder):
    history = folder.history
    assert set(history.signals) == {*wane.SIGNALS, *ASKED, "confidence"}
    assert history.splits  # test, test_task, replay, future, untrained: all have it
    for evaluation in history.evaluations:
        assert evaluation.bins.shape == (len(evaluation.classes), 15, 3)
        np.testing.assert_array_equal(evaluation.bins[..., 0].sum(1), evaluation.n)
        np.testing.assert_array_equal(
            history.column(evaluation, "ece"), pooled_value("ece", Bins(*np.moveaxis(evaluation.bins, -1, 0)))
        )
    # what the ends of tasks say is what their samples say
    samples = folder.samples.filter(pl.col("split") == "test")
    for (task,), rows in samples.group_by("task"):
        for j in range(task + 1):
            own = rows.filter(pl.col("class").is_in([2 * j, 2 * j + 1]))
            confidence, correct = (torch.from_numpy(own[name].to_numpy().copy()) for name in ("confidence", "accuracy"))
            p = torch.stack([confidence, 1 - confidence], 1)
            at_least_half = p[:, 0] >= 0.5  # with two classes a confidence below that is another answer
            labels = torch.where(correct == 1, 0, 1)
            if at_least_half.all():
                expected = wane.calibration_error(probabilities=p, labels=labels)
                assert history.matrix("ece")[task, j] == pytest.approx(expected, abs=1e-6)
            assert history.matrix("mrr")[task, j] == pytest.approx((1 / own["rank"]).mean(), abs=1e-6)
            assert history.matrix("top2")[task, j] == pytest.approx((own["rank"] <= 2).mean(), abs=1e-6)


def test_a_task_is_calibrated_better_than_the_mean_of_its_classes(folder):
    samples, classes = (folder.history.matrix("ece", over=over) for over in ("samples", "classes"))
    seen = np.isfinite(samples)
    assert (samples[seen] <= classes[seen] + 1e-12).all()  # the triangle inequality
    assert (samples[seen] < classes[seen] - 1e-6).any()


def test_files_loggers_summaries_and_report_have_them(folder):
    history = folder.history
    again = wane.History.from_frame(history.frame)
    for one, other in zip(again.evaluations, history.evaluations, strict=True):
        np.testing.assert_array_equal(one.bins, other.bins)
    assert set(folder.summary["metrics"]) == {*wane.SIGNALS, *ASKED, "confidence"}
    assert folder.summary["metrics"]["ece"]["average"] == pytest.approx(np.nanmean(history.matrix("ece")[-1]))
    last = history.tail(1, split="test")[0]
    series = series_of(history, last, folder.class_names)
    assert series["test/ece/mean"] == float(history.pooled(last, "ece")[0])
    assert series["test/ece/task_1"] == history.matrix("ece")[1, 0]
    assert recorded_signals([folder])[:8] == tuple(wane.SIGNALS)
    assert set(recorded_signals([folder])) == {*wane.SIGNALS, *ASKED, "confidence"}
    assert "Expected calibration error" in report_page([folder])


def test_a_stopped_run_ends_the_same(folder, tmp_path):
    config = tiny_config(record={"signals": list(ASKED), "samples": "tasks"})
    for epochs in (1, 2):
        stop(config, tmp_path / "run", dataset=tiny_dataset(), epochs=epochs)
    run(config, tmp_path / "run", dataset=tiny_dataset())
    assert results(tmp_path / "run") == results(folder.path)


def test_draws_and_weights_by_a_further_signal(tmp_path):
    config = tiny_config(learner={"trend": {"signal": "ece", "source": "replay"}, "weights": {"signal": "brier"}})
    run(config, tmp_path / "run", dataset=tiny_dataset())
    assert {"ece", "brier"} <= set(RunFolder(tmp_path / "run").history.signals)
    with pytest.raises(ValueError, match="'ece' has no value for one row"):
        wane.LossWeights("ece")


def test_the_setting_leaves_the_names_of_other_runs_alone():
    plain, asked = build_config({}), build_config({"record": {"signals": ["mrr", "cm", "mrr"]}})
    assert asked.record.signals == ("mrr",)
    assert fingerprint(plain) == fingerprint(build_config({"record": {"signals": ["accuracy"]}})) != fingerprint(asked)
    assert build_config({"record": {"signals": "top5"}}).record.signals == ("top5",)
    with pytest.raises(ConfigError, match="unknown signal 'mrrr'; did you mean"):
        build_config({"record": {"signals": ["mrrr"]}})
