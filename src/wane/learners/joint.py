"""Joint: at every task, train on the data of all tasks so far. The upper bound, which no continual learner may do."""

from wane.learners.learner import Learner

__all__ = ["Joint"]


class Joint(Learner):
    """Cross-entropy on all rows seen so far, drawn as one data set; an epoch is a pass over all of them."""

    title = "Joint"
    source = "the upper bound"
    rows = "seen"
