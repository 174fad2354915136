"""MLflow: a run on the server MLFLOW_TRACKING_URI, or in MLflow's default store on this machine."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Metric, Param
from mlflow.exceptions import MlflowException

__all__ = ["RunLogger"]

METRICS, PARAMS = 1000, 100  # of one request, at most

#: Unless they are set: a server that is gone costs a run seconds, where MLflow would wait for minutes, and nothing is
#: printed among the results.
DEFAULTS = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}


class RunLogger:
    """A run of the experiment MLFLOW_EXPERIMENT_NAME; settings are its parameters, figures its artifacts."""

    def __init__(self, folder: Path, settings: Mapping[str, Any], *, id: str, step: int) -> None:
        for name, value in DEFAULTS.items():
            os.environ.setdefault(name, value)
        self.client = MlflowClient()
        self.id = id
        self.behind = bool(id)  # it may have steps that are not known to have been sent
        if id:
            self.client.update_run(id, status="RUNNING")
        else:
            self.id = self.client.create_run(_experiment(self.client), run_name=folder.name).info.run_id
            for part in _parts([Param(name, str(value)) for name, value in settings.items()], PARAMS):
                self.client.log_batch(self.id, params=part)
        server = self.client.tracking_uri
        experiment = self.client.get_run(self.id).info.experiment_id
        self.where = f"{server}/#/experiments/{experiment}/runs/{self.id}" if server.startswith("http") else server

    def log_values(self, step: int, values: Mapping[str, float]) -> None:
        """Some requests, each whole or not there: after a restart those that came through are found and left out."""
        now = int(1000 * time.time())
        for part in _parts([Metric(name, value, now, step) for name, value in values.items()], METRICS):
            self.behind = self.behind and self._has(part[-1].key, step)
            if not self.behind:
                self.client.log_batch(self.id, metrics=part)

    def log_summary(self, step: int, values: Mapping[str, float]) -> None:
        """Metrics with one value."""
        self.log_values(step, values)

    def log_figures(self, step: int, figures: Mapping[str, Path]) -> None:
        """Artifacts below `figures`."""
        for path in figures.values():
            self.client.log_artifact(self.id, str(path), "figures")

    def close(self, *, done: bool) -> None:
        """The run is finished, or stopped until it goes on."""
        self.client.set_terminated(self.id, "FINISHED" if done else "KILLED")

    def _has(self, key: str, step: int) -> bool:
        return any(metric.step == step for metric in self.client.get_metric_history(self.id, key))


def _experiment(client: MlflowClient) -> str:
    name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "wane")
    found = client.get_experiment_by_name(name)
    if found is None:
        try:
            return str(client.create_experiment(name))
        except MlflowException:  # another run of the same sweep was quicker
            found = client.get_experiment_by_name(name)
            if found is None:
                raise
    return str(found.experiment_id)


def _parts(items: list[Any], size: int) -> Iterator[list[Any]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
