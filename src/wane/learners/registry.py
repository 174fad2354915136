"""The methods by name: wane's own, those of installed packages, and any class at ``package.module:Name``."""

from wane.learners.er import ER
from wane.learners.finetune import Finetune
from wane.learners.joint import Joint
from wane.learners.learner import Learner
from wane.registry import Registry

__all__ = ["LEARNERS", "find_learner"]

LEARNERS: Registry[type[Learner]] = Registry(
    "learner", {"finetune": Finetune, "joint": Joint, "er": ER}, group="wane.learners"
)


def find_learner(name: str) -> type[Learner]:
    """The class of a method; an error names the nearest one, or says what is wrong with what was found.

    >>> find_learner("er").title
    'Experience Replay'
    >>> find_learner("math:sqrt")
    Traceback (most recent call last):
    ...
    ValueError: learner 'math:sqrt' is not a method: give a class that extends wane.learners.Learner
    """
    found = LEARNERS.find(name)
    if not (isinstance(found, type) and issubclass(found, Learner)):
        raise ValueError(f"learner {name!r} is not a method: give a class that extends wane.learners.Learner")
    return found
