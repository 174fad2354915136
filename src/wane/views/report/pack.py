"""Large tables of numbers in a page: four digits each, compressed, and text that no HTML parser can misread."""

from __future__ import annotations

import base64
import json
import math
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["pack", "plain", "script_json", "unpack"]

Array = NDArray[np.float64]

#: Stands for "not evaluated".
MISSING = 0xFFFF


def pack(values: Array, *, top: float = 1.0) -> dict[str, Any]:
    """An array (..., S, K), time second to last, as JSON: 16 bits a number, differences in time, deflated, base64.

    What is at most `top` is kept in steps of 1/10,000, anything greater in steps that let the greatest fit. Signals
    change little from epoch to epoch, so that differences compress well. `templates/scripts/base.js` has the inverse.

    >>> packed = pack(np.array([[0.25, np.nan], [0.5, 1.0]]))
    >>> packed["shape"], packed["step"]
    ([2, 2], 0.0001)
    >>> unpack(packed)
    array([[0.25,  nan],
           [0.5 , 1.  ]])
    """
    finite = np.isfinite(values)
    greatest = float(values[finite].max(initial=0.0))
    step = 1e-4 if greatest <= top else greatest / (MISSING - 1)
    whole = np.where(finite, np.round(np.where(finite, values, 0.0) / step), MISSING).astype(np.uint16)
    # uint16 wraps around, and so do the sums that undo this: MISSING needs no care.
    moved = np.diff(whole, axis=-2, prepend=np.zeros_like(whole[..., :1, :]))
    low, high = (moved & 0xFF).astype(np.uint8), (moved >> 8).astype(np.uint8)
    data = zlib.compress(low.tobytes() + high.tobytes(), 9)
    return {"shape": list(values.shape), "step": step, "data": base64.b64encode(data).decode("ascii")}


def unpack(packed: dict[str, Any]) -> Array:
    """What `pack` packed, to half a step."""
    both = np.frombuffer(zlib.decompress(base64.b64decode(packed["data"])), dtype=np.uint8).astype(np.uint16)
    low, high = both.reshape(2, *packed["shape"])
    whole = np.cumsum(low | high << 8, axis=-2, dtype=np.uint16)
    return np.where(whole == MISSING, np.nan, whole * packed["step"])


def plain(value: Any, digits: int = 4) -> Any:
    """Numbers rounded, NaN as None, arrays as lists: what JSON can hold.

    >>> plain({"a": np.array([0.123456, np.nan]), "b": (1, "x")})
    {'a': [0.1235, None], 'b': [1, 'x']}
    """
    if isinstance(value, dict):
        return {str(key): plain(item, digits) for key, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist(), digits)
    if isinstance(value, list | tuple):
        return [plain(item, digits) for item in value]
    if isinstance(value, float):
        return round(value, digits) if math.isfinite(value) else None
    return value


def script_json(value: Any) -> str:
    r"""JSON for a script element: nothing in it can end the element, or open a comment.

    >>> script_json({"name": "</script><!--"})
    '{"name":"\\u003c/script\\u003e\\u003c!--"}'
    """
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
