"""Data sets, their division into a stream of tasks, and whole-batch augmentation on the device.

>>> from wane.streams import load_dataset, make_stream
>>> stream = make_stream(load_dataset("glyphs"), tasks=5)
>>> len(stream), stream[1].classes[:3], len(stream[1].train)
(5, (20, 21, 22), 2000)
>>> [(task.name, len(task.train)) for task in make_stream(load_dataset("glyphs"), kind="domains")]
[('Sans', ...), ('Mono', ...), ('Serif', ...)]
"""

from wane.streams.batches import crop_and_flip, eval_batch, normalise
from wane.streams.dataset import (
    DataError,
    Dataset,
    Split,
    at_resolution,
    box_filter,
    channel_statistics,
    first_per_class,
    with_holdout,
)
from wane.streams.datasets import DATASETS, Source, find_dataset, load_dataset, reduced
from wane.streams.fetch import Archive, data_root
from wane.streams.fingerprint import dataset_fingerprint, fingerprint_folder
from wane.streams.own_data import from_arrays, from_folder
from wane.streams.stream import Stream, Task, make_stream
from wane.streams.views import strong_views

__all__ = [
    "DATASETS",
    "Archive",
    "DataError",
    "Dataset",
    "Source",
    "Split",
    "Stream",
    "Task",
    "at_resolution",
    "box_filter",
    "channel_statistics",
    "crop_and_flip",
    "data_root",
    "dataset_fingerprint",
    "eval_batch",
    "find_dataset",
    "fingerprint_folder",
    "first_per_class",
    "from_arrays",
    "from_folder",
    "load_dataset",
    "make_stream",
    "normalise",
    "reduced",
    "strong_views",
    "with_holdout",
]
