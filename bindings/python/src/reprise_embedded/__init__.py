# SPDX-License-Identifier: Apache-2.0
"""Reprise inside a Python program, over libreprise.so; docs/embedding.md has whole programs.

    import reprise_embedded as reprise

    with reprise.Device("host") as device, reprise.Engine(device, "examples/byte-llama") as engine:
        for token in engine.generate(list(b"You may"), max_new_tokens=24):
            print(chr(token), end="", flush=True)

Devices, engines and sessions may be used by several threads at a time, all else by one at a time.
Calls release the interpreter's lock.
"""
from ._library import VERSION as __version__
from ._memory import Memory
from .device import Buffer, Device, DeviceInfo, Stream
from .engine import (
    FINISH_LENGTH,
    FINISH_NO_CANDIDATE,
    FINISH_NONE,
    FINISH_STOP_TOKEN,
    PAUSED,
    RAN,
    STOPPED,
    Accepted,
    AttentionTree,
    Engine,
    EngineInfo,
    JointSteps,
    Ledger,
    PoolInfo,
    PromptLogprobs,
    Session,
    SessionUse,
    SingleStep,
    StepResult,
)
from .errors import (
    Aborted,
    AlreadyExists,
    Cancelled,
    DataLoss,
    DeadlineExceeded,
    FailedPrecondition,
    InternalError,
    InvalidArgument,
    NotFound,
    OutOfRange,
    PermissionDenied,
    RepriseError,
    ResourceExhausted,
    Unauthenticated,
    Unavailable,
    Unimplemented,
    UnknownError,
)
from .graphs import (
    CAPTURED,
    EVICTED,
    FAILED,
    PENDING,
    AuditReport,
    Bucket,
    BucketReport,
    CapturedBucket,
    CapturingStream,
    ForeignPointer,
    GraphManager,
    MoveReport,
    ReplayReport,
    VerifyReport,
)
from .step import Sampling, Step

__all__ = [name for name in dir() if not name.startswith("_")]
