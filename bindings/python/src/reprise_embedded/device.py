# SPDX-License-Identifier: Apache-2.0
"""Devices, their memory, and streams."""
from __future__ import annotations

import ctypes
import dataclasses
import itertools
import traceback
from typing import Any, Callable, Dict, Optional, Sequence, Set, Tuple, Union

import numpy as np
from numpy.typing import DTypeLike, NDArray

from . import _dlpack, _library
from ._arrays import integer
from ._library import Handle, ask, call

_KINDS = ("auto", "host", "cuda", "hip")
_INVALID_ARGUMENT, _INTERNAL = 3, 13


@dataclasses.dataclass(frozen=True)
class DeviceInfo:
    kind: str  # "host", "cuda" or "hip"
    ordinal: int
    name: str
    driver: str
    architecture: str
    num_multiprocessors: int
    warp_size: int
    compute_capability: int
    total_bytes: int


class Device(Handle):
    """A machine that runs kernels; it ends when nothing uses it any more.

    device: "auto" (cuda or hip where a usable GPU is there, else host), "host", "cuda", "hip", or
    with a number, "cuda:1". host_threads: worker threads of the host device; 0: one per core.
    Errors: Unavailable where it, its driver or code for it is missing; InvalidArgument.
    """

    _kind = "device"

    def __init__(
        self, device: str = "auto", *, host_threads: int = 0, hip_library: str = ""
    ) -> None:
        kind, colon, ordinal = device.partition(":")
        if kind not in _KINDS or (colon and not ordinal.isdecimal()):
            allowed = ", ".join((*_KINDS, "cuda:N, hip:N"))
            raise ValueError(f"device: got {device!r}, allowed: {allowed}")
        options = _library.make_struct(_library.DeviceOptions)
        options.kind = _KINDS.index(kind)
        options.ordinal = integer("ordinal", int(ordinal or 0), 2**31 - 1)
        options.host_threads = integer("host_threads", host_threads, 2**31 - 1)
        options.hip_library = hip_library.encode() or None
        super().__init__(lambda out: call("device_create", ctypes.byref(options), out))
        info = self.info
        self.kind, self.ordinal = info.kind, info.ordinal  # also when it is closed

    @property
    def dlpack_device(self) -> Tuple[int, int]:
        """Of its memory, as __dlpack_device__ has it."""
        return _dlpack.device_of(self.kind, self.ordinal, False)

    @property
    def info(self) -> DeviceInfo:
        info = _library.get_struct(_library.DeviceInfo, "device_get_info", self.handle)
        return DeviceInfo(
            kind=_KINDS[info.kind],
            ordinal=info.ordinal,
            name=info.name.decode(),
            driver=info.driver.decode(),
            architecture=info.architecture.decode(),
            num_multiprocessors=info.num_multiprocessors,
            warp_size=info.warp_size,
            compute_capability=info.compute_capability,
            total_bytes=info.total_bytes,
        )

    def stream(self) -> "Stream":
        """A stream of its own."""
        return Stream(self)

    def empty(self, shape: Union[int, Sequence[int]], dtype: DTypeLike = np.float32) -> "Buffer":
        """Memory of the device, contents undefined."""
        return Buffer(self, shape, dtype)

    def mapped(self, shape: Union[int, Sequence[int]], dtype: DTypeLike = np.float32) -> "Buffer":
        """Pinned memory of the host that the device addresses too; zeros."""
        return Buffer(self, shape, dtype, mapped=True)


class Buffer(Handle):
    """An array in a device's memory, dense, row by row.

    Other libraries take it without a copy, through DLPack: `torch.from_dlpack(buffer)`. Its memory
    lives as long as they use it.
    """

    _kind = "buffer"

    def __init__(
        self,
        device: Device,
        shape: Union[int, Sequence[int]],
        dtype: DTypeLike = np.float32,
        *,
        mapped: bool = False,
    ) -> None:
        self.shape: Tuple[int, ...] = (shape,) if isinstance(shape, int) else tuple(shape)
        self.dtype = np.dtype(dtype)
        if any(size < 1 for size in self.shape):
            raise ValueError(f"shape: got {self.shape}, allowed: sizes of at least 1")
        _dlpack.check_dtype(self.dtype)
        self._dlpack_device = _dlpack.device_of(device.kind, device.ordinal, mapped)
        self.nbytes = self.dtype.itemsize * int(np.prod(self.shape, dtype=np.int64))
        super().__init__(
            lambda out: call("buffer_create", device.handle, int(mapped), self.nbytes, out)
        )

    @property
    def device_address(self) -> int:
        """For kernels."""
        return int(ask("buffer_device_data", self.handle))

    def numpy(self) -> NDArray[Any]:
        """The same memory. Errors: TypeError where the host does not address it."""
        address = ask("buffer_host_data", self.handle)
        if address is None:
            raise TypeError("buffer: memory of a GPU has no address here; allowed: Stream.read")
        memory = (ctypes.c_char * self.nbytes).from_address(address)
        memory._buffer = self  # as long as the array is
        return np.frombuffer(memory, self.dtype).reshape(self.shape)

    def __dlpack__(self, *, stream: Optional[int] = None) -> Any:
        """Work that was enqueued on it is not waited for: synchronize its stream first."""
        return _dlpack.capsule_of(self, self.device_address, self._dlpack_device)

    def __dlpack_device__(self) -> Tuple[int, int]:
        return self._dlpack_device


