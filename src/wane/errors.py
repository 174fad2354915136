"""The kind of error that stops a run, or what is done with one, and has a sentence for the user. No torch here."""

__all__ = ["CheckpointError", "DamagedError", "RunError"]


class RunError(RuntimeError):
    """No setting is wrong: a disk, a process or the loss is. The command line prints the sentence, and ends with 1."""


class CheckpointError(RunError):
    """A checkpoint, or another file of a run, that cannot be written; says what to do."""


class DamagedError(ValueError):
    """A file of a run that is not as it was written, or is missing; says which, and what to do. Ends with code 2."""
