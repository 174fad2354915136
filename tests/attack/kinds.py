"""The kinds of attack, a row each: what is done, its share of the cases, and how many cases are all of it."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from tests.attack import configs, damage, interruptions, predictions
from tests.attack.bench import Bench


@dataclass(frozen=True)
class Kind:
    """A kind of attack."""

    title: str
    share: float
    case: Callable[[Bench, int, Random], str | None]  # of a number; what went wrong, None if nothing did
    size: Callable[[Bench], int] | None = None  # cases until all moments had their turn; None: there is no end


KINDS: dict[str, Kind] = {
    "kill": Kind("killed at each file operation", 0.14, interruptions.kill_case, interruptions.moments),
    "interrupt": Kind("Ctrl-C at each file operation", 0.06, interruptions.interrupt_case, interruptions.moments),
    "tear": Kind("killed amid a write, or out of room", 0.08, interruptions.tear_case),
    "suspend": Kind("suspended, taken over, woken up", 0.14, interruptions.suspend_case, interruptions.moments),
    "stopped": Kind("a damaged file of a stopped run", 0.20, damage.stopped_case),
    "finished": Kind("a damaged file of a finished run", 0.14, damage.finished_case),
    "config": Kind("random and hostile settings", 0.12, configs.config_case),
    "predictions": Kind("random and foreign prediction files", 0.12, predictions.prediction_case),
}


def cases_of(kind: Kind, bench: Bench, cases: int) -> list[int]:
    """The numbers of the cases, evenly over all moments if they are fewer."""
    size = kind.size(bench) if kind.size else cases
    return list(range(cases)) if cases >= size else [i * size // cases for i in range(cases)]


def attempt(name: str, bench: Bench, index: int, seed: int) -> str | None:
    """Do one case; what went wrong, None if nothing did."""
    return KINDS[name].case(bench, index, Random(f"{seed}:{name}:{index}"))
