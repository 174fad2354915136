"""A Ray cluster: every run is a task. Ray places tasks, and starts those of a dead node again on another one.

Runs write to the shared run store (a network file system, or a URL); only the outcome comes back through Ray.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import ray

from wane.runs.lock import STALE
from wane.sweeps.engines import Job, Options, Outcome
from wane.sweeps.engines.worker import do_job, job_died

__all__ = ["run_all"]

RETRIES = 3  # a run that killed its worker this often (out of memory, say) has failed


def run_all(jobs: Sequence[Job], options: Options) -> Iterator[tuple[Job, Outcome]]:
    """Hand all jobs to the cluster at `options.address`, or to one on this machine."""
    ours = not ray.is_initialized()
    if ours:
        ray.init(address=options.address, log_to_driver=False, include_dashboard=False if not options.address else None)
    cpus = options.cpus or 1
    # a process for each run, as everywhere
    task = ray.remote(max_calls=1, max_retries=RETRIES, num_cpus=cpus, num_gpus=options.gpus)(_task)
    waiting = {}
    try:
        for job in jobs:
            waiting[task.remote(job, cpus, options.retry_failed)] = job
        while waiting:
            for reference in ray.wait(list(waiting), num_returns=1)[0]:
                job = waiting.pop(reference)
                try:
                    yield job, Outcome(*ray.get(reference))
                except ray.exceptions.RayError as error:
                    said = " ".join(str(error).split())
                    yield job, job_died(job, f"Ray gave it up: {said[:300]}")
    finally:
        for reference in waiting:
            ray.cancel(reference, force=True)
        if ours:
            ray.shutdown()


def _task(job: Job, threads: int, retry: bool) -> Outcome:
    # the lock of a machine that died is fresh for a while: have patience with it
    return do_job(job, threads=threads, retry=retry, patience=1.5 * STALE)
