# SPDX-License-Identifier: Apache-2.0
"""Graphs of the caller's own work."""
from __future__ import annotations

import atexit
import ctypes
import dataclasses
import threading
import weakref
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Set, Tuple, Union

import numpy as np

from . import _library
from ._arrays import integer, integers, pointer
from ._library import Handle, ask, call, get_struct, make_struct
from ._memory import Memory, MemoryLike, memory_of
from .device import Device, Stream, StreamCalls, forget_functions, last_line, set_error
from .errors import RepriseError, error_of

_INTERNAL = 13
_MODES = ("eager", "lazy", "background")
_PENDING = ("wait", "larger", "eager")
_STATES = ("pending", "captured", "failed", "evicted")

PENDING, CAPTURED, FAILED, EVICTED = _STATES


@dataclasses.dataclass(frozen=True)
class CapturedBucket:
    """What was captured; without nodes where nothing was yet."""

    name: str
    capacity: int
    num_kernel_nodes: int
    num_other_nodes: int
    capture_ns: int
    device_bytes: int  # that the driver took for it
    tokens: int = 1  # the second dimension


@dataclasses.dataclass(frozen=True)
class ReplayReport:
    """What a run was."""

    graph: str
    capacity: int
    padding: int  # capacity - size; in two dimensions rows x tokens that the batch leaves empty
    tokens: int = 1  # the bucket's second dimension
    replayed: bool = True  # False: it ran launch by launch


@dataclasses.dataclass(frozen=True)
class BucketReport:
    """One bucket, from the manager's creation on."""

    name: str
    rows: int
    tokens: int
    state: str  # PENDING, CAPTURED, FAILED, EVICTED
    error: Optional[RepriseError]  # of a bucket that has failed
    num_kernel_nodes: int  # as the next two, of the last capture that ended well
    num_other_nodes: int
    capture_ns: int
    graph_bytes: int  # of the device, that its graph holds now
    num_captures: int
    num_evictions: int
    num_replays: int
    num_eager_runs: int  # warm-up aside
    used_cells: int  # rows x tokens that batches asked for, over all runs
    padding_cells: int  # and that were left empty
    workspace_bytes: int


@dataclasses.dataclass(frozen=True)
class VerifyReport:
    graph: str
    bytes: int  # that were compared


@dataclasses.dataclass(frozen=True)
class ForeignPointer:
    """An address that a node was given and that is in no buffer of the manager's."""

    node: int  # of all nodes of the graph
    kernel: str  # as the driver calls it, or "copy" or "fill"
    # In a kernel's arguments, in bytes; 0 is where a copy or a fill writes, 8 where a copy reads.
    offset: int
    address: int


@dataclasses.dataclass(frozen=True)
class AuditReport:
    graph: str
    num_kernels: int
    num_pointers: int  # in all kernels, copies and fills
    num_untold: int  # nodes that cannot be told: functions of the host, and others
    foreign: List[ForeignPointer]


@dataclasses.dataclass(frozen=True)
class MoveReport:
    """What moving a buffer has done."""

    num_graphs: int  # that were changed in place
    num_nodes: int  # in them
    update_ns: int  # for all of these nodes
    num_recaptured: int  # graphs that could not be changed in place


def bucket_of(info: _library.BucketInfo) -> CapturedBucket:
    return CapturedBucket(
        name=info.name.decode(),
        capacity=info.capacity,
        num_kernel_nodes=info.num_kernel_nodes,
        num_other_nodes=info.num_other_nodes,
        capture_ns=info.capture_ns,
        device_bytes=info.device_bytes,
        tokens=info.tokens,
    )


class Bucket(int):
    """What `enqueue` learns of a bucket: a number, its capacity, that knows more."""

    name: str
    index: int  # by ascending rows x tokens
    tokens: int  # the second dimension; 1 where there is none
    capturing: bool  # the work is recorded; False: it runs now, once
    workspace: Optional[Memory]  # of the bucket; valid as long as the manager is

    @property
    def rows(self) -> int:
        return int(self)


class CapturingStream(StreamCalls):
    """What `enqueue` puts its work on; valid during the call."""

    def __init__(self, handle: Any, once: bool) -> None:
        super().__init__()
        self._handle = ctypes.c_void_p(handle)
        self._once = once

    def _stream(self) -> Any:
        return self._handle


