"""Methods: one file each, one screen each, with their options beside them. The seam to the loop is `learner.py`."""

from wane.learners.batch import Batch, Observed, Scene
from wane.learners.er import ER
from wane.learners.finetune import Finetune
from wane.learners.joint import Joint
from wane.learners.learner import Learner, NoOptions
from wane.learners.options import OptionError, build_learner, check_options
from wane.learners.registry import LEARNERS, find_learner

__all__ = [
    "ER", "LEARNERS", "Batch", "Finetune", "Joint", "Learner", "NoOptions", "Observed", "OptionError", "Scene",
    "build_learner", "check_options", "find_learner",
]  # fmt: skip
