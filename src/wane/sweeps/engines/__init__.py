"""Engines carry out the runs of a sweep: `local`, `ray`, `slurm`. Each is a generator function of the same kind.

It is given jobs and options, and yields each job with its outcome as it ends; closing it (Ctrl-C) lets go of the rest.
What an engine's workers do is `worker.do_job`, the same for all. Adding an engine is a module and a row here, or an
entry point of the group `wane.engines` in a package of one's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal, NamedTuple

from wane.registry import Registry

__all__ = ["ENGINES", "RUN", "Engine", "Job", "Options", "Outcome", "load_engine"]


#: The work of most jobs: a run of the lab.
RUN = "wane.sweeps.engines.worker:carry_out"


class Job(NamedTuple):
    """One piece of work, a run unless it says otherwise: plain values, so that it can go to any process anywhere."""

    name: str
    settings: dict[str, Any]  # the complete config
    place: str  # its run folder, or the URL of one
    epochs: int  # of the whole run
    listeners: tuple[str, ...] = ()  # references to functions folder -> Listener, told how it goes
    work: str = RUN  # reference to a function with the arguments of `worker.carry_out`


class Outcome(NamedTuple):
    """How a job ended; `held` means that another process runs it."""

    state: Literal["done", "failed", "held"]
    note: str = ""


@dataclass(frozen=True)
class Options:
    """What can be asked of an engine; each takes what it understands."""

    workers: int | None = None  # runs at a time
    cpus: int | None = None  # for each run
    gpus: float = 0  # for each run (ray, slurm)
    retry_failed: bool = False
    address: str | None = None  # of a Ray cluster
    partition: str | None = None  # of Slurm
    minutes: int = 240  # until Slurm stops a job, which is then queued again and goes on
    logs: str = "slurm-logs"  # where Slurm's jobs write theirs
    cluster: str | None = None  # submitit's: "slurm", or "local" to try the same without Slurm


Engine = Callable[[Sequence[Job], Options], Iterator[tuple[Job, Outcome]]]


@dataclass(frozen=True)
class Row:
    """An engine that comes with wane."""

    title: str
    module: str  # that holds its `run_all`; imported when it is used, as it may need a package of its own


ENGINES: Registry[Row | Engine] = Registry(
    "engine",
    {
        "local": Row("processes on this machine", "wane.sweeps.engines.local"),
        "ray": Row("a Ray cluster: a running one (--address), or one started here", "wane.sweeps.engines.ray"),
        "slurm": Row("jobs of Slurm, through submitit", "wane.sweeps.engines.slurm"),
    },
    group="wane.engines",
)


def load_engine(name: str) -> Engine:
    """The engine of that name, of an installed package, or at ``package.module:function``.

    An error says what to install for it.

    >>> load_engine("loca")
    Traceback (most recent call last):
    ...
    wane.registry.UnknownNameError: unknown engine 'loca'; did you mean 'local'? Known: local, ray, slurm
    """
    row = ENGINES.find(name)
    if not isinstance(row, Row):
        return row
    try:
        engine: Engine = import_module(row.module).run_all
    except ModuleNotFoundError as error:
        raise ValueError(f"engine {name!r} needs the package {error.name}: pip install 'wane[{name}]'") from None
    return engine
