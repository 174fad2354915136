"""Whole runs of four methods beside Mammoth's own code, recorded by `record_runs.py` in `whole_runs.json`."""

import importlib.util
import json
from pathlib import Path
from statistics import mean, stdev

import pytest
from learners.whole_runs import METHODS, config_of

from wane.runs.config import build_config
from wane.streams import data_root
from wane.training.run import run

RECORDED = json.loads(Path(__file__).with_name("whole_runs.json").read_text(encoding="utf-8"))
#: Of the t distribution with 7 degrees of freedom: one in a thousand lies farther out.
FAR = 5.41
UNPACK = Path(__file__).resolve().parents[3] / "shared" / "data" / "unpack.py"


@pytest.fixture(scope="module")
def cifar100(tmp_path_factory):
    """Where CIFAR-100 lies: where data sets are looked for, or unpacked from beside the repository."""
    if (data_root() / "cifar-100-binary").is_dir():
        return data_root()
    if not UNPACK.exists():
        pytest.skip(f"CIFAR-100 is not there: neither below {data_root()} nor in {UNPACK.parent}")
    spec = importlib.util.spec_from_file_location("unpack", UNPACK)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    root = tmp_path_factory.mktemp("data")
    module.cifar100(root / "cifar-100-binary")
    return root


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", METHODS)
def test_a_run_lies_within_the_noise_of_mammoths(name, tmp_path, cifar100, monkeypatch):
    monkeypatch.setenv("WANE_DATA", str(cifar100))
    summary = run(build_config(config_of(name, 0)), tmp_path / "run")
    for setting, key in (("class", "metrics"), ("task", "task_incremental")):
        theirs = RECORDED["accuracy"][name]["mammoth"][setting]
        noise = FAR * stdev(theirs) * (1 + 1 / len(theirs)) ** 0.5
        assert 100 * summary[key]["accuracy"]["average"] == pytest.approx(mean(theirs), abs=noise)


def test_the_page_has_the_recorded_numbers():
    page = Path(__file__).parents[2].joinpath("docs", "methods.md").read_text(encoding="utf-8")
    assert RECORDED["commit"][:7] in page
    for name in METHODS:
        cells = [
            f"{mean(values):.1f} ± {stdev(values):.1f}"
            for setting in ("class", "task")
            for values in (RECORDED["accuracy"][name][who][setting] for who in ("mammoth", "wane"))
        ]
        assert f"\n| `{name}` | {' | '.join(cells)} |\n" in page
