"""The command that corrects saved predictions, and what score and compare say of a correction."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from wane.cli.output import say

if TYPE_CHECKING:
    from wane.predictions.recoverable import Recoverable

__all__ = ["as_json", "correct", "recoverable_of"]


def correct(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Logits or probabilities, and labels, to correct.")],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="OUT.NPZ", help="The corrected predictions to write.")],
    fit: Annotated[
        str | None,
        typer.Option(metavar="FEW", help="Labelled rows of the same model to fit on. Default: FILE, cross-fitted."),
    ] = None,
    signal: Annotated[str, typer.Option(help="Fit by this signal: nkl, loss, ctl, accuracy ...")] = "nkl",
    by: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="One number for each group of classes in this column, such as its task."),
    ] = None,
) -> None:
    """Add to the logits of each class, or group, the number under which a few labelled rows look best."""
    import numpy as np

    from wane.predictions.predictions import read_predictions
    from wane.predictions.recoverable import as_logits, class_groups
    from wane.predictions.recoverable import correct as corrected
    from wane.softmax.signals import signals

    if out.suffix.lower() != ".npz":
        raise ValueError(f"{out} is no .npz: give a file name that ends in .npz")
    rows, few = read_predictions(file), None if fit is None else read_predictions(fit)
    groups = None
    if by is not None:
        source = rows if few is None or by not in few.columns else few
        groups = class_groups(source, [by])
        if groups is None:
            known = ", ".join(source.columns) or "none"
            raise ValueError(f"column {by!r} does not put each class in one of several groups: the columns of "
                             f"{source.path} are {known}")  # fmt: skip
    fixed, offsets = corrected(rows, few, groups=groups, by=signal)
    before, after = (100 * float(signals(z, rows.labels).accuracy.double().mean())
                     for z in (as_logits(rows), as_logits(fixed)))  # fmt: skip
    columns: dict[str, Any] = {"logits": as_logits(fixed).numpy(), "labels": fixed.labels.numpy()}
    columns |= {} if offsets is None else {"offsets": offsets.numpy()}
    columns |= {} if fixed.class_names is None else {"class_names": np.array(fixed.class_names)}
    columns |= {} if fixed.ids is None else {"ids": np.array(fixed.ids)}
    np.savez(out, **columns)
    how = "cross-fitted: each fifth of the rows by the others" if fit is None else f"fitted on {len(few or ()):,} rows"
    say(f"accuracy {before:.1f} % -> {after:.1f} % ({how}); wrote {out}", err=True)
    source = few or rows
    names, present = source.class_names or range(source.num_classes), set(source.labels.tolist())
    without = [str(name) for c, name in enumerate(names) if c not in present]
    if groups is None and without:
        named = ", ".join(without[:5]) + (", ..." if len(without) > 5 else "")
        say(f"{source.path} has no row of {len(without)} of {source.num_classes} classes ({named}): their logits are "
            "as they were.", err=True)  # fmt: skip


def recoverable_of(file: str, by: Sequence[str] | None) -> Recoverable | None:
    """What a correction would bring back of a file; None where it holds no outputs, or too few rows to tell.

    One number for each group, where the columns of `by` put every class in one; else one for each class.
    """
    from wane.predictions.reading import read_outputs
    from wane.predictions.recoverable import class_groups, recoverable

    try:
        outputs = read_outputs(file)
        if outputs is None:
            return None
        return recoverable(outputs, groups=class_groups(outputs, by) if by else None)
    except ValueError:  # too few rows, or of one class: the file was read and scored before, so it is sound
        return None


def as_json(found: Recoverable | None) -> dict[str, Any] | None:
    """For --json."""
    from dataclasses import asdict

    return None if found is None else {**asdict(found), "points": found.points, "sentence": found.sentence}
