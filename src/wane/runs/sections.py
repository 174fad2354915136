"""The sections of a run's config, each with its settings, their defaults and what they mean.

Imported by the command line before anything heavy: no torch here.
"""

from __future__ import annotations

import math
from typing import Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    field_validator,
)

from wane.interventions.loss_weights import LossWeights
from wane.interventions.trend_sampler import TrendSampler
from wane.softmax.registry import SIGNALS

__all__ = [
    "CorrectionSettings", "DataSettings", "LadderSettings", "LearnerSettings", "MemorySettings", "ModelSettings",
    "RecordSettings", "RecoverySettings", "Section",
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
    at: Literal["last"] | None = None
    """Fit corrections and heads at the end of the last task only. Default: at the end of every task, which takes the
    longer, the more tasks and classes there are."""

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


def _plain(value: Any) -> Any:
    """A value that TOML can hold, with tuples for lists."""
    if isinstance(value, list | tuple):
        return tuple(_plain(item) for item in value)
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"an option is {value}: give a finite number")
    if value is not None and not isinstance(value, str | int | float):
        raise ValueError(f"an option is {value!r}: give a number, a text, true, false, or a list of these")
    return value
