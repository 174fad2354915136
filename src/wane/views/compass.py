"""The CLEVA-Compass (Mundt et al. 2022, arXiv:2110.03331) of some runs: what their methods assume, what they report.

The inner level says how far a method relies on supervision for each of eleven things: 0, it does not do this at all;
1, supervised; 2, unsupervised. The outer level says for fifteen quantities whether they are reported. Both are derived:
the inner from the config and from what the method's class says of itself, the outer from what is in the run folder.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from wane.runs.config import Config
from wane.runs.folder import RunFolder
from wane.runs.identity import Method, method_of
from wane.views.comparable_runs import distinct_titles
from wane.views.observations import has_history
from wane.views.summaries import SETTINGS

__all__ = ["COLOURS", "INNER", "OUTER", "cleva_json", "compass_entries"]

#: In the order in which the authors' generator draws them.
INNER = (
    "multiple_models", "federated", "online", "open_world", "multiple_modalities", "active_data_query",
    "task_order_discovery", "task_agnostic", "episodic_memory", "generative", "uncertainty",
)  # fmt: skip
OUTER = (
    "compute_time", "mac_operations", "communication", "forgetting", "forward_transfer", "backward_transfer",
    "openness", "parameters", "memory", "stored_data", "generated_data", "optimization_steps", "per_task_metric",
    "task_order", "data_per_task",
)  # fmt: skip
#: The colours that the generator knows.
COLOURS = ("magenta", "blue", "orange", "green", "cyan", "brown", "purple", "teal", "lime", "pink", "lightgray")


def compass_entries(runs: Sequence[RunFolder]) -> list[dict[str, Any]]:
    """An entry for each method of the runs: colour, label, inner and outer level.

    A quantity counts as reported if every run of the method has it; runs that are not done are left out.
    """
    done = [run for run in runs if run.summary is not None]
    if not done:
        raise ValueError(f"none of {len(runs)} runs is done: the compass says what finished runs report")
    titles = distinct_titles(method_of(run.config) for run in done)
    groups: dict[Method, list[RunFolder]] = {method: [] for method in titles}
    for run in done:
        groups[method_of(run.config)].append(run)
    if len(groups) > len(COLOURS):
        raise ValueError(f"{len(groups)} methods, but the compass has colours for {len(COLOURS)}: choose some runs, or "
                         "one method with --method")  # fmt: skip
    entries = []
    for colour, (method, own) in zip(COLOURS, groups.items(), strict=False):
        reported = [_outer(run) for run in own]
        outer = {name: all(found[name] for found in reported) for name in OUTER}
        entries.append(
            {"color": colour, "label": titles[method], "inner_level": _inner(own[0]), "outer_level": outer}
        )  # fmt: skip
    return entries


def cleva_json(runs: Sequence[RunFolder]) -> str:
    """The file that the authors' generator takes, labels escaped for TeX."""
    entries = [entry | {"label": re.sub(r"([_&%#$])", r"\\\1", entry["label"])} for entry in compass_entries(runs)]
    return json.dumps({"entries": entries}, indent=2, ensure_ascii=False) + "\n"


def _inner(run: RunFolder) -> dict[str, int]:
    config, learner = run.config, _learner(run.config)
    found = dict.fromkeys(INNER, 0)
    # every method here learns from labels: what it updates at once, it updates by them
    found["online"] = int(config.learner.epochs == 1)
    # which rows are replayed follows a signal of their labels
    found["active_data_query"] = int(config.learner.trend is not None)
    found["task_agnostic"] = 2 if "class" in run.about.settings else 0
    if run.about.has_memory:
        policy = getattr(learner, "policy", None) or config.memory.policy
        found["episodic_memory"] = 2 if policy == "reservoir" else 1
    said: Mapping[str, int] = getattr(learner, "compass", {})
    for name, level in said.items():
        if name not in INNER or level not in (0, 1, 2):
            raise ValueError(f"{config.learner.name} says compass[{name!r}] = {level!r} of itself: name one of "
                             f"{', '.join(INNER)}, with 0, 1 or 2")  # fmt: skip
        found[name] = level
    return found


def _outer(run: RunFolder) -> dict[str, bool]:
    summary: dict[str, Any] = run.summary or {}
    key = SETTINGS["class" if "class" in run.about.settings else "task"][0]
    measured = (summary.get(key) or {}).get("accuracy", {})
    costs = (run.history.costs if has_history(run) else None) or {}
    return {
        **dict.fromkeys(OUTER, False),
        "compute_time": "seconds" in summary,
        "mac_operations": "operations" in costs,
        **{name: measured.get(name) is not None for name in ("forgetting", "forward_transfer", "backward_transfer")},
        "parameters": "parameters" in costs,
        "memory": "memory_bytes" in costs and "model_bytes" in costs,
        "stored_data": "memory_rows" in costs,
        "optimization_steps": "steps" in summary,
        "per_task_metric": bool(summary.get("accuracy_matrix")),
        "task_order": bool(run.about.task_names),
        "data_per_task": "data_rows" in costs,
    }


def _learner(config: Config) -> Any:
    """The class of the method; None if it is not installed here."""
    from wane.learners import LEARNERS

    try:
        return LEARNERS.find(config.learner.name)
    except (ImportError, ValueError):
        return None
