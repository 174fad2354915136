"""Slurm, through submitit: array jobs, a task for each run.

A task that nears its time limit, or is preempted, is queued again by submitit and goes on from its checkpoint. Jobs
stay in the queue when the sweep is stopped: the same command waits for those that run and does none that is done.
Slurm must keep accounts (sacct answers), else a job that was killed is not noticed, and waited for.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import submitit

from wane.runs.lock import STALE
from wane.sweeps.engines import Job, Options, Outcome
from wane.sweeps.engines.worker import do_job, job_died

__all__ = ["run_all"]

REQUEUES = 1000  # times that a job may hit its time limit
ARRAY = 1000  # runs in one array job: Slurm refuses larger ones unless its MaxArraySize was raised


class CarryOut:
    """`do_job` with the method that submitit calls before a job is stopped."""

    def __call__(self, job: Job, threads: int, retry: bool) -> Outcome:
        """Run it; the lock of a killed node looks alive for a while, so wait for it."""
        return do_job(job, threads=threads, retry=retry, patience=1.5 * STALE)

    def checkpoint(self, *arguments: Any) -> submitit.helpers.DelayedSubmission:
        """The same again: the run itself knows where it was."""
        return submitit.helpers.DelayedSubmission(self, *arguments)


def run_all(jobs: Sequence[Job], options: Options) -> Iterator[tuple[Job, Outcome]]:
    """Submit all jobs, in as many arrays as it takes.

    With `options.workers` one array is submitted after the other, each with that many tasks at a time: Slurm has no
    limit over several arrays.
    """
    executor = submitit.AutoExecutor(
        options.logs, cluster=options.cluster or "slurm", slurm_max_num_timeout=REQUEUES, local_max_num_timeout=REQUEUES
    )
    cpus = options.cpus or 1
    wanted = {
        "name": "wane",
        "timeout_min": options.minutes,
        "cpus_per_task": cpus,
        "gpus_per_node": int(options.gpus) or None,
        "slurm_partition": options.partition,
        "slurm_array_parallelism": options.workers or ARRAY,
    }
    executor.update_parameters(**{name: value for name, value in wanted.items() if value is not None})
    arrays = [jobs[i : i + ARRAY] for i in range(0, len(jobs), ARRAY)]
    for together in [[array] for array in arrays] if options.workers else [arrays]:
        waiting: dict[submitit.Job[Any], Job] = {}
        for array in together:
            with executor.batch():
                submitted = [executor.submit(CarryOut(), job, cpus, options.retry_failed) for job in array]
            waiting |= zip(submitted, array, strict=True)
        yield from _ended(waiting)


def _ended(waiting: dict[submitit.Job[Any], Job]) -> Iterator[tuple[Job, Outcome]]:
    """Each job as it ends."""
    while waiting:
        ended = [task for task in waiting if task.done()]
        for task in ended:
            job, error = waiting.pop(task), task.exception()
            if error is None:
                yield job, Outcome(*task.result())
            else:
                said = str(error).strip().splitlines() or [type(error).__name__]
                yield job, job_died(job, f"Slurm job {task.job_id}: {said[0]} (see {task.paths.stderr})")
        if not ended:
            time.sleep(1.0)
