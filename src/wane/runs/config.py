"""The complete description of a run. Same config and seed, same history, to the bit, on the same machine.

Imported by the command line before anything heavy: no torch here.
"""

from __future__ import annotations

import math
from typing import Any, Literal, Self, get_args, get_origin

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    field_validator,
    model_validator,
)

from wane.interventions.loss_weights import LossWeights
from wane.interventions.trend_sampler import TrendSampler
from wane.runs.settings import ConfigError, flat, merge, nested, parse_setting, read_toml
from wane.runs.validation import kind_at, sentence
from wane.softmax.registry import SIGNALS

__all__ = [
    "PLACES", "Config", "ConfigError", "CorrectionSettings", "DataSettings", "LadderSettings", "LearnerSettings",
    "MemorySettings", "ModelSettings", "RecordSettings", "RecoverySettings", "build_config", "differences", "flat",
    "merge", "nested", "parse_setting", "read_toml", "takes_list", "to_toml",
]  # fmt: skip


#: Rows that a setting may ask for. Bounds here are beyond any use: they turn a slip of the pen into a sentence before
#: anything is allocated or started.
MANY = 10**9


class Section(BaseModel):
    """A part of the config: unknown keys are errors, nothing changes after it was made."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True, coerce_numbers_to_str=True
    )


class DataSettings(Section):
    """What is learnt, and in which order."""

    name: str = "glyphs"
    """Data set: glyphs, digits, cifar10, cifar100, tiny_imagenet, `package.module:function`, or the path of a folder
    with one folder for each class."""
    fingerprint: str | None = None
    """Of the files of a data folder; filled in when the run is planned, and checked when it starts."""
    root: str | None = None
    """Folder that holds the data sets, or where they are fetched to. Default: WANE_DATA, or the user's cache."""
    per_class: int | None = Field(default=None, ge=1, le=MANY)
    """Keep this many training images of each class."""
    resolution: int | None = Field(default=None, ge=1, le=16_384)
    """Reduce images to this many pixels a side, by averaging."""
    holdout: int = Field(default=0, ge=0, le=MANY)
    """Set aside this many training images of each class, as split `holdout`."""
    stream: Literal["classes", "domains"] = "classes"
    """What changes from task to task: the classes, or the domain that they are seen in."""
    tasks: PositiveInt | tuple[tuple[str | int, ...], ...] = 5
    """Number of tasks, or the classes of each task by name or label, such as [["cat", "dog"], ["car"]]."""
    class_order: Literal["label", "shuffled"] = "label"
    """Order of the classes over the tasks; shuffled by the seed."""
    padding: int = Field(default=4, ge=0, le=1024)
    """Random crop: shift by up to this many pixels."""
    flip: bool = True
    """Mirror half of the training images."""

    @field_validator("tasks", mode="before")
    @classmethod
    def _number_or_groups(cls, tasks: Any) -> Any:
        groups = isinstance(tasks, list | tuple)
        if groups and tasks and all(isinstance(group, list | tuple) and group for group in tasks):
            return tasks
        if groups or isinstance(tasks, bool) or not isinstance(tasks, int) or tasks < 1:
            raise ValueError('give a number of tasks from 1, or the classes of each, such as [["cat", "dog"], ["car"]]')
        return tasks


class ModelSettings(Section):
    """What learns."""

    name: str = "resnet18"
    """resnet18, cnn, mlp, or `package.module:function`."""
    width: int | None = Field(default=None, ge=1, le=65_536)
    """Channels of the first stage (resnet18: 64 is the paper's)."""
    stem: Literal["cifar", "imagenet"] | None = None
    """First layers of resnet18."""
    hidden: tuple[PositiveInt, ...] | None = None
    """Units of the mlp's hidden layers."""


class LearnerSettings(Section):
    """How it learns. The optimiser is made anew for each task."""

    name: str = "er"
    """The method: finetune, joint, er, another name of `wane.learners.LEARNERS`, or `package.module:Class`."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Settings of the method itself, such as options.alpha = 0.5; checked, and completed, when the run is planned."""
    epochs: int = Field(default=50, ge=1, le=1_000_000)
    """Epochs of each task."""
    batch_size: int = Field(default=256, ge=1, le=MANY)
    """New rows of a step."""
    replay_size: int = Field(default=256, ge=1, le=MANY)
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
    weights: LossWeights | None = None
    """Weight the loss of rows by a signal."""
    trend: TrendSampler | None = None
    """Draw classes by the trend of a signal; takes the place of `memory.draw` and `memory.scope`."""

    @field_validator("options", mode="after")
    @classmethod
    def _plain_values(cls, options: dict[str, Any]) -> dict[str, Any]:
        return {name: _plain(value) for name, value in options.items()}


class MemorySettings(Section):
    """What is kept, and what is drawn."""

    capacity: int = Field(default=2000, ge=1, le=MANY)
    """Images kept."""
    policy: Literal["reservoir", "class_balanced", "herding"] = "reservoir"
    """What to keep, where the method leaves that open."""
    draw: Literal["uniform", "class_uniform"] = "uniform"
    """What to replay: slots uniformly, or classes uniformly and then a slot of the class."""
    scope: Literal["seen", "past"] = "seen"
    """Whether rows of the current task are replayed too, or of past tasks only (in the first task, all)."""
    holdout: float | None = Field(default=None, gt=0, lt=1)
    """The share of the slots that are never replayed: their rows are set aside when a task begins, never trained on,
    and measured each epoch as split `memory_holdout`."""
    holdout_replayed: bool | None = None
    """The control: all slots are replayed, and as many of them as `holdout` says are measured all the same."""


class RecoverySettings(Section):
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


class CorrectionSettings(Section):
    """Test once more with corrected logits, see `wane.LogitCorrection`; to split `test_corrected`."""

    by: str = "nkl"
    """The signal that the offsets maximise; or prior, from how often each class was trained on in the last task."""
    source: Literal["memory", "memory_holdout", "holdout"] = "memory"
    """The rows to fit on: the replayed slots, those of memory.holdout, or the images of data.holdout."""
    groups: Literal["task", "newest", "class"] = "task"
    """One offset for each task, one for the newest task only, or one for each class."""

    @field_validator("by")
    @classmethod
    def _known(cls, by: str) -> str:
        from wane.softmax.registry import SIGNALS

        return by if by == "prior" else SIGNALS[by].name


class LadderSettings(Section):
    """What a correction of the bias and a new head would bring back, see `wane.training.ladder`."""

    by: str | None = None
    """Signal that the correction of the bias maximises on rows of the memory, or held out. Default: nkl; accuracy for a
    method with answers of its own, such as iCaRL's distances, which need not be logits."""
    groups: Literal["newest", "task", "class"] = "newest"
    """One number for the classes of the newest task, one for each task, or one for each class. In a stream of domains,
    whose tasks have the same classes, always one for each class."""
    strengths: tuple[PositiveFloat, ...] = Field(default=(1000.0, 300.0, 100.0, 30.0, 10.0), min_length=1)
    """Penalties of a new head to choose from by cross-validation, see `wane.fit_head`."""
    folds: int = Field(default=2, ge=2)
    """Of the cross-validation."""

    @field_validator("by")
    @classmethod
    def _is_a_signal(cls, by: str | None) -> str | None:
        return None if by is None else SIGNALS[by].name


class RecordSettings(Section):
    """What is written down beyond the history of every epoch."""

    classes: Literal["all", "seen"] = "all"
    """Classes in the softmax of the signals: the whole head, as in the paper, or those seen so far."""
    signals: tuple[str, ...] = ()
    """Measures beside the eight signals, at every evaluation: mrr, ndcg, top5 (any number), confidence, brier,
    brier_top, ece, mce, reliability, resolution, uncertainty."""
    eval_every: int | None = Field(default=None, ge=1)
    """Also evaluate each time this many steps are done, into split `test_steps`."""
    samples: Literal["never", "tasks"] | tuple[PositiveInt, ...] = "never"
    """Signals of every test sample, to samples.parquet: at the ends of tasks, or after these epochs (from 1)."""
    flow: bool = False
    """Mean softmax of every true class at the ends of tasks, to flow.npz."""
    correction: CorrectionSettings | None = None
    """Also test with corrected logits, at the ends of tasks, into split `test_corrected`."""
    recovery: RecoverySettings | None = None
    """How fast lost classes come back, at the ends of tasks, to recovery.parquet."""
    ladder: LadderSettings | None = None
    """Where the accuracy went, at the ends of tasks, to ladder.parquet; true takes every default."""

    @field_validator("ladder", mode="before")
    @classmethod
    def _true_is_every_default(cls, ladder: Any) -> Any:
        return {True: {}, False: None}[ladder] if isinstance(ladder, bool) else ladder

    @field_validator("signals", mode="before")
    @classmethod
    def _known_signals(cls, names: Any) -> Any:
        given = [names] if isinstance(names, str) else names
        if not isinstance(given, list | tuple) or not all(isinstance(name, str) for name in given):
            return given  # what is wrong with the types is said next
        for name in given:
            SIGNALS[name]  # an unknown name is an error that lists the known ones
        # what is always recorded goes without saying: the same run, so the same name
        return [name for name in dict.fromkeys(given) if name not in SIGNALS]


