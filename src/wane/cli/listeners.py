"""Whoever is told how a run goes, put together: loggers with the figures that they show.

A sweep hands these on by reference, such as ``"wane.cli.listeners:tensorboard"``, to whatever process does the run.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from wane.loggers import LOGGERS, load_logger
from wane.loggers.follow import Follow

__all__ = ["draw_figures", "follow", "references"]


def __getattr__(name: str) -> Callable[[Path], Follow]:
    """Each logger by its name, as a function of the run folder: what a reference stands for."""
    if name not in LOGGERS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return partial(follow, name)


def follow(name: str, folder: Path) -> Follow:
    """The logger of that name, with all figures of the run."""
    return Follow(name, folder, draw_figures)


def references(loggers: Iterable[str]) -> list[str]:
    """The loggers as references; an error says what to install for one.

    >>> references(["tensorbord"])
    Traceback (most recent call last):
    ...
    wane.registry.UnknownNameError: unknown logger 'tensorbord'; did you mean 'tensorboard'? Known: tensorboard, ...
    """
    names = list(dict.fromkeys(loggers))
    for name in names:
        load_logger(name)
    return [f"wane.cli.listeners:{name}" for name in names]


def draw_figures(folder: Path, scratch: Path) -> dict[str, Path]:
    """The figures that can be drawn of one run, as PNG files below `scratch`."""
    from wane.runs.folder import RunFolder
    from wane.views.figures import FIGURES, draw_figure, save_figure

    figures: dict[str, Path] = {}
    for name in FIGURES:
        path = scratch / f"{name}.png"
        try:
            save_figure(draw_figure(name, [RunFolder(folder)], width="page"), path)
        except ValueError:
            continue  # it needs many runs, or what this run did not record
        except Exception as error:
            warnings.warn(f"figure {name} of {folder} is left out ({type(error).__name__}: {error})", stacklevel=2)
            continue
        figures[name] = path
    return figures
