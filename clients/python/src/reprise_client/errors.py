# SPDX-License-Identifier: Apache-2.0
"""The server's refusals as exceptions: one class per status code that docs/wire.md lists."""
from __future__ import annotations

from typing import Dict, Optional, Type

import grpc


class RepriseError(Exception):
    """What the server, or the connection to it, refused.

    code: the gRPC status code. message: what, got and allowed, as the server says it.
    sequence: of the step that was refused; None where the error is not about one step.
    behind: of the refused step that this one was sent behind; None where it was refused for its
    own sake.
    """

    def __init__(
        self,
        code: grpc.StatusCode,
        message: str,
        sequence: Optional[int] = None,
        behind: Optional[int] = None,
    ) -> None:
        super().__init__(f"{code.name}: {message}")
        self.code = code
        self.message = message
        self.sequence = sequence
        self.behind = behind


class Cancelled(RepriseError):
    """CANCELLED."""


class UnknownError(RepriseError):
    """UNKNOWN, DATA_LOSS, and codes that gRPC does not know."""


class InvalidArgument(RepriseError):
    """INVALID_ARGUMENT."""


class DeadlineExceeded(RepriseError):
    """DEADLINE_EXCEEDED."""


class NotFound(RepriseError):
    """NOT_FOUND."""


class AlreadyExists(RepriseError):
    """ALREADY_EXISTS."""


class PermissionDenied(RepriseError):
    """PERMISSION_DENIED."""


class ResourceExhausted(RepriseError):
    """RESOURCE_EXHAUSTED."""


class FailedPrecondition(RepriseError):
    """FAILED_PRECONDITION."""


class Aborted(RepriseError):
    """ABORTED."""


class OutOfRange(RepriseError):
    """OUT_OF_RANGE."""


class Unimplemented(RepriseError):
    """UNIMPLEMENTED."""


class InternalError(RepriseError):
    """INTERNAL."""


class Unavailable(RepriseError):
    """UNAVAILABLE: the server loads, drains, has failed, or cannot be reached."""


class Unauthenticated(RepriseError):
    """UNAUTHENTICATED."""


class SessionEnded(RepriseError):
    """The session is over, and its rows and blocks are gone; open another one.

    code: of what ended it, OK where this client closed it.
    """


_CLASSES: Dict[grpc.StatusCode, Type[RepriseError]] = {
    grpc.StatusCode.CANCELLED: Cancelled,
    grpc.StatusCode.INVALID_ARGUMENT: InvalidArgument,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceeded,
    grpc.StatusCode.NOT_FOUND: NotFound,
    grpc.StatusCode.ALREADY_EXISTS: AlreadyExists,
    grpc.StatusCode.PERMISSION_DENIED: PermissionDenied,
    grpc.StatusCode.RESOURCE_EXHAUSTED: ResourceExhausted,
    grpc.StatusCode.FAILED_PRECONDITION: FailedPrecondition,
    grpc.StatusCode.ABORTED: Aborted,
    grpc.StatusCode.OUT_OF_RANGE: OutOfRange,
    grpc.StatusCode.UNIMPLEMENTED: Unimplemented,
    grpc.StatusCode.INTERNAL: InternalError,
    grpc.StatusCode.UNAVAILABLE: Unavailable,
    grpc.StatusCode.UNAUTHENTICATED: Unauthenticated,
}

_CODES: Dict[int, grpc.StatusCode] = {code.value[0]: code for code in grpc.StatusCode}


def error_of_code(
    number: int, message: str, sequence: Optional[int] = None, behind: Optional[int] = None
) -> RepriseError:
    """The exception for a code as it travels in StepError and RowError (google.rpc.Code)."""
    code = _CODES.get(number, grpc.StatusCode.UNKNOWN)
    return _CLASSES.get(code, UnknownError)(code, message, sequence, behind)


def error_of_call(error: grpc.aio.AioRpcError) -> RepriseError:
    """The exception for a call that ended with a status."""
    return error_of_code(error.code().value[0], error.details() or "")
