# SPDX-License-Identifier: Apache-2.0
"""Asyncio client of Reprise's step service (docs/clients.md, docs/wire.md).

    async with Client("unix:/run/reprise.sock") as client:
        async with await client.open_session("my scheduler") as session:
            blocks = await session.allocate(4)
            step = pb.StepRequest()
            step.add.add(row=1, blocks=blocks)
            step.chunks.add(row=1, tokens=[5, 80, 33], sample=True)
            answer = await session.step(step)
            print([result.token for result in rows_of(answer)])

`pb` is the wire contract's messages, as protoc generates them. This package schedules nothing: the
caller says what each step runs, and which block goes where.
"""
from reprise.v1 import step_service_pb2 as pb

from .client import Client
from .connection import Tls, read_token
from .errors import (
    Aborted,
    AlreadyExists,
    Cancelled,
    DeadlineExceeded,
    FailedPrecondition,
    InternalError,
    InvalidArgument,
    NotFound,
    OutOfRange,
    PermissionDenied,
    RepriseError,
    ResourceExhausted,
    SessionEnded,
    Unauthenticated,
    Unavailable,
    Unimplemented,
    UnknownError,
)
from .rows import RowResult, rows_of
from .session import Session

__all__ = [
    "Aborted",
    "AlreadyExists",
    "Cancelled",
    "Client",
    "DeadlineExceeded",
    "FailedPrecondition",
    "InternalError",
    "InvalidArgument",
    "NotFound",
    "OutOfRange",
    "PermissionDenied",
    "RepriseError",
    "ResourceExhausted",
    "RowResult",
    "Session",
    "SessionEnded",
    "Tls",
    "Unauthenticated",
    "Unavailable",
    "Unimplemented",
    "UnknownError",
    "pb",
    "read_token",
    "rows_of",
]
