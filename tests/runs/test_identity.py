"""Which run is which: old names stay, and different settings never share a name or a title."""

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from wane.interventions.loss_weights import LossWeights
from wane.interventions.trend_sampler import TrendSampler
from wane.learners import LEARNERS
from wane.learners.er import ER
from wane.runs.complete import complete
from wane.runs.config import ConfigError, build_config
from wane.runs.folder import RunFolder, list_runs
from wane.runs.identity import Method, fingerprint, method_of, method_title, run_name

RESULTS = Path(__file__).parents[2] / "results" / "runs"
NAMED = [path for path in list_runs(RESULTS) if re.search(r"-seed\d+-[0-9a-f]{10}$", path.name)]


@dataclass(frozen=True)
class AlphaOptions:
    """Options of a method that is only there for these tests."""

    alpha: float = 0.5
    sizes: tuple[int, ...] = (1, 2)
    mode: str = "plain"
    limit: float | None = None


class Alpha(ER):
    Options = AlphaOptions


HERE = f"{__name__}:Alpha"


def alpha(**options):
    return {"learner": {"name": HERE, "options": options}}


def test_every_run_that_was_published_keeps_its_name():
    assert len(NAMED) > 300
    wrong = [path.name for path in NAMED if run_name(RunFolder(path).config) != path.name]
    assert wrong == []


def test_every_config_that_was_published_is_readable_and_complete():
    for path in list_runs(RESULTS):
        config = RunFolder(path).config
        assert fingerprint(complete(config)) == fingerprint(config)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (alpha(alpha=0.5), alpha(alpha=0.3)),
        (alpha(alpha=1.0), alpha(alpha=1.0000001)),
        (alpha(mode="1"), alpha(mode="'1'")),
        (alpha(sizes=[1]), alpha()),
        ({"memory": {"scope": "past"}}, {}),
        ({"memory": {"scope": "past"}}, {"memory": {"scope": "past", "draw": "class_uniform"}}),
        ({"learner": {"weights": {"normalise": "none"}}}, {"learner": {"weights": {}}}),
        ({"learner": {"weights": {"epsilon": 0.30000001}}}, {"learner": {"weights": {"epsilon": 0.3}}}),
        ({"learner": {"trend": {"literal": True}}}, {"learner": {"trend": {}}}),
    ],
)  # fmt: skip
def test_different_methods_share_nothing(one, other):
    a, b = (complete(build_config(settings)) for settings in (one, other))
    assert method_of(a) != method_of(b)
    assert method_title(a) != method_title(b)
    assert fingerprint(a) != fingerprint(b)
    assert run_name(a) != run_name(b)


def test_a_title_tells_what_is_not_the_default():
    config = complete(build_config({"learner": {"name": HERE, "options": {"alpha": 0.3, "mode": "fast"}}}))
    assert config.learner.options == {"alpha": 0.3, "sizes": (1, 2), "mode": "fast"}
    assert method_title(config) == f"{HERE} (alpha 0.3, mode fast)"
    assert run_name(config).startswith(f"glyphs-{HERE.replace(':', '_')}_alpha0.3_modefast-seed0-")


def test_a_method_that_is_not_installed_shows_all_its_options():
    assert Method("gone.away:Method", (("alpha", 0.5),)).title == "gone.away:Method (alpha 0.5)"


def test_methods_are_values():
    same = {Method(trend=TrendSampler("loss", window=3)), Method(trend=TrendSampler("loss", window=3))}
    assert len(same) == 1
    config = build_config({"learner": {"trend": {"signal": "loss", "window": 3}}, "memory": {"draw": "class_uniform"}})
    assert method_of(config) in same  # the trend decides the draw
    assert Method(weights=LossWeights("cm")).title == "er, weights cm"
    assert hash(method_of(complete(build_config({"learner": {"name": HERE}})))) is not None


def test_unknown_and_invalid_options():
    with pytest.raises(ConfigError, match=r"learner\.options\.alpah.*did you mean .*alpha"):
        complete(build_config({"learner": {"name": HERE, "options": {"alpah": 1}}}))
    with pytest.raises(ConfigError, match=r"learner\.options\.alpha = 'much'"):
        complete(build_config({"learner": {"name": HERE, "options": {"alpha": "much"}}}))
    with pytest.raises(ConfigError, match="alpha"):
        complete(build_config({"learner": {"options": {"alpha": 1}}}))


@pytest.mark.parametrize("name", ["../../evil", "a/b", "x\ny", ".", "-rf", "Ü" * 400])
def test_no_name_leaves_the_store(name, monkeypatch):
    monkeypatch.setitem(LEARNERS, name, ER)
    for config in (build_config({"learner": {"name": name}}), build_config({"data": {"name": name}})):
        made = run_name(config)
        assert "/" not in made
        assert "\n" not in made
        assert not made.startswith((".", "-"))
        assert len(made.encode()) < 255
