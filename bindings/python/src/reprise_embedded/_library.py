# SPDX-License-Identifier: Apache-2.0
"""reprise.h as ctypes has it: structs, functions, and calls that raise."""
from __future__ import annotations

import ctypes
import pathlib
import threading
from ctypes import POINTER, c_char, c_char_p, c_double, c_float, c_int32, c_int64, c_size_t
from ctypes import c_uint8, c_uint32, c_uint64, c_void_p
from typing import Any, Callable, List, Tuple, Type, TypeVar

from .errors import error_of

# What it is to be; a later library of the same minor version will do.
VERSION = "0.1.0"
_FILE = "libreprise.so.0"


class Error(ctypes.Structure):
    _fields_ = [("code", c_int32), ("message", c_char * 1020)]


HostFn = ctypes.CFUNCTYPE(c_int32, c_void_p, POINTER(Error))
EnqueueFn = ctypes.CFUNCTYPE(c_int32, c_void_p, c_void_p, c_int64, POINTER(Error))
ProgressFn = ctypes.CFUNCTYPE(None, c_void_p, c_char_p, c_char_p, c_uint64, c_uint64)


class DeviceOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("kind", c_int32),
        ("ordinal", c_int32),
        ("host_threads", c_int32),
        ("reserved", c_int32),
        ("hip_library", c_char_p),
    ]


class DeviceInfo(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("kind", c_int32),
        ("ordinal", c_int32),
        ("num_multiprocessors", c_int32),
        ("warp_size", c_int32),
        ("compute_capability", c_int32),
        ("reserved", c_int32),
        ("name", c_char_p),
        ("driver", c_char_p),
        ("architecture", c_char_p),
        ("total_bytes", c_uint64),
    ]


class BatchShape(ctypes.Structure):
    _fields_ = [("rows", c_int64), ("tokens", c_int64)]


class MemoryRange(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("data", c_void_p), ("bytes", c_size_t)]


class Bucket(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("name", c_char_p),
        ("rows", c_int64),
        ("tokens", c_int64),
        ("workspace", c_void_p),
        ("workspace_bytes", c_size_t),
        ("index", c_uint64),
        ("capturing", c_uint64),
    ]


EnqueueBucketFn = ctypes.CFUNCTYPE(c_int32, c_void_p, c_void_p, POINTER(Bucket), POINTER(Error))
BucketPolicyFn = ctypes.CFUNCTYPE(
    c_int64, c_void_p, POINTER(BatchShape), c_size_t, POINTER(BatchShape)
)
WorkspaceFn = ctypes.CFUNCTYPE(c_size_t, c_void_p, POINTER(BatchShape))
CaptureProgressFn = ctypes.CFUNCTYPE(None, c_void_p, c_char_p, c_uint64, c_uint64)


class GraphOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("buckets", POINTER(c_int64)),
        ("name_prefix", c_char_p),
        ("num_buckets", c_size_t),
        ("warm_up", c_uint64),
        ("shapes", POINTER(BatchShape)),
        ("num_shapes", c_size_t),
        ("enqueue_bucket", EnqueueBucketFn),
        ("policy", BucketPolicyFn),
        ("capture", c_int32),
        ("while_pending", c_int32),
        ("max_graph_bytes", c_uint64),
        ("max_graphs", c_uint64),
        ("workspace_bytes", WorkspaceFn),
        ("buffers", POINTER(MemoryRange)),
        ("num_buffers", c_size_t),
        ("on_capture_thread", HostFn),
        ("progress", CaptureProgressFn),
    ]


class BucketInfo(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("name", c_char_p),
        ("capacity", c_int64),
        ("num_kernel_nodes", c_int32),
        ("num_other_nodes", c_int32),
        ("capture_ns", c_uint64),
        ("device_bytes", c_uint64),
        ("tokens", c_int64),
    ]


class ReplayReport(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("graph", c_char_p),
        ("capacity", c_int64),
        ("padding", c_int64),
        ("tokens", c_int64),
        ("replayed", c_uint64),
    ]


