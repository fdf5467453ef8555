// SPDX-License-Identifier: Apache-2.0
// The server's refusals as errors: one class per status code that docs/wire.md lists.
import {status} from '@grpc/grpc-js';

// What the server, or the connection to it, refused.
//   code: the gRPC status code, a number; status: its name.
//   sequence: of the step that was refused; undefined where the error is not about one step.
//   behind: of the refused step that this one was sent behind; undefined where it was refused for
//     its own sake.
export class RepriseError extends Error {
  constructor(code, message, {sequence, behind} = {}) {
    super(message);
    this.name = this.constructor.name;
    this.code = code;
    this.status = status[code] ?? `code ${code}`;
    this.sequence = sequence;
    this.behind = behind;
  }
}

export class CancelledError extends RepriseError {}
export class UnknownError extends RepriseError {}
export class InvalidArgumentError extends RepriseError {}
export class DeadlineExceededError extends RepriseError {}
export class NotFoundError extends RepriseError {}
export class AlreadyExistsError extends RepriseError {}
export class PermissionDeniedError extends RepriseError {}
export class ResourceExhaustedError extends RepriseError {}
export class FailedPreconditionError extends RepriseError {}
export class AbortedError extends RepriseError {}
export class OutOfRangeError extends RepriseError {}
export class UnimplementedError extends RepriseError {}
export class InternalError extends RepriseError {}
export class UnavailableError extends RepriseError {}
export class UnauthenticatedError extends RepriseError {}

// The session is over, and its rows and blocks are gone: open another one. Its code is that of what
// ended it, OK where this client closed it.
export class SessionEndedError extends RepriseError {}

const classes = new Map([
  [status.CANCELLED, CancelledError],
  [status.INVALID_ARGUMENT, InvalidArgumentError],
  [status.DEADLINE_EXCEEDED, DeadlineExceededError],
  [status.NOT_FOUND, NotFoundError],
  [status.ALREADY_EXISTS, AlreadyExistsError],
  [status.PERMISSION_DENIED, PermissionDeniedError],
  [status.RESOURCE_EXHAUSTED, ResourceExhaustedError],
  [status.FAILED_PRECONDITION, FailedPreconditionError],
  [status.ABORTED, AbortedError],
  [status.OUT_OF_RANGE, OutOfRangeError],
  [status.UNIMPLEMENTED, UnimplementedError],
  [status.INTERNAL, InternalError],
  [status.UNAVAILABLE, UnavailableError],
  [status.UNAUTHENTICATED, UnauthenticatedError],
]);

// The error for a code as it travels in StepError and RowError (google.rpc.Code).
export function errorOfCode(code, message, about) {
  const Class = classes.get(code) ?? UnknownError;
  return new Class(code, message, about);
}

// The error for a call that ended with a status.
export function errorOfCall(error) {
  if (error instanceof RepriseError) return error;
  return errorOfCode(error.code ?? status.UNKNOWN, error.details || error.message);
}