Shape = Tuple[int, int]
Enqueue = Callable[[CapturingStream, Bucket], Any]
Policy = Callable[[List[Shape], Shape], Optional[int]]
CaptureProgress = Callable[[str, int, int], Any]


def _choice(name: str, value: str, allowed: Sequence[str]) -> int:
    if value not in allowed:
        raise ValueError(f"{name}: got {value!r}, allowed: {', '.join(allowed)}")
    return allowed.index(value)


def _check_callable(name: str, value: Any, *, required: bool = False) -> None:
    if (required or value is not None) and not callable(value):
        raise TypeError(f"{name}: got {value!r}, allowed: a callable")


def _set_buckets(options: _library.GraphOptions, buckets: Sequence[Any]) -> Any:
    """Capacities, or (rows, tokens). Returns what the options point to."""
    given = list(buckets)
    if any(isinstance(bucket, (tuple, list)) for bucket in given):
        shapes = (_library.BatchShape * len(given))()
        for shape, bucket in zip(shapes, given):
            if not isinstance(bucket, (tuple, list)) or len(bucket) != 2:
                raise ValueError(f"buckets: got {bucket!r}, allowed: numbers, or (rows, tokens)")
            shape.rows, shape.tokens = (_size("buckets", number) for number in bucket)
        options.shapes, options.num_shapes = shapes, len(given)
        return shapes
    capacities = integers("buckets", given, np.int64)
    options.buckets = pointer(capacities, ctypes.c_int64)
    options.num_buckets = len(capacities)
    return capacities


def _size(name: str, value: Any) -> int:
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
        raise TypeError(f"{name}: got {value!r}, allowed: an integer")
    if not -(2**63) <= value < 2**63:
        raise ValueError(f"{name}: got {value}, allowed: 64 bits")
    return int(value)


def _ranges(device: Device, name: str, memory: Mapping[str, MemoryLike]) -> Tuple[Any, Any]:
    """Ranges of the library's, and what they point to, by name."""
    if not isinstance(memory, Mapping):
        got = type(memory).__name__
        raise TypeError(f"{name}: got {got}, allowed: a mapping of names to arrays")
    kept = {
        str(key): memory_of(device, f"{name}[{key!r}]", value) for key, value in memory.items()
    }
    ranges = (_library.MemoryRange * len(kept))()
    for entry, (key, value) in zip(ranges, kept.items()):
        entry.name, entry.data, entry.bytes = key.encode(), value.address, value.nbytes
    return ranges, kept


