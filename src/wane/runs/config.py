"""The complete description of a run. Same config and seed, same history, to the bit, on the same machine.

Imported by the command line before anything heavy: no torch here.
"""

from __future__ import annotations

from typing import Any, Literal, Self, get_args, get_origin

from pydantic import Field, ValidationError, field_validator, model_validator

from wane.runs.sections import (
    DataSettings,
    LearnerSettings,
    MemorySettings,
    ModelSettings,
    RecordSettings,
    Section,
)
from wane.runs.settings import ConfigError, flat, merge, nested, parse_setting, read_toml
from wane.runs.validation import kind_at, sentence
from wane.softmax.registry import SIGNALS

__all__ = [
    "PLACES", "Config", "ConfigError", "build_config", "differences", "flat", "merge", "nested", "parse_setting",
    "read_toml", "takes_list", "to_toml",
]  # fmt: skip


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