class BucketReport(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("name", c_char_p),
        ("rows", c_int64),
        ("tokens", c_int64),
        ("state", c_int32),
        ("error_code", c_int32),
        ("error_message", c_char_p),
        ("num_kernel_nodes", c_int32),
        ("num_other_nodes", c_int32),
        ("capture_ns", c_uint64),
        ("graph_bytes", c_uint64),
        ("num_captures", c_uint64),
        ("num_evictions", c_uint64),
        ("num_replays", c_uint64),
        ("num_eager_runs", c_uint64),
        ("used_cells", c_uint64),
        ("padding_cells", c_uint64),
        ("workspace_bytes", c_uint64),
    ]


class VerifyReport(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("graph", c_char_p), ("bytes", c_uint64)]


class AuditReport(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("graph", c_char_p),
        ("num_kernels", c_uint64),
        ("num_pointers", c_uint64),
        ("num_untold", c_uint64),
        ("num_foreign", c_size_t),
        ("foreign_node", POINTER(c_int32)),
        ("foreign_kernel", POINTER(c_char_p)),
        ("foreign_offset", POINTER(c_uint64)),
        ("foreign_address", POINTER(c_uint64)),
    ]


class MoveReport(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("num_graphs", c_uint64),
        ("num_nodes", c_uint64),
        ("update_ns", c_uint64),
        ("num_recaptured", c_uint64),
    ]


class EngineOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("directory", c_char_p),
        ("preset", c_char_p),
        ("random_seed", c_uint64),
        ("dtype", c_char_p),
        ("kv_dtype", c_char_p),
        ("linear", c_char_p),
        ("attention_tree", c_char_p),
        ("kv_cache_bytes", c_uint64),
        ("memory_fraction", c_double),
        ("decode_buckets", POINTER(c_int64)),
        ("mixed_buckets", POINTER(c_int64)),
        ("num_decode_buckets", c_size_t),
        ("num_mixed_buckets", c_size_t),
        ("block_size", c_uint32),
        ("max_rows", c_uint32),
        ("max_context_length", c_uint32),
        ("pipeline_depth", c_uint32),
        ("max_steps_per_request", c_uint32),
        ("min_shared_tokens", c_uint32),
        ("max_logit_rows", c_uint32),
        ("max_prompt_logprobs", c_uint32),
        ("adjust_logits", c_uint64),
        ("batch_invariant", c_uint64),
        ("watchdog_timeout_ms", c_uint64),
        ("progress", ProgressFn),
        ("progress_context", c_void_p),
        ("decode", c_char_p),
        ("swap_bytes", c_uint64),
        ("max_draft_tokens", c_uint64),
        ("round_activations", c_uint64),
        ("linear_table", c_char_p),
    ]


class EngineInfo(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("model", c_char_p),
        ("architecture", c_char_p),
        ("vocab_size", c_uint64),
        ("hidden_size", c_uint64),
        ("num_layers", c_uint64),
        ("num_heads", c_uint64),
        ("num_kv_heads", c_uint64),
        ("head_dim", c_uint64),
        ("eos_token_ids", POINTER(c_uint32)),
        ("num_eos_token_ids", c_size_t),
        ("tokens_are_bytes", c_uint64),
        ("dtype", c_char_p),
        ("kv_dtype", c_char_p),
        ("linear", c_char_p),
        ("block_size", c_uint32),
        ("max_rows", c_uint32),
        ("max_context_length", c_uint32),
        ("max_blocks_per_row", c_uint32),
        ("max_step_tokens", c_uint32),
        ("max_prompt_tokens", c_uint32),
        ("pipeline_depth", c_uint32),
        ("max_steps_per_request", c_uint32),
        ("min_shared_tokens", c_uint32),
        ("max_logit_rows", c_uint32),
        ("max_prompt_logprobs", c_uint32),
        ("max_stop_tokens", c_uint32),
        ("max_logit_bias", c_uint32),
        ("max_logprobs", c_uint32),
        ("weights_bytes", c_uint64),
        ("kv_cache_bytes", c_uint64),
        ("workspace_bytes", c_uint64),
        ("graphs_bytes", c_uint64),
        ("num_decode_buckets", c_uint64),
        ("num_mixed_buckets", c_uint64),
        ("load_ns", c_uint64),
        ("capture_ns", c_uint64),
        ("max_draft_tokens", c_uint32),
        ("step_kernel_rows", c_uint32),
        ("kv_num_layers", c_uint32),
        ("kv_num_heads", c_uint32),
        ("kv_head_dim", c_uint32),
        ("max_kv_blocks_per_call", c_uint32),
        ("kv_token_bytes", c_uint64),
        ("max_kv_transfer_bytes", c_uint64),
        ("swap_bytes", c_uint64),
        ("row_state_bytes", c_uint64),
    ]


