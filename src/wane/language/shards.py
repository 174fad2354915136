"""Parts of the texts on many machines: handed to the engines that sweeps use, done again where a worker died.

On the same kind of processor, with as many threads, a part has the same numbers wherever it is scored: so has the file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from wane.errors import RunError
from wane.language.token_files import AboutTokens, RunParts, TokenSettings, Work, do_parts
from wane.sweeps.engines import Job, Options, Outcome, load_engine

__all__ = ["by_engine", "score_shard"]

#: Jobs for each worker: a job loads the model, and one that dies costs what it had not written.
JOBS_EACH = 4
#: Rounds in which nothing more was done before it is given up.
PATIENCE = 2


def by_engine(engine: str, options: Options | None = None) -> RunParts:
    """Who does the parts: an engine of `wane.sweeps`, by name."""
    run_all, options = load_engine(engine), options or Options()

    def run(work: Work, folder: Path, missing: Callable[[], dict[int, range]], told: Callable[[], None]) -> None:
        if work.model.source is None or (work.against is not None and work.against.source is None):
            raise ValueError(
                f"engine {engine!r} needs models that other processes can load: give their folders or names"
            )
        import numpy as np

        np.save(folder / "deciles.npy", work.common)
        idle, note = 0, ""
        while left := missing():
            for _, outcome in run_all(_jobs(work, folder, left, (options.workers or 2) * JOBS_EACH), options):
                note = outcome.note or note
                told()
            idle = idle + 1 if len(missing()) == len(left) else 0
            if idle >= PATIENCE:
                raise RunError(f"{len(left)} parts of the texts could not be scored ({note}): mend that and run the "
                               "same command again; what was scored is kept")  # fmt: skip

    return run


def score_shard(settings: dict[str, Any], place: str, *, threads: int | None = None, **_: Any) -> Outcome:
    """What a worker does: load the models, score its parts, leave them in the folder of parts."""
    import numpy as np

    from wane.language.causal_model import load_model
    from wane.sweeps.engines.worker import use_threads

    use_threads(threads)
    try:
        model, against = (None if s is None else load_model(**s) for s in (settings["model"], settings["against"]))
        assert model is not None
        about = AboutTokens(**settings["about"])
        if model.fingerprint != about.fingerprint:
            raise ValueError(f"{model.name} is another model than it was: run the command again")
        files = [(name, Path(path)) for name, path in settings["files"]]
        how = TokenSettings(**settings["settings"] | {"keep": tuple(settings["settings"]["keep"])})
        work = Work(model, against, files, how, about, np.load(Path(place) / "deciles.npy"))
        do_parts(work, Path(place), {number: range(a, b) for number, a, b in settings["parts"]})
    except (ValueError, OSError, RunError) as error:
        return Outcome("failed", " ".join(str(error).split()))
    return Outcome("done")


def _jobs(work: Work, folder: Path, left: dict[int, range], count: int) -> Sequence[Job]:
    """The parts that are left, in about so many jobs of neighbours."""
    numbers = sorted(left)
    size = -(-len(numbers) // count)
    shared = {
        "model": work.model.source,
        "against": None if work.against is None else work.against.source,
        "files": [[name, str(path.resolve())] for name, path in work.files],
        "settings": asdict(work.settings),
        "about": asdict(work.about),
    }
    jobs = []
    for i in range(0, len(numbers), size):
        parts = [[n, left[n].start, left[n].stop] for n in numbers[i : i + size]]
        jobs.append(Job(f"parts {parts[0][0]} to {parts[-1][0]}", {**shared, "parts": parts}, str(folder.resolve()), 0,
                        work="wane.language.shards:score_shard"))  # fmt: skip
    return jobs
