# SPDX-License-Identifier: Apache-2.0
"""Graphs of the caller's own work."""
from __future__ import annotations

import ctypes
import dataclasses
import weakref
from typing import Any, Callable, List, Optional, Sequence

import numpy as np

from . import _library
from ._arrays import integers, pointer
from ._library import Handle, ask, call
from .device import Stream, StreamCalls, forget_functions, last_line, set_error
from .errors import RepriseError

_INTERNAL = 13


@dataclasses.dataclass(frozen=True)
class CapturedBucket:
    name: str
    capacity: int
    num_kernel_nodes: int
    num_other_nodes: int
    capture_ns: int
    device_bytes: int  # that the driver took for it


@dataclasses.dataclass(frozen=True)
class ReplayReport:
    graph: str
    capacity: int
    padding: int  # capacity - size


def bucket_of(info: _library.BucketInfo) -> CapturedBucket:
    return CapturedBucket(
        name=info.name.decode(),
        capacity=info.capacity,
        num_kernel_nodes=info.num_kernel_nodes,
        num_other_nodes=info.num_other_nodes,
        capture_ns=info.capture_ns,
        device_bytes=info.device_bytes,
    )


class CapturingStream(StreamCalls):
    """What `enqueue` puts its work on; valid during the call."""

    def __init__(self, handle: Any, once: bool) -> None:
        super().__init__()
        self._handle = ctypes.c_void_p(handle)
        self._once = once

    def _stream(self) -> Any:
        return self._handle


Enqueue = Callable[[CapturingStream, int], Any]


class GraphManager(Handle):
    """Captures a callable once per bucket, and replays the smallest bucket that fits.

    enqueue(stream, capacity): enqueues the whole work of a bucket, by `stream.run` on the host, or
    by launches of any library on `stream.native_handle` on a GPU. It is called for each bucket
    once to warm up and once under capture. It must neither wait nor allocate on the device, and
    what differs between replays has to be read from memory when the work runs. What it raises is
    raised here. buckets: capacities. Errors: RepriseError names the bucket.
    """

    _kind = "graph_manager"

    def __init__(
        self,
        stream: Stream,
        buckets: Sequence[int],
        enqueue: Enqueue,
        *,
        name: str = "graph",
        warm_up: bool = True,
    ) -> None:
        if not callable(enqueue):
            raise TypeError(f"enqueue: got {enqueue!r}, allowed: a callable")
        self._keeps_stream = stream
        self._enqueue = enqueue
        self._numbers: set[int] = set()
        self._raised: Optional[BaseException] = None
        self._once = False
        options = _library.make_struct(_library.GraphOptions)
        capacities = integers("buckets", buckets, np.int64)
        options.buckets = pointer(capacities, ctypes.c_int64)
        options.num_buckets = len(capacities)
        options.name_prefix = name.encode()
        options.warm_up = int(warm_up)
        me = weakref.ref(self)  # no circle: this ends with its last user, not in some thread later
        self._callback = _library.EnqueueFn(lambda *arguments: me()._called(*arguments))
        create = lambda out: call(  # noqa: E731
            "graph_manager_create", stream.handle, ctypes.byref(options), self._callback, None, out
        )
        try:
            super().__init__(lambda out: self._raising(create, out))
        except BaseException:
            forget_functions(self._numbers)
            raise
        self._once = True  # what is enqueued from here on runs once: run_eager

    def _called(self, _context: Any, stream: Any, capacity: int, error: Any) -> int:
        capturing = CapturingStream(stream, self._once)
        try:
            self._enqueue(capturing, capacity)
        except BaseException as caught:  # pylint: disable=broad-except
            self._raised = caught
            return set_error(error, _INTERNAL, last_line(caught))
        finally:
            capturing._handle = ctypes.c_void_p()  # "stream: got NULL" from here on
            if not self._once:
                self._numbers |= capturing._numbers
        return 0

    def _raising(self, function: Callable[..., None], *arguments: Any) -> None:
        """What `enqueue` raised, because of which the library names the bucket."""
        try:
            function(*arguments)
        except RepriseError as error:
            raised, self._raised = self._raised, None
            if raised is not None:
                raise raised from error
            raise

    def replay(self, size: int) -> ReplayReport:
        """Enqueues one replay, and does not wait. Errors: OutOfRange where no bucket fits."""
        return self._run("graph_manager_replay", size)

    def run_eager(self, size: int) -> ReplayReport:
        """The same work, enqueued piece by piece."""
        return self._run("graph_manager_run_eager", size)

    def _run(self, function: str, size: int) -> ReplayReport:
        report = _library.make_struct(_library.ReplayReport)
        self._raising(call, function, self.handle, size, ctypes.byref(report))
        return ReplayReport(report.graph.decode(), report.capacity, report.padding)

    @property
    def captured(self) -> List[CapturedBucket]:
        """By ascending capacity."""
        return [
            bucket_of(
                _library.get_struct(
                    _library.BucketInfo, "graph_manager_get_bucket", self.handle, index
                )
            )
            for index in range(ask("graph_manager_num_buckets", self.handle))
        ]

    def close(self) -> None:
        """Its replays must have ended (Stream.synchronize): what they run goes with it."""
        super().close()
        forget_functions(self._numbers)
