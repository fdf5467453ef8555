# SPDX-License-Identifier: Apache-2.0
"""Client: one connection to a step service, and the calls that belong to no stream."""
from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any, AsyncIterator, Iterable, List, Optional, Tuple, Type

import grpc
from reprise.v1 import step_service_pb2 as pb

from .connection import Tls, make_channel
from .errors import UnknownError, error_of_call
from .session import Session

_SERVING = b"\x08\x01"  # grpc.health.v1.HealthCheckResponse with status SERVING


class Client:
    """A connection, made when it is first needed and again when it is lost.

    address: "unix:/path" or "host:port". token: sent as a bearer token with every call. tls: None
    for plain text. Errors: ValueError for a token that would leave this host in plain text.
    One event loop; any number of tasks and sessions.
    """

    def __init__(
        self, address: str, *, token: Optional[str] = None, tls: Optional[Tls] = None
    ) -> None:
        self._channel = make_channel(address, token, tls)
        self._metadata: Tuple[Tuple[str, str], ...] = (
            () if token is None else (("authorization", f"Bearer {token}"),)
        )
        self._step_stream = self._channel.stream_stream(
            "/reprise.v1.StepService/StepStream",
            request_serializer=pb.StepStreamRequest.SerializeToString,
            response_deserializer=pb.StepStreamResponse.FromString,
        )

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Cancels what is open. Close sessions first."""
        await self._channel.close()

    async def is_serving(self, timeout_s: float = 10.0) -> bool:
        """Whether the server says SERVING; False also where it cannot be reached in that time."""
        check = self._channel.unary_unary("/grpc.health.v1.Health/Check")
        try:
            return bytes(await check(b"", timeout=timeout_s, wait_for_ready=True)) == _SERVING
        except grpc.aio.AioRpcError:
            return False

    async def describe(self, timeout_s: Optional[float] = None) -> pb.DescribeResponse:
        """What is served: model, pool, limits, buckets."""
        return await self._unary("Describe", pb.DescribeRequest(), pb.DescribeResponse, timeout_s)

    async def open_session(self, name: str = "", resume_grace_s: float = 0.0) -> Session:
        """Opens a session on a stream of its own.

        name: for the server's logs, at most 256 bytes. resume_grace_s: how long the session is to
        outlive a lost stream; above 0 the session resumes by itself, within what the server grants.
        """
        grace_ms = round(resume_grace_s * 1000)
        first = pb.StepStreamRequest(open=pb.Open(client=name, resume_grace_ms=grace_ms))
        call, answer = await self._begin_stream(first)
        # Of a session that cannot be resumed no answers are kept: the server's own bound holds.
        most = answer.opened.max_kept_answers
        if most == 0:
            most = 2 * (await self.describe()).limits.pipeline_depth
        return Session(self, call, answer.opened, most)

    async def list_sessions(self) -> AsyncIterator[pb.SessionStatus]:
        """All clients' sessions, ids ascending. For administrators (docs/sessions.md)."""
        after, more = 0, True
        while more:
            page = await self._unary(
                "ListSessions", pb.ListSessionsRequest(after=after), pb.ListSessionsResponse
            )
            for status in page.sessions:
                after = status.id
                yield status
            more = page.more

    async def evict_session(self, session_id: int, reason: str = "") -> None:
        """Ends another client's session. For administrators."""
        request = pb.EvictSessionRequest(id=session_id, reason=reason)
        await self._unary("EvictSession", request, pb.EvictSessionResponse)

    async def set_buckets(
        self, decode: Iterable[int] = (), mixed: Iterable[int] = ()
    ) -> pb.SetBucketsResponse:
        """Has the server capture graphs of other buckets while it serves, and use them from then on.

        decode: in rows; mixed: in query tokens; a kind without any keeps what it has. For
        administrators (docs/advise.md).
        """
        request = pb.SetBucketsRequest(decode=decode, mixed=mixed)
        return await self._unary("SetBuckets", request, pb.SetBucketsResponse)

    async def set_attention_tree(self, text: str) -> int:
        """Puts another attention tree in force, for all sessions, from the next step on.

        text: JSON (docs/attention_tree.md); `(await describe()).attention_tree` has the one in
        force. Returns its version. For administrators; a server without identities has to be
        started with --allow-attention-trees.
        """
        request = pb.SetAttentionTreeRequest(text=text)
        answer = await self._unary("SetAttentionTree", request, pb.SetAttentionTreeResponse)
        return int(answer.version)

    async def reload_files(self) -> pb.ReloadFilesResponse:
        """Has the server read its files of identities and TLS again, all of them or none.

        For administrators (docs/identity.md).
        """
        return await self._unary("ReloadFiles", pb.ReloadFilesRequest(), pb.ReloadFilesResponse)

    async def read_telemetry(self) -> pb.ReadTelemetryResponse:
        """Clocks and power of the device, where its platform reports them. For administrators."""
        request = pb.ReadTelemetryRequest()
        return await self._unary("ReadTelemetry", request, pb.ReadTelemetryResponse)

    async def _unary(
        self, name: str, request: Any, response: Any, timeout_s: Optional[float] = None
    ) -> Any:
        call = self._channel.unary_unary(
            f"/reprise.v1.StepService/{name}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=response.FromString,
        )
        try:
            return await call(request, timeout=timeout_s, metadata=self._metadata)
        except grpc.aio.AioRpcError as error:
            raise error_of_call(error) from None

    async def _begin_stream(self, first: pb.StepStreamRequest) -> Tuple[Any, pb.StepStreamResponse]:
        """A StepStream whose first message is sent and answered."""
        call = self._step_stream(metadata=self._metadata)
        try:
            await write(call, first)
            answer = await call.read()
        except grpc.aio.AioRpcError as error:
            raise error_of_call(error) from None
        except asyncio.CancelledError:
            call.cancel()
            raise
        if answer is grpc.aio.EOF:
            raise UnknownError(grpc.StatusCode.UNKNOWN, "the stream ended before its first answer")
        return call, answer

    async def _allocate(self, session: bytes, count: int) -> List[int]:
        request = pb.AllocateRequest(session=session, count=count)
        return list((await self._unary("Allocate", request, pb.AllocateResponse)).blocks)

    async def _free(self, session: bytes, blocks: List[int]) -> None:
        request = pb.FreeRequest(session=session, blocks=blocks)
        await self._unary("Free", request, pb.FreeResponse)


async def write(call: Any, message: pb.StepStreamRequest) -> None:
    """Writes to a stream; where that fails, the next read says why."""
    try:
        await call.write(message)
    except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
        pass
