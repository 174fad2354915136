"""`Signals`: what `wane.signals` returns, one tensor for each signal of the registry, and the rank."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Self, SupportsIndex, overload

from torch import Tensor
from torch.utils import _pytree

from wane.softmax.registry import SIGNALS

__all__ = ["Signals"]


class Signals(tuple[Tensor, ...]):
    """The signals of each sample, in the shape of the labels; NaN (and rank 0) where the label was to be ignored.

    A tuple of tensors in the order of `names`: the signals of `wane.SIGNALS`, then ``rank``. Each is also an attribute
    and an item, `s.cm` or `s["cm"]`.

    `Signals(values)` takes the tensors in that order; `Signals(values, names)` those of other signals.

    >>> import torch
    >>> from wane import signals
    >>> s = signals(torch.tensor([[2.0, 0.0], [1.0, 3.0]]), [0, 0])
    >>> s.accuracy, s["rank"]
    (tensor([1., 0.]), tensor([1, 2]))
    >>> s.map(lambda value: value[:1]).rank
    tensor([1])
    """

    names: tuple[str, ...]

    if TYPE_CHECKING:
        accuracy: Tensor
        loss: Tensor
        cm: Tensor
        tlr: Tensor
        log_tlr: Tensor
        rtlr: Tensor
        ctl: Tensor
        nkl: Tensor
        rank: Tensor

    def __new__(cls, *values: Tensor, names: Iterable[str] | None = None) -> Self:
        """Check that there are as many values as names."""
        self = tuple.__new__(cls, values)
        self.names = (*SIGNALS, "rank") if names is None else tuple(names)
        if len(values) != len(self.names):
            raise ValueError(f"{len(values)} values for {len(self.names)} names: give one for each of "
                             f"{', '.join(self.names)}")  # fmt: skip
        return self

    def __getattr__(self, name: str) -> Tensor:
        # `names` itself is looked up here while an object is being copied
        if name.startswith("__") or name == "names" or name not in self.names:
            raise AttributeError(f"no signal {name!r} here; there are: {', '.join(self.__dict__.get('names', ()))}")
        return self[self.names.index(name)]

    @overload
    def __getitem__(self, key: SupportsIndex | str, /) -> Tensor: ...
    @overload
    def __getitem__(self, key: slice, /) -> tuple[Tensor, ...]: ...
    def __getitem__(self, key: Any, /) -> Any:
        if isinstance(key, str):
            if key not in self.names:
                raise KeyError(f"no signal {key!r} here; there are: {', '.join(self.names)}")
            key = self.names.index(key)
        return super().__getitem__(key)

    def map(self, function: Callable[[Tensor], Tensor]) -> Self:
        """The same names with `function` of each tensor, the rank included."""
        return type(self)(*map(function, self), names=self.names)

    def __repr__(self) -> str:
        return f"Signals({', '.join(f'{name}={value!r}' for name, value in self._asdict().items())})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self.names, tuple(self))

    # What a NamedTuple has: torch's data-parallel helpers and Lightning take apart and rebuild what has these.

    @property
    def _fields(self) -> tuple[str, ...]:
        return self.names

    @classmethod
    def _make(cls, values: Iterable[Tensor]) -> Self:
        return cls(*values)

    def _asdict(self) -> dict[str, Tensor]:
        return dict(zip(self.names, self, strict=True))

    def _replace(self, **values: Tensor) -> Self:
        return type(self)(*(self._asdict() | values).values(), names=self.names)


def _rebuild(names: tuple[str, ...], values: Iterable[Tensor]) -> Signals:
    return Signals(*values, names=names)


_pytree.register_pytree_node(
    Signals,
    lambda s: (list(s), s.names),
    lambda values, names: _rebuild(names, values),
    serialized_type_name="wane.Signals",
)
