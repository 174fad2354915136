"""The config: what it refuses and how it says so, and that nothing is lost on the way to TOML and back."""

import subprocess
import sys
import tomllib
from typing import Any, Literal, get_args, get_origin

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from pydantic.fields import FieldInfo

from wane.interventions.loss_weights import LossWeights
from wane.interventions.trend_sampler import TrendSampler
from wane.registry import UnknownNameError
from wane.runs.config import (
    Config,
    ConfigError,
    Section,
    build_config,
    differences,
    parse_setting,
    read_toml,
    takes_list,
    to_toml,
)
from wane.runs.recipes import load_recipe, recipes, scales
from wane.softmax.signals import SIGNALS
from wane.training.state import pick_device

# settings drawn for every field of the config, whatever fields it has


def settings_of(section):
    """A strategy for the nested settings of a section, some left out."""
    fields = {name: values_of(field) for name, field in section.model_fields.items()}
    return st.fixed_dictionaries({}, optional=fields)


def settings_like(**values):
    """A strategy for the settings of a dataclass, some left out."""
    return st.fixed_dictionaries({}, optional={name: st.sampled_from(list(v)) for name, v in values.items()})


def values_of(field: FieldInfo):
    if field.annotation == dict[str, Any]:
        plain = st.one_of(st.booleans(), st.integers(-9, 9), st.floats(-9, 9), st.text(), st.lists(st.integers(-9, 9)))
        return st.dictionaries(st.text(), plain, max_size=3)
    low, high = None, None
    for rule in field.metadata:
        low = getattr(rule, "ge", getattr(rule, "gt", low))
        high = getattr(rule, "lt", high)
    return of_kind(field.annotation, low, high)


def of_kind(kind, low=None, high=None):
    if get_origin(kind) is Literal:
        return st.sampled_from(get_args(kind))
    if get_origin(kind) is tuple and get_origin(get_args(kind)[0]) is tuple:
        return st.lists(st.lists(st.one_of(st.text(), st.integers(0, 9)), min_size=1, max_size=3), min_size=1)
    if get_origin(kind) is tuple:
        return st.lists(of_kind(get_args(kind)[0], 1), max_size=4)
    if options := [k for k in get_args(kind) if k is not type(None)]:
        if hasattr(kind, "__metadata__"):
            return of_kind(options[0], 1)
        return st.one_of([of_kind(option, low, high) for option in options])
    if isinstance(kind, type) and issubclass(kind, Section):
        return settings_of(kind)
    if kind is LossWeights:
        return settings_like(signal=SIGNALS, form=("inverse", "complement", "softmax"), epsilon=(0.5, 2),
                             normalise=("mean", "none"), rows=("replay", "all"))  # fmt: skip
    if kind is TrendSampler:
        return settings_like(signal=SIGNALS, window=(2, 99), gamma=(0, 1.5), slope=("raw", "standardised"),
                             scope=("seen", "past"), source=("replay", "test"), literal=(True, False))  # fmt: skip
    return {
        bool: st.booleans(),
        int: st.integers(min_value=low, max_value=2**40),
        float: st.floats(low, high, exclude_min=True, exclude_max=high is not None, allow_infinity=False),
        str: st.text(),
    }[kind]


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(settings_of(Config))
def test_any_config_survives_toml(drawn):
    try:
        config = build_config(drawn)
    except ConfigError as error:
        assume("is invalid" not in str(error))  # only rules that bind several settings may refuse what was drawn
        return
    text = to_toml(config)
    again = build_config(tomllib.loads(text))
    assert again == config
    assert differences(config, again) == []
    assert to_toml(again) == text


def test_the_toml_is_complete():
    text = to_toml(build_config({}))
    written = tomllib.loads(text)
    for name, field in Config.model_fields.items():
        assert (name in written) == (field.default is not None)  # TOML has no null
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
            optional = {key for key, f in field.annotation.model_fields.items() if f.default is None}
            assert set(written[name]) == set(field.annotation.model_fields) - optional


