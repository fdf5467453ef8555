# SPDX-License-Identifier: Apache-2.0
"""Engines, sessions and what they run."""
from __future__ import annotations

import ctypes
import dataclasses
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _library
from ._arrays import copy_of, integer, integers, pointer
from ._library import Handle, call, get_struct
from .device import Device
from .errors import OutOfRange, RepriseError, error_of
from .graphs import CapturedBucket, bucket_of
from .step import Sampling, Step

Progress = Callable[[str, str, int, int], None]
Draft = Callable[[List[int]], ArrayLike]

RAN, STOPPED, PAUSED = 0, 1, 2
FINISH_NONE, FINISH_STOP_TOKEN, FINISH_LENGTH, FINISH_NO_CANDIDATE = 0, 1, 2, 3


@dataclasses.dataclass(frozen=True)
class EngineInfo:
    """As reprise_engine_info in reprise.h."""

    model: str
    architecture: str
    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    eos_token_ids: List[int]
    tokens_are_bytes: bool
    dtype: str
    kv_dtype: str
    linear: str
    block_size: int
    max_rows: int
    max_context_length: int
    max_blocks_per_row: int
    max_step_tokens: int
    max_prompt_tokens: int
    pipeline_depth: int
    max_steps_per_request: int
    min_shared_tokens: int
    max_logit_rows: int
    max_prompt_logprobs: int
    max_stop_tokens: int
    max_logit_bias: int
    max_logprobs: int
    weights_bytes: int
    kv_cache_bytes: int
    workspace_bytes: int
    graphs_bytes: int
    load_ns: int
    capture_ns: int
    max_draft_tokens: int
    step_kernel_rows: int
    kv_num_layers: int
    kv_num_heads: int
    kv_head_dim: int
    max_kv_blocks_per_call: int
    kv_token_bytes: int
    max_kv_transfer_bytes: int
    swap_bytes: int
    row_state_bytes: int  # that a row carries beside its KV


@dataclasses.dataclass(frozen=True)
class PoolInfo:
    block_size: int  # tokens
    num_blocks: int
    free_blocks: int
    bytes: int
    swap_blocks: int  # room in swap space
    free_swap_blocks: int
    num_resident_rows: int  # of all sessions
    swap_states: int  # rows whose state swap space has room for
    free_swap_states: int


@dataclasses.dataclass(frozen=True)
class SessionUse:
    num_rows: int
    num_blocks: int  # its own
    num_steps: int
    num_shared: int  # blocks that it uses with others
    num_swapped: int  # blocks that wait in swap space


@dataclasses.dataclass(frozen=True)
class AttentionTree:
    """The tree by which attention's plan decides (docs/attention_tree.md)."""

    version: int  # 1: what the engine started with; one more with every replacement
    text: str


@dataclasses.dataclass(frozen=True)
class SingleStep:
    """One step of a request. rows: its part of the result's columns."""

    graph: str
    replayed: bool
    rows: slice
    padding_rows: int
    padding_tokens: int
    device_ns: int
    query_tokens: int  # that ran
    attention_tree: int  # version of the tree that was in force


@dataclasses.dataclass(frozen=True)
class PromptLogprobs:
    """Columns: how likely the model took given tokens to be."""

    row: NDArray[np.uint32]
    position: NDArray[np.uint32]
    logprob: NDArray[np.float32]
    rank: NDArray[np.uint32]
    top_begin: NDArray[np.uint32]
    top_count: NDArray[np.uint32]


@dataclasses.dataclass(frozen=True)
class Accepted:
    """Columns: drafts that were accepted, tokens that their rows sampled before StepResult.token.

    Those of entry i of the result are at begin[i] : begin[i] + count[i].
    """

    begin: NDArray[np.uint32]
    count: NDArray[np.uint32]
    token: NDArray[np.uint32]
    logprob: NDArray[np.float32]
    rank: NDArray[np.uint32]
    top_begin: NDArray[np.uint32]
    top_count: NDArray[np.uint32]