class GraphManager(Handle):
    """Captures a callable once per bucket, and replays the smallest bucket that fits.

    enqueue(stream, bucket): enqueues the whole work of a bucket, by `stream.run` on the host, or
    by launches of any library on `stream.native_handle` on a GPU. `bucket` is its capacity, a
    number that knows more (Bucket). It is called for each bucket once to warm up and once under
    capture, later by whatever captures a bucket or runs it launch by launch, never by two threads
    at once. It must neither wait nor allocate on the device, and what differs between replays has
    to be read from memory when the work runs. What it raises is raised here, or by the first call
    that uses the bucket.

    buckets: capacities, or (rows, tokens) for buckets in two dimensions. Options:
    warm_up: run each bucket once before anything is captured.
    policy(buckets, batch): the index of the bucket for a batch, or None where none will do; both
        are (rows, tokens), (size, 1) in one dimension. By default the one of the fewest rows x
        tokens that fits.
    capture: "eager", all buckets now; "lazy", each at its first use; "background", all by a thread
        of the manager's while others are used.
    while_pending: what a use of a bucket does that the background has not captured yet: "wait";
        "larger", replay a larger one that is there; "eager", run the work launch by launch.
    max_graph_bytes, max_graphs: what graphs may take; beyond it the least recently used one goes,
        and its next use captures it again. 0: no limit.
    workspace_bytes(rows, tokens): how much scratch memory a bucket's work needs: Bucket.workspace.
    buffers: by name, the memory that the work may use, for audit and move_buffer: Buffer, NumPy
        arrays on the host device, or anything with __dlpack__. It is kept as long as the manager.
    on_capture_thread(): called once on the thread of "background", ahead of its first capture.
    progress(bucket, done, total): called after each capture that is made ahead of its use; what it
        raises is printed and does not stop anything.

    Errors: RepriseError names the bucket; TypeError, ValueError about arguments.
    """

    _kind = "graph_manager"

    def __init__(
        self,
        stream: Stream,
        buckets: Sequence[Union[int, Shape]],
        enqueue: Enqueue,
        *,
        name: str = "graph",
        warm_up: bool = True,
        policy: Optional[Policy] = None,
        capture: str = "eager",
        while_pending: str = "wait",
        max_graph_bytes: int = 0,
        max_graphs: int = 0,
        workspace_bytes: Optional[Callable[[int, int], int]] = None,
        buffers: Optional[Mapping[str, MemoryLike]] = None,
        on_capture_thread: Optional[Callable[[], Any]] = None,
        progress: Optional[CaptureProgress] = None,
    ) -> None:
        _check_callable("enqueue", enqueue, required=True)
        _check_callable("policy", policy)
        _check_callable("workspace_bytes", workspace_bytes)
        _check_callable("on_capture_thread", on_capture_thread)
        _check_callable("progress", progress)
        self._keeps_stream = stream
        self._device = stream.device
        self._dlpack_device = stream.device.dlpack_device
        self._enqueue, self._policy, self._progress = enqueue, policy, progress
        self._workspace_bytes, self._on_capture_thread = workspace_bytes, on_capture_thread
        self._lock = threading.Lock()  # of what the manager's thread has, too: the next three
        # Numbers of functions in graphs, by bucket, and of those whose graph has been replaced.
        self._numbers: Dict[int, Set[int]] = {}
        self._stale: Set[int] = set()
        # What `enqueue` raised, by bucket.
        self._errors: Dict[str, BaseException] = {}
        # What another callable raised in the call that is under way.
        self._raised: Optional[BaseException] = None
        options = make_struct(_library.GraphOptions)
        kept = _set_buckets(options, buckets)
        options.name_prefix = name.encode()
        options.warm_up = int(warm_up)
        options.capture = _choice("capture", capture, _MODES)
        options.while_pending = _choice("while_pending", while_pending, _PENDING)
        options.max_graph_bytes = integer("max_graph_bytes", max_graph_bytes, 2**64 - 1)
        options.max_graphs = integer("max_graphs", max_graphs, 2**64 - 1)
        ranges, self._buffers = _ranges(self._device, "buffers", buffers or {})
        self._buffer_bytes = {name: memory.nbytes for name, memory in self._buffers.items()}
        options.buffers, options.num_buffers = ranges, len(ranges)
        self._callbacks = self._set_callbacks(options)
        create = lambda out: call(  # noqa: E731
            "graph_manager_create", stream.handle, ctypes.byref(options), _NO_ENQUEUE, None, out
        )
        try:
            super().__init__(lambda out: self._raising(create, out))
        except BaseException:
            self._forget_all()
            raise
        finally:
            del kept, ranges
        if capture == "background":
            _with_threads.add(self)

    def _set_callbacks(self, options: _library.GraphOptions) -> List[Any]:
        """No circle: a manager ends with its last user, not in some thread later."""
        me = weakref.ref(self)

        def enqueue(_: Any, stream: Any, bucket: Any, error: Any) -> int:
            manager = me()
            if manager is None:
                return set_error(error, _INTERNAL, "the graph manager is gone")
            return manager._called(stream, bucket.contents, error)

        def begin(_: Any, error: Any) -> int:
            manager = me()
            if manager is None:
                return set_error(error, _INTERNAL, "the graph manager is gone")
            return manager._begin_thread(error)

        def report(_: Any, bucket: bytes, done: int, total: int) -> None:
            me()._progress(bucket.decode(), done, total)

        callbacks = {"enqueue_bucket": _library.EnqueueBucketFn(enqueue)}
        if self._policy is not None:
            callbacks["policy"] = _library.BucketPolicyFn(lambda *given: me()._pick(*given))
        if self._workspace_bytes is not None:
            room = _library.WorkspaceFn(lambda *given: me()._room_of(*given))
            callbacks["workspace_bytes"] = room
        if self._on_capture_thread is not None:
            callbacks["on_capture_thread"] = _library.HostFn(begin)
        if self._progress is not None:
            callbacks["progress"] = _library.CaptureProgressFn(report)
        for field, callback in callbacks.items():
            setattr(options, field, callback)
        return list(callbacks.values())

    def _called(self, stream: Any, told: _library.Bucket, error: Any) -> int:
        bucket = Bucket(told.rows)
        bucket.name, bucket.index, bucket.tokens = told.name.decode(), told.index, told.tokens
        bucket.capturing, bucket.workspace = bool(told.capturing), None
        if told.workspace and told.workspace_bytes:
            bucket.workspace = Memory(told.workspace, told.workspace_bytes, self._dlpack_device)
        capturing = CapturingStream(stream, once=not told.capturing)
        was_inside = _library.enter_function(True)
        try:
            self._enqueue(capturing, bucket)
        except BaseException as caught:  # pylint: disable=broad-except
            with self._lock:
                self._errors[bucket.name] = caught
            if told.capturing:
                forget_functions(capturing._numbers)
            return set_error(error, _INTERNAL, last_line(caught))
        finally:
            _library.enter_function(was_inside)
            capturing._handle = ctypes.c_void_p()  # "stream: got NULL" from here on
        if told.capturing:
            with self._lock:
                self._errors.pop(bucket.name, None)
                self._stale |= self._numbers.pop(bucket.index, set())
                self._numbers[bucket.index] = capturing._numbers
        return 0

    def _guarded(self, function: Callable[[], Any], otherwise: Any) -> Any:
        """Of a callable that cannot say why it failed: what it raises, the call raises."""
        try:
            return function()
        except BaseException as caught:  # pylint: disable=broad-except
            if self._raised is None:
                self._raised = caught
            return otherwise

    def _pick(self, _: Any, buckets: Any, count: int, batch: Any) -> int:
        def pick() -> int:
            shapes = [(buckets[i].rows, buckets[i].tokens) for i in range(count)]
            index = self._policy(shapes, (batch.contents.rows, batch.contents.tokens))
            return -1 if index is None else _size("policy", index)

        return self._guarded(pick, -1)

    def _room_of(self, _: Any, bucket: Any) -> int:
        def ask_for() -> int:
            room = self._workspace_bytes(bucket.contents.rows, bucket.contents.tokens)
            return integer("workspace_bytes", room, 2**63 - 1)

        return self._guarded(ask_for, 0)

    def _begin_thread(self, error: Any) -> int:
        try:
            self._on_capture_thread()
        except BaseException as caught:  # pylint: disable=broad-except
            return set_error(error, _INTERNAL, last_line(caught))
        return 0

    def _raising(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Raises what a callable raised, because of which the library names the bucket."""
        self._raised = None
        failed: Optional[RepriseError] = None
        try:
            function(*arguments)
        except RepriseError as error:
            failed = error
        with self._lock:
            stale, self._stale = self._stale, set()
            errors = dict(self._errors)
        forget_functions(stale)
        raised, self._raised = self._raised, None
        if raised is not None:
            raise raised from failed
        if failed is None:
            return
        for name, caught in errors.items():
            if f"bucket '{name}'" in str(failed):
                raise caught from failed
        raise failed

    def replay(self, size: int, tokens: int = 1) -> ReplayReport:
        """Enqueues one replay, and does not wait. Errors: OutOfRange where no bucket fits.

        A bucket without a graph is captured first. size: rows, in two dimensions.
        """
        return self._run("graph_manager_replay_batch", size, tokens)

    def run_eager(self, size: int, tokens: int = 1) -> ReplayReport:
        """The same work, enqueued piece by piece."""
        return self._run("graph_manager_run_eager_batch", size, tokens)

    def _run(self, function: str, size: int, tokens: int) -> ReplayReport:
        report = make_struct(_library.ReplayReport)
        self._on_batch(function, size, tokens, ctypes.byref(report))
        return ReplayReport(
            report.graph.decode(),
            report.capacity,
            report.padding,
            report.tokens,
            bool(report.replayed),
        )

    def _on_batch(self, function: str, size: int, tokens: int, *arguments: Any) -> None:
        batch = (_size("size", size), _size("tokens", tokens))
        self._raising(call, function, self.handle, *batch, *arguments)

    def recapture(self, size: int, tokens: int = 1) -> None:
        """Captures the batch's bucket now: after what its work is has changed. Waits."""
        self._on_batch("graph_manager_recapture", size, tokens)

    def wait_for_captures(self) -> None:
        """Until the background has nothing more to capture. Errors: of the first that failed."""
        self._raising(call, "graph_manager_wait_for_captures", self.handle)

    def verify(
        self, size: int, tokens: int = 1, *, memory: Mapping[str, MemoryLike]
    ) -> VerifyReport:
        """Runs the batch's bucket both ways, and compares what is in `memory`, bit for bit.

        memory: by name, all that the work reads and writes; its contents are as before in the end.
        Errors: DataLoss names the first byte that differs.
        """
        ranges, kept = _ranges(self._device, "memory", memory)
        report = make_struct(_library.VerifyReport)
        self._on_batch(
            "graph_manager_verify", size, tokens, ranges, len(ranges), ctypes.byref(report)
        )
        del kept  # until here
        return VerifyReport(report.graph.decode(), report.bytes)

    def audit(self, size: int, tokens: int = 1) -> AuditReport:
        """Addresses among the arguments of the bucket's kernels that are in none of `buffers`.

        Errors: FailedPrecondition without buffers; Unimplemented where the device does not tell.
        """
        report = make_struct(_library.AuditReport)
        self._on_batch("graph_manager_audit", size, tokens, ctypes.byref(report))
        foreign = [
            ForeignPointer(
                report.foreign_node[i],
                report.foreign_kernel[i].decode(errors="replace"),
                report.foreign_offset[i],
                report.foreign_address[i],
            )
            for i in range(report.num_foreign)
        ]
        return AuditReport(
            report.graph.decode(),
            report.num_kernels,
            report.num_pointers,
            report.num_untold,
            foreign,
        )

    def move_buffer(self, name: str, memory: MemoryLike) -> MoveReport:
        """One of `buffers` is `memory` from here on, which is as large.

        Kernels are changed in place; a graph with nodes that cannot be told is captured again, for
        which `enqueue` has to use the new memory already. The memory before is kept until the
        stream has been synchronized, as steps may still read it. Errors: NotFound names the
        buffers; ValueError where `memory` is smaller.
        """
        moved = memory_of(self._device, "memory", memory)
        before = self._buffers.get(name)
        if before is not None and moved.nbytes < self._buffer_bytes[name]:
            raise ValueError(
                f"memory: got {moved.nbytes} bytes, allowed: at least "
                f"{self._buffer_bytes[name]}, which {name!r} has"
            )
        report = make_struct(_library.MoveReport)
        if before is not None:
            self._buffers[name] = (before, moved)  # where that fails, graphs have either
        self._raising(
            call, "graph_manager_move_buffer", self.handle, name.encode(), moved.address,
            ctypes.byref(report),
        )  # fmt: skip
        self._buffers[name] = moved
        self._keeps_stream._keep_until_synchronized(before)
        return MoveReport(
            **{field.name: getattr(report, field.name) for field in dataclasses.fields(MoveReport)}
        )

    @property
    def captured(self) -> List[CapturedBucket]:
        """By ascending rows x tokens."""
        return [
            bucket_of(get_struct(_library.BucketInfo, "graph_manager_get_bucket", self.handle, i))
            for i in range(ask("graph_manager_num_buckets", self.handle))
        ]

    @property
    def report(self) -> List[BucketReport]:
        """What is so now, in the same order."""
        return [self._report_of(i) for i in range(ask("graph_manager_num_buckets", self.handle))]

    def _report_of(self, index: int) -> BucketReport:
        report = make_struct(_library.BucketReport)
        self._raising(call, "graph_manager_get_report", self.handle, index, ctypes.byref(report))
        values = {
            field.name: getattr(report, field.name)
            for field in dataclasses.fields(BucketReport)
            if field.name not in ("name", "state", "error")
        }
        error = None
        if report.error_code != 0:
            error = error_of(report.error_code, report.error_message.decode(errors="replace"))
        return BucketReport(
            name=report.name.decode(), state=_STATES[report.state], error=error, **values
        )

    @property
    def workspace_bytes(self) -> int:
        """Of the memory that all buckets share."""
        return int(ask("graph_manager_workspace_bytes", self.handle))

    def close(self) -> None:
        """Its replays must have ended (Stream.synchronize): what they run goes with it.

        Waits for a capture that is under way.
        """
        super().close()
        self._forget_all()

    def _forget_all(self) -> None:
        with self._lock:
            numbers, self._numbers = self._numbers, {}
            stale, self._stale = self._stale, set()
        for some in (*numbers.values(), stale):
            forget_functions(some)


_NO_ENQUEUE = _library.EnqueueFn()  # NULL
# A thread of the library's must not call into an interpreter that has ended.
_with_threads: "weakref.WeakSet[GraphManager]" = weakref.WeakSet()


@atexit.register
def _end_threads() -> None:
    for manager in list(_with_threads):
        manager.close()
