"""Data sets, their split into a stream of tasks, and whole-batch augmentation on the device.

>>> from wane.streams import ClassIncremental, load_dataset
>>> stream = ClassIncremental(load_dataset("glyphs"), tasks=5)
>>> len(stream), stream[1].classes[:3], len(stream[1].train)
(5, (20, 21, 22), 2000)
"""

from wane.streams.batches import crop_and_flip, eval_batch, normalise, train_batch
from wane.streams.class_incremental import ClassIncremental, Task
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
from wane.streams.fetch import Archive, data_root
from wane.streams.own_data import from_arrays, from_folder
from wane.streams.registry import DATASETS, Source, load_dataset

__all__ = [
    "DATASETS",
    "Archive",
    "ClassIncremental",
    "DataError",
    "Dataset",
    "Source",
    "Split",
    "Task",
    "at_resolution",
    "box_filter",
    "channel_statistics",
    "crop_and_flip",
    "data_root",
    "eval_batch",
    "first_per_class",
    "from_arrays",
    "from_folder",
    "load_dataset",
    "normalise",
    "train_batch",
    "with_holdout",
]
