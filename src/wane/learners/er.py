"""Experience Replay: new and remembered rows in one forward pass, one mean cross-entropy."""

from wane.learners.learner import Learner

__all__ = ["ER"]


class ER(Learner):
    """Each step sees a batch of new rows and a draw from the memory; batch norm and the loss see them as one."""

    title = "Experience Replay"
    source = "Rolnick et al., Experience Replay for Continual Learning, NeurIPS 2019"
    draws = 1