def test_a_config_does_not_change():
    config = build_config({})
    with pytest.raises(ValueError, match="frozen"):
        config.learner.lr = 3.0


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"learner": {"lrr": 1}}, "unknown setting learner.lrr; did you mean learner.lr?"),
        ({"learnr": {"lr": 1}}, "unknown setting learnr; did you mean learner?"),
        ({"memory": {"size": 1}}, "unknown setting memory.size; known there: capacity, policy, draw, scope"),
        ({"learner": {"trend": {"gama": 1}}}, "unknown setting learner.trend.gama; did you mean learner.trend.gamma?"),
        ({"learner": {"weights": {"zzz": 1}}}, "unknown setting learner.weights.zzz; known there: signal, form, "),
        ({"learner": {"epochs": 0}}, "learner.epochs = 0 is invalid: input should be greater than or equal to 1"),
        ({"learner": {"lr": "fast"}}, "learner.lr = 'fast' is invalid: "),
        ({"learner": {"lr": float("nan")}}, "learner.lr = nan is invalid: "),
        ({"learner": {"lr": float("inf")}}, "learner.lr = inf is invalid: "),
        ({"learner": {"momentum": 1.0}}, "learner.momentum = 1.0 is invalid: input should be less than 1"),
        ({"learner": {"milestones": [3, 0]}}, "learner.milestones.1 = 0 is invalid: "),
        ({"memory": {"policy": "fifo"}}, "memory.policy = 'fifo' is invalid: input should be 'reservoir', "),
        ({"memory": "large"}, "memory = 'large' is invalid: "),
        ({"precision": "16"}, "precision = '16' is invalid: input should be '32' or 'bf16'"),
        ({"seed": -1}, "seed = -1 is invalid: "),
        ({"seed": 0.5}, "seed = 0.5 is invalid: "),
        ({"record": {"samples": [0]}}, "record.samples"),
        ({"record": {"signals": [[]]}}, "record.signals.0 = [] is invalid: input should be a valid string"),
        ({"learner": {"trend": {"window": 1}}},
         "learner.trend.window = 1 is invalid: give a whole number of at least 2"),
        ({"learner": {"trend": {"gamma": 3, "window": 2.5}}}, "learner.trend.window = 2.5 is invalid: input should be"),
        ({"learner": {"weights": {"epsilon": 0}}}, "learner.weights.epsilon = 0 is invalid: "),
        ({"learner": {"weights": {"signal": "los"}}},
         "learner.weights.signal = 'los' is invalid: unknown signal 'los'; did you mean 'loss'?"),
        ({"learner": {"trend": {"slope": "row"}}}, "learner.trend.slope = 'row' is invalid: input should be 'raw' or "),
        ({"learner": {"zzz": 0.5}}, "unknown setting learner.zzz; known there: name, options, epochs, "),
        ({"learner": {"options": {"a": {"b": 1}}}}, "learner.options = {'a': {'b': 1}} is invalid: an option is {'b'"),
        ({"learner": {"options": {"a": float("inf")}}}, "learner.options = {'a': inf} is invalid: an option is inf"),
        ({"data": {"tasks": 0}}, "data.tasks = 0 is invalid: give a number of tasks from 1, or the classes of each"),
        ({"data": {"tasks": [["a"], []]}}, "data.tasks = [['a'], []] is invalid: give a number of tasks"),
        ({"data": {"tasks": True}}, "data.tasks = True is invalid"),
    ],
)  # fmt: skip
def test_an_invalid_setting_is_named_and_quoted(given, sentence):
    with pytest.raises(ConfigError) as error:
        build_config(given)
    assert str(error.value).startswith(sentence)


def test_settings_of_interventions_are_the_interventions_themselves():
    config = build_config({"learner": {"weights": {"normalise": "none"}, "trend": {"window": 3}}})
    assert config.learner.weights == LossWeights(normalise="none")
    assert config.learner.trend == TrendSampler(window=3)
    assert build_config(config.model_dump()) == config


