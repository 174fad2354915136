"""A function of logits and labels as one compiled kernel for every batch size and number of classes.

`torch.compile` does it anywhere, but its wrappers and guards cost 100 to 200 microseconds a call, a third of
what 8,192 rows of 100 classes need. On the CPU the graph is therefore traced once and given to Inductor itself; what
its kernel takes for granted is the key under which it is kept.
"""

import logging
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

#: Inputs from here on repay the seconds that the first call of a compiled kernel costs.
COMPILE_ELEMENTS = 2**22
#: Up to here a sum over classes in float32 keeps its digits: two kernels, for fewer classes and for more.
FEW_CLASSES = 1024

R = TypeVar("R", bound=tuple[Tensor, ...])

log = logging.getLogger(__name__)

_kernels: dict[Any, Callable[..., Any]] = {}
_compiler_failed = False

# Functions and constants of this package stay what they were when compiled: not to be asked again at each call.
_OPTIONS: dict[str, Any] | None = (
    {"guard_filter_fn": torch.compiler.skip_guard_on_globals_unsafe}
    if hasattr(torch.compiler, "skip_guard_on_globals_unsafe")
    else None
)


def repays_compiling(logits: Tensor, compiled: bool | None) -> bool:
    """Whether to try the compiled kernel: a matter of the input's size, unless the caller decides."""
    if torch.compiler.is_compiling() or (logits.requires_grad and torch.is_grad_enabled()):
        return False
    return logits.numel() >= COMPILE_ELEMENTS if compiled is None else compiled


def try_compiled(function: Callable[..., R], logits: Tensor, labels: Tensor, *constants: Tensor) -> R | None:
    """`function(logits, labels, *constants)` as one kernel; None without a compiler, tried once."""
    global _compiler_failed
    if _compiler_failed:
        return None
    traceable = logits.device.type == "cpu" and len(logits) > 1 and logits.is_contiguous() and labels.is_contiguous()
    key: Any = function
    if traceable:
        key = (function, logits.dtype, logits.shape[1] <= FEW_CLASSES, torch.get_num_threads())
    try:
        with torch.no_grad():
            if key not in _kernels:
                _kernels[key] = _traced(function, logits, *constants) if traceable else _guarded(function)
            result: R = _kernels[key](logits, labels, *constants)
        return result
    except Exception as error:
        log.debug("torch.compile does not work here, going on without it: %s", error)
        _compiler_failed = True
        return None


def _guarded(function: Callable[..., R]) -> Callable[..., R]:
    return torch.compile(function, dynamic=True, options=_OPTIONS)


def _traced(function: Callable[..., R], logits: Tensor, *constants: Tensor) -> Callable[..., R]:
    """Compiled without Dynamo, for contiguous logits like these of any size."""
    from torch import _inductor
    from torch.fx.experimental.proxy_tensor import make_fx

    if not hasattr(_inductor, "standalone_compile"):  # before torch 2.8
        return _guarded(function)
    # Traced on sizes of our own: the compiler takes equal sizes for the same one, and small ones for not worth threads.
    rows, classes = (8191, 100) if logits.shape[1] <= FEW_CLASSES else (1021, 4 * FEW_CLASSES)
    example = (logits.new_empty(rows, classes), torch.empty(rows, dtype=torch.int64), *constants)
    try:
        graph = make_fx(lambda *inputs: tuple(function(*inputs)), tracing_mode="symbolic")(*example)
        return _inductor.standalone_compile(graph, list(example))
    except Exception as error:  # a young interface: another torch may want it otherwise
        log.debug("Inductor does not take the graph, so torch.compile does: %s", error)
        return _guarded(function)
