"""A function of logits and labels as one compiled kernel for every batch size and number of classes.

Compiling takes seconds to half a minute, which a script that scores one batch never earns back. So by default a kernel
is compiled only after its plain form has cost this process as much time as compiling would (`Budget`): the total is
then at most twice the best possible, whatever comes later. A warning says when compiling begins, and when it fails.

`torch.compile` works everywhere, but its wrappers and guards cost 100 to 200 microseconds a call, a third of what 8,192
rows of 100 classes need. On the CPU the graph is therefore traced once and given to Inductor itself; what its kernel
takes for granted is the key under which it is kept.
"""

import logging
import time
import warnings
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import torch
from torch import Tensor

#: Smaller inputs gain next to nothing from a compiled kernel, and are not counted towards compiling one.
COMPILE_ELEMENTS = 2**22
#: What compiling is taken to cost, in seconds, until a kernel was compiled in this process; then it is known.
COMPILE_SECONDS = 30.0
#: Up to here a sum over classes in float32 keeps its digits: two kernels, for fewer classes and for more.
FEW_CLASSES = 1024

Function = Callable[..., tuple[Tensor, ...]]

log = logging.getLogger(__name__)

# Functions and constants of this package stay what they were when compiled: no need to check them at each call.
_OPTIONS: dict[str, Any] | None = (
    {"guard_filter_fn": torch.compiler.skip_guard_on_globals_unsafe}
    if hasattr(torch.compiler, "skip_guard_on_globals_unsafe")
    else None
)


class Budget:
    """What plain kernels have cost this process so far, by key, and what compiling one costs."""

    def __init__(self) -> None:
        self.spent: dict[Hashable, float] = {}
        self.compiling: float | None = None
        self.clock: Callable[[], float] = time.perf_counter

    def used_up(self, key: Hashable) -> bool:
        """Whether the plain kernel has cost as much as compiling is expected to."""
        expected = COMPILE_SECONDS if self.compiling is None else self.compiling
        return self.spent.get(key, 0.0) >= expected


class Kernel(NamedTuple):
    """A function to be compiled: `key` tells it apart from others, `run` computes it."""

    key: Hashable
    run: Function


_kernels: dict[Hashable, Function] = {}
_failed: set[Hashable] = set()
_budget = Budget()


def may_compile(logits: Tensor, compiled: bool | None) -> bool:
    """Whether a compiled kernel is a possibility at all: by the input's size, unless the caller decides."""
    if torch.compiler.is_compiling() or (logits.requires_grad and torch.is_grad_enabled()):
        return False
    return logits.numel() >= COMPILE_ELEMENTS if compiled is None else compiled


def run_kernel(
    kernel: Kernel,
    plain: Callable[[], tuple[Tensor, ...]],
    logits: Tensor,
    labels: Tensor,
    *constants: Tensor,
    at_once: bool,
) -> tuple[Tensor, ...]:
    """`kernel(logits, labels, *constants)`, compiled where that pays, else `plain()`, which computes the same.

    Args:
        kernel: what to compile.
        plain: the same without a compiler.
        logits: (N, C).
        labels: (N,).
        constants: further tensors.
        at_once: compile now; otherwise once the plain form has cost as much as compiling would.
    """
    traceable = logits.device.type == "cpu" and len(logits) > 1 and logits.is_contiguous() and labels.is_contiguous()
    key: Hashable = kernel.key
    if traceable:
        key = (kernel.key, logits.dtype, logits.shape[1] <= FEW_CLASSES, torch.get_num_threads())
    if key not in _failed and (key in _kernels or at_once or _budget.used_up(key)):
        result = _run_compiled(kernel.run, key, traceable, logits, labels, *constants, announce=not at_once)
        if result is not None:
            return result
    start = _budget.clock()
    result = plain()
    _budget.spent[key] = _budget.spent.get(key, 0.0) + _budget.clock() - start
    return result


def _run_compiled(
    function: Function, key: Hashable, traceable: bool, logits: Tensor, *rest: Tensor, announce: bool
) -> tuple[Tensor, ...] | None:
    """The compiled kernel's result; None if it cannot be compiled or run, and then this kernel is not tried again."""
    new = key not in _kernels
    if new and announce:
        warnings.warn(
            f"wane compiles a kernel for its signals now, as the plain one has taken {_budget.spent[key]:.0f} s: this "
            "takes up to half a minute, and makes the calls after it several times faster. "
            "Pass compiled=False to signals to do without",
            RuntimeWarning,
            stacklevel=2,
        )
    start = _budget.clock()
    try:
        with torch.no_grad():
            if new:
                _kernels[key] = _traced(function, logits, *rest[1:]) if traceable else _guarded(function)
            result = _kernels[key](logits, *rest)
    except Exception as error:
        _kernels.pop(key, None)
        _failed.add(key)
        reason = (str(error).strip().splitlines() or [""])[0][:200]
        warnings.warn(
            f"torch.compile does not work for logits such as these ({type(error).__name__}: {reason}): wane goes on "
            "with the plain kernel, which gives the same numbers to rounding and takes longer",
            RuntimeWarning,
            stacklevel=2,
        )
        log.debug("the compiler's error in full", exc_info=error)
        return None
    if new:
        _budget.compiling = _budget.clock() - start
    return result


def _guarded(function: Function) -> Function:
    return torch.compile(function, dynamic=True, options=_OPTIONS)


def _traced(function: Function, logits: Tensor, *constants: Tensor) -> Function:
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
    except Exception as error:  # a young interface, which may change from one torch to the next
        log.debug("Inductor does not accept the graph, so torch.compile takes over: %s", error)
        return _guarded(function)
