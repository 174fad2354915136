"""The complete description of a run. Same config and seed, same history, to the bit, on the same machine.

Imported by the command line before anything heavy: no torch here.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any, Literal, Self, get_args, get_origin

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveInt,
    ValidationError,
    field_validator,
    model_validator,
)

from wane.runs.settings import ConfigError, flat, merge, nested, parse_setting, read_toml

__all__ = [
    "PLACES", "Config", "ConfigError", "build_config", "differences", "flat", "merge", "nested", "parse_setting",
    "read_toml", "takes_list", "to_toml",
]  # fmt: skip


class Section(BaseModel):
    """A part of the config: unknown keys are errors, nothing changes after it was made."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True, coerce_numbers_to_str=True
    )


class Data(Section):
    """What is learnt, and in which order."""

    name: str = "glyphs"
    """Data set: glyphs, digits, cifar10, cifar100, tiny_imagenet, or the path of a folder with one folder a class."""
    root: str | None = None
    """Folder that holds the data sets, or where they are fetched to. Default: WANE_DATA, or the user's cache."""
    per_class: int | None = Field(default=None, ge=1)
    """Keep so many training images a class."""
    resolution: int | None = Field(default=None, ge=1)
    """Reduce images to so many pixels a side, by averaging."""
    holdout: int = Field(default=0, ge=0)
    """Set aside so many training images a class, as split `holdout`."""
    tasks: int = Field(default=5, ge=1)
    """Number of tasks, with equally many classes each."""
    class_order: Literal["label", "shuffled"] = "label"
    """Order of the classes over the tasks; shuffled by the seed."""
    padding: int = Field(default=4, ge=0)
    """Random crop: shift by up to so many pixels."""
    flip: bool = True
    """Mirror half of the training images."""


class Model(Section):
    """What learns."""

    name: str = "resnet18"
    """resnet18, cnn or mlp."""
    width: int | None = Field(default=None, ge=1)
    """Channels of the first stage (resnet18: 64 is the paper's)."""
    stem: Literal["cifar", "imagenet"] | None = None
    """First layers of resnet18."""
    hidden: tuple[PositiveInt, ...] | None = None
    """Units of the mlp's hidden layers."""


class Weights(Section):
    """Metric-weighted loss, see `wane.LossWeights`."""

    signal: str = "log_tlr"
    """Which signal scores a row."""
    form: Literal["inverse", "complement", "softmax"] = "inverse"
    """How a score becomes a weight."""
    epsilon: float = Field(default=0.1, gt=0)
    """Keeps the inverse finite."""
    temperature: float = Field(default=1.0, gt=0)
    """Of the softmax form."""
    rows: Literal["replay", "all"] = "replay"
    """Which rows are weighted; the others count 1."""


class Trend(Section):
    """Metric-trend sampling, see `wane.TrendSampler`; takes the place of `memory.draw` and `memory.scope`."""

    signal: str = "log_tlr"
    """Whose slope."""
    window: int = Field(default=10, ge=2)
    """Epochs to look back."""
    gamma: float = Field(default=2.0, ge=0)
    """Sharpness."""
    slope: Literal["raw", "standardised"] = "raw"
    """Units of the slope."""
    scope: Literal["seen", "past"] = "seen"
    """Which classes compete."""
    source: Literal["replay", "holdout", "test"] = "replay"
    """What the signal is measured on; test is an oracle."""
    literal: bool = False
    """The sign that the paper prints."""


