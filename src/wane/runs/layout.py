"""The names of the files in a run folder, each written once: here."""

from __future__ import annotations

__all__ = [
    "ABOUT", "CHECKPOINT", "CONFIG", "EVENTS", "FAILED", "FLOW", "HISTORY", "LADDER", "LOCK", "LOG", "LOGGED",
    "OWN_LOOP", "PREVIOUS", "RECOVERY", "REMOTE_LOCK", "REPLAY", "SAMPLES", "STAGING", "SUMMARY", "SUMS", "logged",
]  # fmt: skip

CONFIG = "config.toml"  #: everything that the result depends on; what makes a folder a run folder
OWN_LOOP = "own_loop.toml"  #: in its place where wane did not train the run, see `wane.runs.own_loop`
ABOUT = "about.json"  #: what a reader needs to know that the config does not say, see `wane.runs.about`
HISTORY = "history.parquet"  #: per-class signals of every evaluation
REPLAY = "replay.parquet"  #: what could be drawn from the memory and what was, a row for each epoch
SAMPLES = "samples.parquet"  #: signals of every test sample, where they were recorded
FLOW = "flow.npz"  #: mean softmax of every true class, where it was recorded
RECOVERY = "recovery.parquet"  #: how lost classes came back, where that was recorded
LADDER = "ladder.parquet"  #: what bias, head and features hide, where that was recorded
SUMMARY = "summary.json"  #: what a table needs; with it the run is done
SUMS = "sums.sha256"  #: the checksums of the others, see `wane.runs.sums`
FAILED = "failed.json"  #: why the last attempt failed
LOG = "log.txt"  #: what a worker of a sweep printed
CHECKPOINT = "checkpoint.pt"  #: the state after the last epoch
PREVIOUS = "checkpoint.previous.pt"  #: the state after the epoch before
LOCK = "lock."  #: with a number behind it: who runs the folder, see `wane.runs.lock`
REMOTE_LOCK = "lock.json"  #: the same at a URL, see `wane.runs.remote`
STAGING = ".writing-"  #: with a token behind it: where the holder of the run writes, see `wane.runs.writing`
EVENTS = "events.out.tfevents.*"  #: of TensorBoard
LOGGED = "logged.*.json"  #: what each logger was sent


def logged(logger: str) -> str:
    """The file that says what a logger was sent.

    >>> logged("mlflow")
    'logged.mlflow.json'
    """
    return LOGGED.replace("*", logger)