def test_tasks_by_name():
    config = build_config({"data": {"tasks": [["cat", 3], ["car"]]}, "learner": {"epochs": 4}})
    assert config.data.tasks == (("cat", 3), ("car",))
    assert (config.num_tasks, config.total_epochs) == (2, 8)
    assert build_config(tomllib.loads(to_toml(config))) == config
    assert build_config({"data": {"tasks": 3}, "learner": {"epochs": 4}}).total_epochs == 12


def test_the_options_of_a_method():
    config = build_config(parse_setting("learner.options.alpha=0.5"), {"learner": {"options": {"sizes": [1, 2]}}})
    assert config.learner.options == {"alpha": 0.5, "sizes": (1, 2)}
    assert build_config(tomllib.loads(to_toml(config))) == config
    other = build_config({"learner": {"options": {"alpha": 0.1}}})
    assert differences(config, other) == ["learner.options.alpha: 0.5 -> 0.1", "learner.options.sizes: (1, 2) -> None"]


@pytest.mark.parametrize(
    ("key", "expected"),
    [("learner.trend.window", False), ("learner.trend", False), ("learner.options.alpha", True), ("data.tasks", True),
     ("seed", False), ("nothing.like.it", True)],
)  # fmt: skip
def test_what_takes_a_list(key, expected):
    assert takes_list(key) is expected


def test_a_number_can_be_a_text():
    """The command line reads `--set data.name=2024` as a number."""
    config = build_config(parse_setting("precision=32"), parse_setting("data.name=2024"))
    assert (config.precision, config.data.name) == ("32", "2024")


@pytest.mark.parametrize("name", ["gpu", "cuda:99", "cuda", "meta", "0"])
def test_a_device_that_is_not_there(name, monkeypatch):
    monkeypatch.setattr("torch.accelerator.is_available", lambda: False)
    with pytest.raises(ConfigError, match=f"device = '{name}' is not on this machine: set it to auto, or one of cpu$"):
        pick_device(name)


def test_the_devices_that_are_there(monkeypatch):
    for call, value in {"is_available": True, "current_accelerator": torch.device("cuda"), "device_count": 2}.items():
        monkeypatch.setattr(f"torch.accelerator.{call}", lambda value=value: value)
    assert [str(pick_device(name)) for name in ("auto", "cpu", "cuda", "cuda:1")] == ["cuda", "cpu", "cuda", "cuda:1"]
    with pytest.raises(ConfigError, match=r"'cuda:2' is not on this machine: .* cpu, cuda, cuda:0, cuda:1$"):
        pick_device("cuda:2")


def test_a_choice_of_kinds_gives_plain_sentences():
    with pytest.raises(ConfigError) as error:
        build_config({"record": {"samples": "sometimes"}})
    assert str(error.value) == (
        "record.samples = 'sometimes' is invalid: input should be 'never' or 'tasks'; "
        "record.samples = 'sometimes' is invalid: input should be a valid tuple"
    )


def test_all_that_is_wrong_is_said_at_once():
    with pytest.raises(
        ConfigError, match=r"unknown setting data\.nam; did you mean data\.name\?; learner\.lr = -1 is invalid: "
    ) as error:
        build_config({"data": {"nam": "x"}}, {"learner": {"lr": -1}})
    assert str(error.value).count("is invalid") == 1


def test_rules_that_bind_several_settings():
    with pytest.raises(ConfigError, match=r"^learner.trend.source is holdout, but data.holdout is 0"):
        build_config({"learner": {"trend": {"source": "holdout"}}})
    assert build_config({"learner": {"trend": {"source": "holdout"}}, "data": {"holdout": 3}}).data.holdout == 3


