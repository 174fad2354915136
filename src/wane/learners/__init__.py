"""Methods: one file each, one screen each. The seam to the loop is `learner.py`."""

from wane.learners.er import ER
from wane.learners.finetune import Finetune
from wane.learners.joint import Joint
from wane.learners.learner import Batch, Learner, Observed, Scene
from wane.registry import Registry

__all__ = ["ER", "LEARNERS", "Batch", "Finetune", "Joint", "Learner", "Observed", "Scene"]

LEARNERS: Registry[type[Learner]] = Registry("learner", {"finetune": Finetune, "joint": Joint, "er": ER})