class PoolInfo(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("block_size", c_uint32),
        ("num_blocks", c_uint32),
        ("free_blocks", c_uint32),
        ("reserved", c_uint32),
        ("bytes", c_uint64),
        ("swap_blocks", c_uint32),
        ("free_swap_blocks", c_uint32),
        ("num_resident_rows", c_uint64),
        ("swap_states", c_uint32),
        ("free_swap_states", c_uint32),
    ]


class SessionLimits(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("max_rows", c_uint32),
        ("max_blocks", c_uint32),
        ("max_swapped", c_uint32),
        ("account", c_uint32),
    ]


class SessionUse(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("num_rows", c_uint32),
        ("num_blocks", c_uint32),
        ("num_steps", c_uint64),
        ("num_shared", c_uint32),
        ("num_swapped", c_uint32),
    ]


class KvPart(ctypes.Structure):
    _fields_ = [
        ("block", c_uint32),
        ("first_layer", c_uint32),
        ("num_layers", c_uint32),
        ("num_tokens", c_uint32),
    ]


class Sampling(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("seed", c_uint64),
        ("temperature", c_float),
        ("top_p", c_float),
        ("min_p", c_float),
        ("repetition_penalty", c_float),
        ("presence_penalty", c_float),
        ("frequency_penalty", c_float),
        ("top_k", c_uint32),
        ("max_new_tokens", c_uint32),
        ("min_tokens", c_uint32),
        ("num_logprobs", c_uint32),
        ("stop_at_eos", c_uint32),
        ("return_logits", c_uint32),
        ("stop_tokens", POINTER(c_uint32)),
        ("bias_tokens", POINTER(c_uint32)),
        ("biases", POINTER(c_float)),
        ("allowed_tokens", POINTER(c_uint8)),
        ("num_stop_tokens", c_size_t),
        ("num_biases", c_size_t),
        ("num_allowed_bytes", c_size_t),
    ]


class RowAdd(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("row", c_uint32),
        ("context_length", c_uint32),
        ("sampling", POINTER(Sampling)),
        ("blocks", POINTER(c_uint32)),
        ("num_blocks", c_size_t),
        ("history", POINTER(c_uint32)),
        ("num_history", c_size_t),
        ("prompt_length", c_uint64),
        ("is_fork", c_uint32),
        ("fork_of", c_uint32),
        ("has_swapped_state", c_uint32),
        ("swapped_state", c_uint32),
    ]


class RowChunk(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("row", c_uint32),
        ("sample", c_uint32),
        ("tokens", POINTER(c_uint32)),
        ("num_tokens", c_size_t),
        ("prompt_logprobs", c_uint32),
        ("has_next_token", c_uint32),
        ("next_token", c_uint64),
    ]


