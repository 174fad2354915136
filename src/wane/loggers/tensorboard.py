"""TensorBoard: event files in the run folder itself, so that `tensorboard --logdir runs` shows runs by their names."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.hparams import summary_v2 as hyper_parameters  # its `api` would need TensorFlow
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from wane.softmax.signals import SIGNALS

__all__ = ["RunLogger"]

#: What the tab of hyper-parameters compares; of all series it would be thousands.
COMPARED = [f"summary/{signal}/{name}" for name in ("average", "forgetting") for signal in SIGNALS]


class RunLogger:
    """One event a step, whole or not there; a sitting of the run begins a new file."""

    id = ""

    def __init__(self, folder: Path, settings: Mapping[str, Any], *, id: str, step: int) -> None:
        self.where = f"tensorboard --logdir {folder.parent}"
        self.writer = EventFileWriter(str(folder))
        # TensorBoard drops what earlier files have from this step on: they may be ahead of what is known to be sent.
        self._write(step + 1, session_log=SessionLog(status=SessionLog.START))
        if step < 0:
            metrics = [hyper_parameters.Metric(tag) for tag in COMPARED]
            columns = [hyper_parameters.HParam(name) for name in settings]
            self._write(0, summary=hyper_parameters.hparams_config_pb(columns, metrics))
            self._write(0, summary=hyper_parameters.hparams_pb(dict(settings), trial_id=folder.name))

    def log_values(self, step: int, values: Mapping[str, float]) -> None:
        """All values of a step as one event, and on the disk."""
        self._write(step, summary=Summary(value=[Summary.Value(tag=t, simple_value=v) for t, v in values.items()]))
        self.writer.flush()

    def log_summary(self, step: int, values: Mapping[str, float]) -> None:
        """One point for each value, after the last step: there it is dropped should it be sent again."""
        self.log_values(step + 1, values)

    def log_figures(self, step: int, figures: Mapping[str, Path]) -> None:
        """The PNG files as they are, where the summary is."""
        from PIL import Image

        for name, path in figures.items():
            with Image.open(path, formats=["PNG"]) as picture:
                width, height = picture.size
            image = Summary.Image(width=width, height=height, colorspace=4, encoded_image_string=path.read_bytes())
            self._write(step + 1, summary=Summary(value=[Summary.Value(tag=f"figures/{name}", image=image)]))
        self.writer.flush()

    def close(self, *, done: bool) -> None:
        """Close the file."""
        self.writer.close()

    def _write(self, step: int, **what: Any) -> None:
        self.writer.add_event(Event(wall_time=time.time(), step=step, **what))