@dataclasses.dataclass(frozen=True)
class Ledger:
    """Where the request's time went, nanoseconds."""

    validate_ns: int
    ring_ns: int
    launch_ns: int
    device_ns: int
    total_ns: int


@dataclasses.dataclass(frozen=True)
class StepResult:
    """What a step gave: columns with an entry per row that ran, of all steps one after another."""

    sequence: int
    row: NDArray[np.uint32]
    status: NDArray[np.int32]  # RAN, STOPPED, PAUSED
    sampled: NDArray[np.bool_]
    token: NDArray[np.uint32]  # where sampled
    logprob: NDArray[np.float32]  # where sampled
    context_length: NDArray[np.uint32]
    finish: NDArray[np.int32]  # FINISH_...
    rank: NDArray[np.uint32]
    top_begin: NDArray[np.uint32]  # of the row's part of top_token
    top_count: NDArray[np.uint32]
    top_token: NDArray[np.uint32]
    top_logprob: NDArray[np.float32]
    logits: Dict[int, NDArray[np.float32]]  # by row, of those that return them
    prompt: PromptLogprobs
    steps: List[SingleStep]
    refused: Dict[int, RepriseError]  # by row, with Step.isolate_bad_rows
    ledger: Ledger
    accepted: Accepted
    num_sampled: int  # tokens that came out, of all rows and steps, accepted drafts among them

    def tokens_of(self, entry: int) -> NDArray[np.uint32]:
        """All that the row of this entry sampled in it: accepted drafts, then its token."""
        begin = int(self.accepted.begin[entry])
        drafts = self.accepted.token[begin : begin + int(self.accepted.count[entry])]
        last = self.token[entry : entry + 1] if self.sampled[entry] else self.token[:0]
        return np.concatenate((drafts, last))


@dataclasses.dataclass(frozen=True)
class JointSteps:
    """What became of requests that were submitted together, by their place among them."""

    ticket: int  # of those taken; 0: none was
    taken: List[int]
    left: List[int]  # did not fit beside those taken
    refused: Dict[int, RepriseError]