class Learner(Section):
    """How it learns. The optimiser is made anew for each task."""

    name: str = "er"
    """finetune, joint or er."""
    epochs: int = Field(default=50, ge=1)
    """Epochs of each task."""
    batch_size: int = Field(default=256, ge=1)
    """New rows of a step."""
    replay_size: int = Field(default=256, ge=1)
    """Replayed rows of a step, for each draw."""
    lr: float = Field(default=0.03, gt=0)
    """Learning rate of SGD."""
    momentum: float = Field(default=0.0, ge=0, lt=1)
    """Momentum of SGD."""
    weight_decay: float = Field(default=0.0, ge=0)
    """Weight decay of SGD."""
    milestones: tuple[PositiveInt, ...] = ()
    """Epochs of a task after which the learning rate is multiplied by `decay`."""
    decay: float = Field(default=0.1, gt=0)
    """Factor at each milestone."""
    weights: Weights | None = None
    """Weight the loss of rows by a signal."""
    trend: Trend | None = None
    """Draw classes by the trend of a signal."""


class Memory(Section):
    """What is kept, and what is drawn."""

    capacity: int = Field(default=2000, ge=1)
    """Images kept."""
    policy: Literal["reservoir", "class_balanced"] = "reservoir"
    """What to keep."""
    draw: Literal["uniform", "class_uniform"] = "uniform"
    """What to replay: slots uniformly, or classes uniformly and then a slot of the class."""
    scope: Literal["seen", "past"] = "seen"
    """Whether a class-wise draw includes the classes of the current task."""


class Recovery(Section):
    """Fine-tune a copy of the model on a lost class, see `wane.training.recovery`."""

    below: float = Field(default=0.0, ge=0, lt=1)
    """Highest accuracy of a class that counts as lost."""
    samples: int = Field(default=5, ge=1)
    """Training images of the class to learn it again from."""
    steps: int = Field(default=20, ge=1)
    """Steps of plain SGD."""
    lr: float | None = Field(default=None, gt=0)
    """Its learning rate; default: a fiftieth of learner.lr (at a tenth one step can make the class the only answer)."""
    beside: tuple[NonNegativeInt, ...] = Field(default=(0,), min_length=1)
    """Rows of other classes from the memory beside them in each step; a fine-tune for each number, 0 is without."""


class Record(Section):
    """What is written down beyond the history of every epoch."""

    classes: Literal["all", "seen"] = "all"
    """Classes in the softmax of the signals: the whole head, as in the paper, or those seen so far."""
    eval_every: int | None = Field(default=None, ge=1)
    """Also evaluate after every so many steps, into split `test_steps`."""
    samples: Literal["never", "tasks"] | tuple[PositiveInt, ...] = "never"
    """Signals of every test sample, to samples.parquet: at the ends of tasks, or after these epochs (from 1)."""
    flow: bool = False
    """Mean softmax of every true class at the ends of tasks, to flow.npz."""
    recovery: Recovery | None = None
    """How fast lost classes come back, at the ends of tasks, to recovery.parquet."""


class Config(Section):
    """A run: everything that its result depends on."""

    recipe: str = "custom"
    """Where it came from; a name, without effect."""
    seed: int = Field(default=0, ge=0)
    """Initial weights, order of the rows, augmentation, memory, and the class order if shuffled."""
    device: str = "auto"
    """cpu, cuda, cuda:1, mps; auto takes what there is."""
    devices: int | None = Field(default=None, ge=1)
    """Train with so many processes, each with a GPU of its own or on the CPU. Default: 1."""
    threads: int | None = Field(default=None, ge=1)
    """Threads on a CPU, of each process; default: torch's own, divided among processes. Small networks are faster with
    1 as soon as anything else runs."""
    precision: Literal["32", "bf16"] = "32"
    """Arithmetic of the forward pass."""
    data: Data = Data()
    model: Model = Model()
    learner: Learner = Learner()
    memory: Memory = Memory()
    record: Record = Record()

    @property
    def num_tasks(self) -> int:
        """How many tasks the stream has."""
        return self.data.tasks

    @property
    def total_epochs(self) -> int:
        """Epochs of all tasks together."""
        return self.num_tasks * self.learner.epochs

    @field_validator("precision", mode="before")
    @classmethod
    def _precision_is_text(cls, precision: Any) -> Any:
        return str(precision) if type(precision) is int else precision  # --set precision=32 is read as a number

    @field_validator("devices")
    @classmethod
    def _one_is_the_default(cls, devices: int | None) -> int | None:
        return None if devices == 1 else devices  # the same run, so the same name

    @model_validator(mode="after")
    def _several_devices_are_of_a_kind(self) -> Self:
        if self.devices and self.device not in ("auto", "cpu", "cuda"):
            raise ValueError(f"devices is {self.devices}, but device is {self.device}: set it to auto, cpu or cuda")
        return self

    @model_validator(mode="after")
    def _holdout_is_there(self) -> Self:
        if self.learner.trend and self.learner.trend.source == "holdout" and not self.data.holdout:
            raise ValueError("learner.trend.source is holdout, but data.holdout is 0: set it to images a class")
        return self