def test_later_layers_win_key_by_key():
    config = build_config({"learner": {"lr": 0.1, "epochs": 3}, "seed": 1}, {"learner": {"lr": 0.2}}, {"seed": 2})
    assert (config.learner.lr, config.learner.epochs, config.seed) == (0.2, 3, 2)


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("learner.lr=0.1", {"learner": {"lr": 0.1}}),
        ("seed=3", {"seed": 3}),
        ("data.name=digits", {"data": {"name": "digits"}}),
        ("data.name = digits ", {"data": {"name": "digits"}}),
        ('data.name="a=b"', {"data": {"name": "a=b"}}),
        ("data.root=/a=b/c", {"data": {"root": "/a=b/c"}}),
        ("learner.milestones=[1, 2]", {"learner": {"milestones": [1, 2]}}),
        ("data.flip=false", {"data": {"flip": False}}),
        ("learner.trend.gamma=4", {"learner": {"trend": {"gamma": 4}}}),
        ("data.name=", {"data": {"name": ""}}),
    ],
)
def test_settings_on_the_command_line(text, parsed):
    assert parse_setting(text) == parsed


@pytest.mark.parametrize("text", ["learner.lr", "=3", " = 3", "", "learner..lr=3", ".lr=3", "lr.=3"])
def test_a_setting_that_cannot_be_read_says_how_to_write_one(text):
    with pytest.raises(ConfigError, match=r"write it as section.key=value, such as learner.lr=0.1") as error:
        parse_setting(text)
    assert repr(text) in str(error.value)


def test_differences_name_old_and_new():
    old = build_config({"recipe": "a", "learner": {"lr": 0.1}})
    new = build_config({"recipe": "b", "learner": {"lr": 0.2, "trend": {"gamma": 3.0}}, "record": {"samples": [1]}})
    found = differences(old, new)
    assert "learner.lr: 0.1 -> 0.2" in found
    assert "record.samples: never -> (1,)" in found
    assert any(text.startswith("learner.trend") for text in found)
    assert any(text.startswith("learner.trend") for text in differences(new, old))
    assert not any(text.startswith("recipe") for text in found)
    assert differences(old, old) == []


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda path: None, "there is no config at"),
        (lambda path: path.write_text("learner = {"), "is not TOML"),
        (lambda path: path.write_bytes(b"\xff\xfe\x00"), "is not TOML"),
        (lambda path: path.mkdir(), "there is no config at"),
    ],
)
def test_a_file_that_cannot_be_read(write, message, tmp_path):
    write(tmp_path / "x.toml")
    with pytest.raises(ConfigError, match=message):
        read_toml(tmp_path / "x.toml")


# recipes and scales


SINGLE = [name for name, recipe in recipes().items() if not {"over", "variants"} & recipe.keys()]


@pytest.mark.parametrize("dataset", [None, "cifar100", "tiny_imagenet", "digits"])
@pytest.mark.parametrize("scale", [*scales(), None])
@pytest.mark.parametrize("recipe", SINGLE)
def test_every_recipe_at_every_scale(recipe, scale, dataset):
    wanted = () if dataset is None else ({"data": {"name": dataset}},)
    if scale in ("middle", "regime", "paper") and dataset == "digits":
        with pytest.raises(ConfigError, match=f"no scale '{scale}' for data set 'digits'"):
            load_recipe(recipe, scale=scale, settings=wanted)
        return
    config = load_recipe(recipe, scale=scale, settings=wanted)
    assert config.recipe == f"{recipe}-{scale or 'demo'}"
    default = "glyphs" if scale in ("demo", None) else "cifar100"
    assert config.data.name == (dataset or default)
    assert config.data.tasks == (10 if dataset == "tiny_imagenet" and scale not in ("demo", None) else 5)
    assert build_config(tomllib.loads(to_toml(config))) == config


def test_the_regime_departs_from_the_paper_in_width_and_resolution_alone():
    for data in ("cifar100", "tiny_imagenet"):
        wanted = ({"data": {"name": data}, "recipe": "x"},)
        regime, paper = (load_recipe("diagnostics", scale=scale, settings=wanted) for scale in ("regime", "paper"))
        changed = [line.split(":")[0] for line in differences(paper, regime)]
        assert sorted(changed) == ["data.padding", "data.resolution", "model.width"]