class ResultView(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("sequence", c_uint64),
        ("num_rows", c_size_t),
        ("row", POINTER(c_uint32)),
        ("status", POINTER(c_int32)),
        ("sampled", POINTER(c_uint8)),
        ("token", POINTER(c_uint32)),
        ("logprob", POINTER(c_float)),
        ("context_length", POINTER(c_uint32)),
        ("finish", POINTER(c_int32)),
        ("rank", POINTER(c_uint32)),
        ("top_begin", POINTER(c_uint32)),
        ("top_count", POINTER(c_uint32)),
        ("has_logits", POINTER(c_uint8)),
        ("num_top", c_size_t),
        ("top_token", POINTER(c_uint32)),
        ("top_logprob", POINTER(c_float)),
        ("num_steps", c_size_t),
        ("step_num_rows", POINTER(c_uint32)),
        ("step_graph", POINTER(c_char_p)),
        ("step_replayed", POINTER(c_uint8)),
        ("step_padding_rows", POINTER(c_uint32)),
        ("step_padding_tokens", POINTER(c_uint32)),
        ("step_device_ns", POINTER(c_uint64)),
        ("num_prompt", c_size_t),
        ("prompt_row", POINTER(c_uint32)),
        ("prompt_position", POINTER(c_uint32)),
        ("prompt_logprob", POINTER(c_float)),
        ("prompt_rank", POINTER(c_uint32)),
        ("prompt_top_begin", POINTER(c_uint32)),
        ("prompt_top_count", POINTER(c_uint32)),
        ("num_logit_rows", c_size_t),
        ("logits", POINTER(c_float)),
        ("num_refused", c_size_t),
        ("refused_row", POINTER(c_uint32)),
        ("refused_code", POINTER(c_int32)),
        ("refused_message", POINTER(c_char_p)),
        ("validate_ns", c_uint64),
        ("ring_ns", c_uint64),
        ("launch_ns", c_uint64),
        ("device_ns", c_uint64),
        ("total_ns", c_uint64),
        ("accepted_begin", POINTER(c_uint32)),
        ("accepted_count", POINTER(c_uint32)),
        ("num_accepted", c_size_t),
        ("accepted_token", POINTER(c_uint32)),
        ("accepted_logprob", POINTER(c_float)),
        ("accepted_rank", POINTER(c_uint32)),
        ("accepted_top_begin", POINTER(c_uint32)),
        ("accepted_top_count", POINTER(c_uint32)),
        ("num_sampled", c_uint64),
        ("step_query_tokens", POINTER(c_uint32)),
        ("step_attention_tree", POINTER(c_uint64)),
    ]


_HANDLE = c_void_p
_OUT = POINTER(c_void_p)
_ERROR = POINTER(Error)

