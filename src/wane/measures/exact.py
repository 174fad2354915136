"""Metrics whose sums are exact: always float64, and never half of a batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from torch import Tensor
from torchmetrics import Metric

__all__ = ["ExactMetric"]

#: What `Metric.forward` changes while it looks at one batch.
_PASSING = (
    "_update_count", "_computed", "_forward_cache", "_cache", "_to_sync", "_should_unsync", "_is_synced",
    "_enable_grad", "compute_on_cpu",
)  # fmt: skip


class ExactMetric(Metric):
    """A metric whose state keeps its type however a module around it is cast, and its value when an update fails.

    An `update` must check everything before it adds anything. Its count, and the state while `forward` looks at one
    batch by itself, are taken care of here.
    """

    def _apply(self, fn: Callable[[Tensor], Tensor], exclude_state: Sequence[str] = "") -> Any:
        """Follow a module to another device, but not to another type: in half precision the sums would be wrong."""

        def moved(tensor: Tensor) -> Tensor:
            there = fn(tensor)
            return there if there.dtype == tensor.dtype else tensor.to(there.device)

        return super()._apply(moved, exclude_state)

    def _wrap_update(self, update: Callable[..., None]) -> Callable[..., None]:
        counted = super()._wrap_update(update)

        @wraps(update)
        def update_or_nothing(*args: Any, **kwargs: Any) -> None:
            count, computed = self._update_count, self._computed
            try:
                counted(*args, **kwargs)
            except BaseException:
                self._update_count, self._computed = count, computed
                raise

        return update_or_nothing

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Add a batch and return its own value; a batch that fails leaves the metric as it was."""
        state = {name: getattr(self, name) for name in self._defaults}  # `reset` makes new tensors: no copy is needed
        passing = {name: getattr(self, name) for name in _PASSING}
        try:
            return super().forward(*args, **kwargs)
        except BaseException:
            for name, value in (state | passing).items():
                setattr(self, name, value)
            raise

    def _load_from_state_dict(  # the signature is torch's
        self, state_dict: dict[str, Any], prefix: str, local_metadata: dict[str, Any], strict: bool,
        missing_keys: list[str], unexpected_keys: list[str], error_msgs: list[str],
    ) -> None:  # fmt: skip
        """Take a state of the same types and shapes; one that was saved in half precision has lost its digits."""
        for key in self._defaults:
            mine, given = getattr(self, key), state_dict.get(prefix + key)
            if given is None:
                continue
            if given.dtype != mine.dtype or given.shape != mine.shape:
                state_dict.pop(prefix + key)
                error_msgs.append(
                    f"{prefix}{key} is {given.dtype} of shape {tuple(given.shape)}, not {mine.dtype} of shape "
                    f"{tuple(mine.shape)}: save the state of the same metric, and do not cast it"
                )
            else:  # a copy: an update would change the tensors of the dict, too
                state_dict[prefix + key] = given.detach().clone().to(mine.device)
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )
