"""Processes on this machine: a pool of threads, each of which starts a process for a run and waits for it to end.

Each run has a process of its own, not one of a pool: a killed process takes no other run with it, its exit code says
how it ended, and no run inherits anything from the one before. They are forked from a server that has torch imported,
which is quick.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

from wane.sweeps.engines import Job, Options, Outcome
from wane.training.processes import end_with_parent, obituary, start, start_context, use_environment

__all__ = ["run_all"]


def run_all(jobs: Sequence[Job], options: Options) -> Iterator[tuple[Job, Outcome]]:
    """Run jobs side by side, with the cores divided among them."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    workers = options.workers or max(1, cores // (options.cpus or 1))
    threads = options.cpus or max(1, cores // workers)
    context = start_context()
    running: set[Any] = set()
    stopped = threading.Event()

    def one(job: Job) -> Outcome:
        receiver, sender = context.Pipe(duplex=False)
        arguments = (sender, dict(os.environ), job, threads, options.retry_failed)
        process = context.Process(target=_child, args=arguments, name=job.name)
        running.add(process)  # before it starts, or a sweep that is stopped at this moment would wait for its run
        try:
            start(process)
        except BaseException:
            running.discard(process)  # it never started: there is nothing to wait for
            receiver.close()
            raise
        finally:
            sender.close()  # so that the other end tells when the child's is closed, by whatever
        try:
            outcome: Outcome = receiver.recv()
        except EOFError:
            process.join()
            if stopped.is_set():
                return Outcome("held", "stopped")
            from wane.sweeps.engines.worker import job_died

            outcome = job_died(job, _obituary(process.exitcode))
        finally:
            process.join()
            running.discard(process)
            receiver.close()
        return outcome

    pool = ThreadPoolExecutor(workers, thread_name_prefix="wane")
    try:
        waiting = {pool.submit(one, job): job for job in jobs}
        for future in as_completed(waiting):
            error = future.exception()
            yield waiting[future], Outcome("failed", str(error)) if error else future.result()
    finally:
        stopped.set()
        pool.shutdown(wait=False, cancel_futures=True)
        while running:  # also those that are just being started
            for process in [process for process in list(running) if process.pid is not None]:
                process.kill()  # a run may be killed at any moment: it goes on from its checkpoint
            time.sleep(0.02)
        pool.shutdown()


def _child(sender: Any, environment: dict[str, str], job: Job, threads: int, retry: bool) -> None:
    from wane.sweeps.engines.worker import do_job

    use_environment(environment)
    if os.name == "posix":
        os.setpgid(0, 0)  # Ctrl-C is for the sweep, which then ends its processes
    end_with_parent()  # killed, the sweep cannot end them
    sender.send(do_job(job, threads=threads, retry=retry))


def _obituary(code: int | None) -> str:
    """How a process ended, in words.

    >>> _obituary(-9)
    'its process was killed by SIGKILL, as it is when memory runs out; the log says how far it was'
    """
    return f"its process {obituary(code)}; the log {'says how far it was' if code and code < 0 else 'may say why'}"
