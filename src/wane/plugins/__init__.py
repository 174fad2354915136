"""wane in somebody else's loop: Lightning, Hugging Face's Trainer, Avalanche, Mammoth. A framework is a file.

Each reads logits where its framework has them and hands them to a `Recorder`, which keeps the history. No framework is
imported before its file is, and none is needed for another's.
"""

from __future__ import annotations

__all__ = ["missing"]


def missing(plugin: str, error: ModuleNotFoundError) -> ModuleNotFoundError:
    """The error of a plugin whose framework, or something that this needs, is not installed.

    >>> print(missing("lightning", ModuleNotFoundError(name="lightning.pytorch")))
    wane.plugins.lightning needs the package lightning: pip install 'wane[lightning]'
    """
    package = (error.name or plugin).partition(".")[0]
    return ModuleNotFoundError(f"wane.plugins.{plugin} needs the package {package}: pip install 'wane[{plugin}]'")
