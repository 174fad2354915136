"""What the tools have of a run, read back with their own readers: (series, step) -> values, in the order of writing."""

import json
import struct
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

NAMES = ["cat", "a b/c", "#", "3"]  # as users have them
LABELS = ["class_000_cat", "class_001_a_b_c", "class_002", "class_003"]


class Read(NamedTuple):
    points: dict[tuple[str, int], list[float]]
    settings: dict[str, Any]
    figures: dict[str, bytes]
    final: dict[str, float]


def points_of(folder):
    """What must be there: from the table of the run, by a way of its own."""
    signals = ("accuracy", "loss", "cm", "tlr", "log_tlr", "rtlr", "ctl", "nkl")
    table = pl.read_parquet(folder / "history.parquet").unpivot(
        signals, index=["step", "split", "class", "class_task", "n"], variable_name="signal"
    )
    mean = ((pl.col("value") * pl.col("n")).sum() / pl.col("n").sum()).alias("value")
    points = {}
    for row in table.iter_rows(named=True):
        points[f"{row['split']}_{row['signal']}/{LABELS[row['class']]}", row["step"]] = row["value"]
    for row in table.group_by("step", "split", "signal").agg(mean).iter_rows(named=True):
        points[f"{row['split']}/{row['signal']}/mean", row["step"]] = row["value"]
    for row in table.group_by("step", "split", "signal", "class_task").agg(mean).iter_rows(named=True):
        points[f"{row['split']}/{row['signal']}/task_{row['class_task'] + 1}", row["step"]] = row["value"]
    return points


def final_of(folder):
    """The summary, under its names in the tools."""
    summary = json.loads((folder / "summary.json").read_text())
    final = {
        f"summary/{setting}{signal}/{name}": value
        for setting, key in (("", "metrics"), ("task_incremental/", "task_incremental"))
        for signal, values in summary[key].items()
        for name, value in values.items()
        if value is not None
    }
    return final | {"summary/steps": summary["steps"], "summary/seconds": summary["seconds"]}


def read_tensorboard(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    found = EventAccumulator(str(folder), size_guidance={"scalars": 0, "images": 0}).Reload()
    points, final = defaultdict(list), {}
    for tag in found.Tags()["scalars"]:
        for event in found.Scalars(tag):
            points[tag, event.step].append(event.value)
        if tag.startswith("summary/"):
            ((_, last),) = [key for key in points if key[0] == tag]
            (final[tag],) = points.pop((tag, last))
    content = found.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    settings = HParamsPluginData.FromString(content).session_start_info.hparams
    values = {name: getattr(value, value.WhichOneof("kind")) for name, value in settings.items()}
    figures = {tag: found.Images(tag)[0].encoded_image_string for tag in found.Tags()["images"]}
    return Read(points, values, figures, final)


def read_wandb(folder):
    points, settings, figures, final = defaultdict(list), {}, {}, {}
    ids = set()
    for file in sorted(folder.glob("wandb/offline-run-*/run-*.wandb")):
        for record in wandb_records(file):
            if record.WhichOneof("record_type") == "run":
                ids.add(record.run.run_id)
                settings |= {item.key: json.loads(item.value_json) for item in record.run.config.update}
            for item in record.history.item:
                name, value = item.nested_key, json.loads(item.value_json)
                if len(name) == 1 and not name[0].startswith("_"):
                    points[name[0], record.history.step.num].append(value)
                elif name[1:] == ["path"]:
                    figures[name[0]] = (file.parent / "files" / value).read_bytes()
            final |= {item.key: json.loads(item.value_json) for item in record.summary.update if item.key}
    assert len(ids) == 1, "all sittings are one run"
    return Read(points, settings, figures, {name: v for name, v in final.items() if name.startswith("summary/")})


def wandb_records(path):
    """The package has a writer of this format and no reader: a log as LevelDB's, of W&B's own messages."""
    from wandb.proto.wandb_internal_pb2 import Record

    data, at, whole = path.read_bytes(), 7, b""
    assert data.startswith(b":W&B")
    while at + 7 <= len(data):
        if 32768 - at % 32768 < 7:  # the end of a block, too short for a header
            at += 32768 - at % 32768
            continue
        _, length, kind = struct.unpack("<IHB", data[at : at + 7])
        whole += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # all of a message, or its last part
            yield Record.FromString(whole)
            whole = b""


def read_mlflow(folder):
    from mlflow import MlflowClient

    client, run_id = MlflowClient(), json.loads((folder / "logged.mlflow.json").read_text())["id"]
    run = client.get_run(run_id)
    points, final = defaultdict(list), {}
    for name, value in run.data.metrics.items():
        if name.startswith("summary/"):
            final[name] = value
        else:
            for metric in client.get_metric_history(run_id, name):
                points[name, metric.step].append(metric.value)
    figures = {}
    for artifact in client.list_artifacts(run_id, "figures"):
        local = Path(client.download_artifacts(run_id, artifact.path))
        figures[artifact.path.removesuffix(".png")] = local.read_bytes()
    return Read(points, run.data.params, figures, final)


READERS = {"tensorboard": read_tensorboard, "wandb": read_wandb, "mlflow": read_mlflow}
