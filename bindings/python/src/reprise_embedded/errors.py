# SPDX-License-Identifier: Apache-2.0
"""The library's refusals as exceptions: one class per code of reprise.h."""
from __future__ import annotations

from typing import Dict, Type


class RepriseError(Exception):
    """What the library refused.

    code: its name, such as "NOT_FOUND". message: what, got, allowed.
    """

    code = "UNKNOWN"

    def __init__(self, message: str) -> None:
        super().__init__(f"{self.code}: {message}")
        self.message = message


class Cancelled(RepriseError):
    code = "CANCELLED"


class UnknownError(RepriseError):
    code = "UNKNOWN"


class InvalidArgument(RepriseError):
    code = "INVALID_ARGUMENT"


class DeadlineExceeded(RepriseError):
    code = "DEADLINE_EXCEEDED"


class NotFound(RepriseError):
    code = "NOT_FOUND"


class AlreadyExists(RepriseError):
    code = "ALREADY_EXISTS"


class PermissionDenied(RepriseError):
    code = "PERMISSION_DENIED"


class ResourceExhausted(RepriseError):
    code = "RESOURCE_EXHAUSTED"


class FailedPrecondition(RepriseError):
    code = "FAILED_PRECONDITION"


class Aborted(RepriseError):
    code = "ABORTED"


class OutOfRange(RepriseError):
    code = "OUT_OF_RANGE"


class Unimplemented(RepriseError):
    code = "UNIMPLEMENTED"


class InternalError(RepriseError):
    code = "INTERNAL"


class Unavailable(RepriseError):
    code = "UNAVAILABLE"


class DataLoss(RepriseError):
    code = "DATA_LOSS"


class Unauthenticated(RepriseError):
    code = "UNAUTHENTICATED"


# By number, from 1 on.
BY_CODE: Dict[int, Type[RepriseError]] = dict(
    enumerate(
        (
            Cancelled,
            UnknownError,
            InvalidArgument,
            DeadlineExceeded,
            NotFound,
            AlreadyExists,
            PermissionDenied,
            ResourceExhausted,
            FailedPrecondition,
            Aborted,
            OutOfRange,
            Unimplemented,
            InternalError,
            Unavailable,
            DataLoss,
            Unauthenticated,
        ),
        1,
    )
)


def error_of(code: int, message: str) -> RepriseError:
    return BY_CODE.get(code, UnknownError)(message)
