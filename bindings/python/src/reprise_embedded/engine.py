# SPDX-License-Identifier: Apache-2.0
"""Engines, sessions and what they run."""
from __future__ import annotations

import ctypes
import dataclasses
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _library
from ._arrays import copy_of, integer, integers, pointer
from ._library import Handle, call, get_struct
from .device import Device
from .errors import RepriseError, error_of
from .graphs import CapturedBucket, bucket_of
from .step import Sampling, Step

Progress = Callable[[str, str, int, int], None]

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


@dataclasses.dataclass(frozen=True)
class PoolInfo:
    block_size: int
    num_blocks: int
    free_blocks: int
    bytes: int


@dataclasses.dataclass(frozen=True)
class SessionUse:
    num_rows: int
    num_blocks: int
    num_steps: int


@dataclasses.dataclass(frozen=True)
class SingleStep:
    """One step of a request. rows: its part of the result's columns."""

    graph: str
    replayed: bool
    rows: slice
    padding_rows: int
    padding_tokens: int
    device_ns: int


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
        return PoolInfo(pool.block_size, pool.num_blocks, pool.free_blocks, pool.bytes)

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

    def check_health(self) -> None:
        """Errors: the fault after which every step is refused."""
        call("engine_check_health", self.handle)

    def session(self, *, max_rows: int = 0, max_blocks: int = 0) -> "Session":
        """Opens one. 0: as much as there is."""
        return Session(self, max_rows=max_rows, max_blocks=max_blocks)

    def wait(self, ticket: int) -> StepResult:
        """The result of the oldest request in flight, which `ticket` must be."""
        with _Result() as result:
            call("engine_wait", self.handle, ticket, result.handle)
            return result.read(self.info.vocab_size)

    def generate(self, prompt: ArrayLike, **options: Any) -> Iterator[int]:
        """Session.generate in a session of its own, which ends with the iterator."""
        session = self.session()
        try:
            tokens = session.generate(prompt, **options)
        except BaseException:
            session.close()
            raise
        return _ending(session, tokens)


def _ending(session: "Session", tokens: Iterator[int]) -> Iterator[int]:
    with session:
        yield from tokens


class Session(Handle):
    """Owns rows and KV blocks of an engine, and numbers its steps."""

    _kind = "session"

    def __init__(self, engine: Engine, *, max_rows: int = 0, max_blocks: int = 0) -> None:
        self.engine = engine
        limits = _library.make_struct(_library.SessionLimits)
        limits.max_rows = integer("max_rows", max_rows)
        limits.max_blocks = integer("max_blocks", max_blocks)
        super().__init__(
            lambda out: call("session_open", engine.handle, ctypes.byref(limits), out)
        )
        info = engine.info
        self._vocab_size = info.vocab_size
        self._block_size = info.block_size
        self._chunk = info.max_prompt_tokens
        self._next_row = 2**31  # of rows that generate() adds

    @property
    def use(self) -> SessionUse:
        use = get_struct(_library.SessionUse, "session_get_use", self.handle)
        return SessionUse(use.num_rows, use.num_blocks, use.num_steps)

    def allocate(self, count: int) -> NDArray[np.uint32]:
        """Ids of KV blocks, all or none. Errors: ResourceExhausted (asked, free)."""
        blocks = np.empty(integer("count", count), np.uint32)
        call("session_allocate_blocks", self.handle, count, pointer(blocks, ctypes.c_uint32))
        return blocks

    def free(self, blocks: ArrayLike) -> None:
        """All or none; a resident row's table may name none of them."""
        ids = integers("blocks", blocks, np.uint32)
        call("session_free_blocks", self.handle, pointer(ids, ctypes.c_uint32), len(ids))

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
    ) -> Iterator[int]:
        """The tokens that follow a prompt, as they come.

        Allocates KV blocks as the row grows; the row and its blocks are gone when the iterator
        ends or is closed. Ends with a stop token or eos (which is yielded), after max_new_tokens,
        or at the model's context limit. sampling: None is greedy and stops at eos. Several
        iterators of a session may be taken from in turns. Errors: RepriseError, ValueError.
        """
        tokens = integers("prompt", prompt, np.uint32)
        if tokens.size == 0:
            raise ValueError("prompt: got no tokens, allowed: at least one")
        sampling = sampling or Sampling(stop_at_eos=True)
        if max_new_tokens is not None:
            sampling = dataclasses.replace(
                sampling, max_new_tokens=integer("max_new_tokens", max_new_tokens)
            )
        return self._generate(tokens, sampling)

    def _generate(self, tokens: NDArray[np.uint32], sampling: Sampling) -> Iterator[int]:
        limit = self.engine.info.max_context_length
        row, self._next_row = self._next_row, self._next_row + 1
        blocks: List[int] = []
        length = 0
        added = False
        try:
            with Step() as step:
                while True:
                    chunk = tokens[length : length + self._chunk] if length < len(tokens) else None
                    length += 1 if chunk is None else len(chunk)
                    more = self._grow(blocks, length)
                    if added:
                        step.append_blocks(row, more) if len(more) else None
                    else:
                        step.add_row(row, more, sampling=sampling)
                    if chunk is None:
                        step.continue_row(row)
                    else:
                        step.run_chunk(row, chunk, sample=length == len(tokens))
                    result = self.step(step)
                    added = True
                    step.clear()
                    if not result.sampled[0]:
                        continue
                    yield int(result.token[0])
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