# Functions that return a code and take an error last: what they take before it.
_CALLS = {
    "device_create": [POINTER(DeviceOptions), _OUT],
    "device_get_info": [_HANDLE, POINTER(DeviceInfo)],
    "buffer_create": [_HANDLE, c_int32, c_size_t, _OUT],
    "stream_create": [_HANDLE, _OUT],
    "stream_wrap": [_HANDLE, c_void_p, _OUT],
    "stream_synchronize": [_HANDLE],
    "stream_enqueue_function": [_HANDLE, HostFn, c_void_p],
    "stream_copy_to_device": [_HANDLE, c_void_p, c_void_p, c_size_t],
    "stream_copy_to_host": [_HANDLE, c_void_p, c_void_p, c_size_t],
    "graph_options_init": [POINTER(GraphOptions), c_size_t],
    "graph_manager_create": [_HANDLE, POINTER(GraphOptions), EnqueueFn, c_void_p, _OUT],
    "graph_manager_replay": [_HANDLE, c_int64, POINTER(ReplayReport)],
    "graph_manager_run_eager": [_HANDLE, c_int64, POINTER(ReplayReport)],
    "graph_manager_get_bucket": [_HANDLE, c_size_t, POINTER(BucketInfo)],
    "graph_manager_replay_batch": [_HANDLE, c_int64, c_int64, POINTER(ReplayReport)],
    "graph_manager_run_eager_batch": [_HANDLE, c_int64, c_int64, POINTER(ReplayReport)],
    "graph_manager_recapture": [_HANDLE, c_int64, c_int64],
    "graph_manager_wait_for_captures": [_HANDLE],
    "graph_manager_verify": [
        _HANDLE, c_int64, c_int64, POINTER(MemoryRange), c_size_t, POINTER(VerifyReport),
    ],
    "graph_manager_audit": [_HANDLE, c_int64, c_int64, POINTER(AuditReport)],
    "graph_manager_move_buffer": [_HANDLE, c_char_p, c_void_p, POINTER(MoveReport)],
    "graph_manager_get_report": [_HANDLE, c_size_t, POINTER(BucketReport)],
    "engine_options_init": [POINTER(EngineOptions), c_size_t],
    "engine_create": [_HANDLE, POINTER(EngineOptions), _OUT],
    "engine_get_info": [_HANDLE, POINTER(EngineInfo)],
    "engine_get_pool": [_HANDLE, POINTER(PoolInfo)],
    "engine_get_bucket": [_HANDLE, c_int32, c_size_t, POINTER(BucketInfo)],
    "engine_check_health": [_HANDLE],
    "engine_get_attention_tree": [
        _HANDLE, c_void_p, c_size_t, POINTER(c_size_t), POINTER(c_uint64),
    ],
    "engine_set_attention_tree": [_HANDLE, c_char_p, POINTER(c_uint64)],
    "engine_set_buckets": [
        _HANDLE, POINTER(c_int64), c_size_t, POINTER(c_int64), c_size_t, POINTER(c_uint64),
    ],
    "engine_open_account": [_HANDLE, POINTER(SessionLimits), POINTER(c_uint32)],
    "engine_set_account_limits": [_HANDLE, c_uint32, POINTER(SessionLimits)],
    "engine_submit_joint": [
        _HANDLE, POINTER(c_void_p), POINTER(c_void_p), c_size_t, POINTER(c_int32), POINTER(Error),
        POINTER(c_uint64),
    ],
    "engine_wait_joint": [_HANDLE, c_uint64, POINTER(c_void_p), c_size_t],
    "engine_wait": [_HANDLE, c_uint64, _HANDLE],
    "session_open": [_HANDLE, POINTER(SessionLimits), _OUT],
    "session_get_use": [_HANDLE, POINTER(SessionUse)],
    "session_allocate_blocks": [_HANDLE, c_uint32, POINTER(c_uint32)],
    "session_free_blocks": [_HANDLE, POINTER(c_uint32), c_size_t],
    "session_share_blocks": [_HANDLE, c_char_p, POINTER(c_uint32), c_size_t],
    "session_adopt_blocks": [_HANDLE, c_char_p, POINTER(c_uint32), c_size_t, POINTER(c_size_t)],
    "session_release_blocks": [_HANDLE, c_char_p],
    "session_read_blocks": [
        _HANDLE, POINTER(KvPart), c_size_t, c_void_p, c_size_t, POINTER(c_size_t),
    ],
    "session_write_blocks": [_HANDLE, POINTER(KvPart), c_size_t, c_void_p, c_size_t],
    "session_swap_out": [_HANDLE, POINTER(c_uint32), c_size_t, POINTER(c_uint32)],
    "session_swap_in": [_HANDLE, POINTER(c_uint32), c_size_t, POINTER(c_uint32)],
    "session_free_swapped": [_HANDLE, POINTER(c_uint32), c_size_t],
    "session_swap_out_state": [_HANDLE, c_uint32, POINTER(c_uint32), POINTER(c_uint32)],
    "session_free_swapped_states": [_HANDLE, POINTER(c_uint32), c_size_t],
    "session_step": [_HANDLE, _HANDLE, _HANDLE],
    "session_submit": [_HANDLE, _HANDLE, POINTER(c_uint64)],
    "sampling_init": [POINTER(Sampling), c_size_t],
    "step_create": [_OUT],
    "step_clear": [_HANDLE],
    "step_drop_row": [_HANDLE, c_uint32],
    "step_copy_block": [_HANDLE, c_uint32, c_uint32],
    "step_add_row": [_HANDLE, POINTER(RowAdd)],
    "step_append_blocks": [_HANDLE, c_uint32, POINTER(c_uint32), c_size_t],
    "step_set_allowed_tokens": [_HANDLE, c_uint32, POINTER(c_uint8), c_size_t],
    "step_set_prefix_group": [_HANDLE, c_uint32, c_uint32, POINTER(c_uint32), c_size_t],
    "step_run_chunk": [_HANDLE, POINTER(RowChunk)],
    "step_continue_row": [_HANDLE, c_uint32],
    "step_continue_all": [_HANDLE],
    "step_draft_tokens": [_HANDLE, c_uint32, POINTER(c_uint32), c_size_t],
    "step_set_num_steps": [_HANDLE, c_uint32],
    "step_set_mode": [_HANDLE, c_int32],
    "step_set_isolate_bad_rows": [_HANDLE, c_uint32],
    "result_create": [_OUT],
    "result_get": [_HANDLE, POINTER(ResultView)],
}
_DESTROYED = ("device", "buffer", "stream", "graph_manager", "engine", "session", "step", "result")
_OTHERS = {
    "version": (c_char_p, []),
    "code_name": (c_char_p, [c_int32]),
    "buffer_device_data": (c_void_p, [_HANDLE]),
    "buffer_host_data": (c_void_p, [_HANDLE]),
    "buffer_bytes": (c_size_t, [_HANDLE]),
    "stream_native_handle": (c_void_p, [_HANDLE]),
    "graph_manager_num_buckets": (c_size_t, [_HANDLE]),
    "graph_manager_workspace_bytes": (c_size_t, [_HANDLE]),
}


