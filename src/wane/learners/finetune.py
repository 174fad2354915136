"""Finetune: learn each task as it comes, and nothing else. The lower bound."""

from wane.learners.learner import Learner

__all__ = ["Finetune"]


class Finetune(Learner):
    """Cross-entropy on the new rows. What every other method must beat."""

    title = "Finetune"
    source = "the lower bound"