class Engine(Handle):
    """A model, its KV-cache pool and its captured graphs on one device.

    Exactly one of directory and preset. Options by name are the fields of reprise_engine_options
    in reprise.h: max_rows=8, kv_cache_bytes=1 << 30, dtype="bf16", decode_buckets=[1, 8].
    progress(stage, detail, done, total) is called while it loads; what it raises is printed and
    does not stop anything. Errors: the model's and the options' own; ResourceExhausted.
    """

    _kind = "engine"

    def __init__(
        self,
        device: Device,
        directory: Optional[str] = None,
        *,
        preset: Optional[str] = None,
        progress: Optional[Progress] = None,
        **options: Any,
    ) -> None:
        given = _library.make_struct(_library.EngineOptions)
        call("engine_options_init", ctypes.byref(given), ctypes.sizeof(given))
        given.directory = None if directory is None else str(directory).encode()
        given.preset = None if preset is None else preset.encode()
        kept = [_set_option(given, name, value) for name, value in options.items()]
        if progress is not None:
            given.progress = _library.ProgressFn(
                lambda _, stage, detail, done, total: progress(
                    stage.decode(), detail.decode(), done, total
                )
            )
        super().__init__(
            lambda out: call("engine_create", device.handle, ctypes.byref(given), out)
        )
        del kept  # what the options point to, until here

    @property
    def info(self) -> EngineInfo:
        info = get_struct(_library.EngineInfo, "engine_get_info", self.handle)
        values = {field.name: getattr(info, field.name) for field in dataclasses.fields(EngineInfo)}
        for name, value in values.items():
            if isinstance(value, bytes):
                values[name] = value.decode()
        values["eos_token_ids"] = copy_of(info.eos_token_ids, info.num_eos_token_ids).tolist()
        values["tokens_are_bytes"] = bool(info.tokens_are_bytes)
        return EngineInfo(**values)

    @property
    def pool(self) -> PoolInfo:
        pool = get_struct(_library.PoolInfo, "engine_get_pool", self.handle)
        return PoolInfo(
            **{field.name: getattr(pool, field.name) for field in dataclasses.fields(PoolInfo)}
        )

    @property
    def decode_buckets(self) -> List[CapturedBucket]:
        return self._buckets(0, "num_decode_buckets")

    @property
    def mixed_buckets(self) -> List[CapturedBucket]:
        return self._buckets(1, "num_mixed_buckets")

    def _buckets(self, kind: int, count: str) -> List[CapturedBucket]:
        info = get_struct(_library.EngineInfo, "engine_get_info", self.handle)
        return [
            bucket_of(
                get_struct(_library.BucketInfo, "engine_get_bucket", self.handle, kind, index)
            )
            for index in range(getattr(info, count))
        ]

    def set_buckets(self, decode: Sequence[int] = (), mixed: Sequence[int] = ()) -> int:
        """Captures graphs of other buckets while steps go on, and replays them from then on.

        decode: in rows; mixed: in query tokens; a kind without any keeps what it has. Returns the
        version of the new set. Errors (nothing changed): InvalidArgument, where the limits of a
        step would change too; ResourceExhausted; Unavailable after a fault of the device.
        """
        capacities = [
            integers(name, given, np.int64) for name, given in (("decode", decode), ("mixed", mixed))
        ]
        arrays = [
            part
            for array in capacities
            for part in (pointer(array, ctypes.c_int64) if len(array) else None, len(array))
        ]
        version = ctypes.c_uint64()
        call("engine_set_buckets", self.handle, *arrays, ctypes.byref(version))
        return version.value

    def check_health(self) -> None:
        """Errors: the fault after which every step is refused."""
        call("engine_check_health", self.handle)

    @property
    def attention_tree(self) -> AttentionTree:
        """The one for steps that are submitted from here on."""
        size, version = ctypes.c_size_t(), ctypes.c_uint64()
        ask_for = lambda text, room: call(  # noqa: E731
            "engine_get_attention_tree", self.handle, text, room,
            ctypes.byref(size), ctypes.byref(version),
        )  # fmt: skip
        ask_for(None, 0)
        while True:  # another thread may have set a longer one meanwhile
            text = ctypes.create_string_buffer(size.value)
            try:
                ask_for(text, len(text))
            except OutOfRange:
                continue
            return AttentionTree(version.value, text.value.decode())

    def set_attention_tree(self, text: str) -> int:
        """Replaces it and returns the new one's version. Steps in flight are not waited for.

        Errors: InvalidArgument where the text is no tree; FailedPrecondition where it was made for
        something else.
        """
        version = ctypes.c_uint64()
        call("engine_set_attention_tree", self.handle, text.encode(), ctypes.byref(version))
        return version.value

    def open_account(self, *, max_rows: int = 0, max_blocks: int = 0) -> int:
        """For sessions that hold no more than this together, and share blocks. 0: no limit."""
        limits = _limits_of(max_rows, max_blocks)
        account = ctypes.c_uint32()
        call("engine_open_account", self.handle, ctypes.byref(limits), ctypes.byref(account))
        return account.value

    def set_account_limits(self, account: int, *, max_rows: int = 0, max_blocks: int = 0) -> None:
        """From the next call on; what sessions hold beyond them stays theirs. Errors: NotFound."""
        limits = _limits_of(max_rows, max_blocks)
        number = integer("account", account)
        call("engine_set_account_limits", self.handle, number, ctypes.byref(limits))

    def session(
        self, *, max_rows: int = 0, max_blocks: int = 0, max_swapped: int = 0, account: int = 0
    ) -> "Session":
        """Opens one. Limits: 0 is as much as there is. account: of open_account; 0: of none."""
        return Session(
            self,
            max_rows=max_rows,
            max_blocks=max_blocks,
            max_swapped=max_swapped,
            account=account,
        )

    def wait(self, ticket: int) -> StepResult:
        """The result of the oldest request in flight, which `ticket` must be."""
        with _Result() as result:
            call("engine_wait", self.handle, ticket, result.handle)
            return result.read(self.info.vocab_size)

    def submit_joint(self, requests: Sequence[Tuple["Session", Step]]) -> JointSteps:
        """Submits requests of different sessions as one: one launch per step runs the rows of all.

        Each row has the bits that it would have alone. Takes them in order; what does not fit
        beside those taken is left, and may be submitted behind them. Errors: of all of them.
        """
        given = list(requests)
        count = len(given)
        sessions = (ctypes.c_void_p * count)(*(session.handle.value for session, _ in given))
        steps = (ctypes.c_void_p * count)(*(step.handle.value for _, step in given))
        outcomes, errors = (ctypes.c_int32 * count)(), (_library.Error * count)()
        ticket = ctypes.c_uint64()
        call("engine_submit_joint", self.handle, sessions, steps, count, outcomes, errors,
             ctypes.byref(ticket))  # fmt: skip
        return JointSteps(
            ticket=ticket.value,
            taken=[i for i in range(count) if outcomes[i] == 0],
            left=[i for i in range(count) if outcomes[i] == 2],
            refused={
                i: error_of(errors[i].code, errors[i].message.decode(errors="replace"))
                for i in range(count)
                if outcomes[i] == 1
            },
        )

    def wait_joint(self, steps: JointSteps) -> Dict[int, StepResult]:
        """Results of those that were taken, by their place among the requests."""
        if not steps.taken:
            return {}
        results = [_Result() for _ in steps.taken]
        handles = (ctypes.c_void_p * len(results))(*(result.handle.value for result in results))
        call("engine_wait_joint", self.handle, steps.ticket, handles, len(results))
        vocab_size = self.info.vocab_size
        return {i: result.read(vocab_size) for i, result in zip(steps.taken, results)}

    def generate(self, prompt: ArrayLike, **options: Any) -> Iterator[int]:
        """Session.generate in a session of its own, which ends with the iterator."""
        session = self.session()
        try:
            tokens = session.generate(prompt, **options)
        except BaseException:
            session.close()
            raise
        return _ending(session, tokens)