def _load() -> ctypes.CDLL:
    beside = pathlib.Path(__file__).resolve().parent / _FILE
    try:
        library = ctypes.CDLL(str(beside) if beside.exists() else _FILE)
    except OSError as error:
        raise ImportError(
            f"reprise_embedded: no library: {error}; allowed: {beside}, or {_FILE} where the "
            "system's loader finds it"
        ) from None
    library.reprise_version.restype = c_char_p
    version = library.reprise_version().decode()
    if version.split(".")[:2] != VERSION.split(".")[:2]:
        raise ImportError(
            f"reprise_embedded: {_FILE} is of version {version}; allowed: the minor version of "
            f"{VERSION}"
        )
    for name, arguments in _CALLS.items():
        function = getattr(library, f"reprise_{name}", None)
        if function is None:
            raise ImportError(
                f"reprise_embedded: {_FILE} has no reprise_{name}; allowed: one that exports "
                "REPRISE_0.2"
            )
        function.restype, function.argtypes = c_int32, [*arguments, _ERROR]
    for name in _DESTROYED:
        function = getattr(library, f"reprise_{name}_destroy")
        function.restype, function.argtypes = c_int32, [_HANDLE]
    for name, (result, arguments) in _OTHERS.items():
        function = getattr(library, f"reprise_{name}")
        function.restype, function.argtypes = result, arguments
    return library


_library = _load()


def call(name: str, *arguments: Any) -> None:
    """reprise_<name>(*arguments, error). Errors: RepriseError."""
    error = Error()
    code = getattr(_library, f"reprise_{name}")(*arguments, ctypes.byref(error))
    if code != 0:
        raise error_of(code, error.message.decode(errors="replace"))


def ask(name: str, *arguments: Any) -> Any:
    """reprise_<name>(*arguments), of those that cannot fail."""
    return getattr(_library, f"reprise_{name}")(*arguments)


_Struct = TypeVar("_Struct", bound=ctypes.Structure)


def make_struct(kind: Type[_Struct]) -> _Struct:
    """All zero but its size."""
    return kind(struct_size=ctypes.sizeof(kind))


def get_struct(kind: Type[_Struct], name: str, *arguments: Any) -> _Struct:
    """What reprise_<name>(*arguments, &struct, error) fills in."""
    struct = make_struct(kind)
    call(name, *arguments, ctypes.byref(struct))
    return struct


# ---- handles ----

# A function on a stream runs in the stream's own thread, and one that enqueues may in a graph
# manager's. Whatever Python's garbage collector finds there must wait: neither can end in its own
# thread.
_in_function = threading.local()
_waiting: List[Tuple[str, c_void_p]] = []


def enter_function(inside: bool) -> bool:
    """Returns what was so before."""
    before = bool(getattr(_in_function, "inside", False))
    _in_function.inside = inside
    return before


def _destroy(kind: str, handle: c_void_p) -> None:
    if getattr(_in_function, "inside", False):
        _waiting.append((kind, handle))
        return
    ask(f"{kind}_destroy", handle)
    while _waiting:
        late_kind, late = _waiting.pop()
        ask(f"{late_kind}_destroy", late)


class Handle:
    """Owns a handle of the library. `close` ends it, as does the end of a `with` block."""

    _kind = ""

    def __init__(self, create: Callable[..., None], *arguments: Any) -> None:
        self._handle = c_void_p()
        create(*arguments, ctypes.byref(self._handle))

    @property
    def handle(self) -> c_void_p:
        """For calls. Errors: ValueError after close."""
        if not self._handle:
            raise ValueError(f"{type(self).__name__}: it is closed")
        return self._handle

    def close(self) -> None:
        """Once more does nothing."""
        handle, self._handle = self._handle, c_void_p()
        if handle:
            _destroy(self._kind, handle)

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self.close()