class Config(Section):
    """A run: everything that its result depends on."""

    recipe: str = "custom"
    """Where it came from; a name, without effect."""
    seed: int = Field(default=0, ge=0, lt=2**63)
    """Initial weights, order of the rows, augmentation, memory, and the class order if shuffled."""
    device: str = "auto"
    """cpu, cuda, cuda:1, mps; auto takes what there is."""
    devices: int | None = Field(default=None, ge=1, le=4096)
    """Train with this many processes, each with a GPU of its own or on the CPU. Default: 1."""
    threads: int | None = Field(default=None, ge=1, le=4096)
    """Threads on a CPU, of each process; default: torch's own, divided among processes. Small networks are faster with
    1 as soon as anything else runs."""
    precision: Literal["32", "bf16"] = "32"
    """Arithmetic of the forward pass."""
    data: DataSettings = DataSettings()
    model: ModelSettings = ModelSettings()
    learner: LearnerSettings = LearnerSettings()
    memory: MemorySettings = MemorySettings()
    record: RecordSettings = RecordSettings()

    @property
    def num_tasks(self) -> int:
        """How many tasks the stream has.

        >>> build_config({"data": {"tasks": [["cat", "dog"], ["car"]]}}).num_tasks
        2
        """
        tasks = self.data.tasks
        return tasks if isinstance(tasks, int) else len(tasks)

    @property
    def total_epochs(self) -> int:
        """Epochs of all tasks."""
        return self.num_tasks * self.learner.epochs

    @property
    def further_signals(self) -> tuple[str, ...]:
        """What is measured beside the signals of `SIGNALS`: what is to be recorded, and what the draw and weights use.

        >>> build_config({"record": {"signals": ["ece"]}, "learner": {"trend": {"signal": "mrr"}}}).further_signals
        ('ece', 'mrr')
        """
        used = [part.signal for part in (self.learner.trend, self.learner.weights) if part is not None]
        return tuple(dict.fromkeys((*self.record.signals, *(name for name in used if name not in SIGNALS))))

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
        readers = {"learner.trend": self.learner.trend, "record.correction": self.record.correction}
        for name, reader in readers.items():
            if reader and reader.source == "holdout" and not self.data.holdout:
                raise ValueError(f"{name}.source is holdout, but data.holdout is 0: set it to images a class")
            if reader and reader.source == "memory_holdout" and not self.memory.holdout:
                raise ValueError(f"{name}.source is memory_holdout, but memory.holdout is not set: set it to a share")
        return self

    @model_validator(mode="after")
    def _holdout_is_a_slot(self) -> Self:
        memory = self.memory
        if memory.holdout and not 1 <= round(memory.capacity * memory.holdout) < memory.capacity:
            raise ValueError(f"memory.holdout = {memory.holdout} of memory.capacity = {memory.capacity} leaves one "
                             "side without a slot: change one of them")  # fmt: skip
        if memory.holdout_replayed and not memory.holdout:
            raise ValueError("memory.holdout_replayed is the control of memory.holdout: set that too")
        return self


def build_config(*layers: dict[str, Any]) -> Config:
    """The config of nested settings, later layers over earlier ones.

    >>> build_config({"learner": {"lr": 0.1}}, {"learner": {"epochs": 3}}).learner.lr
    0.1
    >>> build_config({"learner": {"learning_rate": 0.1}})
    Traceback (most recent call last):
    ...
    wane.runs.settings.ConfigError: unknown setting learner.learning_rate; known there: name, options, epochs, ...
    """
    merged: dict[str, Any] = {}
    for layer in layers:
        merged = merge(merged, layer)
    try:
        return Config.model_validate(merged)
    except ValidationError as error:
        raise ConfigError("; ".join(sentence(Config, e) for e in error.errors())) from None


def to_toml(config: Config) -> str:
    """The complete config, ready to be run again."""
    import tomli_w

    return tomli_w.dumps(config.model_dump(mode="json", exclude_none=True))


#: Names and places: no result depends on them, so the same run may have others.
PLACES: Any = {"recipe": True, "device": True, "data": {"root"}}


def differences(old: Config, new: Config) -> list[str]:
    """Settings that count and differ, each as `learner.lr: 0.03 -> 0.1`; none if it is the same run."""
    a, b = (flat(config.model_dump(exclude=PLACES)) for config in (old, new))
    ignored = {"memory.draw", "memory.scope"} if old.learner.trend and new.learner.trend else set()
    if old.data.fingerprint and old.data.fingerprint == new.data.fingerprint:
        ignored.add("data.name")  # the same files in another place
    keys = [key for key in {**a, **b} if key not in ignored]  # {**a, **b}: also those of a section that only one has
    return [f"{key}: {a.get(key)} -> {b.get(key)}" for key in keys if a.get(key) != b.get(key)]


def takes_list(key: str) -> bool:
    """Whether a list can be the value of a setting; True for an unknown one, which is refused elsewhere.

    >>> takes_list("learner.milestones"), takes_list("learner.trend.window")
    (True, False)
    """
    try:
        kind = kind_at(Config, key.split("."))
    except KeyError:
        return True
    return kind is Any or any(get_origin(k) is tuple for k in (kind, *get_args(kind)))


def _plain(value: Any) -> Any:
    """A value that TOML can hold, with tuples for lists."""
    if isinstance(value, list | tuple):
        return tuple(_plain(item) for item in value)
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"an option is {value}: give a finite number")
    if value is not None and not isinstance(value, str | int | float):
        raise ValueError(f"an option is {value!r}: give a number, a text, true, false, or a list of these")
    return value
