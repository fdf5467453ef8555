# SPDX-License-Identifier: Apache-2.0
"""NumPy arrays to the library and from it."""
from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


def integers(name: str, values: ArrayLike, dtype: Any) -> NDArray[Any]:
    """A flat array of them. Errors: TypeError, ValueError (name, got, allowed)."""
    array = np.asarray(values)
    if array.size == 0:
        return np.empty(0, dtype)
    if array.dtype.kind not in "iu":
        got = array.dtype if array.ndim > 0 else type(values).__name__
        raise TypeError(f"{name}: got {got}, allowed: a list or an array of integers")
    if array.ndim != 1:
        raise ValueError(f"{name}: got {array.ndim} dimensions, allowed: 1")
    bounds = np.iinfo(dtype)
    least, most = int(array.min()), int(array.max())
    if least < bounds.min or most > bounds.max:
        got = least if least < bounds.min else most
        raise ValueError(f"{name}: got {got}, allowed: {bounds.min} to {bounds.max}")
    return np.ascontiguousarray(array, dtype)


def integer(name: str, value: int, most: int = 2**32 - 1, least: int = 0) -> int:
    """ctypes would take any other number modulo 2**32. Errors: TypeError, ValueError."""
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
        raise TypeError(f"{name}: got {value!r}, allowed: an integer")
    if not least <= value <= most:
        raise ValueError(f"{name}: got {value}, allowed: {least} to {most}")
    return int(value)


def pointer(array: NDArray[Any], ctype: Any) -> Any:
    """To its elements; valid as long as the array is."""
    return array.ctypes.data_as(ctypes.POINTER(ctype))


def copy_of(column: Any, *shape: int) -> NDArray[Any]:
    """Of the library's memory."""
    if 0 in shape:
        return np.empty(shape, np.dtype(column._type_))
    return np.ctypeslib.as_array(column, shape).copy()