def build_config(*layers: dict[str, Any]) -> Config:
    """The config of nested settings, later layers over earlier ones.

    >>> build_config({"learner": {"lr": 0.1}}, {"learner": {"epochs": 3}}).learner.lr
    0.1
    >>> build_config({"learner": {"learning_rate": 0.1}})
    Traceback (most recent call last):
    ...
    wane.runs.settings.ConfigError: unknown setting learner.learning_rate; known there: name, epochs, batch_size, ...
    """
    merged: dict[str, Any] = {}
    for layer in layers:
        merged = merge(merged, layer)
    try:
        return Config.model_validate(merged)
    except ValidationError as error:
        raise ConfigError("; ".join(_sentence(e) for e in error.errors())) from None


def to_toml(config: Config) -> str:
    """The complete config, ready to be run again."""
    import tomli_w

    return tomli_w.dumps(config.model_dump(mode="json", exclude_none=True))


#: Names and places: no result depends on them, so the same run may have others.
PLACES: Any = {"recipe": True, "device": True, "data": {"root"}}


def differences(old: Config, new: Config) -> list[str]:
    """Settings that count and differ, each as `learner.lr: 0.03 -> 0.1`; none if it is the same run."""
    a, b = (flat(config.model_dump(exclude=PLACES)) for config in (old, new))
    replaced = ("memory.draw", "memory.scope") if old.learner.trend and new.learner.trend else ()
    keys = [key for key in {**a, **b} if key not in replaced]  # of a section that only one of them has, too
    return [f"{key}: {a.get(key)} -> {b.get(key)}" for key in keys if a.get(key) != b.get(key)]


def _sentence(error: Any) -> str:
    kinds = ("literal[", "tuple[")  # pydantic's names for the branches of a union
    where, value = [str(part) for part in error["loc"] if not str(part).startswith(kinds)], error["input"]
    name = ".".join(where)
    if error["type"] == "extra_forbidden":
        known = _fields_at(where[:-1])
        near = get_close_matches(where[-1], known, n=1)
        hint = f"did you mean {'.'.join([*where[:-1], near[0]])}?" if near else f"known there: {', '.join(known)}"
        return f"unknown setting {name}; {hint}"
    if not where:
        return str(error["ctx"]["error"])
    return f"{name} = {value!r} cannot be: {error['msg'][0].lower()}{error['msg'][1:]}"


def _fields_at(where: list[str]) -> list[str]:
    return list(_kind_at(where).model_fields)


def _kind_at(where: list[str]) -> Any:
    """The section, or the annotation of the setting, at a place of the config."""
    kind: Any = Config
    for part in where:
        kind = kind.model_fields[part].annotation
        kind = next((k for k in get_args(kind) if isinstance(k, type) and issubclass(k, Section)), kind)
    return kind


def takes_list(key: str) -> bool:
    """Whether a list can be the value of a setting; so it may of one that is not known, which is refused elsewhere.

    >>> takes_list("learner.milestones"), takes_list("learner.trend.window")
    (True, False)
    """
    try:
        kind = _kind_at(key.split("."))
    except (KeyError, AttributeError):
        return True
    return any(get_origin(k) is tuple for k in (kind, *get_args(kind)))
