# SPDX-License-Identifier: Apache-2.0
"""Session: sequence numbers, the answers to pipelined steps, and resuming a lost stream.

One task reads the stream. Steps that are unanswered wait in the order in which they were sent,
which is that of the answers. docs/wire.md and docs/sessions.md say what the server promises.
"""
from __future__ import annotations

import asyncio
import collections
import time
from types import TracebackType
from typing import Any, AsyncIterable, AsyncIterator, Deque, Iterable, List, Optional, Type, Union

import grpc
from reprise.v1 import step_service_pb2 as pb

from .errors import RepriseError, SessionEnded, error_of_call, error_of_code

# How a stream ends that is lost rather than ended by the server's decision.
_LOST = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.UNKNOWN,
)
_FIRST_DELAY_S = 0.05
_LONGEST_DELAY_S = 1.0

Steps = Union[Iterable[pb.StepRequest], AsyncIterable[pb.StepRequest]]


class _Sent:
    """A step that is unanswered."""

    def __init__(self, request: pb.StepRequest) -> None:
        self.request = request
        self.answer: "asyncio.Future[pb.StepResponse]" = asyncio.get_running_loop().create_future()
        self.behind: Optional[int] = None  # of the refused step that it was sent behind


class Session:
    """Made by Client.open_session. Also an async context manager, which closes it."""

    def __init__(self, client: Any, call: Any, opened: pb.Opened, max_unanswered: int) -> None:
        self._client = client
        self._call = call
        self._token = opened.session
        self._grace_s = opened.resume_grace_ms / 1000
        self._max_sent = max_unanswered
        self._sent: Deque[_Sent] = collections.deque()
        self._next_sequence = 1
        self._last_sequence = 0  # of the last answer
        self._connected = True
        self._closing = False
        self._ended: Optional[SessionEnded] = None
        self._turn = asyncio.Lock()  # who sends next
        self._changed = asyncio.Event()
        self._reader = asyncio.get_running_loop().create_task(self._read())

    # ---- what a scheduler calls ----

    @property
    def token(self) -> bytes:
        """Whoever has it can do with the session what this client can: keep it secret."""
        return self._token

    @property
    def resume_grace_s(self) -> float:
        """How long the session outlives a lost stream, as the server grants it."""
        return self._grace_s

    @property
    def max_unanswered(self) -> int:
        """How many steps may be sent and unanswered; `send` waits beyond that."""
        return self._max_sent

    async def send(self, request: pb.StepRequest) -> "asyncio.Future[pb.StepResponse]":
        """Sends a step, and does not wait for its answer: that is what the future is for.

        Sets request.sequence; the request must not be changed before it is answered. Waits while
        `max_unanswered` steps are unanswered or the stream is being resumed. Steps go out in the
        order of the calls. The future's errors: RepriseError for a refused step, after which steps
        that were already sent are refused too (`behind` names it) and the next one is welcome;
        SessionEnded. Errors: SessionEnded.
        """
        async with self._turn:
            while self._ended is None and (
                not self._connected or len(self._sent) >= self._max_sent
            ):
                self._changed.clear()
                await self._changed.wait()
            if self._ended is not None or self._closing:
                raise self._ended or SessionEnded(grpc.StatusCode.OK, "session: closed")
            request.sequence = self._next_sequence
            self._next_sequence += 1
            sent = _Sent(request)
            self._sent.append(sent)
            # Whole, even where the caller is cancelled: its place in the order is taken.
            await asyncio.shield(self._write(self._call, request))
        return sent.answer

    async def step(self, request: pb.StepRequest) -> pb.StepResponse:
        """Sends a step and waits for its answer. Errors: as of `send` and of its future."""
        return await (await self.send(request))

    async def run(self, steps: Steps, depth: int = 2) -> AsyncIterator[pb.StepResponse]:
        """The answers to `steps`, in order, with up to `depth` of them in flight.

        A step is taken from `steps` before the answers of up to `depth - 1` steps ahead of it are
        known. Errors: ValueError for a depth below 1; otherwise as of `send` and of its future.
        """
        if depth < 1:
            raise ValueError(f"depth: got {depth}, allowed: at least 1")
        waiting: Deque["asyncio.Future[pb.StepResponse]"] = collections.deque()
        async for request in _each(steps):
            waiting.append(await self.send(request))
            if len(waiting) >= depth:
                yield await waiting.popleft()
        while waiting:
            yield await waiting.popleft()

    async def allocate(self, count: int) -> List[int]:
        """KV blocks from the pool, all or none. Errors: ResourceExhausted says asked and free."""
        return await self._client._allocate(self._token, count)

    async def free(self, blocks: List[int]) -> None:
        """Gives blocks back, all or none; a resident row's table may name none of them."""
        await self._client._free(self._token, blocks)

    # What docs/kv.md says of KV blocks. Errors of all of them: what that page lists, typed.

    async def share_blocks(self, name: str, blocks: List[int]) -> None:
        """Full blocks, for sessions of the same identity to read; nobody writes them any more."""
        request = pb.ShareBlocksRequest(session=self._token, name=name, blocks=blocks)
        await self._client._unary("ShareBlocks", request, pb.ShareBlocksResponse)

    async def adopt_blocks(self, name: str) -> List[int]:
        """What is shared under a name, for this session's rows."""
        request = pb.AdoptBlocksRequest(session=self._token, name=name)
        answer = await self._client._unary("AdoptBlocks", request, pb.AdoptBlocksResponse)
        return list(answer.blocks)

    async def release_blocks(self, name: str) -> None:
        """The session does not use what is shared under a name any more."""
        request = pb.ReleaseBlocksRequest(session=self._token, name=name)
        await self._client._unary("ReleaseBlocks", request, pb.ReleaseBlocksResponse)

    async def read_blocks(self, ranges: List[pb.KvRange]) -> pb.ReadBlocksResponse:
        """Contents, as this session's steps have written them."""
        request = pb.ReadBlocksRequest(session=self._token, ranges=ranges)
        return await self._client._unary("ReadBlocks", request, pb.ReadBlocksResponse)

    async def write_blocks(self, layout: pb.KvLayout, parts: List[pb.KvPart]) -> None:
        """What `read_blocks` answered, into blocks of this session."""
        request = pb.WriteBlocksRequest(session=self._token, layout=layout, parts=parts)
        await self._client._unary("WriteBlocks", request, pb.WriteBlocksResponse)

    async def swap_out(self, blocks: List[int]) -> List[int]:
        """Moves blocks to swap space; what they are called there."""
        request = pb.SwapOutRequest(session=self._token, blocks=blocks)
        return list((await self._client._unary("SwapOut", request, pb.SwapOutResponse)).swapped)

    async def swap_in(self, swapped: List[int]) -> List[int]:
        """Moves swapped blocks back; their ids in the pool."""
        request = pb.SwapInRequest(session=self._token, swapped=swapped)
        return list((await self._client._unary("SwapIn", request, pb.SwapInResponse)).blocks)

    async def swap_out_state(self, row: int) -> pb.SwapOutStateResponse:
        """Copies what a row carries beside its KV to swap space, for `AddRow.swapped_state`."""
        request = pb.SwapOutStateRequest(session=self._token, row=row)
        return await self._client._unary("SwapOutState", request, pb.SwapOutStateResponse)

    async def free_swapped(self, swapped: List[int], states: Iterable[int] = ()) -> None:
        """Forgets swapped blocks, and states of rows."""
        request = pb.FreeSwappedRequest(
            session=self._token, swapped=swapped, swapped_states=states
        )
        await self._client._unary("FreeSwapped", request, pb.FreeSwappedResponse)

    async def export_blocks(self, blocks: List[int]) -> List[bytes]:
        """Copies blocks to where other servers of the machine take them; a ticket for each."""
        request = pb.ExportBlocksRequest(session=self._token, blocks=blocks)
        answer = await self._client._unary("ExportBlocks", request, pb.ExportBlocksResponse)
        return list(answer.tickets)

    async def import_blocks(self, blocks: List[int], tickets: List[bytes]) -> List[int]:
        """Takes another server's copies into blocks of this session; the tokens in each."""
        request = pb.ImportBlocksRequest(session=self._token, blocks=blocks, tickets=tickets)
        answer = await self._client._unary("ImportBlocks", request, pb.ImportBlocksResponse)
        return list(answer.num_tokens)

    async def free_exported(self, tickets: List[bytes]) -> None:
        """The copies that this session exported are not needed any more."""
        request = pb.FreeExportedRequest(session=self._token, tickets=tickets)
        await self._client._unary("FreeExported", request, pb.FreeExportedResponse)

    async def close(self) -> None:
        """Waits for the answers to all steps and ends the session: rows and blocks are gone.

        Errors: SessionEnded, where it had ended otherwise.
        """
        self._closing = True
        if self._ended is None:
            try:
                await self._call.done_writing()
            except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
                pass  # the reader finds out why
        await asyncio.shield(self._reader)
        if self._ended is not None and self._ended.code != grpc.StatusCode.OK:
            raise self._ended

    async def __aenter__(self) -> "Session":
        return self

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        try:
            await self.close()
        except SessionEnded:
            if kind is None:
                raise

    # ---- the reader ----

    async def _read(self) -> None:
        while True:
            try:
                lost = await self._read_stream()
                if lost is not None:
                    lost = await self._resume(lost)
            except asyncio.CancelledError:
                self._end(SessionEnded(grpc.StatusCode.CANCELLED, "session: cancelled"))
                raise
            except Exception as error:  # of this client: nobody may wait for ever
                self._end(SessionEnded(grpc.StatusCode.INTERNAL, f"session: {error!r}"))
                return
            if self._ended is not None:
                return
            if lost is not None:
                self._end(SessionEnded(lost.code, f"session: {lost.message}"))
                return

    async def _read_stream(self) -> Optional[RepriseError]:
        """Takes answers until the stream ends. Returns how it was lost."""
        try:
            while True:
                message = await self._call.read()
                if message is grpc.aio.EOF:
                    self._end(SessionEnded(grpc.StatusCode.OK, "session: closed"))
                    return None
                self._take(message)
        except grpc.aio.AioRpcError as error:
            return error_of_call(error)

    def _take(self, message: pb.StepStreamResponse) -> None:
        kind = message.WhichOneof("message")
        body = getattr(message, kind) if kind in ("step", "error") else None
        sent = self._sent[0] if self._sent else None
        if body is None or sent is None or body.sequence != sent.request.sequence:
            raise RuntimeError(f"got an answer that no step waits for: {kind}")
        self._sent.popleft()
        if kind == "step":
            self._last_sequence = body.sequence
            if not sent.answer.done():
                sent.answer.set_result(body)
        else:
            error = error_of_code(body.code, body.message, body.sequence, sent.behind)
            if sent.behind is None:
                # The number is free again; what was sent behind it is refused as well.
                self._next_sequence = body.sequence
                for other in self._sent:
                    other.behind = body.sequence if other.behind is None else other.behind
            _fail(sent, error)
        self._changed.set()

    def _end(self, why: SessionEnded) -> None:
        self._ended = why
        self._connected = False
        while self._sent:
            _fail(self._sent.popleft(), why)
        self._changed.set()

    # ---- resuming ----

    async def _resume(self, lost: RepriseError) -> Optional[RepriseError]:
        """Goes on with the session on a new stream. Returns why it cannot."""
        if self._grace_s == 0 or self._closing or not _is_lost(lost):
            return lost
        self._connected = False
        self._forget_refused()
        deadline = time.monotonic() + self._grace_s
        delay = _FIRST_DELAY_S
        resume = pb.Resume(session=self._token, last_sequence=self._last_sequence)
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                return lost
            try:
                call, answer = await asyncio.wait_for(
                    self._client._begin_stream(pb.StepStreamRequest(resume=resume)), left
                )
                break
            except asyncio.TimeoutError:
                return lost
            except RepriseError as error:
                if not _is_lost(error):
                    return error
            await asyncio.sleep(min(delay, left))
            delay = min(2 * delay, _LONGEST_DELAY_S)
        await self._go_on(call, answer.resumed)
        return None

    async def _go_on(self, call: Any, resumed: pb.Resumed) -> None:
        """Sends again what has not run; answers to what has are on their way."""
        self._call = call
        if not self._sent:
            self._next_sequence = resumed.last_sequence + 1
        for sent in list(self._sent):
            if sent.request.sequence > resumed.last_sequence:
                await self._write(call, sent.request)
        self._connected = True
        self._changed.set()

    def _forget_refused(self) -> None:
        """Steps behind a refused one are refused in any case, and errors are not kept."""
        kept: Deque[_Sent] = collections.deque()
        for sent in self._sent:
            if sent.behind is None:
                kept.append(sent)
                continue
            message = f"step: sent behind step {sent.behind}, which was refused"
            number = grpc.StatusCode.FAILED_PRECONDITION.value[0]
            _fail(sent, error_of_code(number, message, sent.request.sequence, sent.behind))
        self._sent = kept

    @staticmethod
    async def _write(call: Any, request: pb.StepRequest) -> None:
        try:
            await call.write(pb.StepStreamRequest(step=request))
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            pass  # the reader finds out why, and resumes


def _is_lost(error: RepriseError) -> bool:
    # A server that drains ends its sessions.
    return error.code in _LOST and "draining" not in error.message


def _fail(sent: _Sent, error: RepriseError) -> None:
    if not sent.answer.done():
        sent.answer.set_exception(error)
        sent.answer.exception()  # looked at: whoever does not wait for it is not warned


async def _each(steps: Steps) -> AsyncIterator[pb.StepRequest]:
    if isinstance(steps, AsyncIterable):
        async for request in steps:
            yield request
    else:
        for request in steps:
            yield request