def test_the_recipes_of_single_runs_are_there():
    assert {"diagnostics", "bounds"} <= set(SINGLE)


def test_settings_come_last():
    config = load_recipe(
        "diagnostics", scale="small", settings=({"learner": {"epochs": 2}}, {"learner": {"epochs": 4}})
    )
    assert config.learner.epochs == 4


def test_an_own_file_is_run_as_it_is_or_at_a_scale(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('title = "x"\nlearner.lr = 0.5\ndata.name = "cifar100"')
    assert load_recipe(str(path)) == build_config(
        {"recipe": "mine", "learner": {"lr": 0.5}, "data": {"name": "cifar100"}}
    )
    assert load_recipe(str(path), scale="small").data.resolution == 16


def test_the_config_of_a_run_is_a_recipe_again(tmp_path):
    config = load_recipe("diagnostics", scale="demo", settings=({"seed": 4},))
    path = tmp_path / "config.toml"
    path.write_text(to_toml(config))
    assert load_recipe(str(path)) == config


def test_unknown_names_name_the_nearest():
    with pytest.raises(UnknownNameError, match="unknown recipe 'diagnostic'; did you mean 'diagnostics'"):
        load_recipe("diagnostic")
    with pytest.raises(UnknownNameError, match="unknown scale 'papr'; did you mean 'paper'"):
        load_recipe("diagnostics", scale="papr")


@pytest.mark.parametrize("wrong", [{"data": "filename"}, {"data": 3}, {"data": None}])
def test_a_data_set_in_the_wrong_place_is_an_error_of_the_config(wrong):
    with pytest.raises(ConfigError, match=r"data = .* is invalid"):
        load_recipe("diagnostics", settings=(wrong,))


def test_configs_and_recipes_load_without_torch():
    code = "import sys, wane.runs.recipes as r; r.load_recipe('diagnostics'); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_the_options_of_a_scale_are_for_its_own_model():
    def model(*settings):
        return load_recipe("diagnostics", scale="small", settings=settings).model.model_dump(exclude_none=True)

    assert model() == model({"model": {"name": "cnn"}}) == {"name": "cnn", "width": 32}
    assert model({"model": {"name": "mlp"}}) == {"name": "mlp"}  # which has no width
    assert model({"model": {"width": 8}}, {"model": {"name": "resnet18"}}) == {"name": "resnet18", "width": 8}


def test_a_sweep_of_chosen_variants_only():
    from wane.sweeps.plan import expand

    some = expand("table2", scale="small", only=["ER", "Log-TLR"])
    assert {run.variant for run in some} == {"ER", "Log-TLR"}
    assert {run.name for run in some} <= {run.name for run in expand("table2", scale="small")}
    with pytest.raises(ValueError, match="unknown variant of table2 'LogTLR'; did you mean 'Log-TLR'"):
        expand("table2", only=["LogTLR"])
    with pytest.raises(ConfigError, match="diagnostics has no variants, so none is called 'ER': leave --variant out"):
        expand("diagnostics", only=["ER"])


def test_a_sweep_of_several_recipes_does_what_they_share_once():
    from wane.sweeps.plan import expand

    parts = [{run.name for run in expand(recipe, scale="small")} for recipe in ("table1", "table2")]
    both = [run.name for run in expand("table1", "table2", scale="small")]
    assert sorted(both) == sorted(parts[0] | parts[1])  # none twice
    assert parts[0] & parts[1]  # plain replay, at least

    some = expand("windows", "table2", scale="small", only=["*, w = 3", "TLR"])
    assert {run.variant for run in some if run.config.recipe == "table2-small"} == {"TLR"}
    assert {run.config.learner.trend.window for run in some if run.config.recipe == "windows-small"} == {3}
    with pytest.raises(ValueError, match=r"unknown variant of windows or table2 '\*, w = 4'"):
        expand("windows", "table2", only=["*, w = 4", "TLR"])