# ---- functions on streams ----

# By the number that the library hands back. A function that runs once goes before it runs.
_functions: Dict[int, Tuple[Callable[[], Any], bool]] = {}
_numbers = itertools.count(1)


def set_error(error: Any, code: int, message: str) -> int:
    """In a callback: what it returns after having said why."""
    encoded = message.encode()[:1000]
    error.contents.message = encoded.decode(errors="ignore").encode()
    return code


def last_line(error: BaseException) -> str:
    return traceback.format_exception_only(type(error), error)[-1].strip()


def _run(number: int, error: Any) -> int:
    function, once = _functions.get(number, (None, False))
    if function is None:
        return set_error(error, _INVALID_ARGUMENT, "a function whose graph manager was closed")
    if once:
        _functions.pop(number, None)
    was_inside = _library.enter_function(True)
    try:
        function()
    except BaseException as caught:  # pylint: disable=broad-except
        return set_error(error, _INTERNAL, last_line(caught))
    finally:
        function = None
        _library.enter_function(was_inside)
    return 0


_RUN = _library.HostFn(_run)


def forget_functions(numbers: Set[int]) -> None:
    for number in numbers:
        _functions.pop(number, None)


class StreamCalls:
    """What a stream does, also while it is captured."""

    _once = True

    def __init__(self) -> None:
        self._numbers: Set[int] = set()

    def _stream(self) -> Any:
        raise NotImplementedError

    @property
    def native_handle(self) -> Optional[int]:
        """cudaStream_t or hipStream_t, for launches of other libraries; None on the host."""
        return ask("stream_native_handle", self._stream())

    def run(self, function: Callable[[], Any]) -> None:
        """Runs a function in stream order, in the stream's thread; at every replay where captured.

        It may not call this package. What it raises breaks the stream. Errors: Unimplemented on
        devices other than host.
        """
        if not callable(function):
            raise TypeError(f"function: got {function!r}, allowed: a callable")
        number = next(_numbers)
        _functions[number] = (function, self._once)
        try:
            call("stream_enqueue_function", self._stream(), _RUN, number)
        except BaseException:
            del _functions[number]
            raise
        self._numbers.add(number)


class Stream(Handle, StreamCalls):
    """Work in order. native: a cudaStream_t or hipStream_t to use, which must outlive this."""

    _kind = "stream"

    def __init__(self, device: Device, native: Optional[int] = None) -> None:
        StreamCalls.__init__(self)
        self.device = device
        if native is None:
            Handle.__init__(self, lambda out: call("stream_create", device.handle, out))
        else:
            Handle.__init__(self, lambda out: call("stream_wrap", device.handle, native, out))
        self._keeps: list[Any] = []

    def _stream(self) -> Any:
        return self.handle

    def synchronize(self) -> None:
        """Waits until all work is done. Errors: a fault of that work."""
        call("stream_synchronize", self.handle)
        self._keeps.clear()
        self._numbers.clear()

    def _keep_until_synchronized(self, memory: Any) -> None:
        self._keeps.append(memory)

    def write(self, buffer: Buffer, values: NDArray[Any]) -> None:
        """Copies to the device, in order; `values` is kept until the stream is synchronized."""
        array = np.ascontiguousarray(values, buffer.dtype)
        if array.shape != buffer.shape:
            raise ValueError(f"values: got shape {array.shape}, allowed: {buffer.shape}")
        address = array.ctypes.data
        call("stream_copy_to_device", self.handle, buffer.device_address, address, array.nbytes)
        self._keeps += [array, buffer]

    def read(self, buffer: Buffer) -> NDArray[Any]:
        """What is there once all work before is done, which this waits for."""
        array = np.empty(buffer.shape, buffer.dtype)
        address = array.ctypes.data
        call("stream_copy_to_host", self.handle, address, buffer.device_address, array.nbytes)
        self.synchronize()
        return array

    def close(self) -> None:
        """Waits for its work, in which a function may be."""
        Handle.close(self)
        forget_functions(self._numbers)