def _limits_of(max_rows: int, max_blocks: int) -> _library.SessionLimits:
    limits = _library.make_struct(_library.SessionLimits)
    limits.max_rows = integer("max_rows", max_rows)
    limits.max_blocks = integer("max_blocks", max_blocks)
    return limits


def _ending(session: "Session", tokens: Iterator[int]) -> Iterator[int]:
    with session:
        yield from tokens


class Session(Handle):
    """Owns rows and KV blocks of an engine, and numbers its steps."""

    _kind = "session"

    def __init__(
        self,
        engine: Engine,
        *,
        max_rows: int = 0,
        max_blocks: int = 0,
        max_swapped: int = 0,
        account: int = 0,
    ) -> None:
        self.engine = engine
        limits = _limits_of(max_rows, max_blocks)
        limits.max_swapped = integer("max_swapped", max_swapped)
        limits.account = integer("account", account)
        super().__init__(
            lambda out: call("session_open", engine.handle, ctypes.byref(limits), out)
        )
        info = self._info = engine.info
        self._vocab_size = info.vocab_size
        self._block_size = info.block_size
        self._chunk = info.max_prompt_tokens
        self._next_row = 2**31  # of rows that generate() adds

    @property
    def use(self) -> SessionUse:
        use = get_struct(_library.SessionUse, "session_get_use", self.handle)
        return SessionUse(
            **{field.name: getattr(use, field.name) for field in dataclasses.fields(SessionUse)}
        )

    def allocate(self, count: int) -> NDArray[np.uint32]:
        """Ids of KV blocks, all or none. Errors: ResourceExhausted (asked, free)."""
        blocks = np.empty(integer("count", count), np.uint32)
        call("session_allocate_blocks", self.handle, count, pointer(blocks, ctypes.c_uint32))
        return blocks

    def free(self, blocks: ArrayLike) -> None:
        """All or none; a resident row's table may name none of them."""
        ids = integers("blocks", blocks, np.uint32)
        call("session_free_blocks", self.handle, pointer(ids, ctypes.c_uint32), len(ids))

    def share(self, name: str, blocks: ArrayLike) -> None:
        """Shares full blocks with the sessions of its account, or with all that have none.

        From here on nobody writes them; they stay until the last session that uses them has
        released them or ended. name: 1 to 64 bytes. Errors: AlreadyExists the name;
        FailedPrecondition a block that is not full, or shared already.
        """
        ids = integers("blocks", blocks, np.uint32)
        call("session_share_blocks", self.handle, _name_of(name), pointer(ids, ctypes.c_uint32),
             len(ids))  # fmt: skip

    def adopt(self, name: str) -> NDArray[np.uint32]:
        """What has been shared under the name, for this session to use. Errors: NotFound."""
        blocks = np.empty(self._info.max_blocks_per_row, np.uint32)
        count = ctypes.c_size_t()
        call("session_adopt_blocks", self.handle, _name_of(name), pointer(blocks, ctypes.c_uint32),
             len(blocks), ctypes.byref(count))  # fmt: skip
        return blocks[: count.value].copy()

    def release(self, name: str) -> None:
        """The session does not use them any more; a resident row's table may name none of them."""
        call("session_release_blocks", self.handle, _name_of(name))

    def swap_out(self, blocks: ArrayLike) -> NDArray[np.uint32]:
        """Moves blocks to swap space and frees them; what they are called there.

        In order with steps, and does not wait. Errors: ResourceExhausted swap space, which
        `swap_bytes` of the engine's options gives; FailedPrecondition where a resident row's table
        names one.
        """
        return self._swap("session_swap_out", "blocks", blocks)

    def swap_in(self, swapped: ArrayLike) -> NDArray[np.uint32]:
        """Takes blocks from the pool and moves contents back, in the order of `swapped`."""
        return self._swap("session_swap_in", "swapped", swapped)

    def _swap(self, function: str, name: str, numbers: ArrayLike) -> NDArray[np.uint32]:
        given = integers(name, numbers, np.uint32)
        moved = np.empty(len(given), np.uint32)
        call(function, self.handle, pointer(given, ctypes.c_uint32), len(given),
             pointer(moved, ctypes.c_uint32))  # fmt: skip
        return moved

    def free_swapped(self, swapped: ArrayLike) -> None:
        """Forgets swapped blocks."""
        given = integers("swapped", swapped, np.uint32)
        call("session_free_swapped", self.handle, pointer(given, ctypes.c_uint32), len(given))

    def swap_out_state(self, row: int) -> int:
        """Copies what a row carries beside its KV to swap space; what it is called there.

        For a row that is added later in its place: `Step.add_row(swapped_state=...)`. The row stays.
        Errors: NotFound; FailedPrecondition where rows of the model carry nothing, or the row has
        steps in flight; ResourceExhausted swap space.
        """
        state = ctypes.c_uint32()
        number = integer("row", row)
        call("session_swap_out_state", self.handle, number, ctypes.byref(state), None)
        return state.value

    def free_swapped_states(self, states: ArrayLike) -> None:
        """Forgets what `swap_out_state` has copied."""
        given = integers("states", states, np.uint32)
        call("session_free_swapped_states", self.handle, pointer(given, ctypes.c_uint32), len(given))

    def read_blocks(self, blocks: ArrayLike) -> List[NDArray[Any]]:
        """What the session has written in blocks, in order with steps; waits for the device.

        Of each block [kv_num_layers, 2 (K, V), kv_num_heads, tokens, kv_head_dim] elements of the
        engine's kv_dtype; uint16 for bf16 and uint8 for 8 bits, which NumPy has no types for.
        """
        ids = integers("blocks", blocks, np.uint32)
        return [self._read_block(int(block)) for block in ids]

    def _read_block(self, block: int) -> NDArray[Any]:
        info = self._info
        pieces = []
        for first, count in _layers_of(info):
            part = _library.KvPart(block, first, count, 0)
            room = np.empty(count * info.block_size * info.kv_token_bytes, np.uint8)
            call("session_read_blocks", self.handle, ctypes.byref(part), 1, room.ctypes.data,
                 room.nbytes, None)  # fmt: skip
            shape = (count, 2, info.kv_num_heads, part.num_tokens, info.kv_head_dim)
            used = room[: count * part.num_tokens * info.kv_token_bytes]
            pieces.append(used.view(_kv_dtype(info)).reshape(shape))
        return np.concatenate(pieces)

    def write_blocks(self, blocks: ArrayLike, contents: Sequence[NDArray[Any]]) -> None:
        """Writes what read_blocks gave, of this engine or one of the same model and kv_dtype.

        A resident row's table may name none of the blocks. Blocks before one that is refused are
        written. Errors: TypeError, ValueError about arrays, before anything is written.
        """
        ids = integers("blocks", blocks, np.uint32)
        if len(contents) != len(ids):
            raise ValueError(f"contents: got {len(contents)} arrays, allowed: {len(ids)}")
        arrays = [_kv_contents(self._info, array) for array in contents]
        for block, array in zip(ids, arrays):
            for first, count in _layers_of(self._info):
                piece = array[first : first + count]
                part = _library.KvPart(int(block), first, count, array.shape[3])
                call("session_write_blocks", self.handle, ctypes.byref(part), 1,
                     piece.ctypes.data, piece.nbytes)  # fmt: skip

    def step(self, step: Step) -> StepResult:
        """Runs a request and waits for its result. Errors: RepriseError; nothing has changed."""
        with _Result() as result:
            call("session_step", self.handle, step.handle, result.handle)
            return result.read(self._vocab_size)

    def submit(self, step: Step) -> int:
        """The same without waiting; Engine.wait takes what this returns."""
        ticket = ctypes.c_uint64()
        call("session_submit", self.handle, step.handle, ctypes.byref(ticket))
        return ticket.value

    def generate(
        self,
        prompt: ArrayLike,
        *,
        max_new_tokens: Optional[int] = None,
        sampling: Optional[Sampling] = None,
        draft: Optional[Draft] = None,
    ) -> Iterator[int]:
        """The tokens that follow a prompt, as they come.

        prompt: token ids, a list or an array of integers. max_new_tokens: 1 or more; None is no
        such limit. Allocates KV blocks as the row grows; the row and its blocks are gone when the
        iterator ends or is closed. Ends with a stop token or eos (which is yielded), after
        max_new_tokens, or at the model's context limit. sampling: None is greedy and stops at eos.
        Several iterators of a session may be taken from in turns. draft(tokens): what may follow
        all tokens so far, the prompt first; none, or more than the engine takes, are no error. The
        tokens are the same in fewer steps. Errors: RepriseError, TypeError, ValueError.
        """
        if draft is not None and self._info.max_draft_tokens == 0:
            raise ValueError("draft: got one, allowed: with the engine's max_draft_tokens above 0")
        tokens = integers("prompt", prompt, np.uint32)
        if tokens.size == 0:
            raise ValueError("prompt: got no tokens, allowed: at least one")
        sampling = sampling or Sampling(stop_at_eos=True)
        if max_new_tokens is not None:
            sampling = dataclasses.replace(
                sampling, max_new_tokens=integer("max_new_tokens", max_new_tokens, least=1)
            )
        return self._generate(tokens, sampling, draft)

    def _generate(
        self, tokens: NDArray[np.uint32], sampling: Sampling, draft: Optional[Draft]
    ) -> Iterator[int]:
        limit = self._info.max_context_length
        text = tokens.tolist()
        row, self._next_row = self._next_row, self._next_row + 1
        blocks: List[int] = []
        length = 0
        added = False
        try:
            with Step() as step:
                while True:
                    chunk = tokens[length : length + self._chunk] if length < len(tokens) else None
                    drafts = tokens[:0]
                    if chunk is None and draft is not None:
                        most = min(self._info.max_draft_tokens, self._chunk - 1, limit - length - 1)
                        drafts = integers("draft", draft(text), np.uint32)[: max(0, most)]
                    length += 1 + len(drafts) if chunk is None else len(chunk)
                    more = self._grow(blocks, length)
                    if added:
                        step.append_blocks(row, more) if len(more) else None
                    else:
                        step.add_row(row, more, sampling=sampling)
                    if chunk is None:
                        step.continue_row(row)
                        step.draft_tokens(row, drafts) if len(drafts) else None
                    else:
                        step.run_chunk(row, chunk, sample=length == len(tokens))
                    result = self.step(step)
                    added = True
                    step.clear()
                    length = int(result.context_length[0])
                    if not result.sampled[0]:
                        continue
                    new = result.tokens_of(0).tolist()
                    text.extend(new)
                    yield from new
                    if result.finish[0] != FINISH_NONE or length >= limit:
                        return
        finally:
            self._end(row if added else None, blocks)

    def _grow(self, blocks: List[int], length: int) -> NDArray[np.uint32]:
        """Blocks that a row of so many tokens lacks."""
        lacking = -(-length // self._block_size) - len(blocks)
        if lacking <= 0:
            return np.empty(0, np.uint32)
        more = self.allocate(lacking)
        blocks.extend(more.tolist())
        return more

    def _end(self, row: Optional[int], blocks: Sequence[int]) -> None:
        if not self._handle:
            return  # all of it went with the session
        if row is not None:
            with Step() as step:
                step.drop_row(row)
                self.step(step)
        if blocks:
            self.free(blocks)


def _name_of(name: str) -> bytes:
    encoded = name.encode()
    if b"\0" in encoded:
        raise ValueError(f"name: got {name!r}, allowed: no NUL")
    return encoded


def _layers_of(info: EngineInfo) -> List[Tuple[int, int]]:
    """A block's layers as calls take them: first and count."""
    of_layer = info.block_size * info.kv_token_bytes
    most = max(1, info.max_kv_transfer_bytes // of_layer)
    layers = info.kv_num_layers
    return [(first, min(most, layers - first)) for first in range(0, layers, most)]


def _kv_dtype(info: EngineInfo) -> Any:
    kinds = {"f32": np.float32, "f16": np.float16, "bf16": np.uint16}
    return np.dtype(kinds.get(info.kv_dtype, np.uint8))


def _kv_contents(info: EngineInfo, array: Any) -> NDArray[Any]:
    """As read_blocks gives them. Errors: TypeError, ValueError."""
    dtype = _kv_dtype(info)
    if not isinstance(array, np.ndarray) or array.dtype != dtype:
        got = array.dtype if isinstance(array, np.ndarray) else type(array).__name__
        raise TypeError(f"contents: got {got}, allowed: an array of {dtype}")
    layers, heads, size = info.kv_num_layers, info.kv_num_heads, info.kv_head_dim
    tokens = array.shape[3] if array.ndim == 5 else 0
    if array.shape != (layers, 2, heads, tokens, size) or not 1 <= tokens <= info.block_size:
        raise ValueError(
            f"contents: got shape {array.shape}, allowed: "
            f"({layers}, 2, {heads}, 1 to {info.block_size}, {size})"
        )
    return np.ascontiguousarray(array)


class _Result(Handle):
    _kind = "result"

    def __init__(self) -> None:
        super().__init__(lambda out: call("result_create", out))

    def read(self, vocab_size: int) -> StepResult:
        view = get_struct(_library.ResultView, "result_get", self.handle)
        num_rows, num_steps = view.num_rows, view.num_steps

        def rows(name: str) -> NDArray[Any]:
            return copy_of(getattr(view, name), num_rows)

        with_logits = np.flatnonzero(rows("has_logits"))
        logits = copy_of(view.logits, view.num_logit_rows, vocab_size)
        row = rows("row")
        prompt = {
            field.name: copy_of(getattr(view, f"prompt_{field.name}"), view.num_prompt)
            for field in dataclasses.fields(PromptLogprobs)
        }
        accepted = {
            field.name: copy_of(getattr(view, f"accepted_{field.name}"), view.num_accepted)
            for field in dataclasses.fields(Accepted)
            if field.name not in ("begin", "count")
        }
        return StepResult(
            sequence=view.sequence,
            row=row,
            status=rows("status"),
            sampled=rows("sampled").astype(np.bool_),
            token=rows("token"),
            logprob=rows("logprob"),
            context_length=rows("context_length"),
            finish=rows("finish"),
            rank=rows("rank"),
            top_begin=rows("top_begin"),
            top_count=rows("top_count"),
            top_token=copy_of(view.top_token, view.num_top),
            top_logprob=copy_of(view.top_logprob, view.num_top),
            logits={int(row[i]): logits[n] for n, i in enumerate(with_logits)},
            prompt=PromptLogprobs(**prompt),
            steps=_steps(view, num_steps),
            refused={
                view.refused_row[i]: error_of(
                    view.refused_code[i], view.refused_message[i].decode(errors="replace")
                )
                for i in range(view.num_refused)
            },
            ledger=Ledger(
                view.validate_ns, view.ring_ns, view.launch_ns, view.device_ns, view.total_ns
            ),
            accepted=Accepted(
                begin=rows("accepted_begin"), count=rows("accepted_count"), **accepted
            ),
            num_sampled=view.num_sampled,
        )


def _steps(view: _library.ResultView, num_steps: int) -> List[SingleStep]:
    steps = []
    begin = 0
    for i in range(num_steps):
        end = begin + view.step_num_rows[i]
        steps.append(
            SingleStep(
                graph=view.step_graph[i].decode(),
                replayed=bool(view.step_replayed[i]),
                rows=slice(begin, end),
                padding_rows=view.step_padding_rows[i],
                padding_tokens=view.step_padding_tokens[i],
                device_ns=view.step_device_ns[i],
                query_tokens=view.step_query_tokens[i],
                attention_tree=view.step_attention_tree[i],
            )
        )
        begin = end
    return steps


_NOT_OPTIONS = ("struct_size", "directory", "preset", "progress", "progress_context")
_OPTIONS = {
    name: ctype
    for name, ctype in _library.EngineOptions._fields_
    if name not in _NOT_OPTIONS and not name.startswith("num_")
}


def _set_option(options: _library.EngineOptions, name: str, value: Any) -> Any:
    """Returns what the options point to from here on."""
    ctype = _OPTIONS.get(name)
    if ctype is None:
        raise TypeError(f"engine options: got {name}, allowed: {', '.join(_OPTIONS)}")
    if ctype is ctypes.c_char_p:
        setattr(options, name, None if value is None else str(value).encode())
    elif ctype is ctypes.c_double:
        setattr(options, name, float(value))
    elif ctype in (ctypes.c_uint32, ctypes.c_uint64):
        number = int(value) if isinstance(value, bool) else value
        most = 2 ** (8 * ctypes.sizeof(ctype)) - 1
        setattr(options, name, integer(name, number, most))
    else:  # buckets
        capacities = integers(name, value, np.int64)
        setattr(options, name, pointer(capacities, ctypes.c_int64))
        setattr(options, f"num_{name}", len(capacities))
        return capacities
    return None
