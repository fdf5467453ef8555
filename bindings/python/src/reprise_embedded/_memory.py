# SPDX-License-Identifier: Apache-2.0
"""Memory as a graph manager is told of it, from whatever holds an array."""
from __future__ import annotations

import ctypes
from typing import Any, Tuple, Union

import numpy as np
from numpy.typing import DTypeLike, NDArray

from . import _dlpack
from .device import Buffer, Device


class Memory:
    """Bytes at an address of a device. It owns nothing; other libraries take it through DLPack."""

    dtype = np.dtype(np.uint8)

    def __init__(
        self, address: int, nbytes: int, dlpack_device: Tuple[int, int], keeps: Any = None
    ) -> None:
        self.address = address  # for kernels
        self.nbytes = nbytes
        self.shape = (nbytes,)
        self._dlpack_device = dlpack_device
        self._keeps = keeps

    def numpy(self, dtype: DTypeLike = np.uint8) -> NDArray[Any]:
        """The same memory, flat. Errors: TypeError where the host does not address it."""
        if self._dlpack_device[0] not in _dlpack.HOST_TYPES:
            raise TypeError("memory: that of a GPU has no address here; allowed: __dlpack__")
        kind = np.dtype(dtype)
        bytes_of_all = self.nbytes - self.nbytes % kind.itemsize
        return np.frombuffer((ctypes.c_char * bytes_of_all).from_address(self.address), kind)

    def __dlpack__(self, *, stream: Any = None) -> Any:
        return _dlpack.capsule_of(self, self.address, self._dlpack_device)

    def __dlpack_device__(self) -> Tuple[int, int]:
        return self._dlpack_device


# The last stands for anything with __dlpack__.
MemoryLike = Union[Buffer, NDArray[Any], Memory, Any]


def memory_of(device: Device, name: str, value: MemoryLike) -> Memory:
    """Of an array that is dense, and that `device` addresses; keeps it.

    Errors: TypeError what it is or where it lies, ValueError how it lies.
    """
    if isinstance(value, Buffer):
        where = value.__dlpack_device__()
        memory = Memory(value.device_address, value.nbytes, where, value)
    elif isinstance(value, np.ndarray):
        if not value.flags.c_contiguous or not value.flags.writeable:
            raise ValueError(f"{name}: got an array with gaps or read-only, allowed: neither")
        memory = Memory(value.ctypes.data, value.nbytes, _dlpack.device_of("host", 0, False), value)
    elif hasattr(value, "__dlpack__"):
        address, nbytes, where = _dlpack.tensor_of(name, value.__dlpack__())
        memory = Memory(address, nbytes, where, value)
    else:
        allowed = "Buffer, a NumPy array, or anything with __dlpack__"
        raise TypeError(f"{name}: got {type(value).__name__}, allowed: {allowed}")
    if not _dlpack.addresses(device.kind, device.ordinal, memory.__dlpack_device__()):
        got = memory.__dlpack_device__()
        raise TypeError(f"{name}: got memory of DLPack's device {got}, allowed: of {device.kind}")
    if memory.nbytes == 0:
        raise ValueError(f"{name}: got an empty array, allowed: at least one byte")
    return memory
